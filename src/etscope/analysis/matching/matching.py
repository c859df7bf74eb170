"""Pair the values that the runtime logged with the values of a reference graph.

The values of a pair should be equal up to rounding. Debug handles, operators' names and the flow of
values through the program decide; shapes and dtypes must agree. Every value without a partner has a
reason, as text.

Nodes are named by their paths: "add", and "true_graph_0/add" for a node of a sub-graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from etscope.analysis.matching.instructions import INSIDE_A_DELEGATE, InstructionMatcher
from etscope.analysis.matching.run import LoggedSpec, PartialMatching, Reason, Runtime, Slot, Specs
from etscope.analysis.program.correlate import MethodSymbols, is_operator
from etscope.analysis.program.program import InstructionRecord, place, unfolded
from etscope.formats.program.pte_schema import ListValue, Method, TensorValue, Value
from etscope.model.graph import VIEWS, Graph, Node, NodeValue, TensorSpec, stem
from etscope.model.table import Column, Kind, Table

if TYPE_CHECKING:
    from etscope.backends.common.logged import Form


@dataclass(frozen=True, slots=True)
class Pair:
    """A logged value and its node.

    output: index among the instruction's outputs, tensors of lists one by one. logged: index among
    all values that the instruction logged; a delegate logs its inputs, too. element: index into the
    node's tuple or list, None for a node of one value. delegate_id: identifies the operator inside
    a delegate that logged the value. is_view: the logged value has the same elements in another
    shape, because memory planning made the node a view of the instruction's result. form: how a
    value logged inside a delegate converts to the node's; None for other values.
    """

    instruction: int
    output: int
    node: str
    element: int | None = None
    logged: int = 0
    delegate_id: int | str | None = None
    is_view: bool = False
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A value without a partner. A runtime output has an instruction, a node its path in `node`.

    kind: the class of the reason: "inside" (of an operator or delegate), "not logged", "view",
    "not run", "ambiguous", "differs" (in shape or dtype), "empty", "unknown".
    """

    reason: str
    kind: str = "unknown"
    instruction: int | None = None
    output: int | None = None
    node: str | None = None
    op: str = ""


@dataclass(frozen=True)
class Coverage:
    """The compared parts of a run and of its reference.

    sees_inside: a delegate logged values of its operators.
    """

    pairs: int
    outputs: tuple[Unpaired, ...]
    nodes: tuple[Unpaired, ...]
    paired_nodes: int
    sees_inside: bool = False

    def __str__(self) -> str:
        return (
            f"{self.pairs} of {self.pairs + len(self.outputs)} logged values and "
            f"{self.paired_nodes} of {self.paired_nodes + len(self.nodes)} reference nodes compared"
        )

    @property
    def hidden(self) -> str | None:
        """Say that most of the reference is inside delegates, and how to see into them; None if it
        is not."""
        inside = sum(node.reason.startswith(INSIDE_A_DELEGATE) for node in self.nodes)
        nodes = self.paired_nodes + len(self.nodes)
        if 2 * inside <= nodes or self.sees_inside:
            return None
        return (
            f"{inside:,} of {nodes:,} reference nodes are inside delegates, which record only "
            "their outputs. To compare each node, export with taps: etscope export -X "
            "taps='op:*'"
        )

    def table(self) -> Table:
        rows = (*self.outputs, *self.nodes)
        return Table.of(
            {
                Column("side"): ["runtime" if row.node is None else "reference" for row in rows],
                Column("instruction", Kind.INT): [row.instruction for row in rows],
                Column("output", Kind.INT, priority=2): [row.output for row in rows],
                Column("node", priority=1): [row.node for row in rows],
                Column("op", priority=1): [row.op or None for row in rows],
                Column("kind", priority=2): [row.kind for row in rows],
                Column("reason"): [row.reason for row in rows],
            },
            title="Values that were not compared",
        )


