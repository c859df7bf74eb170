"""Find dumps by name (files, folders, globs, lists of them, fsspec URLs), and their ETRecords."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from etscope.analysis.profile.trace import Trace
from etscope.errors import (
    EtscopeError,
    FormatError,
    MissingDataError,
    MissingFileError,
    UsageError,
)
from etscope.formats.etdump.reader import ETDump
from etscope.formats.etrecord.reader import RecordFile, read_etrecord
from etscope.formats.identify import ETRECORD, identify
from etscope.formats.run_json import RUN_ETDP, VALUES_ETDP

# -- ETRecords.

_OPEN = 8  # records with their graphs in memory: about 100 MB each for a large model
_REMEMBERED = 1024  # matches that stay in memory


@dataclass(frozen=True, slots=True)
class Record:
    """The path of an ETRecord, and the SHA-256 of its program, if it has one."""

    path: str
    program_sha256: str | None

    def matches(self, dump: ETDump) -> bool:
        """Return whether all methods that ran in a dump have this record's instructions."""
        trace = Trace(dump, record=open_record(self.path))
        blocks = [block for block in trace.blocks if block.executions]
        return bool(blocks) and all(
            (method := trace.method_of(block)) is not None and trace.doubt(block, method) is None
            for block in blocks
        )


def records_in(folder: str | os.PathLike[str]) -> tuple[Record, ...]:
    """All ETRecords below a folder. Raises `MissingDataError` when there is none."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(parent, name)
            try:
                with path.open("rb") as file:
                    is_zip = file.read(2) == b"PK"
                is_record = is_zip and identify(path) == ETRECORD
            except (FormatError, OSError):
                continue
            if is_record:
                found.append(record_at(path))
    if not found:
        raise MissingDataError(f"{os.fspath(folder)} contains no ETRecord")
    return tuple(found)


def record_at(path: str | os.PathLike[str]) -> Record:
    """The record in a file. Raises what `read_etrecord` raises."""
    fingerprints = read_etrecord(path).fingerprints
    sha256 = None if fingerprints is None else fingerprints.program_sha256
    return Record(os.fspath(Path(path).absolute()), sha256)


@lru_cache(maxsize=_OPEN)
def open_record(path: str) -> RecordFile:
    """The record at a path; the most recent ones stay open."""
    return read_etrecord(path)


def matching_record(
    dump: ETDump, fingerprint: str, records: Sequence[Record], program_sha256: str | None
) -> Record | None:
    """The record of a dump's program among `records`, or None.

    It is found by the program's hash, if the run's program is known; else by the instructions that
    the dump logged. If two records of different programs fit equally well, the result is None. The
    result is the same for all dumps with the same `fingerprint`.
    """
    if program_sha256 is not None:
        for record in records:
            if record.program_sha256 == program_sha256:
                return record
        records = [record for record in records if record.program_sha256 is None]
    key = (fingerprint, tuple(records))
    if key not in _found:
        while len(_found) >= _REMEMBERED:
            _found.pop(next(iter(_found)), None)
        matches = [record for record in records if record.matches(dump)]
        programs = {record.program_sha256 or record.path for record in matches}
        _found[key] = matches[0] if len(programs) == 1 else None
    return _found[key]


_found: dict[tuple[str, tuple[Record, ...]], Record | None] = {}


# -- Dumps.

_SUFFIXES = (".etdp", ".etdump")
_IDENTIFIER = b"ED00"
_LAB, _LAB_STORE = {"lab.yaml", "lab.db"}, "store"  # in the folder of a lab


@dataclass(frozen=True, slots=True)
class Source:
    """A dump to collect.

    url: a path, or a URL that fsspec knows. size: bytes. modified: seconds since 1970, None if not
    known. about: the content of a run.json, in place of one next to the dump. etrecord: the path of
    its record. sha256: of the dump, if it is known before reading.
    """

    url: str
    size: int
    modified: float | None = None
    about: Mapping[str, Any] | None = field(default=None, hash=False)
    etrecord: str | None = None
    sha256: str | None = None


def find_sources(
    names: Iterable[str | os.PathLike[str]],
) -> tuple[list[Source], list[tuple[str, EtscopeError]]]:
    """Find dumps by name, each once, sorted within a folder; and the names that failed, with their
    errors.

    A name is a file, a folder (all ETDumps below it, recognised by their first bytes; a values.etdp
    next to the run.etdp of the same run is skipped, as its times include the logging of values), a
    glob ("runs/**/*.etdp"), "@list.txt" (a file with a name in each line), or a URL
    ("s3://bucket/runs/*"; below a remote folder dumps are recognised by the suffixes .etdp and
    .etdump). A folder with a lab in it counts as a name that failed.
    """
    found: dict[str, Source] = {}
    wrong: list[tuple[str, EtscopeError]] = []
    for name in _expanded(os.fspath(name) for name in names):
        sources: list[Source] = []
        try:
            sources = list(_sources_of(name))
        except EtscopeError as error:
            wrong.append((name, error))
        except FileNotFoundError:
            wrong.append((name, MissingFileError("the file does not exist")))
        except Exception as error:  # each of fsspec's file systems raises its own errors
            if not is_url(name) and not isinstance(error, (OSError, ValueError)):
                raise
            wrong.append((name, FormatError(f"cannot be listed: {error}")))
        for source in sources:
            found.setdefault(source.url, source)
    return list(found.values()), wrong


def is_url(name: str) -> bool:
    """Return whether a name is for fsspec: "s3://…", not "C:\\…" or "a/b"."""
    return "://" in name


def open_url(url: str) -> bytes:
    """The bytes at a URL. Raises `FormatError` when it cannot be read."""
    import fsspec

    try:
        with fsspec.open(url, "rb") as file:
            content: bytes = file.read()
    except Exception as error:  # each of fsspec's file systems raises its own errors
        raise FormatError(f"cannot be read: {error}", path=url) from error
    return content


def _expanded(names: Iterable[str]) -> Iterator[str]:
    """The names, with lists of names read."""
    for name in names:
        if not name.startswith("@"):
            yield name
            continue
        try:
            lines = Path(name[1:]).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError as error:
            raise MissingFileError(f"list of dumps not found: {name[1:]}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"cannot read this list of dumps: {error}", path=name[1:]) from error
        yield from (line.strip() for line in lines if line.strip() and line[0] != "#")


def _sources_of(name: str) -> Iterator[Source]:
    if is_url(name):
        yield from _remote(name)
        return
    path = Path(name)
    if path.is_dir():
        yield from _below(path)
    elif path.exists() or not glob.has_magic(name):
        yield _local(path)
    else:
        for match in sorted(glob.glob(name, recursive=True)):  # noqa: PTH207 - absolute ones, too
            yield from _below(Path(match)) if Path(match).is_dir() else [_local(Path(match))]


def _local(path: Path) -> Source:
    status = path.stat()
    # Absolute: workers and later queries may be in another folder.
    return Source(os.path.abspath(path), status.st_size, status.st_mtime)  # noqa: PTH100


def _below(folder: Path) -> Iterator[Source]:
    """Yield all ETDumps below a folder. Raises `UsageError` if it contains a lab: its store has no
    device, time and label of a dump, and a dump once collected is not collected again."""
    for parent, folders, files in os.walk(folder):
        if _LAB_STORE in folders and not _LAB.isdisjoint(files):
            raise UsageError(
                f"{parent} is a lab's folder, which has devices and labels of dumps in its "
                f"database: etscope lab collect --lab {parent}"
            )
        folders.sort()
        for name in sorted(files):
            path = Path(parent, name)
            if name == VALUES_ETDP and RUN_ETDP in files:
                continue
            if name.endswith(_SUFFIXES):
                yield _local(path)
            elif path.is_file():  # a pipe would wait for its writer
                try:
                    with path.open("rb") as file:
                        head = file.read(12)
                except OSError:
                    continue
                if _IDENTIFIER in (head[4:8], head[8:12]):
                    yield _local(path)


def _remote(name: str) -> Iterator[Source]:
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(name)
    except ImportError as error:  # s3fs, gcsfs, …: fsspec names the package
        raise ValueError(str(error)) from error
    if glob.has_magic(path):
        listed = files.glob(path, detail=True)
    elif files.isdir(path):
        found = files.find(path, detail=True)
        listed = {key: value for key, value in found.items() if key.endswith(_SUFFIXES)}
    else:
        listed = {path: files.info(path)}
    for key in sorted(listed):
        if listed[key].get("type") == "directory":
            continue
        yield Source(
            str(files.unstrip_protocol(key)),
            int(listed[key].get("size") or 0),
            _modified(listed[key]),
        )


def _modified(info: Mapping[str, Any]) -> float | None:
    """Seconds since 1970, under the key of the file system."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value: Any = info.get(key)
        if isinstance(value, (int, float)):
            return float(value)
        if hasattr(value, "timestamp"):
            return float(value.timestamp())
    return None
