"""Which operator's numbers go wrong on a device, and which line of Python that is.

Each value that the device logged is held against three others: the reference's, which tells its
total error; what PyTorch makes of the device's own values that went in, which tells the operator's
own, local error; and the difference of these two is the error that it inherited. An operator is
wrong when its local error is more than is allowed: see `analysis.numerics_limits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from etscope.analysis.matching.graph import Paths
from etscope.analysis.matching.logged_run import LoggedRun, logged_run, unfolded
from etscope.analysis.matching.matching import Coverage, Matching, Pair, Unpaired
from etscope.analysis.metrics import Metric, find_metric
from etscope.analysis.numerics.gap import MethodRun, check_values, chosen_run, coverage_without
from etscope.analysis.numerics.limits import difference, exceeds, judge, new_nan
from etscope.analysis.numerics.reference_graph import KnownGraph
from etscope.analysis.numerics.rows import FINE, INHERITED, WRONG, Numerics, NumericsRow, OddNumbers
from etscope.analysis.numerics.subgraphs import Region, Regions
from etscope.analysis.profile.source_location import lines_of, module_path
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.program import unfolded as unfolded_indices
from etscope.errors import NumericGapError
from etscope.model.graph import Graph

__all__ = [
    "DEFAULT_METRIC",
    "DeviceValues",
    "Recomputation",
    "Recomputed",
    "device_values",
    "diagnose",
    "diagnose_run",
]


# Whether the reference had the inputs that ran on the device, as far as the dump tells.


_EVERYWHERE = 0.9  # share of elements
_ADVICE = "give those that ran with inputs= (--inputs)"


def doubts_of_inputs(
    trace: Trace, logged: LoggedRun, inputs: Sequence[Any], rows: Sequence[NumericsRow]
) -> Iterator[str]:
    """What speaks against the inputs, in words.

    A delegate logs what goes into it, inputs of the program as well: these are compared. Without
    such, inputs are in doubt when all that is computed from them directly is wrong everywhere, and
    nothing else is.
    """
    compared = dict(_logged_inputs(trace, logged))
    different = [
        index
        for index, value in compared.items()
        if index < len(inputs) and not _are_same(value, inputs[index])
    ]
    if different:
        listed = ", ".join(map(str, different))
        yield (
            f"these are not the inputs that ran: a delegate logged others for input {listed}; "
            + _ADVICE
        )
    elif not compared:
        yield from _by_the_rows(rows)


def _by_the_rows(rows: Sequence[NumericsRow]) -> Iterator[str]:
    first = [row for row in rows if row.inputs and row.loop_pass == 0]
    wrong = [row for row in rows if row.verdict == WRONG]
    if not wrong or any(row not in first for row in wrong):
        return
    if any(row.verdict != WRONG or row.share < _EVERYWHERE for row in first):
        return
    if len(first) > 1:
        yield (
            f"these may not be the inputs that ran: all {len(first)} values that are computed from "
            f"them are wrong in nearly all elements, and no other is; {_ADVICE}"
        )
    else:
        yield (
            "the wrong value is the only one that is computed from the inputs, and wrong in nearly "
            f"all elements: if these are not the inputs that ran, that is why; {_ADVICE}"
        )


def _logged_inputs(trace: Trace, logged: LoggedRun) -> Iterator[tuple[int, Any]]:
    """The program's inputs that delegates logged, by their position."""
    program = trace.recorded_program
    if program is None:
        return
    method = program.method(logged.method)
    positions = {value: position for position, value in enumerate(method.inputs)}
    records = {r.instruction_id: r for r in trace.instructions(logged.method)}
    for (number, inner), passes in logged.passes.items():
        record = records.get(number)
        if record is None or record.kind != "delegate" or inner is not None:
            continue
        arguments = unfolded_indices(method.values, record.inputs)
        values = unfolded(trace.values(logged.block, logged.run, passes[0]))
        if len(values) != len(arguments) + len(unfolded_indices(method.values, record.outputs)):
            continue
        for value, argument in zip(values, arguments, strict=False):
            if argument in positions:
                yield positions[argument], value


def _are_same(one: Any, other: Any) -> bool:
    first, second = np.asarray(one), np.asarray(other)
    if first.size != second.size:
        return False
    floats = first.dtype.kind not in "biu" and second.dtype.kind not in "biu"
    return np.array_equal(
        first.reshape(-1).astype(np.float64) if floats else first.reshape(-1),
        second.reshape(-1).astype(np.float64) if floats else second.reshape(-1),
        equal_nan=floats,
    )


