"""Find the operators that compute wrong numbers on a device, and their lines of Python.

Each value that the device logged is compared with two others. The reference's value gives the total
error. The value that PyTorch computes from the device's own inputs of the operator gives the local
error, which is the operator's own; what the backend computes otherwise by design is computed as it
does. The difference between these two is the inherited error. An operator is wrong when its local
error exceeds the limit: see `analysis.numerics.limits`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from etscope.analysis.matching.delegate_values import codes_of_graph
from etscope.analysis.matching.graph_alignment import is_quantization
from etscope.analysis.matching.matching import Matching, Pair
from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.explain import (
    Others,
    Recomputing,
    Suspects,
    with_explanations,
)
from etscope.analysis.numerics.explanations import Suspect
from etscope.analysis.numerics.limits import (
    Rules,
    check_tolerance,
    difference,
    exceeds,
    judge,
    rounding_of,
    screened,
)
from etscope.analysis.numerics.multi_run_tests import AddedRuns
from etscope.analysis.numerics.rows import (
    BY_DESIGN,
    FINE,
    INHERITED,
    WRONG,
    NonFinite,
    Numerics,
    NumericsRow,
    RowValues,
)
from etscope.analysis.numerics.runs import (
    INPUTS_HINT,
    MethodRun,
    OtherInputsError,
    PairedValues,
    TracedMethod,
)
from etscope.analysis.numerics.values import channel_axis, compare_values, quantized_range
from etscope.analysis.profile.logged_run import LoggedRun, unfolded
from etscope.analysis.program.program import unfolded as unfolded_indices
from etscope.analysis.program.source_location import common_module, lines_of, short_lines
from etscope.analysis.selector_fields import fields_of_value
from etscope.backends.common.logged import Inside, as_half, is_half
from etscope.backends.registry.decoders import IN_CODES
from etscope.errors import MissingDataError, NumericGapError, ReferenceFailure
from etscope.model.graph import VIEWS, Graph, Node, stem
from etscope.model.selector import Selector
from etscope.units import listed

DEFAULT_METRIC = "sqnr"
# Share of elements: other inputs change nearly all of a value, a wrong operator often only a part.
_NEARLY_ALL = 0.9

# Rows that keep their values, whatever rows follow: of outputs, and the first wrong ones.
_MOST_OUTPUTS, _FIRST_WRONG = 8, 4
_WAITING_BYTES = 64 << 20  # of values that wait until it is known which rows keep theirs


@dataclass(frozen=True, slots=True)
class KeptValues:
    """Choice of the rows of a diagnosis that keep a comparison of their values.

    selector: picks the rows. None picks the `worst` rows by verdict and excess, the first wrong
    rows, and the method's outputs.
    """

    selector: Selector | None = None
    worst: int = 12


@dataclass(frozen=True, slots=True)
class Judgement:
    """Rules for judging rows, and which values they keep.

    metric: the metric for errors. tolerance: the worst acceptable local error, in that metric; None
    for the usual tolerance of the dtype. kept: selects the values to keep; None keeps none. runs:
    combines the errors of this run with other runs'. Raises `UsageError` for a tolerance of
    NaN.
    """

    metric: Metric
    tolerance: float | None = None
    kept: KeptValues | None = None
    runs: AddedRuns | None = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)


@dataclass(frozen=True, eq=False)
class Recomputed:
    """A node's value in the three runs; use it before the next one.

    local: computed from the device's values, as its backend does. wide: the same in float64,
    possibly computed on first use. reference: computed without them, as PyTorch does. Arrays,
    numbers, or tuples or lists of them. `reference` and `wide` are None where those runs took
    another branch.
    """

    name: str
    loop_pass: int
    reference: Any
    local: Any
    in_float64: Callable[[], Any]

    @cached_property
    def wide(self) -> Any:
        return self.in_float64()


class RunReference(Protocol):
    """A graph that PyTorch computes on the run's inputs and on the device's values: see
    `bridge.reference.known_differences.ReferenceRun`.

    values_stay: later nodes do not write to values that were yielded. by_design: the nodes that
    their backends compute otherwise than PyTorch by design, with the reason.
    """

    @property
    def values_stay(self) -> bool: ...
    @property
    def by_design(self) -> Mapping[str, str]: ...

    def values(self, nodes: Collection[str]) -> Iterable[Recomputed]:
        """Compute the graph, and yield the values of nodes in order."""

    def float_value(self, path: str, element: int | None) -> Any:
        """The float graph's value for one of a quantized graph; None if there is none."""

    def recompute(self, rows: Sequence[NumericsRow]) -> Recomputing:
        """Prepare to recompute the wrong values of rows with known differences between kernels."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """The nodes that compute a value from recorded values and inputs.

    nodes: their paths, in order, the value's own node last. reads: paths of the nodes with
    recorded values that are read. inputs: names of the graph's inputs that are read, without
    weights.
    """

    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    inputs: tuple[str, ...]


class Subgraphs:
    """The sub-graphs between the recorded values of a graph."""

    def __init__(self, graph: Graph, recorded: Collection[str]) -> None:
        self.graph, self._recorded = graph, recorded
        self._position = {path: index for index, path in enumerate(graph.calls)}
        self._found: dict[str, Subgraph] = {}

    def of(self, path: str) -> Subgraph:
        """The sub-graph that computes the value of the node at `path`."""
        if path not in self._found:
            self._found[path] = self._of(path)
        return self._found[path]

    def _of(self, path: str) -> Subgraph:
        nodes, reads, inputs = {path}, set[str](), dict[str, None]()
        waiting = [self.graph.calls[path]]
        while waiting:
            for source in self._sources(waiting.pop()):
                if source.kind == "placeholder":
                    own = self.graph.graph_of(source) is self.graph
                    if own and source.name not in self.graph.parameters:
                        inputs[source.name] = None
                    continue
                found = self.graph.path_of.get(id(source), "")
                if found in self._recorded and found != path:
                    reads.add(found)
                elif found in self._position and found not in nodes:
                    nodes.add(found)
                    waiting.append(source)
        listed = [name for name in self._in_order(nodes) if name in self.graph.operators]
        return Subgraph(tuple(listed), tuple(self._in_order(reads)), tuple(inputs))

    def _sources(self, node: Node) -> list[Node]:
        """The nodes that a node reads, with the output nodes of its branches."""
        graph = self.graph.graph_of(node)
        found = [graph.by_name[name] for name in node.inputs if name in graph.by_name]
        for below in node.subgraphs:
            found += [below.by_name[name] for name in below.outputs if name in below.by_name]
        return found

    def _in_order(self, paths: Collection[str]) -> list[str]:
        return sorted(paths, key=lambda path: self._position.get(path, -1))


@dataclass(frozen=True, eq=False)
class MatchedRun:
    """A run with its logged values matched to a graph's.

    subgraphs: the graph, split at the logged values.
    """

    method: TracedMethod
    run: MethodRun
    logged: LoggedRun
    matching: Matching
    subgraphs: Subgraphs

    @cached_property
    def backends(self) -> Mapping[str, Inside]:
        """The backend of each node inside a delegate, and whether it computed the node in float16,
        judged by the node's logged value, else by the call's."""
        delegates = self.method.symbols.delegates
        found: dict[str, Inside] = {}
        for number, paths in self.matching.covered.items():
            if number not in delegates:
                continue
            backend = delegates[number].backend_id
            halves: dict[str, bool] = {}
            border: list[bool] = []
            logged = self.matching.by_instruction.get(number, ())
            for pair in () if backend == _DOCUMENTED else logged:
                values = self.logged.values(pair)
                if all(getattr(value, "dtype", None) == np.float32 for value in values):
                    told = all(map(is_half, values))
                    border += [told] if pair.delegate_id is None else []
                    halves[pair.node] = told and halves.get(pair.node, True)
            of_call = bool(border) and all(border)
            for path in paths:
                found[path] = Inside(backend, halves.get(path, of_call))
        return found

    def device(self, name: str, loop_pass: int) -> list[tuple[int | None, Any]]:
        """The device's values of a node, as (element, value).

        Values that were logged inside of a delegate come first: later nodes read its outputs.
        """
        pairs = sorted(self.matching.by_node.get(name, ()), key=lambda p: p.delegate_id is None)
        return [
            (pair.element, passes[loop_pass])
            for pair in pairs
            if loop_pass < len(passes := self.logged.values(pair))
        ]


class RunMatcher:
    """Match runs of a method with a graph of it.

    Runs that logged tensors of the same types and shapes share one matching, also of other dumps of
    the program.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._found: dict[Any, tuple[Matching, Subgraphs]] = {}

    def match(self, method: TracedMethod, run: MethodRun) -> MatchedRun:
        """Match the run's values with the graph's, and split the graph at them."""
        logged = method.logged(run)
        key = (
            tuple((record.instruction_id, record.operator) for record in logged.instructions),
            logged.outputs,
            tuple((number, tuple(specs)) for number, specs in logged.specs.items()),
            tuple((place, tuple(specs)) for place, specs in logged.delegated_specs.items()),
        )
        if key not in self._found:
            matching = method.match(logged, self.graph)
            self._found[key] = matching, Subgraphs(self.graph, matching.by_node)
        return MatchedRun(method, run, logged, *self._found[key])

    def before(self, ran: MatchedRun) -> MatchedRun | None:
        """Match the previous run of the same block; None for the first run."""
        if not ran.run.position:
            return None
        return self.match(ran.method, ran.run._replace(position=ran.run.position - 1))