@dataclass(frozen=True)
class Matching:
    """The pairs of a run and a reference graph in order of execution, and values without a pair.

    covered: the known nodes inside each delegate call, by instruction.
    """

    pairs: tuple[Pair, ...]
    unpaired_outputs: tuple[Unpaired, ...]
    unpaired_nodes: tuple[Unpaired, ...]
    covered: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, runtime: Runtime, graph: Graph, found: PartialMatching) -> Matching:
        """Put the pairs in order, and collect the reasons of all other values."""
        pairs = [
            Pair(
                slot.instruction,
                slot.output,
                value.path,
                value.element,
                logged=runtime.logged_index(slot),
                delegate_id=slot.delegate_id,
                is_view=slot in found.views,
                form=found.forms.get(slot),
            )
            for slot, value in sorted(found.pairs.items(), key=lambda item: item[0].order)
        ]
        labels = {record.instruction_id: record.label for record in runtime.records}
        unpaired = [
            Unpaired(
                *found.reason_of(slot),
                instruction=slot.instruction,
                output=slot.output,
                op=labels.get(slot.instruction, "")
                if slot.delegate_id is None
                else str(slot.delegate_id),
            )
            for slot in runtime.slots
            if slot not in found.pairs
        ]
        taken = found.taken
        missing = [
            Unpaired(*found.reason_of_node(path), node=path, op=node.op)
            for path, node in graph.operators.items()
            if path not in taken
        ]
        return cls(tuple(pairs), tuple(unpaired), tuple(missing), dict(found.covered))

    @cached_property
    def by_node(self) -> Mapping[str, tuple[Pair, ...]]:
        table: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            table.setdefault(pair.node, []).append(pair)
        return {name: tuple(pairs) for name, pairs in table.items()}

    @cached_property
    def by_instruction(self) -> Mapping[int, tuple[Pair, ...]]:
        table: dict[int, list[Pair]] = {}
        for pair in self.pairs:
            table.setdefault(pair.instruction, []).append(pair)
        return {number: tuple(pairs) for number, pairs in table.items()}

    @property
    def coverage(self) -> Coverage:
        return Coverage(
            len(self.pairs),
            self.unpaired_outputs,
            self.unpaired_nodes,
            len(self.by_node),
            any(pair.delegate_id is not None for pair in self.pairs),
        )


def match(
    graph: Graph,
    symbols: MethodSymbols,
    instructions: Sequence[InstructionRecord],
    logged: Mapping[int, Specs],
    *,
    delegated: Mapping[tuple[int, int | str], Specs] | None = None,
    outputs: Sequence[int] = (),
) -> Matching:
    """Pair the values of a run with the values of `graph`.

    graph: a graph of the record: the edge program, the exported program, or another graph with
    debug handles. symbols: the edge program that ran; it gives the nodes of a `graph` without debug
    handles. instructions: the method's instructions; without a program, the dump's (see
    `logged_run`). logged: for each instruction that ran, the types of its values; the tensors of a
    list one by one, None for a number. For an instruction in a loop, the types in one pass.
    delegated: the same for the operators inside delegates, by identifier. outputs: the program's
    outputs, if known; with `instructions` they show how values flow.
    """
    counts = {
        record.instruction_id: symbols.num_outputs.get(record.instruction_id, len(record.outputs))
        for record in instructions
        if record.kind == "delegate"
    }
    runtime = Runtime(instructions, logged, delegated or {}, tuple(outputs), counts)
    before = symbols.before_passes
    has_handles = any(node.debug_handle for node in graph.nodes)
    if before is not None and graph.name == before.name:
        has_handles = False  # handles of the graph before the passes belong to other nodes
    if graph is symbols.graph or symbols.graph is None or has_handles:
        found = InstructionMatcher(runtime, replace(symbols, graph=graph), graph).found
    else:
        edge = symbols.graph
        found = _Origins(InstructionMatcher(runtime, symbols, edge).found, edge, graph).found
    return Matching.of(runtime, graph, found)


# -- A program without a run.

COMPUTING = ("kernel", "delegate")  # the kinds of instructions that compute values


def program_matching(
    graph: Graph, symbols: MethodSymbols, method: Method, records: Sequence[InstructionRecord]
) -> Matching:
    """Match the values that a method's instructions would log with the values of `graph`, by
    `match`. Dynamic shapes are compared by their bounds."""
    specs = {
        record.instruction_id: [
            LoggedSpec(value.scalar_type.torch_name, value.sizes)
            if isinstance(value := method.values[index], TensorValue)
            else None
            for index in one_by_one(method.values, record.outputs)
        ]
        for record in records
        if record.kind in COMPUTING
    }
    flow = with_flow(method.values, records)
    return match(graph, symbols, flow, specs, outputs=method.outputs)


def with_flow(
    values: Sequence[Value], records: Sequence[InstructionRecord]
) -> list[InstructionRecord]:
    """Return the records with the tensors of lists one by one. A view without an instruction is
    replaced by its base: the last value written to the same memory."""
    written: set[int] = set()
    last: dict[object, int] = {}
    found = []
    for record in records:
        inputs = tuple(
            index if index in written else last.get(place(values[index]), index)
            for index in unfolded(values, record.inputs)
        )
        outputs = unfolded(values, record.outputs)
        written.update(outputs)
        last.update((where, i) for i in outputs if (where := place(values[i])) is not None)
        found.append(replace(record, inputs=inputs, outputs=outputs))
    return found


