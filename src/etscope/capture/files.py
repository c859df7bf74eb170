"""Files in any order, known by their content, grouped into runs.

A run is the folder that `etscope run --save` writes, or a dump with the record, the program and the
debug buffer that go with it.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.analysis.matching.export import Export
from etscope.analysis.profile.trace import Capture, Trace
from etscope.errors import (
    EtscopeError,
    EtscopeWarning,
    FormatError,
    MismatchError,
    MissingDataError,
    UsageError,
    reading,
)
from etscope.formats.bytes.files import PathLike
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.identify import BPTE, ETDUMP, ETRECORD, PTD, PTE, identify
from etscope.formats.program.pte import Program, program_fingerprint, read_pte
from etscope.formats.run_json import (
    DEBUG_BIN,
    DEVICE_LOG,
    RUN_ETDP,
    RUN_JSON,
    VALUES_ETDP,
    facts_path,
    read_run_json,
)
from etscope.model.finding import Files

if TYPE_CHECKING:
    from etscope.formats.etdump.debug_values import DebugBuffer
    from etscope.formats.program.bpte import BundledFile

__all__ = [
    "RunFiles",
    "files_inside",
    "one_of_each",
    "open_capture",
    "record_beside",
    "run_of_files",
    "runs_of_files",
]

DEBUG_BUFFER = "debug buffer"
FAILURE_TXT = "failure.txt"  # beside an exported model: why `etscope run` wrote no dump
BUFFER_SUFFIXES = (".bin", ".buf", ".debug")  # a debug buffer has no magic number
_SUFFIXES = (".etdp", ".etdump", ".etrecord", ".pte", ".bpte", ".ptd")
_ROLES = {ETRECORD: "record", PTE: "program", BPTE: "program", DEBUG_BUFFER: "debug_buffer"}
_WORDS = {"record": "ETRecord", "program": "program", "debug_buffer": DEBUG_BUFFER}


@dataclass(frozen=True)
class RunFiles:
    """The paths of the files of one run; None for a file that is missing.

    values, values_buffer: another dump of the same program, with logged values, and its debug
    buffer. facts: the run.json of `etscope run`. data: .ptd files; they belong to the programs with
    their keys, so some may belong to other runs.
    """

    dump: Path | None = None
    record: Path | None = None
    program: Path | None = None
    debug_buffer: Path | None = None
    values: Path | None = None
    values_buffer: Path | None = None
    facts: Path | None = None
    data: tuple[Path, ...] = ()

    @classmethod
    def given(cls, data: Sequence[PathLike] = (), **paths: PathLike | None) -> RunFiles:
        """Return the files of options. paths: the given paths by field: record, program,
        debug_buffer.
        """
        roles: dict[str, Any] = {role: path and Path(path) for role, path in paths.items()}
        return cls(data=tuple(map(Path, data)), **roles)

    @property
    def name(self) -> str:
        """The name of the run's main file, with its folder if the name is a common one."""
        path = self.dump or self.program or self.record
        if path is None:
            return "nothing"
        common = path.name in (RUN_ETDP, "etdump.etdp", "etrecord.bin", "program.pte")
        folder = path.absolute().parent.name
        return f"{folder}/{path.name}" if common and folder else path.name

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files of the run."""
        found = (getattr(self, field.name) for field in fields(self) if field.name != "data")
        return (*(path for path in found if path is not None), *self.data)

    @property
    def logged(self) -> tuple[Path | None, Path | None]:
        """The dump with logged values and its debug buffer: the dump of the times, unless another
        one has the values."""
        if self.values is not None:
            return self.values, self.values_buffer
        return self.dump, self.debug_buffer

    def open(self, *, force: bool = False, with_values: bool = False) -> Trace:
        """Open the files of a run with a dump. with_values: open the dump of `logged`.

        Raises the errors of the readers, `MissingDataError` without a dump, and `MismatchError` if
        the files do not belong together and `force` is False.
        """
        dump, buffer = self.logged if with_values else (self.dump, self.debug_buffer)
        if dump is None:
            raise self._without_dump()
        trace = Trace(
            dump=read_etdump(dump),
            record=None if self.record is None else read_etrecord(self.record),
            debug_buffer=None if buffer is None else _debug_buffer(buffer),
            program=self._program_and_bundle[0],
            forced=force,
        )
        trace.check_debug_buffer()
        if not force:
            trace.verify()
        return trace

    def _without_dump(self) -> MissingDataError:
        """Return the error for a run without a dump, with the reason if `etscope run` failed."""
        for path in filter(None, (self.program, self.record)):
            failure = path.with_name(FAILURE_TXT)
            if failure.is_file():
                with failure.open(encoding="utf-8", errors="replace") as file:
                    reason = file.readline(500).strip()
                return MissingDataError(
                    f"{self.name} has no ETDump, because its run failed: {reason}",
                    hint=f"the whole error is in {failure}; run it again: etscope run {path}",
                )
        return MissingDataError(
            f"{self.name} has no ETDump",
            hint="etscope run records an ETDump: name that file, too",
        )

    def capture(self, *, force: bool = False) -> Capture:
        """Open the run; without a dump, the program and the record. Raises as `open`."""
        if self.dump is not None:
            return self.open(force=force)
        record = None if self.record is None else read_etrecord(self.record)
        export = Export(self._program_and_bundle[0], record)
        program = export.recorded_program
        if program is not None and self.data:
            from etscope.formats.program.ptd import match_external, read_ptd

            (data,) = match_external([program], [read_ptd(path) for path in self.data])
            export = replace(export, data=data)
        if export.program is not None and not force:
            export.check_record()
        return export

    @property
    def bundle(self) -> BundledFile | None:
        """The test cases of a bundled program. Raises the errors of the reader."""
        return self._program_and_bundle[1]

    @cached_property
    def _program_and_bundle(self) -> tuple[Program | None, BundledFile | None]:
        return (None, None) if self.program is None else _program_file(self.program)

    def named(self, given: Collection[str]) -> Files:
        """Return the files as arguments of the next command. given: the paths of this command; the
        next command finds all other files by them, as this one did."""
        paths = {"record": self.record, "program": self.program, "debug_buffer": self.logged[1]}
        texts = {role: None if path is None else str(path) for role, path in paths.items()}
        folder = next((path for path in given if Path(path).is_dir()), None)
        dump = folder or (None if self.dump is None else str(self.dump))
        found = (role for role, text in texts.items() if text is not None and text not in given)
        return Files(dump, **texts, found=frozenset(found))

    def with_saved(self) -> RunFiles:
        """Add the files that `etscope run`, or etdb with a core, wrote beside the dump, and those
        that its run.json names."""
        dump = self.dump
        if dump is None:
            return self
        if dump.name not in (RUN_ETDP, VALUES_ETDP):
            core, beside = facts_path(dump), dump.with_suffix(BUFFER_SUFFIXES[0])
            if not core.is_file():
                return self
            own = self.debug_buffer or (beside if beside.is_file() else None)
            return replace(self, facts=core, debug_buffer=own)._with_noted()
        values, buffer, facts = (
            path if path.is_file() else None
            for path in (dump.with_name(name) for name in (VALUES_ETDP, DEBUG_BIN, RUN_JSON))
        )
        found, own_buffer = replace(self, facts=facts)._with_noted(), self.debug_buffer or buffer
        if dump.name == VALUES_ETDP or values is None:  # one run with times and values
            return replace(found, debug_buffer=own_buffer)
        if buffer is None:
            return found
        return replace(found, debug_buffer=None, values=values, values_buffer=own_buffer)

    def _with_noted(self) -> RunFiles:
        """Add the program and the record that run.json names, if their hashes still match; or the
        record with the program's name."""
        if self.facts is None or (self.program is not None and self.record is not None):
            return self
        saved = read_run_json(self.facts)
        with reading(RUN_JSON, saved.path):
            ran = saved.text("program"), saved.text("program_sha256")
            recorded = saved.text("record"), saved.text("record_sha256")
        program = self._noted(*ran, _program_sha256)
        if program is None:
            return self
        record = self._noted(*recorded, program_fingerprint)
        if identify(program) == ETRECORD:
            return replace(self, record=self.record or program)
        if record is None:
            record = record_beside(program, ran[1], own_folder=self.facts.parent)
        return replace(self, program=self.program or program, record=self.record or record)

    def _noted(
        self, path: str | None, sha256: str | None, hashed: Callable[[Path], str | None]
    ) -> Path | None:
        """Return the file with this hash at the path in run.json, or near the run's folder: files
        may have moved together with the run."""
        if self.facts is None or path is None or sha256 is None:
            return None
        folder, name = self.facts.parent, Path(path).name
        for found in dict.fromkeys((Path(path), folder / name, folder.parent / name)):
            with suppress(EtscopeError, OSError):
                if hashed(found) == sha256:
                    return found
        return None


