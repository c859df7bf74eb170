"""Reports: files that belong together, opened once, and the inputs of the page for each run."""

from __future__ import annotations

import hashlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.analysis.comparison.programs import Side
from etscope.analysis.delegates.backend_files import Given, PlacedFile, place_files
from etscope.analysis.generation.pace import (
    Pace,
    generation_section,
    pace_section,
    phase_table,
)
from etscope.analysis.numerics.runs import OtherInputsError
from etscope.analysis.profile.scale import Scale, TimeConverter
from etscope.analysis.profile.trace import Trace
from etscope.analysis.work.roofline import given_or_found
from etscope.errors import (
    EtscopeError,
    EtscopeWarning,
    FormatError,
    MismatchError,
    MissingDataError,
    NumericGapError,
    UsageError,
    reading,
)
from etscope.formats.bytes.files import PathLike, open_source
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import RecordFile, RecordView, read_etrecord
from etscope.formats.exported_program.exported_json import integer
from etscope.formats.generation import Generation
from etscope.formats.identify import BPTE, ETDUMP, ETRECORD, PTD, PTE, identify
from etscope.formats.program.bpte import read_program_file
from etscope.formats.program.ptd import match_external, read_ptd
from etscope.formats.run_json import (
    DEBUG_BIN,
    RUN_ETDP,
    RUN_JSON,
    VALUES_ETDP,
    SavedRun,
    read_run_json,
)
from etscope.model.report import Section, facts, rows
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind
from etscope.optional import available
from etscope.units import TimeScale
from etscope.views.output import open_output
from etscope.views.page import FileFact, ReportInput, document_of, page_html
from etscope.views.page.document import NANOSECONDS
from etscope.views.page.store import save_document

if TYPE_CHECKING:
    from etscope.analysis.graphs.views import GraphView
    from etscope.analysis.numerics.rows import Numerics
    from etscope.formats.program.bpte import BundledFile
    from etscope.formats.program.pte import Program

__all__ = [
    "ReportOptions",
    "RunFiles",
    "one_of_each",
    "report_inputs",
    "runs_of_files",
    "save_report",
    "write_report",
]


_MS = 1e6  # ns
_TRACED = {None: "untraced", "times": "traced: times", "values": "traced: values"}


def saved_sections(saved: SavedRun) -> list[Section]:
    """Return the sections "environment" and "latency", of a generation its tokens and pace in place
    of the latter; `FormatError` for a damaged file."""
    with reading(RUN_JSON, saved.path):
        calls, conditions, memory = saved.calls, saved.conditions, saved.memory
        made = saved.generation
        iterations = sum(integer(call["iterations"], "iterations") for call in calls)
        environment = facts(
            "environment",
            "The run",
            (
                (Column("runner"), saved.text("runner")),
                (Column("executorch", title="ExecuTorch"), saved.text("executorch")),
                (Column("threads", Kind.COUNT), saved.count("threads")),
                (Column("program", Kind.PATH), saved.text("program")),
                (Column("calls", Kind.COUNT), None if made else len(calls)),
                (Column("iterations", Kind.COUNT), None if made else iterations),
                (Column("debug_level"), saved.text("debug_level")),
                (Column("conditions"), conditions and conditions.in_words(None)),
                (Column("peak_memory", Kind.BYTES), memory and memory.peak_rss),
                (Column("process", title="peak memory of"), memory and memory.in_words()),
            ),
        )
        if made is not None:
            return [environment, *_generation_sections(made)]
        names = ("avg", "p50", "p90", "min", "max")
        latencies = saved.latencies
        content = [
            (
                _TRACED.get(one.traced, one.traced),
                one.method,
                len(one.samples_ns),
                *(None if ns is None else ns / _MS for ns in (one.load_ns, one.first_ns)),
                *(
                    float(value) if len(one.samples_ns) else None
                    for value in summarize(one.samples_ns / _MS, names).values()
                ),
            )
            for one in latencies
        ]
        latency_section = rows(
            "latency",
            "Latency: around the runtime's execute",
            (
                Column("run"),
                Column("method"),
                Column("iterations", Kind.COUNT),
                Column("load", Kind.DURATION, "ms"),
                Column("first", Kind.DURATION, "ms", title="cold"),
                *(Column(name, Kind.DURATION, "ms") for name in names),
            ),
            content,
            notes=(
                "Traced runs do more than the model: only an untraced one says how long it takes.",
            )
            if len(latencies) > 1
            else (),
        )
    return [environment, latency_section]