def diagnose_run(
    ran: MatchedRun,
    inputs: Sequence[Any],
    reference: RunReference,
    matcher: RunMatcher,
    judgement: Judgement,
) -> Numerics:
    """Find the operators of a run that compute wrong numbers. inputs: the run's inputs, flat.
    matcher: it matched this run and the run before.

    Where the reference fails, only the values before are judged.

    Raises `NumericGapError` if no value matches one of the graph, `MissingDataError` if a selector
    of values picks none, `OtherInputsError` if a delegate logged other inputs than these, and
    `ReferenceFailure` if the reference fails before the first value.
    """
    graph, by_node = ran.subgraphs.graph, ran.matching.by_node
    doubts = doubts_of_logged_inputs(ran.logged, inputs)
    kept = judgement.kept
    keeper = None if kept is None else _Keeper(kept, graph, reference.values_stay)
    suspects = None if keeper is None else Suspects()
    judged = _Judge(ran, reference, judgement)
    rows = list(judged.rows(keeper, suspects))
    coverage = judged.paired.coverage()
    if not rows and judged.failure is not None:
        raise judged.failure
    if not rows:
        raise NumericGapError(
            f"none of the {len(coverage.outputs)} logged values matches a value of {graph.name}",
            hint="pass the ETDump, the ETRecord and the program of one export",
        )
    if keeper is not None:
        rows = keeper.only_kept(rows)
    rows.sort(key=lambda row: row.order)
    if suspects is not None and judged.failure is None:
        before = matcher.before(ran)
        others = Others(list(by_node), ran.device, None if before is None else before.device)
        rows = with_explanations(rows, suspects, graph, others, reference.recompute)
    backends = {one.backend for one in ran.backends.values()}
    return Numerics(
        method=ran.method.name,
        reference=graph.name,
        run=ran.run.number,
        metric=judgement.metric,
        rows=tuple(rows),
        coverage=coverage,
        doubts=tuple(doubts_of_inputs(rows) if doubts is None else doubts),
        designs=tuple(dict.fromkeys(reference.by_design.values())),
        undocumented=tuple(sorted(backends - {_DOCUMENTED})),
        failure="" if judged.failure is None else _failure_text(judged.failure, graph),
    )