NOTHING = RunFiles()


# The readers of rare files are loaded when one is opened: most runs have none.


def _program_file(path: Path) -> tuple[Program, BundledFile | None]:
    """Return the program of a .pte or .bpte file, and the bundle for a .bpte file."""
    kind = None
    with suppress(EtscopeError):  # `read_pte` reports it
        kind = identify(path)
    if kind != BPTE:
        return read_pte(path), None
    from etscope.formats.program.bpte import read_program_file

    return read_program_file(path)


def _debug_buffer(path: Path) -> DebugBuffer:
    from etscope.formats.etdump.debug_values import DebugBuffer

    return DebugBuffer.open(path)


def record_beside(
    program: Path, sha256: str | None = None, own_folder: Path | None = None
) -> Path | None:
    """Return the ETRecord with the program's name and folder, if it was made with this program;
    else None.

    sha256: hash of the program, if known. own_folder: the run's folder; a record without a hash is
    accepted there.
    """
    path = program.with_suffix(".etrecord")
    if program.suffix == ".etrecord" or not path.is_file():
        return None
    of = _program_sha256(path)
    if of is None:
        return path if own_folder is not None and path.parent.samefile(own_folder) else None
    return path if of == (sha256 or _program_sha256(program)) else None


def _program_sha256(path: Path) -> str | None:
    """Return the hash of a program file, or of the program of a record."""
    if identify(path) != ETRECORD:
        return program_fingerprint(_program_file(path)[0].source.buffer)
    fingerprints = read_etrecord(path).fingerprints
    return None if fingerprints is None else fingerprints.program_sha256


