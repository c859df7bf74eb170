"""Find dumps by name (files, folders, globs, lists of them, fsspec URLs), and their ETRecords."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
    reading,
)
from etscope.formats.app_report import BenchmarkRun, read_benchmark_runs
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
APP_RECORDS = "benchmark_results.json"  # beside a dump, they are the report of its app
_RECORDS = re.compile(rb'(\xef\xbb\xbf)?\s*(\[\s*)?\{.*"benchmark"\s*:\s*\{', re.DOTALL)
_HEAD = 4096  # bytes: several records
_IDENTIFIER = b"ED00"
_LAB, _LAB_STORE = {"lab.yaml", "lab.db"}, "store"  # in the folder of a lab


@dataclass(frozen=True, slots=True)
class Source:
    """A dump to collect.

    url: a path, or a URL that fsspec knows. size: bytes. modified: seconds since 1970, None if not
    known. about: the content of a run.json, in place of one next to the dump. etrecord: the path of
    its record. sha256: of the dump, if it is known before reading. columns: values of `DUMP_FIELDS`
    that are known. has_dump: false for a result without one; its `sha256` is any unique text.
    """

    url: str
    size: int
    modified: float | None = None
    about: Mapping[str, Any] | None = field(default=None, hash=False)
    etrecord: str | None = None
    sha256: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)
    has_dump: bool = True


_Found = Source | tuple[str, EtscopeError]  # or a file that failed, with its error


def find_sources(
    names: Iterable[str | os.PathLike[str]],
) -> tuple[list[Source], list[tuple[str, EtscopeError]]]:
    """Find dumps and benchmark records by name, each once, sorted within a folder; and the names
    that failed, with their errors. Each run in a file of records is a source without a dump.

    A name is a file, a folder (all ETDumps below it, recognised by their first bytes; a values.etdp
    next to the run.etdp of the same run is skipped, as its times include the logging of values), a
    glob ("runs/**/*.etdp"), "@list.txt" (a file with a name in each line), or a URL
    ("s3://bucket/runs/*"; below a remote folder dumps are recognised by the suffixes .etdp and
    .etdump, and a remote file .json has records). A folder with a lab in it counts as a name that
    failed.
    """
    found: dict[str, Source] = {}
    wrong: list[tuple[str, EtscopeError]] = []
    for name in _expanded(os.fspath(name) for name in names):
        sources: list[_Found] = []
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
            if isinstance(source, tuple):
                wrong.append(source)
                continue
            found.setdefault(source.url if source.has_dump else str(source.sha256), source)
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


def _sources_of(name: str) -> Iterator[_Found]:
    if is_url(name):
        yield from _remote(name)
        return
    path = Path(name)
    if path.is_dir():
        yield from _below(path)
    elif path.exists() or not glob.has_magic(name):
        yield from _file(path)
    else:
        for match in sorted(glob.glob(name, recursive=True)):  # noqa: PTH207 - absolute ones, too
            yield from _below(Path(match)) if Path(match).is_dir() else _file(Path(match))


def _file(path: Path) -> Iterator[Source]:
    """Yield a named file: the runs of its benchmark records, or a dump."""
    local = _local(path)
    if _RECORDS.match(_head(path)):
        yield from _runs_in(read_benchmark_runs(path), local.url, local.modified)
    else:
        yield local


def _head(path: Path) -> bytes:
    """The first bytes of a file; b"" if it cannot be read, or is a pipe, which would wait."""
    if path.is_file():
        with suppress(OSError), path.open("rb") as file:
            return file.read(_HEAD)
    return b""


def _local(path: Path) -> Source:
    status = path.stat()
    # Absolute: workers and later queries may be in another folder.
    return Source(os.path.abspath(path), status.st_size, status.st_mtime)  # noqa: PTH100


def _below(folder: Path) -> Iterator[_Found]:
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
            head = b"" if name.endswith(_SUFFIXES) else _head(path)
            if name.endswith(_SUFFIXES) or _IDENTIFIER in (head[4:8], head[8:12]):
                yield _local(path)
            elif name.endswith(".json") and _RECORDS.match(head):
                is_report = name == APP_RECORDS and any(n.endswith(_SUFFIXES) for n in files)
                try:
                    yield from () if is_report else _file(path)
                except EtscopeError as error:  # the folder's other files count
                    yield str(path), error


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
        url, modified = str(files.unstrip_protocol(key)), _modified(listed[key])
        if key.endswith(".json"):
            with reading("benchmark records", url):
                yield from _runs_in(read_benchmark_runs(open_url(url)), url, modified)
        else:
            yield Source(url, int(listed[key].get("size") or 0), modified)


def _modified(info: Mapping[str, Any]) -> float | None:
    """Seconds since 1970, under the key of the file system."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value: Any = info.get(key)
        if isinstance(value, (int, float)):
            return float(value)
        if hasattr(value, "timestamp"):
            return float(value.timestamp())
    return None


# -- Records of PyTorch's benchmark database.

_COLUMNS = {  # of metrics, and their factors
    "avg_inference_latency(ms)": ("mean_ns", 1e6),
    "p50_inference_latency(ms)": ("untraced_p50_ns", 1e6),
    "model_load_time(ms)": ("load_ns", 1e6),
    "llm_model_load_time(ms)": ("load_ns", 1e6),
    "peak_inference_mem_usage(mb)": ("peak_rss_bytes", 1 << 20),
}
_OWN = ("job", "threads", "marks")  # in the configuration that `etscope lab list` writes


def _runs_in(runs: Iterable[BenchmarkRun], url: str, modified: float | None) -> Iterator[Source]:
    """Yield benchmark runs as sources without a dump."""
    for run in runs:
        own = {key: run.config.get(key) for key in _OWN}
        about = {
            **(own if run.extra.get("app_type") == "etscope" else {}),
            "model": run.report.model,
            "device": run.report.device,
            "labels": {key: value for key, value in run.labels.items() if key not in _OWN},
            "environment": {"benchmark": run.extra, "runner": run.runner},
        }
        measured = [name for name in _COLUMNS if name in run.metrics]
        columns = {
            "backend": run.report.backend,
            "mode": run.mode,
            "state": "failed" if run.failure else "done",
            "failure": run.failure or None,
            "metrics": list(run.metrics.items()),
            **{_COLUMNS[n][0]: round(run.metrics[n] * _COLUMNS[n][1]) for n in measured},
        }
        at, name = run.uploaded_at or modified, f"records:{run.sha256}"
        yield Source(url, 0, at, about, None, name, columns, has_dump=False)