def one_by_one(values: Sequence[Value], indices: Sequence[int]) -> tuple[int, ...]:
    """The indices with each list replaced by its tensors, as the runtime logs them."""
    found: list[int] = []
    for index in indices:
        value = values[index]
        tensors = unfolded(values, [index]) if isinstance(value, ListValue) else ()
        found.extend(tensors or (index,))
    return tuple(found)


# -- Carry pairs with the edge graph over to the program before lowering.
#
# Each node of the edge graph names, in its `from_node` chain, the node of the exported program that
# it is a part of. The value of this node (the whole) is the one that leaves its parts. If there are
# several, shape, dtype and users decide.


class _Origins:
    """Finds the pairs of `graph` from the pairs of its edge graph."""

    def __init__(self, edge_found: PartialMatching, edge: Graph, graph: Graph) -> None:
        self._edge_found, self._edge, self._graph = edge_found, edge, graph
        self.found = PartialMatching(forms=edge_found.forms, reasons=dict(edge_found.reasons))
        self._slots: dict[NodeValue, list[Slot]] = {}
        for slot, value in edge_found.pairs.items():
            self._slots.setdefault(edge.inner_value(value), []).append(slot)
        self._parts = parts_of(edge, graph)
        self._whole = {id(part): path for path, parts in self._parts.items() for part in parts}
        for path, node in graph.operators.items():
            self._match(path, node)
        self._explain_slots()
        for number, covered in edge_found.covered.items():
            wholes = (self._whole.get(id(edge.calls[path])) for path in covered)
            self.found.covered[number] = tuple(dict.fromkeys(w for w in wholes if w is not None))

    def _match(self, path: str, node: Node) -> None:
        parts = self._parts.get(path, [])
        values = self._graph.values_of(node)
        sources = self._whole_tuple(node, parts)
        if sources is None:
            candidates = [self._candidates(node, value, parts) for value in values]
            sources = [found[0] if len(found) == 1 else None for found in candidates]
        taken = False
        for value, source in zip(values, sources, strict=True):
            if source is not None and sources.count(source) == 1:
                taken = self._take(source, value) or taken
        if not taken:
            self.found.node_reasons[path] = self._why_not(node, parts)

    def _whole_tuple(self, node: Node, parts: Sequence[Node]) -> list[NodeValue | None] | None:
        """Return the values of the only part with values of the same types; None without one."""
        if len(node.outputs) < 2:
            return None
        same = [
            part
            for part in parts
            if len(part.outputs) == len(node.outputs)
            and all(
                same_spec(one.tensor, other.tensor)
                for one, other in zip(part.outputs, node.outputs, strict=True)
            )
        ]
        return list(self._edge.values_of(same[0])) if len(same) == 1 else None

    def _take(self, source: NodeValue, value: NodeValue) -> bool:
        """Pair the logged values of an edge node, or of its base if it is a view."""
        is_view = False
        while source not in self._slots:
            node = self._edge.calls[source.path]
            inputs = self._edge.read_by(node)
            if stem(node.op) not in VIEWS or not inputs:
                return False
            source, is_view = inputs[0], True
        for slot in self._slots[source]:
            if slot not in self.found.pairs:
                self.found.pairs[slot] = value
                self.found.reasons.pop(slot, None)
                if is_view:
                    self.found.views.add(slot)
        return True

    def _candidates(self, node: Node, value: NodeValue, parts: Sequence[Node]) -> list[NodeValue]:
        """Return the values of parts that may be `value` of the whole."""
        spec = self._graph.spec_of(value)
        fitting = [
            candidate
            for part in parts
            for candidate in self._edge.values_of(part)
            if same_spec(self._edge.spec_of(candidate), spec)
        ]
        result = self._as_output(value)
        if result is not None:
            return [candidate for candidate in fitting if candidate == result]
        inside = {id(part) for part in parts}
        leaving = [
            candidate
            for candidate in fitting
            if any(id(user) not in inside for user in self._edge.readers_of(candidate))
        ]
        if len(leaving) > 1 or len(node.outputs) > 1:
            leaving = [c for c in leaving if self._is_used_as(c, value, inside)]
        if leaving:
            return leaving
        named = [c for c in fitting if stem(self._edge.calls[c.path].op) == stem(node.op)]
        return named if len(node.outputs) == 1 else []

    def _as_output(self, value: NodeValue) -> NodeValue | None:
        """The output of the edge graph at the position of the value among the graph's outputs."""
        graph, edge = self._graph, self._edge
        if "/" in value.path:
            return None
        name = graph.calls[value.path].outputs[value.element or 0].name
        pairs = zip(reversed(graph.outputs), reversed(edge.outputs), strict=False)
        for output, edge_output in pairs:
            if output == name:
                found = edge.value_named(edge_output, edge)
                return None if found is None else edge.inner_value(found)
        return None

    def _is_used_as(self, candidate: NodeValue, value: NodeValue, inside: set[int]) -> bool:
        """True if nodes outside that use the candidate come from users of the whole's value."""
        wanted = {self._graph.path_of[id(user)] for user in self._graph.users_of(value)}
        used = {
            self._whole.get(id(user))
            for user in self._edge.readers_of(candidate)
            if id(user) not in inside
        }
        return bool(wanted & used)

    # -- reasons

    def _explain_slots(self) -> None:
        for slot, value in self._edge_found.pairs.items():
            if slot not in self.found.pairs:
                part = self._edge.calls[self._edge.inner_value(value).path]
                whole = self._whole.get(id(part))
                reason: Reason = ("no node of the reference graph is its origin", "unknown")
                if whole is not None:
                    reason = f"inside {whole}, which was decomposed", "inside"
                self.found.reasons[slot] = reason

    def _why_not(self, node: Node, parts: Sequence[Node]) -> Reason:
        if node.subgraphs:
            return "it runs sub-graphs, and their nodes are compared", "inside"
        if not parts:
            return "passes removed it: no node of the edge graph comes from it", "unknown"
        paths = [self._edge.path_of[id(part)] for part in parts]
        known = self._edge_found.node_reasons
        reasons = dict.fromkeys(known[path] for path in paths if path in known)
        for reason in reasons:
            if len(reasons) == 1 or reason[1] == "inside":
                return reason
        names = ", ".join(paths[-3:])
        return f"it is unknown which value of its parts is its value ({names})", "ambiguous"