def open_capture(*paths: PathLike, force: bool = False) -> Capture:
    """Open a run: a `Trace`; or without a dump its program and record: an `Export`.

    paths: the folder of a run, or its files in any order. Their content shows what each is: an
        ETDump, an ETRecord, a program (.pte, .bpte), external weights (.ptd); a debug buffer has
        the suffix .bin, .buf or .debug.
    force: accept files that do not belong together.

    Raises the errors of the readers, `UsageError` for the files of several runs, and
    `MismatchError` for files that do not belong together.
    """
    return run_of_files(paths, needs_dump=False).capture(force=force)


def run_of_files(
    paths: Sequence[PathLike], given: RunFiles = NOTHING, *, needs_dump: bool = True
) -> RunFiles:
    """Return the one run that the files belong to.

    paths, given: as for `runs_of_files`. A named file replaces a file of its kind in a named
    folder. needs_dump: treat a single file as the dump; the reader of dumps reports a file of
    another kind.

    Raises `UsageError` for files of several runs.
    """
    named = [Path(path) for path in paths]
    folders = [path for path in named if path.is_dir()]
    is_alone = len(named) == 1 and not folders
    if is_alone and (needs_dump or _kind_of(named[0]) == ETDUMP):
        return replace(given, dump=named[0]).with_saved()
    grouped = list(folders)
    for file in (path for path in named if path not in folders):
        role = _ROLES.get(_kind_of(file))
        other = None if role is None else getattr(given, role)
        if role is None or (other is None and not folders):
            grouped.append(file)
        elif other is None:
            named_role: dict[str, Any] = {role: file}
            given = replace(given, **named_role)
        else:
            raise UsageError(
                f"two files for the {_WORDS[role]}: {file} and {other}", hint="name one"
            )
    found = runs_of_files(grouped, given)
    if len(found) > 1:
        raise UsageError(
            f"these are the files of {len(found)} runs: {', '.join(run.name for run in found)}",
            hint="name the dump of one run",
        )
    return found[0]


