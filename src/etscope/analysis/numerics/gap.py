"""The numeric gap: how far the values that a device logged are from those of a reference run.

The reference is computed node by node, and each value is compared when it is there, so that no more
than a few tensors are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from etscope.analysis.matching.graph import Paths
from etscope.analysis.matching.logged_run import LoggedRun, logged_run
from etscope.analysis.matching.matching import Coverage, Matching, Pair, Unpaired, match
from etscope.analysis.metrics import Metric, find_metric, measure_all
from etscope.analysis.profile.correlate import (
    EDGE_GRAPH,
    MethodSymbols,
    handle_list,
    method_symbols,
)
from etscope.analysis.profile.profile import executes
from etscope.analysis.profile.source_location import module_path, user_line
from etscope.analysis.profile.trace import Trace
from etscope.errors import NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE
from etscope.model.event_table import Block
from etscope.model.graph import Graph, SourceLine
from etscope.model.table import Column, Kind, Table

RECORD_HINT = (
    "run the program with debug_level='intermediate_outputs' (--debug-level), and give the debug "
    "buffer that it writes"
)

NO_RECORD_HINT = "pass etrecord=: the ETRecord of the program's export"

# What is done with a value and its reference when they are compared: row, reference, value.
Keep = Callable[["GapRow", Any, Any], None]


@dataclass(frozen=True)
class Reference:
    """A reference graph, and what computes it.

    `values` gives (node's name, value) in order of execution: arrays, numbers, and tuples or lists
    of them; see `bridge.reference.reference_arrays`.
    """

    name: str
    graph: Graph
    values: Callable[[], Iterable[tuple[str, Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class GapRow:
    """A value of the device and how far it is from the reference.

    event: what the runtime logged for the instruction ("native_call_add.out", "DELEGATE_CALL").
    node, op: of the reference graph. nodes: all that the instruction computes, which are a
    delegate's. handles: the instruction's debug handles. metrics: by name; None for what is not
    numeric. loop_pass: counts the passes of a loop from 0. line: the innermost line of Python.
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
    line: SourceLine | None = None
    module: str = ""


@dataclass(frozen=True)
class Gap:
    """The compared values in the order in which the reference computes them.

    `graph` is the reference's, `run` the dump's run that they were logged in. `coverage` says what
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

    def worst_first(self, metric: str | None = None) -> tuple[GapRow, ...]:
        """The rows by a metric (the first by default), NaN before all."""
        by = self.metrics[0] if metric is None else find_metric(metric)
        ranked = sorted(self.rows, key=lambda row: by.badness(row.metrics[by.name]), reverse=True)
        return tuple(ranked)

    def table(self) -> Table:
        """One row for each value."""
        rows = self.rows
        metrics = {
            metric.name: [row.metrics[metric.name] for row in rows] for metric in self.metrics
        }
        return Table(
            columns=(
                Column("instruction", Kind.INT),
                Column("output", Kind.INT, priority=3),
                Column("event", priority=2),
                Column("node"),
                Column("op", priority=1),
                *(Column(metric.name, Kind.FLOAT, unit=metric.unit) for metric in self.metrics),
                Column("dtype", priority=3),
                Column("shape", Kind.LIST, priority=2),
                Column("handles", Kind.LIST, priority=4),
                Column("module", Kind.PATH, priority=3),
                Column("source", Kind.PATH, priority=1),
            ),
            values={
                "instruction": [row.pair.instruction for row in rows],
                "output": [row.pair.output for row in rows],
                "event": [row.event for row in rows],
                "node": [_place_name(row) for row in rows],
                "op": [row.op for row in rows],
                **metrics,
                "dtype": [row.dtype for row in rows],
                "shape": [list(row.shape) for row in rows],
                "handles": [list(row.handles) for row in rows],
                "module": [row.module or None for row in rows],
                "source": [None if row.line is None else str(row.line) for row in rows],
            },
            title=f"Numeric gap of {self.method} to {self.reference}",
        )


def _place_name(row: GapRow) -> str:
    return row.node if row.pair.element is None else f"{row.node}[{row.pair.element}]"


class MethodRun(NamedTuple):
    """A run of a method: its block, its place among the block's runs, its number in the dump."""

    block: Block
    position: int
    number: int


def runs_of(trace: Trace, method: str) -> list[MethodRun]:
    """The runs of a method, in the order of the dump.

    Runs that logged the same events for several methods are of the one whose values they have.
    """
    found = [
        MethodRun(block, position, int(number))
        for block in trace.blocks
        if executes(block) and method_by_values(trace, block) == method
        for position, number in enumerate(block.runs)
    ]
    return sorted(found, key=lambda run: run.number)


def method_by_values(trace: Trace, block: Block) -> str | None:
    """The method whose runs a block holds: of several that log the same events, the one that the
    values are of."""
    method, others = trace.method_of(block), trace.also_fitting(block)
    if method is None or not others or trace.record is None:
        return method
    pairs = {
        name: len(match_run(trace, logged_run(trace, block, 0, name)).pairs)
        for name in (method, *others)
    }
    return max(pairs, key=lambda name: pairs[name])


def chosen_run(trace: Trace, method: str, run: int | MethodRun | None) -> MethodRun:
    """The run of a method that logged values; `run` is one of the dump's, or counts the method's
    runs from 0; by default it is the first with values.

    Raises `NumericGapError` for a method that did not run or logged nothing, `UsageError` for a
    run that is not there.
    """
    runs = [run] if isinstance(run, MethodRun) else runs_of(trace, method)
    if not runs:
        ran = {trace.method_of(block) for block in trace.blocks if executes(block)}
        names = ", ".join(sorted(str(name) for name in ran if name is not None)) or "none"
        raise NumericGapError(
            f"the ETDump has no run of the method {method!r}", hint=f"methods that ran: {names}"
        )
    if isinstance(run, int) and not 0 <= run < len(runs):
        times = f"{len(runs)} time" + ("" if len(runs) == 1 else "s")
        raise UsageError(f"the method {method!r} ran {times}, and run {run} is asked for")
    wanted = [runs[run]] if isinstance(run, int) else runs
    for candidate in wanted:
        if any(key.debug for key in candidate.block.keys):
            return candidate
    raise NumericGapError("the ETDump has no values of operators", hint=RECORD_HINT)


def check_values(trace: Trace) -> None:
    """Raise `NumericGapError` when the values of the dump's tensors cannot be read, `FormatError`
    when the debug buffer is too short for them."""
    if trace.debug_buffer is None:
        raise NumericGapError(
            "the values that were logged are in the debug buffer, and none was given",
            hint="pass debug_buffer_path; " + RECORD_HINT,
        )
    trace.check_debug_buffer()


def numeric_gap(
    trace: Trace,
    method: str,
    reference: Reference,
    metrics: Iterable[str | Metric] = ("mse",),
    run: int | None = None,
    *,
    keep: Keep | None = None,
) -> Gap:
    """Compare what one run of a method logged with a reference run on the same inputs.

    metrics: of `analysis.metrics`. run: see `chosen_run`. keep: is given each compared pair of
    arrays, to be copied if they are to be kept.

    Raises `NumericGapError` when there are no values, or none has a partner in the reference.
    """
    found = [item if isinstance(item, Metric) else find_metric(item) for item in metrics]
    chosen = chosen_run(trace, method, run)
    check_values(trace)
    logged = logged_run(trace, chosen.block, chosen.position, method)
    matching = match_run(trace, logged, reference.graph)
    comparison = _Comparison(trace, logged, matching, reference, found, keep)
    rows = tuple(comparison.rows())
    coverage = comparison.coverage()
    if not rows:
        raise NumericGapError(
            f"none of the {len(coverage.outputs)} values that were logged could be compared with "
            f"{reference.name}: " + _commonest(coverage),
            hint="the ETDump, the ETRecord and the program must be of one export",
        )
    return Gap(
        method,
        reference.name,
        reference.graph,
        chosen.number,
        tuple(found),
        rows,
        coverage,
        matching,
    )


def match_run(trace: Trace, logged: LoggedRun, graph: Graph | None = None) -> Matching:
    """The matching of a run with a graph of the trace's record, by default the edge program's."""
    symbols = edge_symbols(trace, logged.method)
    if symbols.graph is None:
        raise NumericGapError(
            "the record has no graphs: nothing tells which value is which", hint=NO_RECORD_HINT
        )
    own = symbols.graph if graph is None or graph.name == symbols.graph.name else graph
    return match(
        own,
        symbols,
        logged.instructions,
        logged.specs,
        delegated=logged.delegated_specs,
        outputs=logged.outputs,
    )


def edge_symbols(trace: Trace, method: str) -> MethodSymbols:
    """The symbols of a method with its edge graph, whatever graph the trace shows.

    Raises `NumericGapError` without a record.
    """
    if trace.record is None:
        raise NumericGapError(
            "without an ETRecord nothing tells which value is which", hint=NO_RECORD_HINT
        )
    if trace.reference_graph in (EDGE_GRAPH, EDGE):
        return trace.symbols(method)
    return method_symbols(trace.record, method)


def _commonest(coverage: Coverage) -> str:
    reasons = [unpaired.reason for unpaired in coverage.outputs]
    return max(set(reasons), key=reasons.count) if reasons else "nothing was logged"


class _Comparison:
    """Goes along with the reference, and compares each value that has a partner."""

    def __init__(
        self,
        trace: Trace,
        logged: LoggedRun,
        matching: Matching,
        reference: Reference,
        metrics: Sequence[Metric],
        keep: Keep | None,
    ) -> None:
        self._logged, self._matching = logged, matching
        self._reference, self._metrics, self._keep = reference, metrics, keep
        self._handles = edge_symbols(trace, logged.method).handles
        self._records = {record.instruction_id: record for record in logged.instructions}
        self._nodes = Paths(reference.graph).nodes
        self._seen: dict[Pair, int] = {}
        self._failed: dict[Pair, Unpaired] = {}

    def rows(self) -> Iterator[GapRow]:
        for name, value in self._reference.values():
            for pair in self._matching.by_node.get(name, ()):
                loop_pass = self._seen.get(pair, 0)
                self._seen[pair] = loop_pass + 1
                row = self._compare(pair, value, loop_pass)
                if row is not None:
                    yield row

    def _compare(self, pair: Pair, value: Any, loop_pass: int) -> GapRow | None:
        passes = self._logged.values(pair)
        if loop_pass >= len(passes):
            self._fail(pair, f"the loop ran {len(passes)} times, and more often in the reference")
            return None
        expected = value if pair.element is None else value[pair.element]
        logged = passes[loop_pass]
        shape = np.shape(expected)
        if np.shape(logged) != shape:
            if not pair.is_view or np.size(logged) != np.size(expected):
                logged_shape = list(np.shape(logged))
                self._fail(pair, f"logged as {logged_shape}, but {list(shape)} in the reference")
                return None
            logged = np.reshape(logged, shape)
        if np.size(expected) == 0:
            self._fail(pair, "it has no elements", "empty")
            return None
        row = self._row(pair, expected, logged, loop_pass)
        if self._keep is not None:
            self._keep(row, expected, logged)
        return row

    def _row(self, pair: Pair, expected: Any, logged: Any, loop_pass: int) -> GapRow:
        record = self._records[pair.instruction]
        node = self._nodes[pair.node]
        covered = self._matching.covered.get(pair.instruction, ())
        return GapRow(
            pair=pair,
            event=record.event if pair.delegate_id is None else str(pair.delegate_id),
            label=record.label,
            node=pair.node,
            op=node.op,
            nodes=tuple(dict.fromkeys((*covered, pair.node))) if covered else (pair.node,),
            handles=tuple(handle_list(self._handles.get(pair.instruction))),
            metrics=measure_all(self._metrics, expected, logged),
            shape=tuple(np.shape(expected)),
            dtype=str(getattr(expected, "dtype", type(expected).__name__)),
            loop_pass=loop_pass,
            line=user_line(node.stack_trace),
            module=module_path(node) or "",
        )

    def _fail(self, pair: Pair, reason: str, kind: str = "differs") -> None:
        label = self._records[pair.instruction].label
        self._failed[pair] = Unpaired(
            reason, kind, instruction=pair.instruction, output=pair.output, op=label
        )

    def coverage(self) -> Coverage:
        """Of what was really compared, when `rows` is through."""
        for pair in self._matching.pairs:
            if pair not in self._seen:
                self._fail(pair, f"the reference did not run {pair.node}: it took another branch")
        return coverage_without(self._matching, self._failed)


def coverage_without(matching: Matching, failed: Mapping[Pair, Unpaired]) -> Coverage:
    """The coverage of a comparison in which some pairs turned out to be none."""
    compared = [pair for pair in matching.pairs if pair not in failed]
    named = {pair.node for pair in compared}
    lost = {
        pair.node: Unpaired(reason.reason, reason.kind, node=pair.node)
        for pair, reason in failed.items()
        if pair.node not in named
    }
    return Coverage(
        pairs=len(compared),
        outputs=(*matching.unpaired_outputs, *failed.values()),
        nodes=(*matching.unpaired_nodes, *lost.values()),
        paired_nodes=len(named),
    )
