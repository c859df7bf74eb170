"""Reports: files that belong together, opened once, and the inputs of the page for each run."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.analysis.backend_files.placement import Given, place_files
from etscope.analysis.generation.pace import (
    Pace,
    generation_section,
    pace_section,
    phase_table,
)
from etscope.analysis.matching.export import Export
from etscope.analysis.numerics.runs import OtherInputsError
from etscope.analysis.profile.scale import Scale, TimeConverter
from etscope.analysis.profile.trace import Capture, Trace
from etscope.analysis.work.roofline import choose_calibration
from etscope.capture.files import RunFiles
from etscope.errors import (
    EtscopeError,
    EtscopeWarning,
    MismatchError,
    MissingDataError,
    NumericGapError,
    UsageError,
    reading,
)
from etscope.formats.bytes.files import PathLike, open_source
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import RecordView, read_etrecord
from etscope.formats.program.bpte import read_program_file
from etscope.formats.program.ptd import match_external, read_ptd
from etscope.formats.run_json import RUN_JSON, SavedRun, read_run_json
from etscope.model.report import Section, facts, rows
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind
from etscope.reporting.tensorboard_plugin import save_document
from etscope.support.optional import available
from etscope.views.page import FileFact, ReportRun, document_of
from etscope.views.page.run import NANOSECONDS

if TYPE_CHECKING:
    from etscope.analysis.graphs.views import GraphView
    from etscope.analysis.numerics.rows import Numerics
    from etscope.formats.program.bpte import BundledFile

__all__ = ["ReportOptions", "diagnosis", "report_document", "report_inputs", "save_report"]

_MS = 1e6  # ns
_TRACED = {None: "untraced", "times": "traced: times", "values": "traced: values"}


def saved_sections(saved: SavedRun) -> list[Section]:
    """Return the sections "environment" and "latency"; a generation has its tokens and pace instead
    of "latency". Raises `FormatError` for a damaged file."""
    with reading(RUN_JSON, saved.path):
        calls, conditions, memory = saved.calls, saved.conditions, saved.memory
        made = saved.generation
        iterations = sum(call.get("iterations").whole() for call in calls)
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
            sections = [environment, generation_section(made)]
            if made.untraced is not None:
                pace = Pace.of(made.untraced)
                phases = phase_table(pace)
                named = replace(phases, title=f"{phases.title}, without tracing")
                sections += (Section("phases", named), pace_section(pace))
            return sections
        return [environment, _latency_section(saved)]


def _latency_section(saved: SavedRun) -> Section:
    """Return the times around the runtime's execute, of each run and method."""
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
    return rows(
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
        notes=("Tracing adds time: only the untraced run shows how long the model takes.",)
        if len(latencies) > 1
        else (),
    )


