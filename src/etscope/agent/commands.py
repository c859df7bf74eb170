"""Run commands of etscope for an agent, on files in the folders that it was given."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etscope.capture.kept_runs import VARIABLE, KeptRuns
from etscope.errors import EtscopeError
from etscope.formats.run_json import RUN_JSON, read_run_json

__all__ = ["CommandError", "Commands"]

_SECONDS = 300  # a diagnosis of a large model takes a minute
_BYTES = 64 << 20  # of an answer: a table of 200,000 rows


class CommandError(Exception):
    """A command failed; the message says why, and what to call next."""


@dataclass(frozen=True)
class Commands:
    """Commands on the files below `folders`, the first of which has the kept runs. may_run: models
    and programs may be executed."""

    folders: tuple[Path, ...]
    may_run: bool = False

    @property
    def kept(self) -> KeptRuns:
        """The kept runs of the first folder."""
        return KeptRuns(self.folders[0] / ".etscope" / "runs")

    def path(self, text: str) -> Path:
        """Return the path of a run or file: "@1", the name of a kept run, or a path below one of
        the folders.

        Raises `CommandError` for any other path, and for files that lead out of the folders.
        """
        try:
            found = next((one for one in self._candidates(text) if one.exists()), None)
        except (EtscopeError, ValueError, OSError) as error:
            raise CommandError(f"{error}. Call runs to see what there is.") from error
        if found is None:
            raise CommandError(f"there is no {text!r}. Call runs to see what there is.")
        for one in (found, *(found.iterdir() if found.is_dir() else ()), *_named_files(found)):
            if not self._is_inside(one):
                raise CommandError(
                    f"{text!r} leads to {str(one)!r}, outside of the folders of this server. Ask "
                    "the user to start it with --folder for that one, or call runs."
                )
        return found

    def _candidates(self, text: str) -> Iterator[Path]:
        if re.fullmatch(r"@\d{1,9}", text):
            yield self.kept.at(text).path
        yield self.kept.folder / text
        for folder in self.folders:
            yield folder / text

    def _is_inside(self, path: Path) -> bool:
        real = path.resolve()
        return any(real.is_relative_to(folder) for folder in self.folders)

    def json(self, verb: str, *arguments: str | Path) -> Any:
        """Return the JSON that a command writes. Raises `CommandError`, as `text`."""
        return json.loads(self.text(verb, *arguments, "--format", "json"))

    def text(self, verb: str, *arguments: str | Path) -> str:
        """Return what a command writes.

        Raises `CommandError` with the command's own error, or if it takes longer than five minutes
        or writes more than 64 MiB.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            try:
                code = subprocess.run(
                    [sys.executable, "-m", "etscope", verb, *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    cwd=self.folders[0],
                    env=self.environment,
                    timeout=_SECONDS,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired as error:
                raise CommandError(
                    f"etscope {verb} did not end in {_SECONDS} s. Ask for less: one method, or sql "
                    "over a table."
                ) from error
            out.seek(0)
            written = out.read(_BYTES + 1)
            errors.seek(0)
            told = errors.read(_BYTES).decode(errors="replace")
        if len(written) > _BYTES:
            raise CommandError(f"etscope {verb} writes over 64 MiB. Ask sql for what you need.")
        # 1 is a finding, and a check that cannot tell ends with 4: the answer is on stdout.
        if code not in (0, 1, 4) or not written:
            raise CommandError(_failure(verb, code, told))
        return written.decode()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the commands: plain text, and the kept runs of the first folder."""
        own = {"COLUMNS": "140", "NO_COLOR": "1", VARIABLE: str(self.kept.folder)}
        return {**os.environ, **own}


_NEXT = {
    2: "Check the arguments.",
    3: "Call open to see what the files hold.",
    4: "Call open to see what the run has.",
    5: "Ask the user to install what is missing.",
}


def _failure(verb: str, code: int, told: str) -> str:
    # Before the error stand the notices of a command, as where the run lies.
    _, error, text = told.rpartition("error: ")
    reason = (text if error else told).strip() or f"exit code {code}"
    return f"etscope {verb}: {reason}\n{_NEXT.get(code, 'Call open to see what the run has.')}"


def _named_files(found: Path) -> Iterator[Path]:
    """Yield the files that the run.json of a folder names."""
    facts = found / RUN_JSON if found.is_dir() else found.with_name(RUN_JSON)
    if not facts.is_file():
        return
    try:
        saved = read_run_json(facts)
        named: Sequence[str | None] = (saved.text("program"), saved.text("record"))
    except EtscopeError as error:
        raise CommandError(f"{error}. Call runs to see the other runs.") from error
    paths = (facts.parent / name for name in named if name is not None)
    yield from (path for path in paths if path.exists())  # a phone's paths do not exist here