def _generation_sections(made: Generation) -> Iterator[Section]:
    """Yield the facts of a generation, and the phases and the pace of its untraced pass."""
    yield generation_section(made)
    untraced = made.of_pass(None)
    if untraced is not None and len(untraced.calls):
        pace = Pace.of(untraced)
        phases = phase_table(pace)
        yield Section("phases", replace(phases, title=f"{phases.title}, without tracing"))
        yield pace_section(pace)


DEBUG_BUFFER = "debug buffer"
_SUFFIXES = (".etdp", ".etdump", ".etrecord", ".pte", ".bpte", ".ptd")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, each a path or None.

    values, values_buffer: another dump of the same program, with logged values, and its debug
    buffer. facts: what `etscope run --save` says of the run (run.json). data: .ptd files, some of
    which may be of other runs: their keys tell.
    """

    dump: Path | None = None
    record: Path | None = None
    program: Path | None = None
    debug_buffer: Path | None = None
    values: Path | None = None
    values_buffer: Path | None = None
    facts: Path | None = None
    data: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The file that names the run, with its folder when the file name is a common one."""
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

    def with_saved(self) -> RunFiles:
        """Add the files that `etscope run --save` wrote beside the dump."""
        dump = self.dump
        if dump is None or dump.name not in (RUN_ETDP, VALUES_ETDP):
            return self
        values, buffer, facts = (
            path if path.is_file() else None
            for path in (dump.with_name(name) for name in (VALUES_ETDP, DEBUG_BIN, RUN_JSON))
        )
        found, own_buffer = replace(self, facts=facts), self.debug_buffer or buffer
        if dump.name == VALUES_ETDP or values is None:  # one run with times and values
            return replace(found, debug_buffer=own_buffer)
        if buffer is None:
            return found
        return replace(found, debug_buffer=None, values=values, values_buffer=own_buffer)

    def saved(
        self, facts: Sequence[FileFact], record: RecordFile | None
    ) -> tuple[list[Section], list[str]]:
        """Return the sections of run.json and notes; no sections when it is of another program."""
        if self.facts is None:
            return [], []
        saved = read_run_json(self.facts)
        with reading(RUN_JSON, saved.path):
            ran = saved.text("program_sha256")
        known = {fact.sha256 for fact in facts if fact.role == "program"}
        if record is not None and record.fingerprints is not None:
            known.add(record.fingerprints.program_sha256)
        is_bundle = self.program is not None and self.program.suffix == ".bpte"
        if ran is not None and known and ran not in known and not is_bundle:
            return [], ["The run.json beside the dump is of another program: it was not used."]
        return saved_sections(saved), []


