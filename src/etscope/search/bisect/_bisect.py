"""Find the smallest failing piece of a model, and report it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from etscope.analysis.graphs.linked_graph import float_graph
from etscope.analysis.metrics import find_metric
from etscope.analysis.program.source_location import user_line
from etscope.backends.registry.export_options import ExportOptions
from etscope.errors import FormatError, MissingDataError, UsageError
from etscope.etrecord import as_record
from etscope.formats.bytes.files import PathLike, make_folder
from etscope.formats.identify import ETRECORD, identify
from etscope.model.graph import Graph
from etscope.model.table import Column, Kind, Table
from etscope.run.execute import IsolationOptions
from etscope.search.bisect import _repro_script
from etscope.search.bisect._probe import (
    Answer,
    CommandCheck,
    MetricCheck,
    Piece,
    Probe,
    metric_check,
    names_of,
    write_repro,
)
from etscope.search.trial import (
    FAILURES,
    UNKNOWN,
    SearchOptions,
    open_model,
    open_state,
    read_samples,
    require_export,
    versions,
)
from etscope.support.options import takes_fields
from etscope.support.shown import Shown

if TYPE_CHECKING:
    from etscope.bridge.lowering.subprograms import Subject
    from etscope.export import Source


BISECT, MODULES, LINEAR = "bisect", "modules", "linear"
STRATEGIES = (BISECT, MODULES, LINEAR)
QUANTIZED, FLOAT = "quantized", "float"
AGAINST = (QUANTIZED, FLOAT)
SNR, DECIBELS = "snr", 40.0  # an error of 1 % of the signal's amplitude


@dataclass(frozen=True, slots=True, eq=False)
class Bisected(Shown):
    """The failing pieces of a model.

    whole: the answer for the whole model. found: failing pieces, as positions in `graph`, with
    their answers; empty when the whole model is good. repro: the script that reproduces the failure
    of the first piece. tried, unknown: numbers of pieces that were tried, and that stayed unknown.
    """

    graph: Graph = field(repr=False)
    check: MetricCheck | CommandCheck = field(repr=False)
    whole: Answer
    found: tuple[tuple[Piece, Answer], ...]
    repro: Path | None
    tried: int
    unknown: int

    @property
    def nodes(self) -> list[list[str]]:
        """The names of the nodes of each piece that was found."""
        return [names_of(self.graph, piece) for piece, _ in self.found]

    def table(self) -> Table:
        """A row for each piece that was found."""
        metric = self.check.metric if isinstance(self.check, MetricCheck) else None
        name, unit = ("status", None) if metric is None else (metric.name, metric.unit or None)
        values: dict[str, list[Any]] = {
            "piece": [],
            "nodes": self.nodes,
            "ops": [],
            "modules": [],
            "source": [],
            "failure": [FAILURES[answer.kind] for _, answer in self.found],
            name: [answer.error for _, answer in self.found],
            "detail": [answer.detail or None for _, answer in self.found],
        }
        for piece, _ in self.found:
            nodes = [self.graph.nodes[index] for index in piece]
            values["piece"].append(piece_text(piece))
            values["ops"].append(_distinct(node.op for node in nodes))
            values["modules"].append(
                _distinct(node.modules[-1].path for node in nodes if node.modules)
            )
            lines = [line for node in nodes if (line := user_line(node.stack_trace)) is not None]
            values["source"].append(
                _distinct(PurePath(f"{line.file}:{line.line}").name for line in lines)
            )
        notes = [f"{self.tried} of the pieces of {len(self.graph.nodes)} nodes were tried"]
        if self.unknown:
            notes[0] += f"; {self.unknown} stayed unknown"
        notes[0] += "."
        if not self.found:
            notes.insert(0, "Nothing to find: the whole model is good.")
        if self.repro is not None:
            notes.append(f"The first piece fails by itself: python {self.repro}")
        columns = (
            Column("piece", priority=3),
            Column("nodes", Kind.LIST),
            Column("ops", Kind.LIST),
            Column("modules", Kind.LIST, priority=1),
            Column("source", Kind.LIST, priority=1),
            Column("failure", priority=2),
            Column(name, Kind.FLOAT, unit),
            Column("detail", priority=4),
        )
        return Table(columns=columns, values=values, notes=tuple(notes))


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, texts)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BisectOptions(IsolationOptions, SearchOptions):
    """Options of `bisect()`.

    backend, quantize, strict: as for `etscope.export.export`.
    inputs: samples of one shape, each as `export` takes inputs, or a file or folder of them. A
        piece is bad if it fails on any of them. By default, the inputs of the model.
    calibration: inputs that set the ranges of int8, each as in `inputs`; by default `inputs`.
    against: "quantized" compares with the graph that is lowered. "float" compares with the graph
        before quantization, so the error of quantization counts: each piece gets its inputs from
        that graph. This needs `quantize`, or a record with the float graph.
    check, tolerance: the name of a metric, and its worst number that is still good; 40 dB of "snr"
        by default.
    command: a command that decides in place of a metric; {program}, {inputs} and {expected} in it
        are replaced by file names. Exit status 0 means good, 125 unknown, anything else bad.
    strategy: "bisect" (by order of execution), "modules" (from the outermost module inwards),
        "linear" (each node alone).
    method: "forward" by default, or the only one.
    seed: torch's random seed, set before the model is made.
    isolate: run each piece in a separate process, so that a crash counts as a bad result.
    timeout: seconds for each run.
    progress: a function that is called after each piece with the `Piece` and its `Answer`.
    """

    backend: str = "portable"
    quantize: bool = False
    inputs: Sequence[Any] = ()
    calibration: Sequence[Any] = ()
    against: str = QUANTIZED
    check: str | None = None
    tolerance: float | None = None
    command: str | None = None
    strategy: str = BISECT
    method: str | None = None
    strict: bool | None = None
    seed: int = 0

    def checked(self) -> MetricCheck | CommandCheck:
        """Return the check to make. Raises `UsageError` for values that are not allowed."""
        if self.strategy not in STRATEGIES:
            raise UsageError(
                f"unknown strategy {self.strategy!r}", hint=f"it is {', '.join(STRATEGIES)}"
            )
        if self.against not in AGAINST:
            raise UsageError(
                f"a piece is compared with one of {', '.join(AGAINST)}, not {self.against!r}"
            )
        if self.calibration and not self.quantize:
            raise UsageError("calibration inputs are for quantization", hint="give quantize too")
        self.check_timeout()
        if self.command is not None:
            if self.check is not None or self.tolerance is not None:
                raise UsageError(
                    "a command and a metric exclude each other", hint="give one of them"
                )
            return CommandCheck(self.command)
        if self.check not in (None, SNR) and self.tolerance is None:
            find_metric(self.check)  # raises for an unknown metric
            raise UsageError(
                f"{self.check!r} has no default tolerance", hint="give a tolerance: --tolerance"
            )
        found = metric_check(
            self.check or SNR, DECIBELS if self.tolerance is None else self.tolerance
        )
        if found.metric.name not in _repro_script.METRICS:
            raise UsageError(
                f"the metric {found.metric.name!r} is not one that a script can measure by itself",
                hint=f"metrics to bisect by: {', '.join(_repro_script.METRICS)}; or give a command",
            )
        return found


@takes_fields(BisectOptions)
def bisect(
    model: Any, folder: PathLike, *, options: BisectOptions = BisectOptions(), **changes: Any
) -> Bisected:
    """Find the smallest piece of a model that fails on the runtime as the whole does.

    A piece is cut out of the exported graph, fed with the values that eager PyTorch has at its
    border, lowered and run; its outputs are compared with eager PyTorch's.

    model: a `torch.nn.Module`, an `ExportedProgram`, a dict of those by method, a `Source`, or the
        name of one: a .pt2 file, an ETRecord with its exported program, "file.py:make".
    folder: for `state.json` (each answer as it comes) and `repro/` (the piece that was found).
    options, changes: fields of `BisectOptions`, as `backend="xnnpack"`; changes go before
        `options`.

    Raises `MissingDataError` when the whole model is unknown, `MismatchError` when the state in the
    folder is from another model or other options, `RuntimeFailure` when the piece does not fail in
    a fresh process, and what `load_model` and `export` raise.
    """
    options = replace(options, **changes)
    checked = options.checked()
    require_export(wanted_by="bisect")
    from etscope.bridge.lowering import subprograms as bridge

    subject, graph = _subject(model, options)
    given = {
        "model": bridge.fingerprint(subject),
        "backend": options.backend,
        "check": str(checked),
        **({"against": options.against} if options.against != QUANTIZED else {}),
        "timeout": options.timeout,
        **versions(),
    }
    folder = make_folder(folder)
    state = open_state(folder, given, Answer, options, search="bisection")
    probe = Probe(subject, graph, options.backend, checked, options)

    def answer(piece: Piece) -> Answer:
        return state.trial(piece_text(piece), lambda: probe(piece), piece)

    whole = answer(tuple(range(len(graph.nodes))))
    if whole.failure == UNKNOWN:
        raise MissingDataError(
            f"the whole model cannot be judged: {whole.detail}",
            hint="bisect needs a whole model that runs and is judged good or bad",
        )

    def verdict(piece: Piece) -> Verdict:
        found = answer(piece)
        return Verdict(found.like(whole), found.outputs)

    failing: tuple[tuple[Piece, Answer], ...] = ()
    repro = None
    if whole.failure is not None:
        found = PieceSearch(graph, verdict).run(options.strategy)
        failing = tuple((piece, answer(piece)) for piece in found)
        repro = write_repro(folder / "repro", probe, *failing[0])
    answers = state.trials.values()
    unknown = sum(one.like(whole) is None for one in answers)
    return Bisected(graph, checked, whole, failing, repro, len(answers), unknown)


def _subject(model: Any, options: BisectOptions) -> tuple[Subject, Graph]:
    """Return the exported method, ready to be cut, and its operators as a graph.

    Raises `MissingDataError` if it computes nothing, or lacks the float graph to compare with.
    """
    from etscope.bridge.lowering import subprograms as bridge

    source, by_name, recorded = _program_of(model, options.method, options.seed)
    samples = read_samples(source, options.inputs) or [source.inputs]
    calibration = read_samples(source, options.calibration)
    lowering = ExportOptions(
        backend=options.backend, quantize=options.quantize, strict=options.strict
    )
    subject, floats = bridge.subject_of(source.model, samples, lowering, by_name, calibration)
    bridge.check_samples(subject)
    floats = floats or recorded
    if options.against == FLOAT:
        if floats is None:
            raise MissingDataError(
                "the model's graph before quantization is missing; it is the reference",
                hint="give quantize (--quantize), or an ETRecord with the float graph",
            )
        subject = bridge.with_floats(subject, floats)
    graph = bridge.operator_graph(subject.program)
    if not graph.nodes:
        raise MissingDataError("the model computes nothing: its graph has no operators")
    return subject, graph


def _program_of(model: Any, method: str | None, seed: int) -> tuple[Source, str | None, Any]:
    """One method of the model, with its inputs; the method's name where it has yet to be exported;
    and the record's program of it before it was quantized, None without one. An ETRecord's exported
    programs are a model of several methods."""
    from etscope.bridge.lowering.export import method_name
    from etscope.bridge.lowering.subprograms import nested
    from etscope.etrecord import parse_etrecord
    from etscope.export import Source

    record = None
    if isinstance(model, (str, Path)) and Path(model).is_file():
        with suppress(FormatError):  # a model of another kind
            record = parse_etrecord(str(model)) if identify(model) == ETRECORD else None
    if record is None:
        source = open_model(model, seed=seed)
    else:
        programs, flat = record.exported_programs, record._representative_inputs
        if not programs:
            raise MissingDataError(
                f"{model} has no exported program to cut pieces of",
                hint="etscope export writes the exported program; in a script: "
                "generate_etrecord(exported_program=)",
            )
        main = method_name(programs)
        given = {} if flat is None else {main: nested(programs[main], flat)}
        source = Source(str(model), Path(model).stem, programs, given)
    if not isinstance(source.model, Mapping):
        return source, method, None
    name = method_name(source.model, method)
    inputs = source.inputs.get(name) if isinstance(source.inputs, Mapping) else source.inputs
    floats = None if record is None else float_graph(as_record(record), name)
    before = (record.graph_map or {}).get(floats) if record is not None and floats else None
    return replace(source, model=source.model[name], inputs=inputs), None, before


# -- The search.
#
# An unknown piece is never taken for a good one: its neighbours are tried, and where those are
# unknown too, the search goes on with the larger piece.


class Verdict(NamedTuple):
    """The judgement of a piece. bad: it fails as the whole model does; None if unknown. outputs:
    its wrong outputs.
    """

    bad: bool | None
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PieceSearch:
    """A search in a graph that is known to fail as a whole. `attempt` tries a piece."""

    graph: Graph
    attempt: Callable[[Piece], Verdict]

    def run(self, strategy: str) -> list[Piece]:
        """The smallest failing pieces: one, or with "linear" all single nodes that fail alone."""
        whole = tuple(range(len(self.graph.nodes)))
        if strategy == LINEAR:
            alone = [(index,) for index in whole if self._is_bad((index,))]
            return list(alone) or [self.shrink(whole)]
        return [self.shrink(self._innermost_module(whole) if strategy == MODULES else whole)]

    def _is_bad(self, piece: Piece) -> bool:
        return self.attempt(piece).bad is True

    def _innermost_module(self, piece: Piece) -> Piece:
        """The innermost module that fails alone, within modules that do."""
        deepest = max((len(self.graph.nodes[index].modules) for index in piece), default=0)
        for depth in range(deepest):
            children = self._children(piece, depth)
            if len(children) == 1:
                continue
            failing = next((child for child in children if self._is_bad(child)), None)
            if failing is None:
                return piece
            piece = failing
        return piece

    def _children(self, piece: Piece, depth: int) -> list[Piece]:
        """The modules of the piece at a depth, and the runs of nodes between them."""
        groups: dict[object, list[int]] = {}
        modules_before = 0
        for index in piece:
            modules = self.graph.nodes[index].modules
            if len(modules) > depth:
                groups.setdefault(modules[depth].path, []).append(index)
                modules_before += 1
            else:
                groups.setdefault(modules_before, []).append(index)
        return [tuple(group) for group in groups.values()]

    def shrink(self, piece: Piece) -> Piece:
        """Return a smaller failing piece of a failing piece. No connected part of the result that
        leaves out a node fails.
        """
        # The shortest failing beginning, in order of execution.
        piece = piece[: self._boundary(0, len(piece), lambda length: piece[:length])]
        # Of that, only the nodes that a wrong output depends on.
        for output in self.attempt(piece).outputs:
            smaller = self.graph.leading_to(piece, (output,))
            if smaller and len(smaller) < len(piece) and self._is_bad(smaller):
                piece = smaller
                break
        # The shortest failing end.
        if self._is_bad(piece[-1:]):
            return piece[-1:]
        piece = piece[self._boundary(len(piece), 0, lambda start: piece[start:]) :]
        return self._minimal(piece)

    def _boundary(self, good: int, bad: int, piece_at: Callable[[int], Piece]) -> int:
        """Return the position nearest to `good`, found by bisection, with a bad piece; unknown
        positions are skipped."""
        while abs(bad - good) > 1:
            middle = (good + bad) // 2
            between = range(min(good, bad) + 1, max(good, bad))
            for position in sorted(between, key=lambda number: abs(number - middle)):
                verdict = self.attempt(piece_at(position)).bad
                if verdict is not None:
                    good, bad = (good, position) if verdict else (position, bad)
                    break
            else:
                break
        return bad

    def _minimal(self, piece: Piece) -> Piece:
        """Delta debugging (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
        Input, 2002), with the connected parts of each candidate."""
        count = 2
        while len(piece) > 1:
            smaller = next((p for p in self._parts(piece, count) if self._is_bad(p)), None)
            if smaller is not None:
                piece, count = smaller, max(2, min(count - 1, len(smaller)))
            elif count >= len(piece):
                break
            else:
                count = min(2 * count, len(piece))
        return piece

    def _parts(self, piece: Piece, count: int) -> Iterator[Piece]:
        """Connected parts of each of `count` chunks, then of the piece without each chunk."""
        edges = [len(piece) * number // count for number in range(count + 1)]
        chunks = [piece[a:b] for a, b in pairwise(edges) if a < b]
        candidates = list(chunks)
        if count > 2:
            candidates += [
                tuple(index for index in piece if index not in chunk) for chunk in map(set, chunks)
            ]
        seen: set[Piece] = {piece}
        for candidate in candidates:
            for part in self.graph.connected(candidate):
                if part not in seen:
                    seen.add(part)
                    yield part


def piece_text(piece: Piece) -> str:
    """The positions of the piece as text: "0-4,7"."""
    runs: list[list[int]] = []
    for index in piece:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
