"""Runs jobs with the product's native runner, for artefacts and tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from etscope.errors import MissingDependencyError
from etscope.run._runner_host import native_command
from etscope.run.job import Job, Result, read_result
from etscope.run.native import find_runner
from tests.support.artifacts import ArtifactUnavailable


def runner() -> Path:
    """The runner's binary."""
    try:
        return find_runner()
    except MissingDependencyError as error:
        raise ArtifactUnavailable(f"{error.message}; {error.hint}") from error


def run_job(job: Job, folder: Path) -> Result:
    """Execute a job, which must succeed; its files are in `folder` afterwards."""
    subprocess.run(native_command([runner()], job, folder), check=True)
    return read_result(folder)


def run_flags(*flags: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the binary with flags of its own; `folder` is where it runs."""
    command_line = [str(runner()), *map(str, flags)]
    return subprocess.run(command_line, cwd=folder, capture_output=True, text=True, check=False)