def _failure_text(failure: ReferenceFailure, graph: Graph) -> str:
    node = graph.calls.get(failure.node)
    lines = short_lines(() if node is None else lines_of([node])[:1])
    place = f" ({lines})" if lines else ""
    return f"the reference fails at {failure.node}{place}: {failure.reason}"


class _Flow:
    """Follows values that are wrong, or differ by design, to the values computed from them: these
    may differ from the reference without an own error."""

    def __init__(self, metric: Metric, by_design: Collection[str]) -> None:
        self._metric, self._by_design = metric, by_design
        self._wrong: set[str] = set()  # nodes that are wrong, or compute with the values of such
        self._designed: set[str] = set()

    def explained(self, row: NumericsRow) -> NumericsRow:
        """Return the next row in order, with the reason for its error as its verdict."""
        inherits = not self._wrong.isdisjoint(row.reads)
        if inherits or row.verdict == WRONG:
            self._wrong.add(row.pair.node)
        own = any(node in self._by_design for node in row.nodes)
        is_designed = own or not self._designed.isdisjoint(row.reads)
        if is_designed:
            self._designed.add(row.pair.node)
        if row.verdict == FINE and inherits and self._shows(row):
            return replace(row, verdict=INHERITED)
        if row.verdict == FINE and is_designed and exceeds(self._metric, row.total, row.limit):
            return replace(row, verdict=BY_DESIGN)
        return row

    def _shows(self, row: NumericsRow) -> bool:
        counts = row.non_finite
        if counts is not None and counts.nan == math.prod(row.shape):
            return counts.new_nan > 0  # NaN that the reference has, too, are not an error
        return exceeds(self._metric, row.inherited, row.limit)