def runs_of_files(paths: Sequence[PathLike], given: RunFiles = NOTHING) -> list[RunFiles]:
    """Group files into runs: one for each dump; without a dump, one for each record and each
    program without a record.

    paths: ETDumps, ETRecords, .pte, .bpte and .ptd files in any order, debug buffers (.bin, .buf or
    .debug), or folders with such files. A file goes with the dump of the same stem, or of the same
    folder; the only file of its kind goes with all dumps. A record or program with another name
    goes with the dumps that it fits. given: the record, debug buffer and program of all dumps, and
    more .ptd files for all runs.

    Raises `UsageError` if a file fits several dumps or none, `FormatError` for a file of another
    kind.
    """
    found: dict[str, list[Path]] = defaultdict(list)
    for file in (file for path in paths for file in _files_of(Path(path))):
        found[_kind_of(file)].append(file)
    external = (*found[PTD], *given.data)
    if external and not found.keys() - {PTD} and given.record is None and given.program is None:
        raise UsageError(
            f"the program of {external[0]} is missing",
            hint="name the program's .pte too; etscope info --size shows what a .ptd holds",
        )
    programs = [*found[PTE], *found[BPTE]]
    dumps = found[ETDUMP]
    if not dumps:
        if found[DEBUG_BUFFER]:
            identify(found[DEBUG_BUFFER][0])  # raises: this is no known kind
        records = [given.record] if given.record is not None else found[ETRECORD]
        programs = [given.program] if given.program is not None else programs
        return [replace(run, data=external) for run in _without_dumps(records, programs)]
    named = [path for path in map(Path, paths) if not path.is_dir()]
    runs = []
    for dump in dumps:
        record = _chosen(dump, dumps, found[ETRECORD], named, given.record, "ETRecord")
        ran = _chosen(dump, dumps, programs, named, given.program, "program")
        buffer = _chosen(dump, dumps, found[DEBUG_BUFFER], named, given.debug_buffer, DEBUG_BUFFER)
        runs.append(RunFiles(dump, record, ran, buffer, data=external).with_saved())
    used = {path for run in runs for path in run.paths}
    unused = [path for path in named if path not in used]
    if unused:
        raise UsageError(
            f"{unused[0]} does not belong to any run: {', '.join(run.name for run in runs)}",
            hint="leave the file out, or name only its run",
        )
    return runs


def files_inside(folder: PathLike, *, buffers: bool) -> list[Path]:
    """Return the files of the runs in a folder; if they do not form runs, all files of known
    suffixes. buffers: with debug buffers, and without the device's log.

    Raises `UsageError` for a folder without such files.
    """
    found: dict[Path, None] = {}
    files = _files_of(Path(folder))
    try:
        runs = runs_of_files(files)
    except EtscopeError:  # a damaged file: its reader reports it
        return files
    for run in runs:
        without = {run.facts} if buffers else {run.facts, run.debug_buffer, run.values_buffer}
        found |= dict.fromkeys(path for path in run.paths if path not in without)
    log = Path(folder) / DEVICE_LOG
    return [*found, log] if log.is_file() and not buffers else list(found)


def _kind_of(file: Path) -> str:
    """Return the kind of a file by its content; of a debug buffer by its suffix."""
    try:
        return identify(file)
    except FormatError:
        if file.suffix not in BUFFER_SUFFIXES or file.is_dir() or file.stat().st_size == 0:
            raise
        return DEBUG_BUFFER