def runs_of_files(
    paths: Sequence[PathLike],
    etrecord: PathLike | None = None,
    debug_buffer: PathLike | None = None,
    program: PathLike | None = None,
    data: Sequence[PathLike] = (),
) -> list[RunFiles]:
    """Group files into runs: one for each dump; without a dump one for each record and each
    program without a record.

    paths: ETDumps, ETRecords, .pte, .bpte and .ptd files in any order, debug buffers (any other
    file), or folders that hold them. A file goes with the dump of the same name but for its
    suffix, or in the same folder, or with all dumps if it is the only one of its kind; a record or
    program of another name goes with the dumps that it fits. etrecord, debug_buffer, program: for
    all dumps. data: more .ptd files, which all runs have.

    Raises `UsageError` when nothing tells which file goes with which dump, `FormatError` for a
    file of another kind.
    """
    found: dict[str, list[Path]] = defaultdict(list)
    for file in (file for path in paths for file in _files_of(Path(path))):
        try:
            kind = identify(file)
        except FormatError:
            # A debug buffer has no form of its own; files of the known forms are never taken for
            # one.
            if file.suffix in _SUFFIXES or file.is_dir() or file.stat().st_size == 0:
                raise
            kind = DEBUG_BUFFER
        found[kind].append(file)
    external = (*found[PTD], *map(Path, data))
    if external and not found.keys() - {PTD} and etrecord is None and program is None:
        raise UsageError(
            f"the program of {external[0]} is missing",
            hint="name its .pte too; etscope size shows what a .ptd holds",
        )
    programs = [*found[PTE], *found[BPTE]]
    dumps = found[ETDUMP]
    if not dumps:
        if found[DEBUG_BUFFER]:
            identify(found[DEBUG_BUFFER][0])  # says what it is not
        records = [Path(etrecord)] if etrecord is not None else found[ETRECORD]
        programs = [Path(program)] if program is not None else programs
        return [replace(run, data=external) for run in _without_dumps(records, programs)]
    runs = []
    for dump in dumps:
        record = _chosen(dump, dumps, found[ETRECORD], etrecord, "ETRecord")
        ran = _chosen(dump, dumps, programs, program, "program")
        buffer = _chosen(dump, dumps, found[DEBUG_BUFFER], debug_buffer, DEBUG_BUFFER)
        runs.append(RunFiles(dump, record, ran, buffer, data=external).with_saved())
    return runs


def _files_of(path: Path) -> list[Path]:
    """Return the path, or the files for a report in a folder."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if any(file.name == RUN_ETDP for file in files):  # the values go with it
        files = [file for file in files if file.name != VALUES_ETDP]
    bundles = {file.stem for file in files if file.suffix == ".bpte"}
    files = [file for file in files if file.suffix != ".pte" or file.stem not in bundles]
    if not files:
        raise UsageError(
            f"the folder {path} holds no file for a report",
            hint=f"expected files with a name that ends in {', '.join(_SUFFIXES)}",
        )
    return files


def _chosen(
    dump: Path, dumps: Sequence[Path], found: Sequence[Path], given: PathLike | None, what: str
) -> Path | None:
    """Return the file of `found` that goes with a dump."""
    if given is not None:
        return Path(given)
    if len(found) <= 1:
        return found[0] if found else None
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
        hint="give them the names of their dumps (run.etdp, run.etrecord), or make one report each",
    )


def _fits(dump: Path, what: str, file: Path) -> bool:
    """Return True for a record or program that every run of the dump agrees with, without doubt."""
    if what == DEBUG_BUFFER:  # says nothing of itself
        return False
    trace = Trace(
        read_etdump(dump),
        record=read_etrecord(file) if what == "ETRecord" else None,
        program=read_program_file(file)[0] if what == "program" else None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtscopeWarning)
        try:
            trace.verify()
        except (MismatchError, EtscopeWarning):
            return False
    return True


def _without_dumps(records: Sequence[Path], programs: Sequence[Path]) -> list[RunFiles]:
    """Return a run for each record and each program without one, programs in their order. A record
    goes with the program of its name, else with those that it fits."""
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
        elif not alike:
            alike = [file for file in left if _is_record_of(record, file)]
        elif len(alike) > 1:
            alike = []
        runs += [RunFiles(record=record, program=program) for program in alike or (None,)]
        left = [file for file in left if file not in alike]
    runs += [RunFiles(program=program) for program in left]
    places = {path: place for place, path in enumerate(programs)}
    return sorted(runs, key=lambda run: -1 if run.program is None else places[run.program])


def _is_record_of(record: Path, program: Path) -> bool:
    try:
        Side("", read_program_file(program)[0], read_etrecord(record)).check_record()
    except MismatchError:
        return False
    return True


def one_of_each(
    runs: Sequence[RunFiles], what: str, given: Sequence[PathLike], of: str = "dumps"
) -> list[RunFiles]:
    """Return the runs with their "record" or "program" from options: none, one for all runs, or one
    for each in order. of: what the runs are, for the `UsageError` about another number."""
    if len(given) not in (0, 1, len(runs)):
        raise UsageError(
            f"{len(given)} of --{'etrecord' if what == 'record' else what} for {len(runs)} {of}",
            hint="give one for all of them, or one for each in order",
        )
    if not given:
        return [*runs]
    each = [*given] * (len(runs) if len(given) == 1 else 1)
    found: list[dict[str, Any]] = [{what: Path(path)} for path in each]
    return [replace(run, **own) for run, own in zip(runs, found, strict=True)]


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options for reading the files of a report.

    force: accept files that do not belong together. source_unit: of the dumps' clock. unit: of the
    times shown; None for ms, or cycles when the clock counts cycles. numerics: compare logged
    values with a reference; None does so where it is possible. inputs: returns the inputs of a
    method's run, given the trace with the values; raises `MismatchError` or `UsageError` for a
    method that takes others.
    method: whose values are compared; None for "forward", the only one that ran, or
    the one that the inputs fit. backend_files: of backends' tools, for a report of one dump, each
    with what the user said of its call. calibration: the file of the machine's peaks; None for the
    one that was kept for it. choose: returns the trace of the calls that are reported.
    """

    force: bool = False
    source_unit: str = "ns"
    unit: str | None = None
    numerics: bool | None = None
    inputs: Callable[[Trace, str], Any] | None = None
    method: str | None = None
    backend_files: Sequence[Given] = ()
    choose: Callable[[Trace], Trace] = lambda trace: trace
    calibration: PathLike | None = None

    @property
    def scale(self) -> Scale:
        default = "cycles" if self.source_unit == "cycles" else "ms"
        return Scale(TimeScale.of(self.source_unit), TimeScale.of(self.unit or default))


