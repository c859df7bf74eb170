"""The driver `host`: the machine of the worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etscope.errors import MissingDependencyError, UsageError
from etscope.formats.conditions import read_files
from etscope.run.process import call_logged
from etscope.run.remote import FACTS, Completed, checked, read_facts

_LOG = ".log"


class Host:
    """This machine, with the Python runtime and the native runner.

    Options: python, an interpreter that has etscope and executorch installed (by default the one
    that this runs in); runner, a native runner's binary (by default the one `etscope.run` finds).
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        given = checked("host", options, {"python": str, "runner": str})
        self._python: str | None = given["python"]
        self._runner: str | None = given["runner"]
        for what in (self._python, self._runner):
            if what is not None and shutil.which(what) is None:
                raise UsageError(f"not a program of this machine: {what}")
        self._attributes: dict[str, str] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="etscope-host-"))

    def attributes(self) -> dict[str, str]:
        if self._attributes is None:
            done = subprocess.run(
                ["sh", "-c", FACTS], stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            kinds = [kind for kind in ("python", "native") if self._missing(kind) is None]
            self._attributes = {
                **read_facts(done.stdout.decode(errors="replace")),
                "driver": "host",
                "runners": ",".join(kinds),
            }
        return dict(self._attributes)

    def runner(self, kind: str) -> Sequence[str]:
        reason = self._missing(kind)
        if reason is not None:
            raise MissingDependencyError(f"this machine has no {kind} runner: {reason}")
        if kind == "python":
            return [self._python or sys.executable]
        from etscope.run.native import find_runner

        return [self._runner or str(find_runner())]

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        return read_files(paths)

    def push(self, files: Mapping[Path, str]) -> None:
        for source, name in files.items():
            target = self._folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            try:
                os.link(source, target)
            except OSError:  # another file system
                shutil.copyfile(source, target)

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        path = self._folder / _LOG
        code = call_logged(command, path, timeout, cwd=self._folder)
        return Completed(code, path.read_text("utf-8", "replace"))

    def pull(self, names: Sequence[str], folder: Path) -> None:
        for name in names:
            source = self._folder / name
            if source.is_file():
                shutil.move(source, folder / source.name)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _missing(self, kind: str) -> str | None:
        """The reason why this machine has no such runner, or None; nothing is built to find out."""
        from etscope.run.native import native_missing
        from etscope.run.python import python_missing

        if kind == "python":
            return None if self._python else python_missing()
        return None if self._runner else native_missing()
