"""Dumps by what a person names: files, folders, globs, lists of them, and URLs of fsspec."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from etscope.analysis.profile.profile import executes
from etscope.analysis.profile.trace import Trace
from etscope.errors import EtscopeError, FormatError, MissingDataError, MissingFileError
from etscope.formats.etdump.reader import ETDump
from etscope.formats.etrecord.reader import RecordFile, read_etrecord
from etscope.formats.identify import ETRECORD, identify
from etscope.optional import require

# Which ETRecord a dump is of: one that was named, or the one of a folder that fits.


_OPEN = 8  # records whose graphs stay in memory
_REMEMBERED = 1024  # answers


@dataclass(frozen=True, slots=True)
class Record:
    """An ETRecord by its path, and the program it is of, when it says so."""

    path: str
    program_sha256: str | None


def records_in(folder: str | os.PathLike[str]) -> tuple[Record, ...]:
    """All ETRecords below a folder. Raises `MissingDataError` when there is none."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(parent, name)
            if _is_record(path):
                found.append(record_at(path))
    if not found:
        raise MissingDataError(f"there is no ETRecord below {os.fspath(folder)}")
    return tuple(found)


def record_at(path: str | os.PathLike[str]) -> Record:
    """The record in a file; the errors of `read_etrecord`."""
    fingerprints = read_etrecord(path).fingerprints
    sha256 = None if fingerprints is None else fingerprints.program_sha256
    return Record(os.fspath(Path(path).absolute()), sha256)


def _is_record(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                return False
        return identify(path) == ETRECORD
    except (FormatError, OSError):
        return False


@lru_cache(maxsize=_OPEN)
def opened(path: str) -> RecordFile:
    """The record at a path; the last ones stay open."""
    return read_etrecord(path)


def fitting(
    dump: ETDump, fingerprint: str, records: Sequence[Record], program_sha256: str | None
) -> Record | None:
    """The one of `records` that a dump is of, or None.

    By the program's hash where the run's program is known. Else by what the instructions logged;
    two records that fit as well decide nothing, unless they are of the same program. What was
    found for one dump holds for all of its `fingerprint`.
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
        _found[key] = _only(dump, records)
    return _found[key]


_found: dict[tuple[str, tuple[Record, ...]], Record | None] = {}


def _only(dump: ETDump, records: Sequence[Record]) -> Record | None:
    fits = [record for record in records if _fits(dump, record)]
    programs = {record.program_sha256 or record.path for record in fits}
    return fits[0] if len(programs) == 1 else None


def _fits(dump: ETDump, record: Record) -> bool:
    trace = Trace(dump, record=opened(record.path))
    blocks = [block for block in trace.blocks if executes(block)]
    return bool(blocks) and all(
        (method := trace.method_of(block)) is not None and trace.doubt(block, method) is None
        for block in blocks
    )


_SUFFIXES = (".etdp", ".etdump")
_IDENTIFIER = b"ED00"
_VALUES, _TIMES = "values.etdp", "run.etdp"  # what `etscope run --save` writes


@dataclass(frozen=True, slots=True)
class Source:
    """A dump to collect.

    url: a path, or a URL that fsspec knows. size: bytes. modified: seconds since 1970, None when
    the place does not tell. about: what is known of its run, in place of a run.json beside it.
    etrecord: of its export, a path. sha256: of the dump, when it is known before it is read.
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
    """The dumps that `names` name, each once, sorted within a folder; and the names that are wrong,
    each with what is wrong.

    A name is a file, a folder (all ETDumps below it, known by their first bytes; not a values.etdp
    beside the run.etdp of the same run: its times are those of a run that logged values), a glob
    ("runs/**/*.etdp"), "@list.txt" (a file of names, one a line), or a URL ("s3://bucket/runs/*";
    below a remote folder dumps are known by the suffixes .etdp and .etdump).
    """
    found: dict[str, Source] = {}
    wrong: list[tuple[str, EtscopeError]] = []
    for name in _listed(os.fspath(name) for name in names):
        named, error = _tried(name)
        found |= {source.url: source for source in named if source.url not in found}
        wrong += [(name, error)] if error is not None else []
    return list(found.values()), wrong


def is_url(name: str) -> bool:
    """Whether a name is for fsspec: "s3://…", and not "C:\\…" or "a/b"."""
    return "://" in name


def open_url(url: str) -> bytes:
    """The bytes at a URL. Raises `FormatError` for what cannot be read."""
    fsspec = require("fsspec", wanted_by=f"reading {url.partition('://')[0]} URLs")
    try:
        with fsspec.open(url, "rb") as file:
            content: bytes = file.read()
    except Exception as error:  # each of fsspec's file systems has errors of its own
        raise FormatError(f"cannot be read: {error}", path=url) from error
    return content


def _listed(names: Iterable[str]) -> Iterator[str]:
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


def _tried(name: str) -> tuple[list[Source], EtscopeError | None]:
    try:
        return list(_named(name)), None
    except (OSError, ValueError) as error:
        return [], _refusal(error)
    except Exception as error:
        if not is_url(name):
            raise
        return [], _refusal(error)  # each of fsspec's file systems has errors of its own


def _named(name: str) -> Iterator[Source]:
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
    # Workers may be in another folder, and whoever asks the dataset later is.
    return Source(os.path.abspath(path), status.st_size, status.st_mtime)  # noqa: PTH100


def _below(folder: Path) -> Iterator[Source]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(parent, name)
            if name == _VALUES and _TIMES in files:
                continue
            if name.endswith(_SUFFIXES) or _is_dump(path):
                yield _local(path)


def _is_dump(path: Path) -> bool:
    if not path.is_file():  # a pipe would wait for its writer
        return False
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except OSError:
        return False
    return _IDENTIFIER in (head[4:8], head[8:12])


def _remote(name: str) -> Iterator[Source]:
    fsspec = require("fsspec", wanted_by=f"reading {name.partition('://')[0]} URLs")
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
            str(files.unstrip_protocol(key)), int(listed[key].get("size") or 0), _age(listed[key])
        )


def _age(info: Mapping[str, Any]) -> float | None:
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value: Any = info.get(key)
        if isinstance(value, (int, float)):
            return float(value)
        if hasattr(value, "timestamp"):
            return float(value.timestamp())
    return None


def _refusal(error: Exception) -> EtscopeError:
    if isinstance(error, EtscopeError):
        return error
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file")
    return FormatError(f"cannot be listed: {error}")
