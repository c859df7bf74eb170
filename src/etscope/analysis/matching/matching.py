"""Pair the values that the runtime logged with the values of a reference graph.

A pair says that two numbers should be equal but for rounding. It is only made when that is known:
by debug handles and operators' names, by the flow of values through the program, and never against
shapes and dtypes. Every value without a partner has a reason, as text.

Nodes are named by their paths: "add", and "true_graph_0/add" for a node of a sub-graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from etscope.analysis.matching.instructions import match_instructions
from etscope.analysis.matching.origins import match_origins
from etscope.analysis.matching.run import LoggedSpec, Runtime, Specs
from etscope.analysis.profile.correlate import MethodSymbols
from etscope.analysis.program.program import InstructionRecord, place, unfolded
from etscope.formats.program.pte_schema import ListValue, Method, TensorValue, Value
from etscope.model.graph import Graph
from etscope.model.table import Column, Kind, Table


@dataclass(frozen=True, slots=True)
class Pair:
    """A logged value and the node whose value it is.

    output: index among the instruction's outputs, tensors of lists one by one. logged: index among
    all that the instruction logged; a delegate logs its inputs, too. element: index into the node's
    tuple or list, None for a node of one value. delegate_id: identifies the operator inside a
    delegate that logged the value. is_view: the logged value has the same elements in another
    shape, since memory planning made the node a view of what the instruction computed.
    """

    instruction: int
    output: int
    node: str
    element: int | None = None
    logged: int = 0
    delegate_id: int | str | None = None
    is_view: bool = False


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
    """The parts of a run and of its reference that could be compared."""

    pairs: int
    outputs: tuple[Unpaired, ...]
    nodes: tuple[Unpaired, ...]
    paired_nodes: int

    def __str__(self) -> str:
        return (
            f"{self.pairs} of {self.pairs + len(self.outputs)} logged values and "
            f"{self.paired_nodes} of {self.paired_nodes + len(self.nodes)} reference nodes compared"
        )

    def table(self) -> Table:
        """A table with one row for each value that was not compared."""
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

    covered: the known nodes inside of each delegate call, by instruction.
    """

    pairs: tuple[Pair, ...]
    unpaired_outputs: tuple[Unpaired, ...]
    unpaired_nodes: tuple[Unpaired, ...]
    covered: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def by_node(self) -> Mapping[str, tuple[Pair, ...]]:
        """The pairs of each node, by its name."""
        table: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            table.setdefault(pair.node, []).append(pair)
        return {name: tuple(pairs) for name, pairs in table.items()}

    @cached_property
    def by_instruction(self) -> Mapping[int, tuple[Pair, ...]]:
        """The pairs of each instruction."""
        table: dict[int, list[Pair]] = {}
        for pair in self.pairs:
            table.setdefault(pair.instruction, []).append(pair)
        return {number: tuple(pairs) for number, pairs in table.items()}

    @property
    def coverage(self) -> Coverage:
        return Coverage(
            len(self.pairs), self.unpaired_outputs, self.unpaired_nodes, len(self.by_node)
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
    """Pair the values of a run with those of `graph`.

    graph: of the record: the edge program, the exported program, or a graph with debug handles.
    symbols: of the edge program that ran; they find the nodes of a `graph` without debug handles.
    instructions: of the method; without a program, those that the dump names (see `logged_run`).
    logged: for each instruction that ran, the types of its values, tensors of lists one by one;
        None for a number. For an instruction in a loop, those of one pass.
    delegated: the same for the operators inside delegates, by identifier.
    outputs: the program's, if it is known. With `instructions` they give the flow of values.
    """
    counts = {
        record.instruction_id: symbols.num_outputs.get(record.instruction_id, len(record.outputs))
        for record in instructions
        if record.kind == "delegate"
    }
    runtime = Runtime(instructions, logged, delegated or {}, tuple(outputs), counts)
    if graph is symbols.graph or symbols.graph is None or any(n.debug_handle for n in graph.nodes):
        found = match_instructions(runtime, replace(symbols, graph=graph), graph)
    else:
        edge = symbols.graph
        found = match_origins(match_instructions(runtime, symbols, edge), edge, graph)
    pairs = [
        Pair(
            slot.instruction,
            slot.output,
            value.path,
            value.element,
            logged=runtime.logged_index(slot),
            delegate_id=slot.delegate_id,
            is_view=slot in found.views,
        )
        for slot, value in sorted(found.pairs.items(), key=lambda item: item[0].order)
    ]
    labels = {record.instruction_id: record.label for record in runtime.records}
    unpaired = [
        Unpaired(
            *found.reason_of(slot),
            instruction=slot.instruction,
            output=slot.output,
            op=labels.get(slot.instruction, ""),
        )
        for slot in runtime.slots
        if slot not in found.pairs
    ]
    paired_nodes = {pair.node for pair in pairs}
    missing = [
        Unpaired(*found.reason_of_node(path), node=path, op=node.op)
        for path, node in graph.operators.items()
        if path not in paired_nodes
    ]
    return Matching(tuple(pairs), tuple(unpaired), tuple(missing), dict(found.covered))


# -- A program without a run.

COMPUTING = ("kernel", "delegate")  # the kinds of instructions that compute something


def program_matching(
    graph: Graph, symbols: MethodSymbols, method: Method, records: Sequence[InstructionRecord]
) -> Matching:
    """Match the values that a method's instructions would log with those of `graph`, by
    `matching.match`. Dynamic shapes are compared by their bounds."""
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
    """Return the records with the tensors of lists one by one. A view that no instruction writes is
    replaced by the value that it is a view of: the last one written to the same memory."""
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
