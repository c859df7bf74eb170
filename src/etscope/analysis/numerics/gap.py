"""The numeric gap: the distance between a device's values and a reference run's.

The reference is computed node by node, and each value is compared at once, so that only a few
tensors are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from etscope.analysis.matching.matching import Coverage, Matching, Pair
from etscope.analysis.metrics import Metric, find_metric, measure_all
from etscope.analysis.numerics.runs import (
    PairedValues,
    check_values,
    chosen_run,
    edge_symbols,
    match_run,
)
from etscope.analysis.profile.logged_run import logged_run
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import handle_list
from etscope.analysis.program.source_location import module_path, user_line
from etscope.errors import NumericGapError
from etscope.model.graph import Graph, SourceLine
from etscope.model.table import Column, Kind, Table

# Receives each comparison: row, reference, value.
Keep = Callable[["GapRow", Any, Any], None]


@dataclass(frozen=True)
class Reference:
    """A reference graph, and a function that computes it.

    values: yields (node's name, value) in order of execution: arrays, numbers, and tuples or lists
    of them; see `bridge.reference.reference.reference_arrays`.
    """

    name: str
    graph: Graph
    values: Callable[[], Iterable[tuple[str, Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class GapRow:
    """A value of the device and its distance from the reference.

    event: of the instruction, as logged ("native_call_add.out", "DELEGATE_CALL"). node, op: of the
    reference graph. nodes: all that the instruction computes; for a delegate several. handles: the
    instruction's debug handles. metrics: by name; None for values that are not numeric. loop_pass:
    counts the passes of a loop from 0. line: the innermost line of Python.
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

    def table(self) -> Table:
        """One row for each value."""
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
                Column("module", Kind.PATH, priority=3): [row.module or None for row in rows],
                Column("source", Kind.PATH, priority=1): [
                    None if row.line is None else str(row.line) for row in rows
                ],
            },
            title=f"Numeric gap of {self.method} to {self.reference}",
        )


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

    metrics: of `analysis.metrics`. run: see `chosen_run`. keep: receives each compared pair of
    arrays, which it must copy to keep them.

    Raises `NumericGapError` without values, or if none matches a value of the reference.
    """
    found = [item if isinstance(item, Metric) else find_metric(item) for item in metrics]
    chosen = chosen_run(trace, method, run)
    check_values(trace)
    logged = trace.once(
        ("logged run", method, chosen.number),
        lambda: logged_run(trace, chosen.block, chosen.position, method),
    )
    matching = match_run(trace, logged, reference.graph)
    paired = PairedValues(logged, matching)
    symbols = edge_symbols(trace, method)
    rows: list[GapRow] = []
    for pair, loop_pass, expected, actual in paired.compared(reference.values()):
        record, node = paired.records[pair.instruction], reference.graph.calls[pair.node]
        covered, handles = matching.covered.get(pair.instruction, ()), symbols.handles
        if pair.delegate_id is not None:
            known = symbols.delegates[pair.instruction].handles
            covered, handles = (), {pair.instruction: known[str(pair.delegate_id)]}
        row = GapRow(
            pair=pair,
            event=record.event if pair.delegate_id is None else str(pair.delegate_id),
            label=record.label,
            node=pair.node,
            op=node.op,
            nodes=tuple(dict.fromkeys((*covered, pair.node))),
            handles=tuple(handle_list(handles.get(pair.instruction))),
            metrics=measure_all(found, expected, actual),
            shape=tuple(np.shape(expected)),
            dtype=str(getattr(expected, "dtype", type(expected).__name__)),
            loop_pass=loop_pass,
            line=user_line(node.stack_trace),
            module=module_path(node) or "",
        )
        if keep is not None:
            keep(row, expected, actual)
        rows.append(row)
    coverage = paired.coverage()
    if not rows:
        raise _nothing_compared(coverage, reference)
    name, graph = reference.name, reference.graph
    return Gap(method, name, graph, chosen.number, tuple(found), tuple(rows), coverage, matching)


def _nothing_compared(coverage: Coverage, reference: Reference) -> NumericGapError:
    """Return the error for a run without compared values, with the commonest reason."""
    reasons = [unpaired.reason for unpaired in coverage.outputs] or ["nothing was logged"]
    return NumericGapError(
        f"none of the {len(coverage.outputs)} logged values could be compared with "
        f"{reference.name}: {max(set(reasons), key=reasons.count)}",
        hint="the ETDump, the ETRecord and the program must be of one export",
    )
