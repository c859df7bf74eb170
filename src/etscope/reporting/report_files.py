"""Which files of a report belong together: a run each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etscope.errors import FormatError, UsageError
from etscope.formats.bytes.source import PathLike
from etscope.formats.identify import BPTE, ETDUMP, ETRECORD, PTE, identify

DEBUG_BUFFER = "debug buffer"
# What `etscope run --save` writes.
SAVED_DUMP, SAVED_VALUES, SAVED_BUFFER, SAVED_FACTS = (
    "run.etdp", "values.etdp", "debug.bin", "run.json",
)  # fmt: skip
_SUFFIXES = (".etdp", ".etdump", ".etrecord", ".pte", ".bpte")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, each a path or None.

    values, values_buffer: another dump of the same program, with logged values, and its debug
    buffer. facts: what `etscope run --save` says of the run (run.json).
    """

    dump: Path | None = None
    record: Path | None = None
    program: Path | None = None
    debug_buffer: Path | None = None
    values: Path | None = None
    values_buffer: Path | None = None
    facts: Path | None = None

    @property
    def name(self) -> str:
        """For people: the file that the run is known by, with its folder if the name is any's."""
        path = self.dump or self.record or self.program
        if path is None:
            return "nothing"
        common = path.name in (SAVED_DUMP, "etdump.etdp", "etrecord.bin", "program.pte")
        folder = path.absolute().parent.name
        return f"{folder}/{path.name}" if common and folder else path.name

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, those that a change of the report could come from."""
        found = (
            self.dump, self.record, self.program, self.debug_buffer, self.values,
            self.values_buffer, self.facts,
        )  # fmt: skip
        return tuple(path for path in found if path is not None)


def runs_of_files(
    paths: Sequence[PathLike],
    etrecord: PathLike | None = None,
    debug_buffer: PathLike | None = None,
    program: PathLike | None = None,
) -> list[RunFiles]:
    """The runs that the files make: one for each dump; without a dump one for each record, and one
    for each program that goes with none.

    paths: ETDumps, ETRecords, .pte and .bpte files in any order, debug buffers (what is none of
    these), or folders that hold them. A file goes with the dump of the same name but for its
    suffix, or in the same folder, or with all dumps if it is the only one of its kind. etrecord,
    debug_buffer, program: for all dumps.

    Raises `UsageError` when nothing tells which file goes with which dump, `FormatError` for a
    file of another kind.
    """
    found: dict[str, list[Path]] = {
        kind: [] for kind in (ETDUMP, ETRECORD, PTE, BPTE, DEBUG_BUFFER)
    }
    for path in paths:
        for file in _expanded(Path(path)):
            found[_kind(file)].append(file)
    programs = [*found[PTE], *found[BPTE]]
    dumps = found[ETDUMP]
    if not dumps:
        if found[DEBUG_BUFFER]:
            identify(found[DEBUG_BUFFER][0])  # says what it is not
        records = [Path(etrecord)] if etrecord is not None else found[ETRECORD]
        programs = [Path(program)] if program is not None else programs
        return _without_dumps(records, programs)
    return [
        _with_saved(
            RunFiles(
                dump=dump,
                record=_chosen(dump, dumps, found[ETRECORD], etrecord, "ETRecord"),
                program=_chosen(dump, dumps, programs, program, "program"),
                debug_buffer=_chosen(
                    dump, dumps, found[DEBUG_BUFFER], debug_buffer, "debug buffer"
                ),
            )
        )
        for dump in dumps
    ]


def _expanded(path: Path) -> list[Path]:
    """The path, or the files of the folder that it is."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if any(file.name == SAVED_DUMP for file in files):  # the values go with it
        files = [file for file in files if file.name != SAVED_VALUES]
    bundles = {file.stem for file in files if file.suffix == ".bpte"}
    files = [file for file in files if file.suffix != ".pte" or file.stem not in bundles]
    if not files:
        raise UsageError(
            f"the folder {path} holds no file for a report",
            hint=f"expected files with a name that ends in {', '.join(_SUFFIXES)}",
        )
    return files


def _kind(path: Path) -> str:
    try:
        return identify(path)
    except FormatError:
        # A debug buffer has no form of its own. What has one is never taken for one.
        if path.suffix in _SUFFIXES or path.is_dir() or path.stat().st_size == 0:
            raise
        return DEBUG_BUFFER


def _chosen(
    dump: Path, dumps: Sequence[Path], found: Sequence[Path], given: PathLike | None, what: str
) -> Path | None:
    """The file of `found` that goes with a dump."""
    if given is not None:
        return Path(given)
    if len(found) <= 1:
        return found[0] if found else None
    beside = [file for file in found if file.absolute().parent == dump.absolute().parent]
    for candidates in ([file for file in beside if file.stem == dump.stem], beside):
        if len(candidates) == 1:
            return candidates[0]
    alike = [file for file in found if file.stem == dump.stem]
    if len(alike) == 1:
        return alike[0]
    if len(found) == len(dumps) and not beside:
        return found[list(dumps).index(dump)]
    raise UsageError(
        f"which {what} goes with {dump}? There are: {', '.join(map(str, found))}",
        hint="give them the names of their dumps (run.etdp, run.etrecord), or make one report each",
    )


def _without_dumps(records: Sequence[Path], programs: Sequence[Path]) -> list[RunFiles]:
    if not records and not programs:
        raise UsageError(
            "nothing to report on", hint="name an ETDump, an ETRecord or a .pte, or their folder"
        )
    left = list(programs)
    runs = []
    for record in records:
        alike = [file for file in left if file.stem == record.stem]
        if len(records) == len(programs) == 1:
            alike = left
        program = alike[0] if len(alike) == 1 else None
        left = [file for file in left if file != program]
        runs.append(RunFiles(record=record, program=program))
    return runs + [RunFiles(program=program) for program in left]


def _with_saved(files: RunFiles) -> RunFiles:
    """With what `etscope run --save` wrote beside the dump."""
    dump = files.dump
    if dump is None or dump.name not in (SAVED_DUMP, SAVED_VALUES):
        return files
    values, buffer, facts = (
        path if path.is_file() else None
        for path in (dump.with_name(name) for name in (SAVED_VALUES, SAVED_BUFFER, SAVED_FACTS))
    )
    own_buffer = files.debug_buffer or (buffer if dump.name == SAVED_VALUES else None)
    if dump.name == SAVED_VALUES or values is None or buffer is None:
        values = None
    return RunFiles(
        dump=dump,
        record=files.record,
        program=files.program,
        debug_buffer=own_buffer if values is None else None,
        values=values,
        values_buffer=None if values is None else files.debug_buffer or buffer,
        facts=facts,
    )