DEFAULT_METRIC = "sqnr"

DeviceValues = Callable[[str, int], Collection[tuple[int | None, Any]]]


class Recomputed(Protocol):
    """A node's value in the three runs: see `bridge.local.Recomputed`."""

    @property
    def name(self) -> str: ...
    @property
    def loop_pass(self) -> int: ...
    @property
    def reference(self) -> Any: ...
    @property
    def local(self) -> Any: ...
    @property
    def wide(self) -> Any: ...


@dataclass(frozen=True)
class Recomputation:
    """A graph, the inputs, and what computes it next to the device's values.

    `run` takes what tells a node's values on the device, and the names of the nodes to give. The
    inputs are flat, of the graph's.
    """

    graph: Graph
    inputs: Sequence[Any]
    run: Callable[[DeviceValues, Collection[str]], Iterable[Recomputed]]


def diagnose(
    trace: Trace,
    method: str,
    recomputation: Recomputation,
    *,
    metric: str | Metric = DEFAULT_METRIC,
    tolerance: float | None = None,
    run: int | None = None,
) -> Numerics:
    """Find the operators of a run whose numbers go wrong.

    metric: of the errors. tolerance: the worst local error that is fine, in that metric; by default
    what is usual for the type. run: which of the method's, by default the first with values.

    Raises `NumericGapError` when there are no values, or none has a partner in the graph.
    """
    found = metric if isinstance(metric, Metric) else find_metric(metric)
    chosen = chosen_run(trace, method, run)
    check_values(trace)
    known = KnownGraph(recomputation.graph)
    return diagnose_run(trace, method, chosen, recomputation, known, found, tolerance)


def diagnose_run(
    trace: Trace,
    method: str,
    chosen: MethodRun,
    recomputation: Recomputation,
    known: KnownGraph,
    found: Metric,
    tolerance: float | None,
) -> Numerics:
    """`diagnose` of a run that has values, with what is known of the graph from other runs."""
    logged = logged_run(trace, chosen.block, chosen.position, method)
    matching, regions = known.matched(trace, logged)
    diagnosis = _Diagnosis(logged, matching, regions, known.paths, recomputation, found, tolerance)
    rows = _with_inherited(diagnosis.rows(), found)
    coverage = diagnosis.coverage()
    if not rows:
        raise NumericGapError(
            f"none of the {len(coverage.outputs)} values that were logged is known to be a value "
            f"of {recomputation.graph.name}",
            hint="the ETDump, the ETRecord and the program must be of one export",
        )
    rows.sort(key=lambda row: row.order)
    return Numerics(
        method=method,
        reference=recomputation.graph.name,
        run=chosen.number,
        metric=found,
        rows=tuple(rows),
        coverage=coverage,
        doubts=tuple(doubts_of_inputs(trace, logged, recomputation.inputs, rows)),
    )


