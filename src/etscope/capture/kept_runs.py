"""Kept runs: each run of `etscope run` is a folder NNN-name in .etscope/runs.

A run is written to NNN.writing, which takes its number, and gets its name when it is complete: a
run that is listed can be read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from etscope.capture.files import RunFiles
from etscope.errors import MissingDataError, UsageError, reading
from etscope.formats.bytes.files import atomic_write, copy_file
from etscope.formats.identify import BPTE, identify
from etscope.formats.json_values import read_json
from etscope.formats.program.bpte import read_program_file
from etscope.formats.program.pte import program_fingerprint
from etscope.formats.run_json import (
    DEBUG_BIN,
    DEVICE_LOG,
    RUN_ETDP,
    RUN_JSON,
    VALUES_ETDP,
    SavedRun,
    encode_run_json,
    read_run_json,
)
from etscope.units import count, format_bytes

__all__ = ["VARIABLE", "Cap", "KeptRun", "KeptRuns", "import_run", "path_of", "size_of", "within"]

VARIABLE = "ETSCOPE_RUNS"
_FOLDER = Path(".etscope", "runs")
_CAP = "cap.json"
_POSITION = re.compile(r"@\d{1,9}")
_RUN = re.compile(r"(\d{3,})-(.+)")
_WRITING = re.compile(r"(\d{3,})\.writing")
_ABANDONED = 24 * 3600  # s: no run takes a day; the writer of an older folder was killed


@dataclass(frozen=True, slots=True)
class Cap:
    """Limits of the kept runs: their number, and their bytes together."""

    runs: int = 50
    bytes: int = 2 << 30


@dataclass(frozen=True)
class KeptRun:
    """A kept run. number: the number in its folder's name, which never changes; positions ("@1")
    change with each new run.
    """

    path: Path
    number: int
    name: str

    @cached_property
    def saved(self) -> SavedRun:
        """Return its run.json. Raises `FormatError` if the file is damaged."""
        path = self.path / RUN_JSON
        return read_run_json(path) if path.is_file() else SavedRun()

    @cached_property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


class KeptRuns:
    """The kept runs of a folder. Default: $ETSCOPE_RUNS, else .etscope/runs in this directory."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(os.environ.get(VARIABLE) or _FOLDER)

    @staticmethod
    def is_off() -> bool:
        """Return True if $ETSCOPE_RUNS is empty, which keeps nothing."""
        return os.environ.get(VARIABLE) == ""

    def newest_first(self) -> list[KeptRun]:
        """Return the complete runs."""
        found = [
            KeptRun(path, int(match[1]), match[2])
            for path in self._entries()
            if (match := _RUN.fullmatch(path.name)) is not None
        ]
        return sorted(found, key=lambda run: run.number, reverse=True)

    def at(self, text: str) -> KeptRun:
        """Return the run that "@N" names: "@0" is the last one, "@1" the one before.

        Raises `UsageError` for a position beyond the oldest run.
        """
        position = int(text[1:])
        runs = self.newest_first()
        if not runs:
            raise UsageError(
                f"{self.folder} has no runs",
                hint="name a RUN, or make one: etscope run MODEL",
            )
        if position >= len(runs):
            raise UsageError(
                f"run {text} does not exist: {self.folder} has {count(len(runs), 'run')}",
                hint="etscope runs lists them",
            )
        return runs[position]

    @contextmanager
    def writing(self, name: str) -> Iterator[_Writing]:
        """Yield a folder to write a run into, and keep it if the block ends without an error.

        Raises `UsageError` if the folder cannot be made.
        """
        number, path = self._reserved()
        written = _Writing(path)
        try:
            yield written
            written.kept = path.rename(self.folder / f"{number:03}-{_file_name(name)}")
        finally:
            if written.kept is None:
                shutil.rmtree(path, ignore_errors=True)

    def make_room(self) -> list[KeptRun]:
        """Remove the oldest runs until the others fit the cap, and return them. The last run stays,
        whatever its size."""
        cap = self.cap
        removed, size = [], 0
        for position, run in enumerate(self.newest_first()):
            size += run.size
            if position and (position >= cap.runs or size > cap.bytes):
                size -= run.size
                removed.append(run)
        for path in self._entries():
            abandoned = _WRITING.fullmatch(path.name) is not None
            with suppress(OSError):  # another process removed it
                if abandoned and time.time() - path.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)
        self.remove(removed)
        return removed

    def remove(self, runs: Sequence[KeptRun]) -> None:
        """Remove the folders of runs."""
        try:
            for run in runs:
                with suppress(FileNotFoundError):  # another process removed it
                    shutil.rmtree(run.path)
        except OSError as error:
            raise UsageError(f"cannot remove {error.filename}: {error.strerror}") from error

    @property
    def cap(self) -> Cap:
        """The cap. Raises `FormatError` if its file is damaged."""
        path = self.folder / _CAP
        if not path.is_file():
            return Cap()
        with reading(_CAP, path):
            given = read_json(path, _CAP)
            return Cap(given.get("runs").whole(), given.get("bytes").whole())

    @cap.setter
    def cap(self, cap: Cap) -> None:
        self._make()
        with atomic_write(self.folder / _CAP) as file:
            file.write(json.dumps(asdict(cap)).encode() + b"\n")

    def _entries(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.is_dir() else []

    def _make(self) -> None:
        """Make the folder, with a .gitignore: runs are not source code."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(
            f"cannot keep the run in {self.folder}: {error.strerror or error}",
            hint=f"name another folder with --save DIR or ${VARIABLE}, or add --no-save",
        )

    def _reserved(self) -> tuple[int, Path]:
        """Reserve the next number by making its folder, which only one process can."""
        self._make()
        while True:
            number = 1 + max(self._numbers(), default=0)
            path = self.folder / f"{number:03}.writing"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise self._unwritable(error) from error
            if any(run.number == number for run in self.newest_first()):
                path.rmdir()  # another process completed it after the listing
                continue
            return number, path

    def _numbers(self) -> Iterator[int]:
        for path in self._entries():
            match = _RUN.fullmatch(path.name) or _WRITING.fullmatch(path.name)
            if match is not None:
                yield int(match[1])


@dataclass
class _Writing:
    """A run that is being written to `path`; `kept` is its final folder."""

    path: Path
    kept: Path | None = None


def path_of(text: str) -> str:
    """Return the folder of a kept run for "@1" and the like; any other text unchanged.

    Raises `UsageError` for a position beyond the oldest run.
    """
    if _POSITION.fullmatch(text) is None or Path(text).exists():
        return text
    return str(KeptRuns().at(text).path)


def _file_name(name: str) -> str:
    """Return the name in letters that every file system and shell accepts."""
    return re.sub(r"[^\w.-]+", "-", name).strip(".-")[:40] or "run"


def size_of(text: str) -> int:
    """Read a number of bytes: "500MB", "2GiB", "1048576". Raises `UsageError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is not a size", hint="for example 500MB or 2GiB")
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def within(cap: Cap) -> str:
    """Return a cap in words: "50 runs and 2.00 GiB"."""
    return f"{count(cap.runs, 'run')} and {format_bytes(cap.bytes)}"


__all__ = ["import_run"]


def import_run(
    files: RunFiles, folder: Path, *, log: Path | None = None, force: bool = False
) -> list[Path]:
    """Copy the files of a run into a folder, named as `etscope run` names them, and write its
    run.json; return the new files. log: of the device.

    Raises as `RunFiles.open`.
    """
    if files.dump is None:
        raise MissingDataError(f"{files.name} has no ETDump", hint="name the dump of the run")
    files.open(force=force)
    name = (files.program or files.record or files.dump).stem
    copies: dict[str, Path | None] = {
        RUN_ETDP: files.dump,
        VALUES_ETDP: files.values,
        DEBUG_BIN: files.logged[1],
        DEVICE_LOG: log,
    }
    saved = {} if files.facts is None else dict(read_run_json(files.facts).content)
    if files.facts is not None:
        beside = (files.facts.parent / f"{stem}{end}" for stem, end in _TENSORS)
        copies |= {path.name: path for path in beside if path.is_file()}
    if files.record is not None:
        copies[f"{name}.etrecord"] = files.record
        saved |= {
            "record": f"{name}.etrecord",
            "record_sha256": program_fingerprint(files.record),
        }
    if files.program is not None:
        suffix = "bpte" if identify(files.program) == BPTE else "pte"
        program = read_program_file(files.program)[0]
        copies[f"{name}.{suffix}"] = files.program
        saved |= {
            "program": f"{name}.{suffix}",
            "program_sha256": program_fingerprint(program.source.buffer),
        }
    for target, source in copies.items():
        if source is not None:
            copy_file(source, folder / target)
    with atomic_write(folder / RUN_JSON) as out:
        out.write(encode_run_json(saved))
    return [folder / target for target, source in copies.items() if source is not None]


_TENSORS = [(stem, end) for stem in ("inputs", "outputs") for end in (".npz", ".safetensors")]