# Operators, by `stem`, that only move elements: no kernel may change a bit.
_MOVES = VIEWS | {
    "alias", "cat", "clone", "clone_dim_order", "constant_pad_nd", "contiguous", "detach",
    "embedding", "expand", "flip", "gather", "index", "index_select", "permute", "pixel_shuffle",
    "pixel_unshuffle", "repeat", "roll", "select", "slice", "split", "split_with_sizes", "squeeze",
    "stack", "t", "transpose", "unbind", "unsqueeze",
}  # fmt: skip
# That holds for kernels and this backend, with known arithmetic (`bridge.reference.backends`);
# other backends may keep floats as halves.
_DOCUMENTED = "XnnpackBackend"


@dataclass(frozen=True, slots=True)
class _Compared:
    """A device's value, and what was recomputed for it. step: between the numbers that the backend
    has for it; 0 if it has floats."""

    pair: Pair
    item: Recomputed
    value: Any
    local: Any
    reference: Any
    step: float = 0.0

    @property
    def wide(self) -> Any:
        """PyTorch's result in float64. A quantized value may round to either side, so its result is
        moved at least half a step from `local`.
        """
        wide = _element(self.item.wide, self.pair)
        if not self.step or wide is None or np.shape(wide) != np.shape(self.local):
            return wide
        local = np.asarray(self.local, np.float64)
        noise = np.asarray(wide, np.float64) - local
        signs = np.resize([1.0, -1.0], noise.size).reshape(noise.shape)
        signs = np.where(noise == 0, signs, np.sign(noise))
        return local + signs * np.maximum(np.abs(noise), self.step / 2)


def _element(value: Any, pair: Pair) -> Any:
    return value if value is None or pair.element is None else value[pair.element]