def report_inputs(
    runs: Sequence[RunFiles], options: ReportOptions | None = None
) -> Iterator[ReportInput]:
    """Yield an input of `views.page.document_of` for each run.

    Raises the errors of the readers, `MismatchError` for files that do not belong together, the
    errors of `match_external`, and with `numerics=True` the reason why a diagnosis is not possible.
    """
    opened = _Opened()
    if options is not None and options.backend_files and sum(r.dump is not None for r in runs) != 1:
        raise UsageError(
            "--with needs one dump, whose delegate calls its files are of",
            hint="make a report of each run, each with its files",
        )
    paths = dict.fromkeys(path for files in runs for path in files.data)
    inputs = (_input(files, options or ReportOptions(), opened) for files in runs)
    yield from opened.with_external(list(inputs), [*paths]) if paths else inputs


class _Opened:
    """Opens and hashes each file once: several runs may share it."""

    def __init__(self) -> None:
        self.record = cache(read_etrecord)
        self.program = cache(read_program_file)
        self.fact = cache(file_fact)

    def with_external(
        self, inputs: Sequence[ReportInput], paths: Sequence[Path]
    ) -> Iterator[ReportInput]:
        """Yield the inputs with the .ptd files of their programs."""
        programs = [found.own_program for found in inputs]
        known = [program for program in programs if program is not None]
        if not known:
            raise UsageError(
                f"the program of {paths[0]} is missing",
                hint="name its .pte too, or leave out the .ptd",
            )
        files = {id(one := read_ptd(path)): (one, path) for path in paths}
        matched = iter(match_external(known, [one for one, _ in files.values()]))
        for found, program in zip(inputs, programs, strict=True):
            data = () if program is None else next(matched)
            facts = [self.fact("external weights", files[id(one)][1]) for one in data]
            yield replace(found, data=data, files=[*found.files, *facts])


def file_fact(role: str, path: Path) -> FileFact:
    """Return the size and the SHA-256 of a file."""
    buffer = open_source(path, role).buffer
    return FileFact(role, path.name, len(buffer), hashlib.sha256(buffer).hexdigest())


