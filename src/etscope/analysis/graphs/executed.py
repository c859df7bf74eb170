"""The executed graph: the instructions of a program, with its delegates opened.

Nodes are instructions in order, and edges are the values between them. With a record, a node has
the module, source line and debug handle of its instruction. Inside the call of a delegate are the
nodes of the edge graph that it computes, the same objects as in that graph. Without a record they
are XNNPACK's operators in order, without edges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.run_nodes import Nodes
from etscope.analysis.program.correlate import MethodSymbols
from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.analysis.program.source_location import common_module
from etscope.errors import FormatError
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import Allocation, Method, ScalarValue, TensorValue
from etscope.formats.program.xnnpack import is_xnnpack, read_xnnpack
from etscope.model.graph import Delegate, Graph, ModuleFrame, Node, TensorSpec, Value

EXECUTED = "executed"
DIALECT = "EXECUTORCH"

_NOT_A_WORD = re.compile(r"\W+")


@dataclass(frozen=True)
class ExecutedGraph(LinkedGraph):
    """The instructions of a method of `program` as a graph. edge: the record's edge graph of the
    method, None without one. number_of: the instruction of a node, by `id` of the node."""

    program: Program
    edge: LinkedGraph | None = None
    number_of: Mapping[int, int] = field(default_factory=dict)

    def ran(self, instruction: int) -> Nodes:
        """The node of an instruction; for a delegate call the nodes inside, if they are known."""
        node = self._node_of.get(instruction)
        if node is None:
            return ()
        inner = None if node.delegate is None else node.delegate.graph
        calls = () if inner is None else tuple(n for n in inner.nodes if n.kind != "placeholder")
        return calls or (node,)

    @cached_property
    def instructions(self) -> Mapping[int, tuple[int, ...]]:
        """The instruction that runs a node, by `id` of the node, also inside delegates."""
        table = {key: (number,) for key, number in self.number_of.items()}
        for call, inner in self._delegated:
            for node in inner:
                table[id(node)] = (self.number_of[id(call)],)
        return table

    def feeding(self, placeholder: Node) -> str | None:
        """Return the value of this graph that is passed to a placeholder of an opened delegate;
        None if unknown. The placeholder has the name of a node of the edge graph.
        """
        if self.edge is None or placeholder.name not in self.edge.graph.by_name:
            return None
        waiting, seen = [self.edge.graph.by_name[placeholder.name]], set[str]()
        while waiting:
            source = waiting.pop()
            if source.name in seen:
                continue
            seen.add(source.name)
            if source.name in self._inputs:
                return self._inputs[source.name]
            numbers = self.edge.instructions.get(id(source), ())
            if numbers and numbers[-1] in self._node_of:
                return self._node_of[numbers[-1]].name
            # A view without an instruction: follow it to its base.
            known = self.edge.graph.by_name
            waiting += [known[value] for value in reversed(source.inputs) if value in known]
        return None

    @cached_property
    def _inputs(self) -> Mapping[str, str]:
        """Map the edge graph's inputs to this graph's inputs, by name."""
        if self.edge is None:
            return {}
        theirs = [n for n in self.edge.graph.inputs if n not in self.edge.graph.parameters]
        own = [n for n in self.graph.inputs if n not in self.graph.parameters]
        return dict(zip(theirs, own, strict=True)) if len(theirs) == len(own) else {}

    @cached_property
    def _node_of(self) -> Mapping[int, Node]:
        return {
            number: node
            for node in self.graph.nodes
            if (number := self.number_of.get(id(node))) is not None
        }

    @cached_property
    def _counterparts(self) -> Callable[[Node], Nodes]:
        inside = {id(node) for _, inner in self._delegated for node in inner}
        of_edge: dict[int, Nodes] = {}
        if self.edge is not None:
            for number, node in self._node_of.items():
                for edge_node in self.edge.ran(number):
                    of_edge.setdefault(id(edge_node), (node,))
        return lambda node: (node,) if id(node) in inside else of_edge.get(id(node), ())


def executed_graph(
    program: Program,
    method: str,
    symbols: MethodSymbols | None = None,
    edge: LinkedGraph | None = None,
) -> ExecutedGraph:
    """Build the graph of a method's instructions. symbols: the record's, of the method; edge: its
    edge graph; both None without a record. Raises `MissingDataError` for an unknown method."""
    found = program.method(method)
    outputs = {} if symbols is None else symbols.num_outputs
    records = instructions(program, method, delegate_outputs=outputs).records
    maker = _Builder(program, found, symbols, edge)
    nodes = [*maker.inputs()]
    calls = [maker.instruction(record) for record in records]
    nodes = [*nodes, *maker.weights.values(), *calls, maker.output()]
    name = f"{EXECUTED}/{method}"
    graph = Graph(
        name=name,
        nodes=tuple(nodes),
        dialect=DIALECT,
        inputs=tuple(node.name for node in nodes if node.kind == "placeholder"),
        outputs=nodes[-1].inputs,
        parameters=maker.parameters,
    )
    return ExecutedGraph(
        name=name,
        graph=graph,
        method=method,
        run_nodes=None if edge is None else edge.run_nodes,
        delegate_info={},
        program=program,
        edge=edge,
        number_of={id(node): r.instruction_id for node, r in zip(calls, records, strict=True)},
    )


class _Builder:
    """Builds the nodes in the order of execution, and follows the last writer of each value."""

    def __init__(
        self,
        program: Program,
        method: Method,
        symbols: MethodSymbols | None,
        edge: LinkedGraph | None,
    ) -> None:
        self._program, self._method, self._symbols, self._edge = program, method, symbols, edge
        self.weights: dict[int, Node] = {}
        self.parameters: dict[str, str] = {}
        # The nodes that hold a value, or a place in memory: no instruction writes a view.
        self._holders: dict[int, tuple[str, ...]] = {}
        self._at: dict[Allocation, tuple[str, ...]] = {}
        self._moves: set[str] = set()

    def inputs(self) -> Iterator[Node]:
        for position, index in enumerate(self._method.inputs):
            name = f"input_{position}"
            self._hold(index, (name,))
            yield Node(name, "placeholder", name, "", outputs=(Value(name, self._spec(index)),))

    def instruction(self, record: InstructionRecord) -> Node:
        number = record.instruction_id
        label = "jump" if record.kind == "jump" else record.label
        name = f"{_NOT_A_WORD.sub('_', label) or 'instruction'}_{number}"
        read = self._tensors_and_symbols(record.inputs)
        inputs = tuple(dict.fromkeys(holder for i in read for holder in self._holder(i)))
        written = unfolded(self._method.values, record.outputs) or record.outputs
        values = tuple(
            Value(name if position == 0 else f"{name}_out{position}", self._spec(index))
            for position, index in enumerate(written)
        )
        for index, value in zip(written, values, strict=True):
            self._hold(index, (value.name,), moved=record.kind == "move")
        behind = () if self._edge is None else self._edge.ran(number)
        operator = (record.operator or "").replace("::", ".")
        handles = None if self._symbols is None else self._symbols.handles.get(number)
        # Without a record: the program's stack trace, in torch's format.
        stack_trace = next((node.stack_trace for node in behind if node.stack_trace), None)
        lines = (
            f'  File "{line.file}", line {line.line}, in {line.function}'
            + (f"\n    {line.text}" if line.text else "")
            for line in record.stack
        )
        # The stack of the innermost module that contains all nodes.
        path = common_module(behind)
        stack = next((node.modules for node in behind if node.modules), ())
        frames: tuple[ModuleFrame, ...] = ()
        if path is not None:
            around = [f for f in stack if f.path in ("", path) or path.startswith(f.path + ".")]
            frames = tuple(around) or stack[:1]
        return Node(
            name=name,
            kind="call_function",
            target=record.operator or record.event,
            op=operator or record.backend_id or record.kind,
            inputs=inputs,
            arguments=tuple(("", self._argument(index)) for index in record.inputs),
            outputs=values,
            debug_handle=handles if isinstance(handles, int) else None,
            stack_trace=stack_trace or "\n".join(lines) or None,
            modules=frames,
            metadata={"instruction": str(number)},
            delegate=self._delegate(record, name, behind),
        )

    def output(self) -> Node:
        indices = self._tensors_and_symbols(self._method.outputs)
        held = tuple(dict.fromkeys(holder for i in indices for holder in self._holder(i)))
        return Node("output", "output", "output", "", inputs=held)

    # -- values

    def _tensors_and_symbols(self, indices: Sequence[int]) -> tuple[int, ...]:
        """The tensors of the arguments, lists unfolded, and computed numbers."""
        tensors = unfolded(self._method.values, indices)
        return tensors + tuple(i for i in indices if i in self._holders and i not in tensors)

    def _holder(self, index: int) -> tuple[str, ...]:
        value = self._method.values[index]
        if index in self._holders:
            return self._holders[index]
        if not isinstance(value, TensorValue):
            return ()
        if value.is_constant or value.has_data:
            name = f"const_{index}"
            if index not in self.weights:
                made = (Value(name, self._spec(index)),)
                self.weights[index] = Node(name, "placeholder", name, "", outputs=made)
                self.parameters[name] = value.name or f"constant {index}"
            return (name,)
        return () if value.allocation is None else self._at.get(value.allocation, ())

    def _hold(self, index: int, names: tuple[str, ...], *, moved: bool = False) -> None:
        """Add a holder: both branches of a condition move their result to one value."""
        before = self._holders.get(index, ())
        if moved:
            names = (*(n for n in before if n in self._moves), *names)
            self._moves.update(names)
        self._holders[index] = names
        value = self._method.values[index]
        if isinstance(value, TensorValue) and value.allocation is not None:
            self._at[value.allocation] = names

    def _spec(self, index: int) -> TensorSpec | None:
        value = self._method.values[index]
        if not isinstance(value, TensorValue):
            return None
        return TensorSpec(value.scalar_type.torch_name, value.sizes, device=value.device)

    def _argument(self, index: int) -> str:
        value = self._method.values[index]
        if isinstance(value, TensorValue):
            return ", ".join(self._holder(index)) or str(value)
        if isinstance(value, ScalarValue):
            return ", ".join(self._holders.get(index, ())) or str(value.value)
        tensors = unfolded(self._method.values, (index,))
        if tensors:
            return f"[{', '.join(name for i in tensors for name in self._holder(i))}]"
        return f"[{', '.join(map(str, value.items))}]"

    # -- delegates

    def _delegate(self, record: InstructionRecord, name: str, behind: Nodes) -> Delegate | None:
        if record.delegate is None:
            return None
        entry = self._method.delegates[record.delegate]
        graph = None
        if behind and self._edge is not None:
            graph = _lowered(f"{EXECUTED}/{self._method.name}/{name}", self._edge.graph, behind)
        else:
            blob = self._program.delegate_blob(self._method.name, record.delegate)
            graph = _xnnpack_operators(f"{EXECUTED}/{self._method.name}/{name}", blob)
        specs = {spec.key: spec.value for spec in entry.compile_specs}
        return Delegate(entry.backend_id, name, graph, entry.blob.size, specs)


def _lowered(name: str, edge: Graph, behind: Nodes) -> Graph:
    """The part of the edge graph (or of a lowered module in it) that a delegate computes. Its
    placeholders have the names of the outside nodes that it reads."""
    wanted = {id(node) for node in behind}
    inner: dict[str, Node] = {}
    outer: dict[str, Node] = {}
    outputs: list[str] = []
    parameters: dict[str, str] = {}
    for graph in edge.with_subgraphs():
        mine = {node.name: node for node in graph.nodes if id(node) in wanted}
        for node in mine.values():
            makers = [graph.by_name[value] for value in node.inputs if value in graph.by_name]
            outer.update((maker.name, maker) for maker in makers if maker.name not in mine)
            if any(user not in mine for user in graph.users[node.name]):
                outputs.append(node.name)
        parameters.update((n, graph.parameters[n]) for n in outer if n in graph.parameters)
        inner.update(mine)
    inputs = tuple(
        Node(node.name, "placeholder", node.name, "", outputs=node.outputs)
        for node in outer.values()
        if node.name not in inner
    )
    return Graph(
        name=name,
        nodes=(*inputs, *inner.values()),
        dialect=edge.dialect,
        inputs=tuple(node.name for node in inputs),
        outputs=tuple(outputs),
        parameters=parameters,
    )


def _xnnpack_operators(name: str, data: memoryview) -> Graph | None:
    """Return XNNPACK's operators in order; None for other backends and unreadable data."""
    if not is_xnnpack(data):
        return None
    try:
        operators = read_xnnpack(data)
    except FormatError:
        return None
    nodes = tuple(
        Node(
            name=f"{operator.kind or 'Operator'}_{position}",
            kind="call_function",
            target=operator.kind or "",
            op=f"xnnpack.{operator.kind or 'unknown'}",
            arguments=(
                *(("", str(tensor)) for tensor in operator.inputs),
                *((("clamped", "True"),) if operator.clamped else ()),
            ),
            outputs=(Value(f"{operator.kind or 'Operator'}_{position}"),),
            debug_handle=operator.debug_handle,
        )
        for position, operator in enumerate(operators)
    )
    return Graph(name=name, nodes=nodes, dialect="XNNPACK") if nodes else None