class _Diagnosis:
    """Goes along with the three runs, and holds each value against them."""

    def __init__(
        self,
        logged: LoggedRun,
        matching: Matching,
        regions: Regions,
        paths: Paths,
        recomputation: Recomputation,
        metric: Metric,
        tolerance: float | None,
    ) -> None:
        self._logged, self._matching, self._recomputation = logged, matching, recomputation
        self._device_values = device_values(logged, matching)
        self._metric, self._tolerance = metric, tolerance
        self._records = {record.instruction_id: record for record in logged.instructions}
        self._paths, self._regions = paths, regions
        self._seen: set[Pair] = set()
        self._failed: dict[Pair, Unpaired] = {}

    def rows(self) -> Iterator[NumericsRow]:
        for item in self._recomputation.run(self._device_values, set(self._matching.by_node)):
            for pair in self._matching.by_node[item.name]:
                self._seen.add(pair)
                row = self._compared(pair, item)
                if row is not None:
                    yield row

    def coverage(self) -> Coverage:
        """Of what was really compared, when `rows` is through."""
        for pair in self._matching.pairs:
            if pair not in self._seen:
                self._fail(pair, f"the reference did not run {pair.node}: it took another branch")
        return coverage_without(self._matching, self._failed)

    def _compared(self, pair: Pair, item: Recomputed) -> NumericsRow | None:
        passes = self._logged.values(pair)
        if item.loop_pass >= len(passes):
            self._fail(pair, f"the loop ran {len(passes)} times, and more often in the reference")
            return None
        value = passes[item.loop_pass]
        local, reference, wide = (
            _element(values, pair) for values in (item.local, item.reference, item.wide)
        )
        shape = np.shape(local)
        if np.shape(value) != shape:
            if not pair.is_view or np.size(value) != np.size(local):
                logged_shape = list(np.shape(value))
                self._fail(pair, f"logged as {logged_shape}, but {list(shape)} in the reference")
                return None
            value = np.reshape(value, shape)
        if np.size(local) == 0:
            self._fail(pair, "it has no elements", "empty")
            return None
        region = self._regions.of(pair.node)
        quantized = any("quantize" in self._paths.nodes[path].op for path in region.nodes)
        judged = judge(
            self._metric, local, value, wide, tolerance=self._tolerance, quantized=quantized
        )
        row = self._row(pair, region, item.loop_pass, value)
        return replace(
            row,
            total=difference(self._metric, reference, value),
            local=judged.error,
            inherited=difference(self._metric, reference, local),
            noise=judged.noise,
            limit=judged.limit,
            excess=judged.excess,
            share=judged.share,
            verdict=WRONG if judged.is_wrong else FINE,
            odd=_odd_numbers(value, local if reference is None else reference),
        )

    def _row(self, pair: Pair, region: Region, loop_pass: int, value: Any) -> NumericsRow:
        record = self._records[pair.instruction]
        node = self._paths.nodes[pair.node]
        inside = [self._paths.nodes[path] for path in region.nodes]
        own = [] if record.kind == "delegate" else [node]
        return NumericsRow(
            pair=pair,
            loop_pass=loop_pass,
            event=record.event if pair.delegate_id is None else str(pair.delegate_id),
            label=record.label,
            is_delegate=record.kind == "delegate",
            op=node.op,
            nodes=region.nodes,
            reads=region.reads,
            inputs=region.inputs,
            lines=lines_of([*own, *inside]),
            module=module_path(node),
            shape=tuple(np.shape(value)),
            dtype=str(getattr(value, "dtype", type(value).__name__)),
        )

    def _fail(self, pair: Pair, reason: str, kind: str = "differs") -> None:
        label = self._records[pair.instruction].label
        self._failed[pair] = Unpaired(
            reason, kind, instruction=pair.instruction, output=pair.output, op=label
        )


def device_values(logged: LoggedRun, matching: Matching) -> DeviceValues:
    """What tells a node's values on the device. What was logged inside of a delegate comes first:
    its outputs are what others read."""

    def values(name: str, loop_pass: int) -> list[tuple[int | None, Any]]:
        pairs = sorted(matching.by_node.get(name, ()), key=lambda p: p.delegate_id is None)
        found = []
        for pair in pairs:
            passes = logged.values(pair)
            if loop_pass < len(passes):
                found.append((pair.element, passes[loop_pass]))
        return found

    return values


def _element(value: Any, pair: Pair) -> Any:
    return value if value is None or pair.element is None else value[pair.element]


def _odd_numbers(value: Any, reference: Any) -> OddNumbers | None:
    found = _counted(value)
    if not any(found):
        return None
    return OddNumbers(*found, *_counted(reference), new_nan(reference, value))


def _counted(value: Any) -> tuple[int, int]:
    """How many NaN and how many infinities there are."""
    array = np.asarray(value)
    if value is None or array.dtype.kind in "biuO":
        return 0, 0
    nan = int(np.count_nonzero(np.isnan(array)))
    return nan, array.size - nan - int(np.count_nonzero(np.isfinite(array)))


def _with_inherited(rows: Iterable[NumericsRow], metric: Metric) -> list[NumericsRow]:
    """The rows, in order of computation, with a verdict on those that got wrong numbers and did
    nothing wrong themselves."""
    tainted: set[str] = set()
    found = []
    for row in rows:
        after = any(name in tainted for name in row.reads)
        if row.verdict == FINE and after and _shows(row, metric):
            row = replace(row, verdict=INHERITED)
        if after or row.verdict == WRONG:
            tainted.add(row.pair.node)
        found.append(row)
    return found


def _shows(row: NumericsRow, metric: Metric) -> bool:
    """Whether the inherited error does: NaN of the reference itself are none."""
    if row.odd is not None and row.odd.nan == math.prod(row.shape):
        return row.odd.new_nan > 0
    return exceeds(metric, row.inherited, row.limit)