def _input(files: RunFiles, options: ReportOptions, opened: _Opened) -> ReportInput:
    record = None if files.record is None else opened.record(files.record)
    program, bundle = (None, None) if files.program is None else opened.program(files.program)
    roles = (
        ("dump", files.dump),
        ("record", files.record),
        ("program", files.program),
        ("debug buffer", files.debug_buffer),
        ("dump", files.values),
        ("debug buffer", files.values_buffer),
    )
    facts = [opened.fact(role, path) for role, path in roles if path is not None]
    if files.dump is None:
        without = "There are no logged values without a dump."
        if program is not None and not options.force:
            Side(files.name, program, record).check_record()
        return ReportInput(
            files.name, record=record, program=program, files=facts, numerics_note=without
        )
    trace = Trace(
        dump=read_etdump(files.dump),
        record=record,
        debug_buffer=None if files.debug_buffer is None else DebugBuffer.open(files.debug_buffer),
        program=program,
        forced=options.force,
    )
    notes = _verify(trace, options)
    trace.check_debug_buffer()
    trace = options.choose(trace)
    sections, saved_notes = files.saved(facts, record)
    placed: list[PlacedFile] = []
    if options.backend_files:
        placed = place_files(trace, options.backend_files, options.scale.source)
        facts += (
            opened.fact("file of a backend's tool", Path(file.path))
            for _, file in options.backend_files
        )
    numerics: Numerics | None = None
    note: str | None = "Numeric errors were not asked for (--no-numerics)."
    if options.numerics is not False:
        logged = trace
        if files.values is not None and not trace.refers_to_tensors:
            buffer = None if files.values_buffer is None else DebugBuffer.open(files.values_buffer)
            logged = replace(trace, dump=read_etdump(files.values), debug_buffer=buffer)
        numerics, note = diagnosis(logged, options, bundle)
    return ReportInput(
        files.name,
        trace=trace,
        scale=options.scale,
        files=facts,
        sections=sections,
        notes=[*notes, *saved_notes],
        numerics=numerics,
        numerics_note=note,
        has_values=files.values is not None,
        backend_files=placed,
        calibration=given_or_found(options.calibration, trace.saved_run),
    )


def _verify(trace: Trace, options: ReportOptions) -> list[str]:
    """Return, and warn of, doubts that files belong together; `MismatchError` if they do not."""
    if options.force:
        return []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace.verify()
    texts = list(dict.fromkeys(f"{warning.message}." for warning in caught))
    for text in texts:
        warnings.warn(text.removesuffix("."), EtscopeWarning, stacklevel=2)
    return [text[:1].upper() + text[1:] for text in texts]


# -- numerics


def diagnosis(
    trace: Trace, options: ReportOptions, bundle: BundledFile | None
) -> tuple[Numerics | None, str | None]:
    """Return the diagnosis of a trace's values, or why there is none; raise that if asked for."""
    from etscope.diagnosis.numeric_gap import methods_that_ran

    missing = _missing(trace)
    if missing is not None:
        if options.numerics:
            raise MissingDataError(missing.rstrip("."))
        return None, missing
    try:
        found = _of_one_method(trace, options, bundle)
    except EtscopeError as error:
        # These are told in place of the numbers, also where inputs were given.
        is_told = isinstance(error, (_SeveralMethodsError, OtherInputsError))
        if options.numerics or (options.inputs is not None and not is_told):
            raise
        parts = filter(None, (error.message, error.hint))
        return None, " ".join(f"{part[:1].upper()}{part[1:].rstrip('.')}." for part in parts)
    others = ", ".join(name for name in methods_that_ran(trace) if name != found.method)
    note = (
        f"Only the values of {found.method} are compared here, not those of {others}: choose with "
        "method=, --method."
    )
    return found, note if others else None


class _SeveralMethodsError(UsageError):
    """Several methods ran, and none was chosen."""