class _Judge:
    """Compares the logged values of a run with their recomputed ones."""

    def __init__(self, ran: MatchedRun, reference: RunReference, judgement: Judgement) -> None:
        self.reference, self.judgement = reference, judgement
        self.paired = PairedValues(ran.logged, ran.matching)
        self.subgraphs, self.backends = ran.subgraphs, ran.backends
        self._by_node, self._count = ran.matching.by_node, len(ran.matching.pairs)
        self.failure: ReferenceFailure | None = None  # ended the rows
        # The steps between the numbers of values that a backend computes with integers, whatever
        # the graph has, by node and element; without the values that it has as floats.
        designs = [one for one in reference.by_design if self.backends[one].backend in IN_CODES]
        before = ran.method.symbols.before_passes
        codes = codes_of_graph(ran.subgraphs.graph, before).by_node if designs else {}
        self.steps = {
            name: {element: known.scale for element, known in codes.get(name, {}).items()}
            for name in designs
        }

    def compared(self, pair: Pair, item: Recomputed) -> _Compared | None:
        """The values of a pair; None if they cannot be compared."""
        local, reference = _element(item.local, pair), _element(item.reference, pair)
        value = self.paired.value(pair, item.loop_pass, local)
        if value is None:
            return None
        inside = self.backends.get(pair.node)
        if inside is not None and inside.in_halves and is_half(value):
            half = as_half(np.asarray(local))
            if half is not None:
                value, local = value.astype(np.float16), half
        step = self.steps.get(pair.node, {}).get(pair.element, 0.0)
        return _Compared(pair, item, value, local, reference, step)

    def row(self, compared: _Compared, *, screen: bool = True) -> NumericsRow:
        """Return the row of a value. screen: skip the noise if the value passes whatever the noise
        is.
        """
        metric, pair, item = self.judgement.metric, compared.pair, compared.item
        value, local, reference = compared.value, compared.local, compared.reference
        graph, subgraph = self.subgraphs.graph, self.subgraphs.of(pair.node)
        record, node = self.paired.records[pair.instruction], graph.calls[pair.node]
        inside = [graph.calls[path] for path in subgraph.nodes]
        is_call = record.kind == "delegate" and pair.delegate_id is None
        # A conversion at the border of a call has the module of the operator before or after it.
        computing = [one for one in inside if not is_quantization(one)] or inside
        rules = self._rules(pair)
        judged = screened(metric, local, value, rules) if screen else None
        if judged is None:
            judged = judge(metric, local, value, compared.wide, rules)
        return NumericsRow(
            pair=pair,
            loop_pass=item.loop_pass,
            event=record.event if pair.delegate_id is None else str(pair.delegate_id),
            label=record.label if pair.delegate_id is None else stem(node.op),
            is_delegate=is_call,
            op=node.op,
            nodes=subgraph.nodes,
            reads=subgraph.reads,
            inputs=subgraph.inputs,
            lines=lines_of([*([] if record.kind == "delegate" else [node]), *inside]),
            module=common_module(computing if is_call else [node]),
            shape=tuple(np.shape(value)),
            dtype=str(getattr(value, "dtype", type(value).__name__)),
            total=difference(metric, reference, value),
            quantization=self._quantization(pair, item.loop_pass, reference),
            local=judged.error,
            inherited=difference(metric, reference, local),
            noise=judged.noise,
            limit=judged.limit,
            excess=judged.excess,
            share=judged.share,
            verdict=WRONG if judged.is_wrong else FINE,
            part=judged.part,
            non_finite=NonFinite.of(value, local if reference is None else reference),
        )

    def _quantization(self, pair: Pair, loop_pass: int, reference: Any) -> float | None:
        """The error of the quantized reference's value to the float graph's."""
        if reference is None or loop_pass:
            return None
        expected = self.reference.float_value(pair.node, pair.element)
        return difference(self.judgement.metric, expected, reference)

    def add_up(self, compared: _Compared, row: NumericsRow) -> None:
        """Add a value to the sums over runs, unless it has a fixed tolerance or is only moved."""
        runs = self.judgement.runs
        if runs is None or compared.local is None:
            return
        rules = self._rules(compared.pair)
        if rules.tolerance is not None or rules.exact:
            return
        known = rounding_of(np.asarray(compared.local).dtype, np.empty(0), rules)
        runs.add(value_key(row), compared.local, compared.value, lambda: compared.wide, known)

    def _rules(self, pair: Pair) -> Rules:
        paths = self.subgraphs.of(pair.node).nodes
        inside = [self.subgraphs.graph.calls[path] for path in paths]
        place = self.backends.get(pair.node)
        moves_bits = place is None or place.backend == _DOCUMENTED
        return Rules(
            tolerance=self.judgement.tolerance,
            quantized=any("quantize" in one.op for one in inside)
            or any(path in self.steps for path in paths),
            exact=moves_bits and all(stem(one.op) in _MOVES for one in inside),
            values=self._count,
        )

    def suspect(self, row: NumericsRow, compared: _Compared) -> Suspect:
        """The values of a row, with the rules that it was judged by."""
        return Suspect(
            value=compared.value,
            local=compared.local,
            wide=compared.wide,
            metric=self.judgement.metric,
            rules=self._rules(row.pair),
            part=row.part,
            axis=channel_axis(row.op, len(row.shape)),
        )

    def rows(self, keeper: _Keeper | None, suspects: Suspects | None) -> Iterator[NumericsRow]:
        """Yield the rows of the values that can be compared, in order of the reference; up to its
        failure, if it fails."""
        flow = _Flow(self.judgement.metric, self.reference.by_design)
        for pair, item in self._items():
            compared = self.compared(pair, item)
            if compared is None:
                continue
            row = self.row(compared)
            explained = flow.explained(row)
            if explained.verdict != row.verdict and row.noise is None:
                # Whether a difference shows depends on the whole limit.
                explained = flow.explained(self.row(compared, screen=False))
            self.add_up(compared, explained)
            if keeper is not None:
                explained = keeper.with_values(explained, compared)
            if suspects is not None and suspects.takes(explained):
                suspects.take(explained, self.suspect(explained, compared))
            yield explained

    def _items(self) -> Iterator[tuple[Pair, Recomputed]]:
        """Yield the recomputed values with the logged values that they belong to."""
        try:
            for item in self.reference.values(set(self._by_node)):
                for pair in self._by_node[item.name]:
                    yield pair, item
        except ReferenceFailure as error:
            self.failure = error