def parts_of(edge: Graph, graph: Graph) -> Mapping[str, list[Node]]:
    """Map each node of the program, by path, to the nodes of the edge graph that come from it."""
    parts: dict[str, list[Node]] = {}
    for part, prefix, graph_id, names in _graph_pairs(edge, graph, ""):
        for node in _with_delegated(part):
            for origin in node.all_origins():
                if origin.graph_id == graph_id and origin.name in names:
                    parts.setdefault(prefix + origin.name, []).append(node)
                    break
    return parts


def _with_delegated(graph: Graph) -> Iterator[Node]:
    """The operators of a graph, and those in its delegates."""
    for node in graph.nodes:
        if node.delegate is not None and node.delegate.graph is not None:
            yield from _with_delegated(node.delegate.graph)
        elif is_operator(node):
            yield node


def _graph_pairs(
    edge: Graph, graph: Graph, prefix: str
) -> Iterator[tuple[Graph, str, int | None, set[str]]]:
    """Yield the graph and its sub-graphs: the edge graph made of it, the prefix of its paths, its
    id, and the names of its nodes."""
    names = {node.name for node in graph.nodes if node.kind == "call_function"}
    yield edge, prefix, graph_id_of(edge, graph), names
    edge_below = [below for node in edge.nodes for below in node.subgraphs]
    below = [inner for node in graph.nodes for inner in node.subgraphs]
    if len(edge_below) == len(below):
        for inner_edge, inner in zip(edge_below, below, strict=True):
            name = f"{prefix}{inner.own_name}/"
            yield from _graph_pairs(inner_edge, inner, name)


def graph_id_of(edge: Graph, graph: Graph) -> int | None:
    """Return the id of a graph. If the file does not store it: the id whose nodes, in the origins
    of the edge graph's nodes, are all in the graph by name and operator. None without such an id,
    or if several contradict each other."""
    if graph.graph_id is not None:
        return graph.graph_id
    operators = {node.name: node.op for node in graph.nodes if node.kind == "call_function"}
    named: dict[int, dict[int, str]] = {}  # id -> edge node -> name
    foreign: set[int] = set()
    for node in _with_delegated(edge):
        for origin in node.all_origins():
            op, target = operators.get(origin.name), origin.target.removeprefix("aten.")
            if op is not None and (
                op == target or op.partition(".")[0] == target.rpartition(".")[2]
            ):
                named.setdefault(origin.graph_id, {}).setdefault(id(node), origin.name)
            else:
                foreign.add(origin.graph_id)
    found = {number: names for number, names in named.items() if number not in foreign}
    widest = max(found, key=lambda number: len(found[number]), default=None)
    if widest is None or any(
        not names.items() <= found[widest].items() for names in found.values()
    ):
        return None
    return widest


def same_spec(one: TensorSpec | None, other: TensorSpec | None) -> bool:
    """True for the same type and sizes, where a symbol matches any size; also for two unknown
    specs."""
    if one is None or other is None:
        return one is None and other is None
    return (
        one.dtype == other.dtype
        and len(one.shape) == len(other.shape)
        and all(
            a == b or isinstance(a, str) or isinstance(b, str)
            for a, b in zip(one.shape, other.shape, strict=True)
        )
    )