def _of_one_method(trace: Trace, options: ReportOptions, bundle: BundledFile | None) -> Numerics:
    """Diagnose one method: the one that is named, "forward", the only one that ran, or the only one
    that takes the inputs."""
    from etscope.diagnosis.numeric_gap import method_that_ran, methods_that_ran
    from etscope.diagnosis.numerics import RunToCompare, numerics_of

    def numerics(method: str) -> Numerics:
        inputs = None if options.inputs is None else options.inputs(trace, method)
        return numerics_of(trace, RunToCompare(method=method, inputs=inputs, bundle=bundle))

    ran = methods_that_ran(trace)
    several = options.method is None and len(ran) > 1
    if not several or (options.inputs is None and "forward" in ran):
        return numerics(method_that_ran(trace, options.method))
    if options.inputs is None:
        raise _several("several methods ran", ran)
    found: list[Numerics] = []
    problems: list[EtscopeError] = []
    for method in sorted(ran, key=lambda name: name != "forward"):
        try:
            found.append(numerics(method))
        except (MismatchError, NumericGapError, UsageError) as error:
            problems.append(error)
        if found and found[0].method == "forward":
            return found[0]
    if not found:
        raise problems[0]
    if len(found) > 1:
        raise _several("the inputs fit several methods", [one.method for one in found])
    return found[0]


def _several(what: str, methods: Sequence[str]) -> _SeveralMethodsError:
    hint = "choose whose values are compared (method=, --method)"
    return _SeveralMethodsError(f"{what}: {', '.join(methods)}", hint=hint)


def _missing(trace: Trace) -> str | None:
    """Return the reason why a diagnosis is not possible, if any."""
    if not trace.refers_to_tensors:
        return (
            "The dump has no logged values: etscope run --debug-level intermediate_outputs logs "
            "them."
        )
    if trace.debug_buffer is None:
        return "The dump refers to logged values, but their debug buffer was not given."
    if trace.record is None:
        return "Without an ETRecord there is no reference to compare the logged values with."
    for package in ("torch", "executorch"):
        if available(package) is None:
            return (
                f"{package} is not installed, which computes the reference: "
                "pip install 'etscope[torch]'."
            )
    return None


# -- of what is open already


def write_report(
    path: PathLike,
    trace: Trace,
    scale: Scale,
    options: ReportOptions,
    *,
    title: str | None = None,
    bundle: BundledFile | None = None,
    convert: TimeConverter | None = None,
) -> None:
    """Write the report on a trace as one HTML file; see `Inspector.report`."""
    numerics: Numerics | None = None
    note: str | None = "Numeric errors were not asked for."
    if options.numerics is not False:
        numerics, note = diagnosis(trace, options, bundle)
    found = ReportInput(
        Path(trace.dump.path).name if trace.dump.path else "a dump in memory",
        trace=trace,
        scale=scale,
        convert=convert,
        files=list(_facts(trace)),
        numerics=numerics,
        numerics_note=note,
    )
    text = page_html(document_of([found], title))
    with open_output(path) as out:
        out.write(text)


def save_report(
    folder: PathLike,
    name: str,
    *,
    trace: Trace | None = None,
    record: RecordView | None = None,
    program: Program | None = None,
    views: Sequence[GraphView] | None = None,
    numerics: Numerics | None = None,
    scale: Scale = NANOSECONDS,
) -> None:
    """Write the report of a run into TensorBoard's log directory. views: graphs made already."""
    known: dict[str, Any] = {"numerics": numerics, "scale": scale, "views": views}
    if numerics is None:
        known["numerics_note"] = "No numeric errors were written here."
    if trace is None:
        found = ReportInput(name, record=record, program=program, **known)
    else:
        found = ReportInput(name, trace=trace, files=list(_facts(trace)), **known)
    save_document(folder, document_of([found], name))


def _facts(trace: Trace) -> Iterator[FileFact]:
    """Yield the files that a trace was read from, with their fingerprints."""
    dump = trace.dump
    digest = hashlib.sha256(dump.source.buffer).hexdigest()
    yield FileFact("dump", Path(dump.source.name).name, dump.size, digest)
    record, program = trace.record, trace.program
    for role, path in (
        ("record", None if record is None else record.path),
        ("program", None if program is None else program.source.path),
        ("debug buffer", None if trace.debug_buffer is None else trace.debug_buffer.path),
    ):
        if path is not None and Path(path).is_file():
            yield file_fact(role, Path(path))
