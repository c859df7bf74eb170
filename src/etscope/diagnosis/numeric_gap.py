"""The numeric gap: the distance between a device's values and a reference run's, as
`Inspector.numeric_gap` and as upstream's table.

The reference is computed node by node, and each value is compared at once, so that only a few
tensors are in memory at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.graphs.linked_graph import method_of_graph
from etscope.analysis.matching.matching import Coverage, Matching, Pair, parts_of
from etscope.analysis.metrics import METRICS, Metric, find_metric, measure_all
from etscope.analysis.numerics.rows import source_columns
from etscope.analysis.numerics.runs import (
    MethodRun,
    PairedValues,
    TracedMethod,
    check_record,
    check_values,
    method_that_ran,
)
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import graph_name, handle_list
from etscope.analysis.program.source_location import common_module, lines_of
from etscope.diagnosis.numerics import RunToCompare
from etscope.diagnosis.reference import (
    EarlierRun,
    ReferenceGraphs,
    RunInputs,
    named_graph,
    reference_program,
)
from etscope.errors import EtscopeWarning, MissingDataError, NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE, EXPORTED
from etscope.formats.program.scalar_type import numpy_dtype
from etscope.formats.torch_files.pickle_reader import TensorSubclassError
from etscope.model.graph import Graph, SourceLine
from etscope.model.table import Column, Kind, Table, object_column
from etscope.support.optional import require
from etscope.support.shown import Shown
from etscope.support.tensor_spill import TensorSpill

if TYPE_CHECKING:
    import pandas as pd


# Receives each comparison: row, reference, value.
Keep = Callable[["GapRow", Any, Any], None]


@dataclass(frozen=True, slots=True, eq=False)
class GapRow(Shown):
    """A value of the device and its distance from the reference.

    event: the logged name of the instruction ("native_call_add.out", "DELEGATE_CALL"). node, op:
    the node of the reference graph and its operator. nodes: all nodes that the instruction
    computes; several for a delegate. handles: the instruction's debug handles. metrics: the
    distance in each metric, by name; None for values that are not numeric. loop_pass: the number of
    the loop's pass, from 0. lines: the Python lines, for a delegate's call all of them. module: the
    innermost module that contains these nodes.
    """

    pair: Pair
    event: str
    label: str
    node: str
    op: str
    nodes: tuple[str, ...]
    handles: tuple[int, ...]
    metrics: Mapping[str, float | None]
    shape: tuple[int, ...]
    dtype: str
    loop_pass: int = 0
    lines: tuple[SourceLine, ...] = ()
    module: str | None = None


@dataclass(frozen=True)
class Gap(Shown):
    """The compared values in the reference's order of computation.

    `graph` is the reference's, `run` the number of the run in the dump. `coverage` says what
    could not be compared.
    """

    method: str
    reference: str
    graph: Graph
    run: int
    metrics: tuple[Metric, ...]
    rows: tuple[GapRow, ...]
    coverage: Coverage
    matching: Matching

    def __repr__(self) -> str:
        names = ", ".join(metric.name for metric in self.metrics)
        return f"<Gap of {self.method} to {self.reference}: {names} of {len(self.rows)} values>"

    def table(self) -> Table:
        rows = self.rows
        return Table.of(
            {
                Column("instruction", Kind.INT): [row.pair.instruction for row in rows],
                Column("output", Kind.INT, priority=3): [row.pair.output for row in rows],
                Column("event", priority=2): [row.event for row in rows],
                Column("node"): [
                    row.node if row.pair.element is None else f"{row.node}[{row.pair.element}]"
                    for row in rows
                ],
                Column("op", priority=1): [row.op for row in rows],
                **{
                    Column(metric.name, Kind.FLOAT, unit=metric.unit): [
                        row.metrics[metric.name] for row in rows
                    ]
                    for metric in self.metrics
                },
                Column("dtype", priority=3): [row.dtype for row in rows],
                Column("shape", Kind.LIST, priority=2): [list(row.shape) for row in rows],
                Column("handles", Kind.LIST, priority=4): [list(row.handles) for row in rows],
                **source_columns(rows, module_priority=3),
            },
            title=f"Numeric gap of {self.method} to {self.reference}",
        )


class Reference:
    """A graph of a method that PyTorch computes on the inputs of a run.

    name: "exported_program", "edge_dialect_exported_program", or another graph of the record. By
    default the exported program, if the edge program's nodes all lead back to it, or `best_effort`
    does without that; else the edge program. before: returns the runs before, called only if a
    method keeps state or shares another method's.

    Raises `NumericGapError` without a record, for a graph that it does not have (an unknown name),
    and, when the reference is run, for inputs that are not the program's.
    """

    def __init__(
        self,
        method: TracedMethod,
        name: str | None,
        inputs: Any,
        before: Callable[[], Sequence[EarlierRun]] = tuple,
        *,
        best_effort: bool = False,
    ) -> None:
        check_record(method.trace, "a reference needs")
        self._method, self._inputs, self._before = method, inputs, before
        self._record, self._graphs = method.trace.needed_record, ReferenceGraphs.of(method.trace)
        default = self._default(best_effort) if name is None else None
        self.graph = default or self._graphs.of_method(method, name or EDGE)
        # What another method wrote is state of a method that only reads it, too.
        self._shares = bool(RunInputs(method).writers)
        # Its weights are read in a thread from now on.
        self._recorded = None if self._shares else self._graphs.recorded(self.graph)

    def values(self, wanted: Container[str] | None = None) -> Iterator[tuple[str, Any]]:
        """Yield (node's name, value) in order of execution: arrays, numbers, and tuples or lists of
        them; see `bridge.reference.reference.reference_arrays`. wanted: the only nodes needed."""
        from etscope.bridge.eager import threads_for

        with threads_for(self.graph):
            yield from self._computed(wanted)

    def _computed(self, wanted: Container[str] | None) -> Iterator[tuple[str, Any]]:
        from etscope.bridge.reference.reference import arrays_of, keeps_state, reference_arrays

        recorded = self._recorded
        if recorded is not None and recorded.interpreter is not None:
            running = recorded.interpreter.run(self._inputs, wanted=wanted)
            for node, value in recorded.checked(running):
                yield node, arrays_of(value)
            return
        program, names = self._graphs.rebuilt(self.graph)
        state = None
        if self._shares or keeps_state(program):
            state = self._state_before(program)
        for node, value in reference_arrays(program, self._inputs, state):
            yield names.get(node, node), value

    def _state_before(self, program: Any) -> dict[str, Any]:
        """Return the state that the runs before leave: buffers by name."""
        from etscope.bridge.reference.reference import state_after

        programs, state = {self._method.name: program}, dict[str, Any]()
        kind = self.graph.name.partition("/")[0]
        for one in self._before():
            if one.method not in programs:
                name = named_graph(self._record, kind, one.method)
                programs[one.method] = reference_program(self._record, name)
            state = state_after(programs[one.method], [one.inputs], state)
        return state

    def _default(self, best_effort: bool) -> Graph | None:
        """The exported program's graph, if the edge program's nodes lead back to it."""
        method, record = self._method.name, self._record
        try:
            name = graph_name(record, EXPORTED, method)
        except MissingDataError:
            return None
        edge = self._method.symbols.graph
        if edge is None or method_of_graph(record, name) not in (method, None):
            return None
        graph = self._graphs.graph(name)
        recorded = self._graphs.recorded(graph)
        try:
            if recorded is not None:
                _ = recorded.interpreter
        except TensorSubclassError as error:
            warnings.warn(
                f"compared with the edge program and not the exported one: {error.message}",
                EtscopeWarning,
                stacklevel=4,
            )
            return None
        if best_effort:
            return graph
        lost = self._method.trace.once(("lost nodes", method, name), lambda: _lost(edge, graph))
        if lost:
            warnings.warn(
                f"{len(lost)} operators of the edge program do not say what they come from in the "
                f"exported program ({', '.join(lost[:3])}): compared with the edge program instead "
                "(disable_debug_handle_valdiation=True takes the exported program all the same)",
                EtscopeWarning,
                stacklevel=4,
            )
            return None
        return graph


def _lost(edge: Graph, graph: Graph) -> list[str]:
    """The edge nodes with a debug handle that no exported node has."""
    linked = {part.debug_handle for parts in parts_of(edge, graph).values() for part in parts}
    return [
        path
        for path, node in edge.operators.items()
        if node.debug_handle and node.debug_handle not in linked
    ]


def numeric_gap(
    method: TracedMethod,
    reference: Reference,
    metrics: Iterable[str | Metric] = ("mse",),
    run: int | MethodRun | None = None,
    *,
    keep: Keep | None = None,
) -> Gap:
    """Compare the values that one run of a method logged with a reference run on the same
    inputs.

    metrics: metrics from `analysis.metrics`. run: see `TracedMethod.run`. keep: a function that
    gets each compared pair of arrays; it must copy them to keep them.

    Raises `NumericGapError` without values, or if none matches a value of the reference.
    """
    found = tuple(map(find_metric, metrics))
    chosen = method.run(run)
    check_values(method.trace)
    logged = method.trace.once(
        ("logged run", method.name, chosen.number), lambda: method.logged(chosen)
    )
    matching = method.match(logged, reference.graph)
    paired = PairedValues(logged, matching)
    symbols = method.symbols
    rows: list[GapRow] = []
    described: dict[Pair, dict[str, Any]] = method.trace.once(
        ("gap rows", method.name, chosen.number, reference.graph.name), dict
    )
    for pair, loop_pass, expected, actual in paired.compared(reference.values(matching.by_node)):
        about = described.get(pair)
        if about is None:
            about = _about(pair, paired, symbols, reference.graph)
            described[pair] = about
        row = GapRow(
            metrics=measure_all(found, expected, actual),
            shape=tuple(np.shape(expected)),
            dtype=str(getattr(expected, "dtype", type(expected).__name__)),
            loop_pass=loop_pass,
            **about,
        )
        if keep is not None:
            keep(row, expected, actual)
        rows.append(row)
    coverage, name = paired.coverage(), reference.graph.name
    if not rows:
        raise _nothing_compared(coverage, name)
    return Gap(
        method.name, name, reference.graph, chosen.number, found, tuple(rows), coverage, matching
    )


def _about(pair: Pair, paired: PairedValues, symbols: Any, graph: Graph) -> dict[str, Any]:
    """The fields of a row that are the same for all values of a pair."""
    record = paired.records[pair.instruction]
    covered, handles = paired.matching.covered.get(pair.instruction, ()), symbols.handles
    if pair.delegate_id is not None:
        known = symbols.delegates[pair.instruction].handles
        covered, handles = (), {pair.instruction: known[str(pair.delegate_id)]}
    names = tuple(dict.fromkeys((*covered, pair.node)))
    is_call = record.kind == "delegate" and pair.delegate_id is None
    computed = [graph.calls[name] for name in (names if is_call else (pair.node,))]
    return {
        "pair": pair,
        "event": record.event if pair.delegate_id is None else str(pair.delegate_id),
        "label": record.label,
        "node": pair.node,
        "op": graph.calls[pair.node].op,
        "nodes": names,
        "handles": tuple(handle_list(handles.get(pair.instruction))),
        "lines": lines_of(computed),
        "module": common_module(computed),
    }


def _nothing_compared(coverage: Coverage, name: str) -> NumericGapError:
    reasons = [unpaired.reason for unpaired in coverage.outputs] or ["nothing was logged"]
    return NumericGapError(
        f"none of the {len(coverage.outputs)} logged values could be compared with {name}: "
        f"{max(set(reasons), key=reasons.count)}",
        hint="the ETDump, the ETRecord and the program must be of one export",
    )


def gap_of(
    trace: Trace,
    metrics: Sequence[str],
    asked: RunToCompare,
    *,
    best_effort: bool = False,
    keep: Keep | None = None,
) -> Gap:
    """The numeric gap of a run to a graph of the record; see `Inspector.numeric_gap`."""
    check_record(trace, "a numeric gap needs")
    method = TracedMethod(trace, method_that_ran(trace, asked.method))
    chosen = method.run(asked.run)
    check_values(trace)
    inputs = RunInputs(method, asked.inputs, asked.bundle)

    def before() -> Sequence[EarlierRun]:
        found = inputs.before(chosen)
        if found.runs and found.doubts:
            raise NumericGapError(
                "this method keeps state from run to run, and the state before this run is not "
                f"known: {found.doubts[0]}",
                hint="compare the first run: run=0",
            )
        return found.runs

    reference = Reference(
        method, asked.reference_graph, inputs.of(chosen), before, best_effort=best_effort
    )
    return numeric_gap(method, reference, metrics, chosen, keep=keep)


# -- upstream's table

_Compared = tuple[GapRow, Any, Any]  # a row, the reference's value and the logged one

COLUMNS = (
    "aot_debug_handle",
    "aot_ops",
    "aot_intermediate_output",
    "runtime_ops",
    "runtime_debug_handle",
    "runtime_intermediate_output",
    "gap",
    "stacktraces",
)


def metric_of(distance: Any) -> str | None:
    """The metric that a distance names, in any case; None for a comparator.

    Raises `UsageError` for an unknown one.
    """
    if isinstance(distance, str):
        name = distance.strip().lower()
        if name in METRICS:
            return name
    elif hasattr(distance, "element_compare") and hasattr(distance, "compare"):
        return None
    raise UsageError(
        f"Unsupported distance metric {distance!r}",
        hint="MSE, L1 or SNR, or a NumericalComparatorBase; also: " + ", ".join(METRICS),
    )


def calculate(
    trace: Trace, distance: Any, asked: RunToCompare, *, best_effort: bool
) -> pd.DataFrame:
    """See `Inspector.calculate_numeric_gap`."""
    metric = metric_of(distance)
    require("pandas", wanted_by="calculate_numeric_gap")
    spill = TensorSpill()
    kept: list[_Compared] = []

    def keep(row: GapRow, expected: Any, logged: Any) -> None:
        kept.append((row, spill.add(expected), spill.add(logged)))

    metrics = [] if metric is None else [metric]
    gap = gap_of(trace, metrics, asked, best_effort=best_effort, keep=keep)
    cells = _Cells(gap, kept, spill)
    return cells.compared(distance) if metric is None else cells.frame(metric)


class _Cells:
    """The compared values as upstream's columns: a row for each output of an instruction, with a
    list of the values where a loop gave several."""

    def __init__(self, gap: Gap, kept: Iterable[_Compared], spill: TensorSpill) -> None:
        self._spill, self._graph = spill, gap.graph
        self._stacks = {path: node.stack_trace for path, node in gap.graph.calls.items()}
        self._rows: dict[Pair, list[_Compared]] = {}
        for entry in kept:
            self._rows.setdefault(entry[0].pair, []).append(entry)

    def frame(self, metric: str) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for entries in self._rows.values():
            first = entries[0][0]
            gaps = [row.metrics[metric] for row, _, _ in entries]
            expected, logged = self._values(entries)
            rows.append(
                (
                    first.handles,
                    list(first.nodes),
                    expected,
                    [first.event],
                    first.handles,
                    logged,
                    gaps,
                    self._traces(first.nodes),
                )
            )
        frame: pd.DataFrame = pd.DataFrame(
            {name: object_column([row[at] for row in rows]) for at, name in enumerate(COLUMNS)}
        )
        return frame

    def compared(self, comparator: Any) -> pd.DataFrame:
        """Make the table with the user's comparator, which gets all values at once."""
        mapping = {}
        aot: dict[tuple[int, ...], list[str]] = {}
        runtime: dict[tuple[int, ...], list[str]] = {}
        for row, expected, logged in self._by_operator():
            mapping[row.handles, expected] = (row.handles, logged)
            _append(aot, row.handles, row.nodes)
            _append(runtime, row.handles, [row.event])
        frame: pd.DataFrame = comparator.compare(mapping, aot, runtime)
        if len(frame):
            frame["stacktraces"] = object_column([self._traces(ops) for ops in frame["aot_ops"]])
        return frame

    def _by_operator(self) -> Iterator[_Compared]:
        """Yield (row, expected, logged) as upstream gives them to comparators: tuples of all
        outputs for an operator that has several. In a loop an output stands alone, as a tuple of
        the values of all passes."""
        operators: dict[Any, list[_Compared]] = {}
        for entries in self._rows.values():
            row, pair = entries[0][0], entries[0][0].pair
            expected, logged = self._values(entries)
            if len(entries) > 1:
                operators[pair] = [(row, tuple(expected), tuple(logged))]
            elif pair.element is None:
                operators[pair] = [(row, expected, logged)]
            else:
                key = pair.instruction, pair.node, pair.delegate_id
                operators.setdefault(key, []).append((row, expected, logged))
        for key, outputs in operators.items():
            yield from outputs if isinstance(key, Pair) else self._together(outputs)

    def _together(self, outputs: list[_Compared]) -> list[_Compared]:
        """Join the outputs of an operator; leave them separate if one is unknown."""
        row = outputs[0][0]
        found = {one.pair.element or 0: values for one, *values in outputs}
        specs = [output.tensor for output in self._graph.calls[row.node].outputs]
        for element, spec in enumerate(specs):
            sizes = [size for size in ([] if spec is None else spec.shape) if isinstance(size, int)]
            if spec is not None and 0 in sizes and len(sizes) == len(spec.shape):  # not compared
                empty = np.empty(sizes, numpy_dtype(spec.dtype))
                found[element] = [self._tensor(empty), self._tensor(empty)]
        if len(found) < len(specs):
            return outputs
        expected, logged = zip(*(found[element] for element in sorted(found)), strict=True)
        return [(row, expected, logged)]

    def _values(self, entries: Sequence[_Compared]) -> tuple[Any, Any]:
        expected = [self._tensor(value) for _, value, _ in entries]
        logged = [self._tensor(value) for _, _, value in entries]
        return (expected[0], logged[0]) if len(entries) == 1 else (expected, logged)

    def _tensor(self, kept: Any) -> Any:
        from etscope.bridge.tensors import tensor_over

        value = self._spill.get(kept)
        return tensor_over(value) if isinstance(value, np.ndarray) else value

    def _traces(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self._stacks.get(name) for name in names}


def _append(table: dict[tuple[int, ...], list[str]], key: tuple[int, ...], names: Any) -> None:
    known = table.setdefault(key, [])
    known.extend(name for name in names if name not in known)