def _files_of(path: Path) -> list[Path]:
    """Return the path; of a folder, the files of runs in it."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if any(file.name == RUN_ETDP for file in files):  # the values go with it
        files = [file for file in files if file.name != VALUES_ETDP]
    bundles = {file.stem for file in files if file.suffix == ".bpte"}
    files = [file for file in files if file.suffix != ".pte" or file.stem not in bundles]
    if not files:
        raise UsageError(
            f"the folder {path} holds no file of a run",
            hint=f"expected files with a name that ends in {', '.join(_SUFFIXES)}",
        )
    return files


def _chosen(
    dump: Path,
    dumps: Sequence[Path],
    found: Sequence[Path],
    named: Sequence[Path],
    given: Path | None,
    what: str,
) -> Path | None:
    """Return the file of `found` that goes with a dump. A file that the user named (`named`) has
    priority over a file in the run's folder."""
    if given is not None:
        return given
    found = [*dict.fromkeys(found)]  # a folder may be named twice
    if len(found) <= 1:
        return found[0] if found else None
    alone = [file for file in found if file in named]
    if len(alone) == 1 and dump not in named and (len(dumps) == 1 or _fits(dump, what, alone[0])):
        return alone[0]
    beside = [file for file in found if file.absolute().parent == dump.absolute().parent]
    alike = [file for file in found if file.stem == dump.stem]
    for candidates in ([file for file in beside if file in alike], beside, alike):
        if len(candidates) == 1:
            return candidates[0]
    fitting = [file for file in beside or found if _fits(dump, what, file)]
    if len(fitting) == 1:
        return fitting[0]
    if len(found) == len(dumps) and not beside:
        return found[list(dumps).index(dump)]
    raise UsageError(
        f"which {what} goes with {dump}? There are: {', '.join(map(str, found))}",
        hint="rename each file after its dump (run.etdp, run.etrecord), or name the files of "
        "one run",
    )


def _fits(dump: Path, what: str, file: Path) -> bool:
    """Return True for a record or program that agrees with every run of the dump, without doubt."""
    if what == DEBUG_BUFFER:  # it does not name its dump
        return False
    trace = Trace(
        read_etdump(dump),
        record=read_etrecord(file) if what == "ETRecord" else None,
        program=_program_file(file)[0] if what == "program" else None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtscopeWarning)
        try:
            trace.verify()
        except (MismatchError, EtscopeWarning):
            return False
    return True


def _without_dumps(records: Sequence[Path], programs: Sequence[Path]) -> list[RunFiles]:
    """Return a run for each record and each program without one, in the order of the programs. A
    record goes with the program of its name, else with the programs that it fits."""
    if not records and not programs:
        raise UsageError(
            "nothing to report on", hint="name an ETDump, an ETRecord or a .pte, or their folder"
        )
    left = list(programs)
    runs = []
    for record in records:
        place = record.with_suffix("")
        alike = [file for file in left if file.with_suffix("") == place][:1]  # in its folder
        alike = alike or [file for file in left if file.stem == record.stem]
        if len(records) == len(programs) == 1:
            alike = [*left]
        elif not alike:
            alike = [
                file for file in left if _belong_together(RunFiles(record=record, program=file))
            ]
        elif len(alike) > 1:
            alike = []
        runs += [RunFiles(record=record, program=program) for program in alike or (None,)]
        for file in alike:
            left.remove(file)  # once: two folders may be the same
    runs += [RunFiles(program=program) for program in left]
    places = {path: place for place, path in enumerate(programs)}
    return sorted(runs, key=lambda run: -1 if run.program is None else places[run.program])


def _belong_together(files: RunFiles) -> bool:
    """Return True if the record was made with the program."""
    try:
        files.capture()
    except MismatchError:
        return False
    return True


def one_of_each(
    runs: Sequence[RunFiles], what: str, given: Sequence[PathLike], of: str = "dumps"
) -> list[RunFiles]:
    """Return the runs with the records or programs that options name: none, one for all runs, or
    one for each run, in order. of: what the runs are called in the `UsageError` about a wrong
    number of names.
    """
    if len(given) not in (0, 1, len(runs)):
        raise UsageError(
            f"--{'etrecord' if what == 'record' else what} is given {len(given)} times for "
            f"{len(runs)} {of}",
            hint="name one file for all runs, or one for each run in order",
        )
    if not given:
        return [*runs]
    each = [*given] * (len(runs) if len(given) == 1 else 1)
    found: list[dict[str, Any]] = [{what: Path(path)} for path in each]
    return [replace(run, **own) for run, own in zip(runs, found, strict=True)]