def _of_run_json(
    files: RunFiles, facts: Sequence[FileFact], record: RecordView | None
) -> tuple[list[Section], list[str]]:
    """Return the sections of run.json and notes; no sections if it belongs to another program."""
    if files.facts is None:
        return [], []
    saved = read_run_json(files.facts)
    with reading(RUN_JSON, saved.path):
        ran = saved.text("program_sha256")
    known = {fact.sha256 for fact in facts if fact.role == "program"}
    if record is not None and record.fingerprints is not None:
        known.add(record.fingerprints.program_sha256)
    is_bundle = files.program is not None and files.program.suffix == ".bpte"
    if ran is not None and known and ran not in known and not is_bundle:
        return [], ["The run.json next to the dump belongs to another program and is ignored."]
    return saved_sections(saved), []


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options for reading the files of a report.

    force: accept files that do not belong together. source_unit: the unit of the dumps' clock.
    unit: the unit of the shown times; None for ms, or cycles if the clock counts cycles. numerics:
    compare logged values with a reference; None does so if it is possible. inputs: a function that
    returns the inputs of a method's run, given the trace with the values; it raises `MismatchError`
    or `UsageError` if they do not fit the method. method: the method with the values to compare;
    None for "forward", the only method that ran, or the method that the inputs fit. backend_files:
    files of backends' tools, for a report on one dump, each with the delegate call that the user
    named for it. choose: a function that returns the trace of the calls to report. peaks: the file
    of a calibration of the machine; None for the file that was kept for it.
    """

    force: bool = False
    source_unit: str = "ns"
    unit: str | None = None
    numerics: bool | None = None
    inputs: Callable[[Trace, str], Any] | None = None
    method: str | None = None
    backend_files: Sequence[Given] = ()
    choose: Callable[[Trace], Trace] = lambda trace: trace
    peaks: PathLike | None = None

    @property
    def scale(self) -> Scale:
        return Scale.of(self.source_unit, self.unit)


def report_inputs(
    runs: Sequence[RunFiles], options: ReportOptions | None = None
) -> Iterator[ReportRun]:
    """Yield each run as `views.page.document_of` takes it.

    Raises the errors of the readers, `MismatchError` for files that do not belong together, the
    errors of `match_external`, and with `numerics=True` the reason why a diagnosis is not possible.
    """
    options = options or ReportOptions()
    if options.backend_files and sum(files.dump is not None for files in runs) != 1:
        raise UsageError(
            "--with needs exactly one dump: its files belong to the delegate calls of one run",
            hint="make one report for each run, with the files of that run",
        )
    opened = _Opened()
    for files, export in zip(runs, opened.exports(runs), strict=True):
        yield opened.run(files, export, options)


class _Opened:
    """Opens and hashes each file once: several runs may share it."""

    def __init__(self) -> None:
        self._record = cache(read_etrecord)
        self._program = cache(read_program_file)
        self._fact = cache(file_fact)

    def exports(self, runs: Sequence[RunFiles]) -> list[Export]:
        """Return the program and the record of each run, with the .ptd files of its program."""
        exports = [
            Export(
                None if files.program is None else self._program(files.program)[0],
                None if files.record is None else self._record(files.record),
            )
            for files in runs
        ]
        paths = list(dict.fromkeys(path for files in runs for path in files.data))
        if not paths:
            return exports
        known = [one.recorded_program for one in exports]
        programs = [program for program in known if program is not None]
        if not programs:
            raise UsageError(
                f"the program of {paths[0]} is missing",
                hint="add the program's .pte, or leave out the .ptd",
            )
        matched = iter(match_external(programs, [read_ptd(path) for path in paths]))
        return [
            one if program is None else replace(one, data=next(matched))
            for one, program in zip(exports, known, strict=True)
        ]

    def run(self, files: RunFiles, export: Export, options: ReportOptions) -> ReportRun:
        """Open the dump of a run and diagnose its values; without a dump, check the record."""
        roles: list[tuple[str, PathLike | None]] = [
            ("dump", files.dump),
            ("record", files.record),
            ("program", files.program),
            ("debug buffer", files.debug_buffer),
            ("dump", files.values),
            ("debug buffer", files.values_buffer),
        ]
        if files.dump is not None:
            roles += (("file of a backend's tool", file.path) for _, file in options.backend_files)
        roles += (("external weights", one.source.path) for one in export.data)
        facts = [self._fact(role, Path(path)) for role, path in roles if path is not None]
        if files.dump is None:
            if export.program is not None and not options.force:
                export.check_record(files.name)
            without = "Numeric errors: unknown without a dump with logged values."
            return ReportRun(files.name, export, files=facts, numerics_note=without)
        buffer = files.debug_buffer
        trace = Trace(
            dump=read_etdump(files.dump),
            record=export.record,
            debug_buffer=None if buffer is None else DebugBuffer.open(buffer),
            program=export.program,
            forced=options.force,
            data=export.data,
        )
        notes = _verify(trace, options)
        trace.check_debug_buffer()
        trace = options.choose(trace)
        given = options.backend_files
        placed = place_files(trace, given, options.scale.source) if given else []
        sections, saved_notes = _of_run_json(files, facts, export.record)
        numerics: Numerics | None = None
        note: str | None = "Numeric errors: turned off with -X numerics=false."
        if options.numerics is not False:
            logged = trace
            if files.values is not None and not trace.refers_to_tensors:
                buffer = files.values_buffer
                values = None if buffer is None else DebugBuffer.open(buffer)
                logged = replace(trace, dump=read_etdump(files.values), debug_buffer=values)
            bundle = None if files.program is None else self._program(files.program)[1]
            numerics, note = diagnosis(logged, options, bundle)
        return ReportRun(
            files.name,
            trace,
            scale=options.scale,
            files=facts,
            sections=sections,
            notes=[*notes, *saved_notes],
            numerics=numerics,
            numerics_note=note,
            has_values=files.values is not None,
            backend_files=placed,
            calibration=choose_calibration(options.peaks, trace.saved_run),
        )


def file_fact(role: str, path: Path) -> FileFact:
    """Return the size and the SHA-256 of a file."""
    buffer = open_source(path, role).buffer
    return FileFact(role, path.name, len(buffer), hashlib.sha256(buffer).hexdigest())


def _verify(trace: Trace, options: ReportOptions) -> list[str]:
    """Return doubts that the files belong together, and warn of each.

    Raises `MismatchError` if they do not.
    """
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
    """Return the diagnosis of a trace's values and a note; None and the reason if it is impossible.

    Raises the reason instead if `options.numerics` is True, or inputs are given.
    """
    from etscope.analysis.numerics.runs import methods_that_ran

    missing = _missing(trace)
    if missing is not None:
        if options.numerics:
            raise MissingDataError(missing.rstrip("."))
        return None, missing
    try:
        found = _of_one_method(trace, options, bundle)
    except EtscopeError as error:
        # The page shows these in place of the numbers, also with given inputs.
        is_told = isinstance(error, (_SeveralMethodsError, OtherInputsError))
        if options.numerics or (options.inputs is not None and not is_told):
            raise
        parts = filter(None, (error.message, error.hint))
        return None, " ".join(f"{part[:1].upper()}{part[1:].rstrip('.')}." for part in parts)
    others = ", ".join(name for name in methods_that_ran(trace) if name != found.method)
    note = (
        f"Only the values of {found.method} are compared, not {others}. Choose another with "
        "--method or method=."
    )
    return found, note if others else None


class _SeveralMethodsError(UsageError):
    """Several methods ran, and none was chosen."""


def _of_one_method(trace: Trace, options: ReportOptions, bundle: BundledFile | None) -> Numerics:
    """Diagnose one method: the one that is named, "forward", the only one that ran, or the only one
    that takes the inputs."""
    from etscope.analysis.numerics.runs import method_that_ran, methods_that_ran
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
    hint = "choose the method to compare (method=, --method)"
    return _SeveralMethodsError(f"{what}: {', '.join(methods)}", hint=hint)


def _missing(trace: Trace) -> str | None:
    """Return the reason why a diagnosis is not possible, if any."""
    if not trace.refers_to_tensors:
        return (
            "The dump does not have logged values. Log them: etscope run --debug-level "
            "intermediate_outputs."
        )
    if trace.debug_buffer is None:
        return "The dump refers to logged values, which are in the debug buffer. Add that file."
    if trace.record is None:
        return "The logged values need a reference. Add the ETRecord."
    for package in ("torch", "executorch"):
        if available(package) is None:
            return (
                f"{package} computes the reference and is not installed: "
                "pip install 'etscope[torch]'."
            )
    return None


# -- of what is open already


def report_document(
    trace: Trace,
    options: ReportOptions,
    *,
    title: str | None = None,
    bundle: BundledFile | None = None,
    convert: TimeConverter | None = None,
) -> dict[str, Any]:
    """Return the document of the report on a trace; see `Inspector.report`."""
    numerics: Numerics | None = None
    note: str | None = "Numeric errors: turned off."
    if options.numerics is not False:
        numerics, note = diagnosis(trace, options, bundle)
    run = ReportRun(
        Path(trace.dump.path).name if trace.dump.path else "a dump in memory",
        trace,
        scale=options.scale,
        convert=convert,
        files=list(_facts(trace)),
        numerics=numerics,
        numerics_note=note,
    )
    return document_of([run], title)


def save_report(
    folder: PathLike,
    name: str,
    capture: Capture,
    *,
    views: Sequence[GraphView] | None = None,
    numerics: Numerics | None = None,
    scale: Scale = NANOSECONDS,
) -> None:
    """Write the report of a run into TensorBoard's log directory. views: graphs made already."""
    run = ReportRun(
        name,
        capture,
        scale=scale,
        files=list(_facts(capture)) if isinstance(capture, Trace) else (),
        numerics=numerics,
        numerics_note="No numeric errors were written here." if numerics is None else None,
        views=views,
    )
    save_document(folder, document_of([run], name))


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