def value_key(row: NumericsRow) -> tuple[int, int | str | None, int, str, int | None, int]:
    """The key that identifies a row's value in all runs of the program."""
    pair = row.pair
    value = pair.instruction, pair.delegate_id, pair.output, pair.node, pair.element
    return (*value, row.loop_pass)


class _Keeper:
    """Chooses the rows that keep what is to be seen of their values. These are compared when all
    rows are known, as far as they fit in memory until then. values_stay: as of `RunReference`."""

    def __init__(self, kept: KeptValues, graph: Graph, values_stay: bool) -> None:
        self._kept, self._graph, self._values_stay = kept, graph, values_stay
        self._always: set[tuple[Pair, int]] = set()
        self._worst: list[tuple[bool, float, int, tuple[Pair, int]]] = []  # a heap, the least first
        self._outputs = self._wrong = self._seen = 0
        self._waiting: dict[tuple[Pair, int], tuple[Any, Any, Any]] = {}
        self._bytes = 0

    def with_values(self, row: NumericsRow, compared: _Compared) -> NumericsRow:
        """Compare the values of a row now, if it may be kept and the values may change later."""
        if row.local is None or not self._takes(row):
            return row
        values = compared.value, compared.local, compared.reference
        if self._values_stay and self._bytes + _bytes(values) <= _WAITING_BYTES:
            self._waiting[row.pair, row.loop_pass] = values
            self._bytes += _bytes(values)
            return row
        return replace(row, values=self._values(row.pair.node, *values))

    def _values(self, path: str, value: Any, local: Any, reference: Any) -> RowValues:
        node, quantized = self._graph.calls[path], quantized_range(self._graph, path)
        compare = partial(
            compare_values, axis=channel_axis(node.op, np.ndim(value)), quantized=quantized
        )
        total = None
        if reference is not None and np.shape(reference) == np.shape(value):
            one, other = np.asarray(reference), np.asarray(local)
            if not ((one == other) | ((one != one) & (other != other))).all():  # or NaN in both
                total = compare(reference, value)
        return RowValues(compare(local, value), total)

    def _takes(self, row: NumericsRow) -> bool:
        place = row.pair, row.loop_pass
        if self._kept.selector is not None:
            node = self._graph.calls[row.pair.node]
            fields = fields_of_value(node, row.pair.node, row.pair.instruction)
            return self._kept.selector.matches(fields)
        wrong = row.verdict == WRONG
        is_output = row.pair.node in self._graph.outputs
        if (wrong and self._wrong < _FIRST_WRONG) or (is_output and self._outputs < _MOST_OUTPUTS):
            self._wrong += wrong
            self._outputs += is_output
            self._always.add(place)
            return True
        self._seen += 1
        key = (wrong, row.excess, -self._seen, place)
        if len(self._worst) < self._kept.worst:
            heapq.heappush(self._worst, key)
            return True
        if not self._worst:
            return False
        replaced = heapq.heappushpop(self._worst, key)
        self._bytes -= _bytes(self._waiting.pop(replaced[-1], ()))
        return replaced is not key

    def only_kept(self, rows: Sequence[NumericsRow]) -> list[NumericsRow]:
        """Return the rows. Only the chosen ones keep their values."""
        rows = [
            row
            if (values := self._waiting.pop((row.pair, row.loop_pass), None)) is None
            else replace(row, values=self._values(row.pair.node, *values))
            for row in rows
        ]
        if self._kept.selector is not None:
            if not any(row.values for row in rows):
                nodes = list(dict.fromkeys(row.pair.node for row in rows))
                raise MissingDataError(
                    f"{self._kept.selector.text!r} picks no value that can be compared",
                    hint="values are of: " + listed(nodes, 12),
                )
            return rows
        kept = self._always.union(entry[-1] for entry in self._worst)
        return [
            row
            if row.values is None or (row.pair, row.loop_pass) in kept
            else replace(row, values=None)
            for row in rows
        ]


