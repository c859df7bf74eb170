"""The composite Action: its steps run as a runner of GitHub runs them."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.actions import Runner
from tests.support.artifacts import ROOT, artifacts
from tests.support.timed_dumps import timed_dump


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner with `etscope` in its path, and the files of three runs."""
    etscope = f'PYTHONPATH="{ROOT}/src" exec "{sys.executable}" -m etscope "$@"'
    made_runner = Runner.made(tmp_path, etscope=etscope)
    folder = made_runner.folder
    made = artifacts("cnn_portable")
    assert made.etdump_timing is not None
    for number, (name, factor) in enumerate((("main", 1.0), ("same", 1.0), ("slower", 1.2))):
        (folder / name).mkdir()
        timed_dump(
            made.etdump_timing,
            folder / name / "model.etdp",
            runs=100,
            seed=number,
            slower=dict.fromkeys(range(24), factor),
        )
        shutil.copy(made.pte, folder / name / "model.pte")
        shutil.copy(str(made.etrecord), folder / name / "model.etrecord")
    return made_runner


def test_the_steps(runner: Runner) -> None:
    # A pull request before any push has nothing to compare with.
    assert runner.job("main", "pull_request", "main", "a0") == 0
    assert "::notice" in runner.said and not runner.cache
    # A push makes the baseline of its branch; another branch has its own.
    assert runner.job("main", "push", "main", "a1") == 0
    assert list(runner.cache) == ["etscope-model-main-a1"]
    assert runner.job("slower", "push", "next", "a2") == 0
    assert runner.outputs["exit-code"] == "0" and "::notice" in runner.said
    # Pull requests are compared with the branch that they go to.
    assert runner.job("same", "pull_request", "main", "b1") == 0
    assert "### ✅ etscope check: ok" in runner.summary
    folder = runner.folder / ".etscope" / "check" / "model"
    for name in ("markdown", "sarif", "junit"):
        assert (runner.folder / runner.outputs[name]).parent == folder
        assert (runner.folder / runner.outputs[name]).is_file()
    assert runner.job("slower", "pull_request", "main", "b2", comment="true") == 1
    assert "### ❌ etscope check: worse: time" in runner.summary
    line = r"::error file=\S+cnn\.py,line=\d+,title=etscope check::time: worse"
    assert re.search(line, runner.said) and "gh pr comment 7 --edit-last" in runner.said
    assert runner.job("slower", "pull_request", "main", "b3", arguments="--max-time 40%") == 0
    # A push that is worse is accepted: it is the next baseline.
    assert runner.job("slower", "push", "main", "a3") == 0
    assert runner.outputs["exit-code"] == "1"
    assert runner.job("slower", "pull_request", "main", "b5") == 0
    # A file that is not there fails at once.
    assert runner.job("nothing", "push", "main", "a4") == 2
    assert "etscope-model-main-a4" not in runner.cache
    assert "::error title=etscope check::etscope check failed with exit code 2" in runner.said
