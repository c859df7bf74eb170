"""`Inspector.calculate_numeric_gap`: upstream's table over `analysis.numerics.gap`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.analysis.graphs.linked_graph import method_of_graph
from etscope.analysis.matching.matching import Pair, parts_of
from etscope.analysis.metrics import METRICS
from etscope.analysis.numerics.gap import Gap, GapRow, Reference, numeric_gap
from etscope.analysis.numerics.runs import (
    NO_RECORD_HINT,
    check_values,
    chosen_run,
    edge_symbols,
    method_that_ran,
)
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import graph_name
from etscope.diagnosis.reference import (
    graph_to_compare,
    named_graph,
    rebuilt_program,
    recorded_graph,
    recorded_program,
    reference_program,
)
from etscope.diagnosis.run_inputs import EarlierRun, inputs_of_run, runs_before, writers_of_state
from etscope.errors import EtscopeWarning, MissingDataError, NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView
from etscope.formats.program.bpte import BundledFile
from etscope.formats.program.scalar_type import numpy_dtype
from etscope.formats.torch_files.pickle_reader import TensorSubclassError
from etscope.model.graph import Graph
from etscope.model.table import object_column
from etscope.support.optional import require
from etscope.support.tensor_spill import TensorSpill

if TYPE_CHECKING:
    import pandas as pd


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


def gap_of(
    trace: Trace,
    metrics: Sequence[str],
    reference_graph: str | None = None,
    *,
    method: str | None = None,
    run: int | None = None,
    inputs: Any = None,
    bundle: BundledFile | None = None,
    best_effort: bool = False,
    keep: Any = None,
) -> Gap:
    """The numeric gap of a run to a graph of the record; see `Inspector.numeric_gap`."""
    if trace.record is None:
        raise NumericGapError("a numeric gap needs an ETRecord", hint=NO_RECORD_HINT)
    wanted = method_that_ran(trace, method)
    chosen = chosen_run(trace, wanted, run)
    check_values(trace)
    given = inputs_of_run(trace, wanted, chosen, inputs, bundle)

    def previous() -> Sequence[EarlierRun]:
        before = runs_before(trace, wanted, chosen, inputs, bundle)
        if before.runs and before.doubts:
            raise NumericGapError(
                "this method keeps state from run to run, and the state before this run is not "
                f"known: {before.doubts[0]}",
                hint="compare the first run: run=0",
            )
        return before.runs

    reference = reference_of(
        trace,
        wanted,
        reference_graph,
        given,
        best_effort=best_effort,
        previous=previous,
        at_once=True,
    )
    return numeric_gap(trace, wanted, reference, metrics, run, keep=keep)


def reference_of(
    trace: Trace,
    method: str,
    name: str | None,
    inputs: Any,
    *,
    best_effort: bool = False,
    previous: Callable[[], Sequence[EarlierRun]] = tuple,
    at_once: bool = False,
) -> Reference:
    """The graph `name` of a method on `inputs`.

    name: "exported_program", "edge_dialect_exported_program", or another graph of the record. By
    default the exported program, if the edge program's nodes all lead back to it, or
    `best_effort` does without that; else the edge program. previous: returns the runs before,
    called only if a method keeps state or shares another method's. at_once: start slow work now,
    in a thread, because the values are needed soon.

    Raises `NumericGapError` without a record, for a graph that it does not have (an unknown
    name), and, when the reference is run, for inputs that are not the program's.
    """
    record = trace.record
    if record is None:
        raise NumericGapError("a reference needs an ETRecord", hint=NO_RECORD_HINT)
    found = _default_graph(trace, method, best_effort) if name is None else None
    graph = graph_to_compare(trace, method, name or EDGE) if found is None else found
    # What another method wrote is state of a method that only reads it, too.
    shares = bool(writers_of_state(trace, method))
    quick = recorded_program(trace, graph) if at_once and not shares else None

    def values() -> Iterator[tuple[str, Any]]:
        from etscope.bridge.threads import threads_for

        with threads_for(graph):
            yield from computed()

    def computed() -> Iterator[tuple[str, Any]]:
        from etscope.bridge.reference.reference import arrays_of, keeps_state, reference_arrays

        if quick is not None and quick.interpreter is not None:
            for node, value in quick.checked(quick.interpreter.run(inputs)):
                yield node, arrays_of(value)
            return
        program, names = rebuilt_program(trace, graph)
        state = None
        if shares or keeps_state(program):
            state = _state_left_by(record, graph.name, {method: program}, previous())
        for node, value in reference_arrays(program, inputs, state):
            yield names.get(node, node), value

    return Reference(graph.name, graph, values)


def _default_graph(trace: Trace, method: str, best_effort: bool) -> Graph | None:
    """The exported program's graph, if the edge program's nodes lead back to it."""
    record = trace.record
    if record is None:
        return None
    try:
        name = graph_name(record, EXPORTED, method)
    except MissingDataError:
        return None
    edge = edge_symbols(trace, method).graph
    if edge is None or method_of_graph(record, name) not in (method, None):
        return None
    graph = recorded_graph(trace, name)
    recorded = recorded_program(trace, graph)
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
    lost = trace.once(("lost", name), lambda: _lost(edge, graph))
    if lost and not best_effort:
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


def _state_left_by(
    record: RecordView, name: str, programs: dict[str, Any], runs: Iterable[EarlierRun]
) -> dict[str, Any]:
    """Return the state that runs leave: buffers by name. name: of the graph of one of the methods;
    programs: of methods, others are loaded."""
    from etscope.bridge.reference.reference import state_after

    state: dict[str, Any] = {}
    for one in runs:
        if one.method not in programs:
            graph = named_graph(record, name.partition("/")[0], one.method)
            programs[one.method] = reference_program(record, graph)
        state = state_after(programs[one.method], [one.inputs], state)
    return state


def calculate(
    trace: Trace,
    distance: Any,
    bundle: BundledFile | None,
    **options: Any,
) -> pd.DataFrame:
    """See `Inspector.calculate_numeric_gap`."""
    metric = metric_of(distance)
    require("pandas", wanted_by="calculate_numeric_gap")
    spill = TensorSpill()
    kept: list[_Compared] = []
    gap = gap_of(
        trace,
        [] if metric is None else [metric],
        bundle=bundle,
        keep=lambda row, expected, logged: kept.append(
            (row, spill.add(expected), spill.add(logged))
        ),
        **options,
    )
    cells = _Cells(gap, kept, spill)
    if metric is not None:
        return cells.frame(metric)
    return cells.compared(distance)


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
        """With the metric that was measured on the way."""
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
        """With a comparator of the user's, which is given all values at once."""
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