def _bytes(values: Iterable[Any]) -> int:
    return sum(getattr(value, "nbytes", 0) for value in values)


# -- did the reference have the inputs that ran on the device?


def doubts_of_logged_inputs(logged: LoggedRun, inputs: Sequence[Any]) -> list[str] | None:
    """Compare `inputs` with the inputs that delegates logged; the program's are among them. Returns
    None if none were logged, and a doubt if they differ in a forced trace.

    Raises `OtherInputsError` for other inputs: correct operators would be called wrong.
    """
    trace, program = logged.trace, logged.trace.recorded_program
    if program is None:
        return None
    method = program.method(logged.method)
    positions = {value: position for position, value in enumerate(method.inputs)}
    records = {r.instruction_id: r for r in trace.instructions(logged.method)}
    compared: dict[int, Any] = {}  # by position among the program's inputs
    for (number, inner), passes in logged.passes.items():
        record = records.get(number)
        if record is None or record.kind != "delegate" or inner is not None:
            continue
        arguments = unfolded_indices(method.values, record.inputs)
        values = unfolded(trace.values(logged.block, logged.run, passes[0]))
        if len(values) == len(arguments) + len(unfolded_indices(method.values, record.outputs)):
            known = zip(arguments, values, strict=False)
            compared.update((positions[one], value) for one, value in known if one in positions)
    different = []
    for index, value in compared.items():
        if index < len(inputs):
            one, other = np.asarray(value).reshape(-1), np.asarray(inputs[index]).reshape(-1)
            floats = one.dtype.kind not in "biu" and other.dtype.kind not in "biu"
            if floats and one.size == other.size:
                one, other = one.astype(np.float64), other.astype(np.float64)
            if not np.array_equal(one, other, equal_nan=floats):
                different.append(str(index))
    if not different:
        return [] if compared else None
    told = "these are not the inputs that ran: a delegate logged others for input "
    told += ", ".join(different)
    if not trace.forced:
        raise OtherInputsError(told, hint=INPUTS_HINT)
    return [told]


def doubts_of_inputs(rows: Sequence[NumericsRow]) -> Iterator[str]:
    """Describe evidence that the device ran with other inputs, where none were logged: all values
    that are computed from them directly are wrong in nearly all elements, and no other value is."""
    direct = [row for row in rows if row.inputs and row.loop_pass == 0]
    wrong = [row for row in rows if row.verdict == WRONG]
    if (
        not wrong
        or any(row not in direct for row in wrong)
        or any(row.verdict != WRONG or row.share < _NEARLY_ALL for row in direct)
    ):
        return
    if len(direct) > 1:
        yield (
            f"these may not be the inputs that ran: all {len(direct)} values that are computed "
            f"from them are wrong in nearly all elements, and no other is; {INPUTS_HINT}"
        )
    else:
        yield (
            "the wrong value is the only one that is computed from the inputs, and wrong in nearly "
            f"all elements: if these are not the inputs that ran, that is why; {INPUTS_HINT}"
        )
