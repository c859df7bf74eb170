"""Which ETRecord a dump is of: one that was named, or the one of a folder that fits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from etscope.analysis.profile.profile import executes
from etscope.analysis.profile.trace import Trace
from etscope.errors import FormatError, MissingDataError
from etscope.formats.etdump.reader import ETDump
from etscope.formats.etrecord.reader import RecordFile, read_etrecord
from etscope.formats.identify import ETRECORD, identify

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
