"""The partition of a method: the delegate call of each node of its edge program, and the
partitioners' answers about the nodes that they did not take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from etscope.analysis.graphs.linked_graph import LinkedGraph, linked_graph
from etscope.analysis.graphs.node_table import PlacedNode, placed_nodes
from etscope.analysis.profile.trace import Capture
from etscope.analysis.program.program import InstructionRecord, instructions
from etscope.errors import MissingDataError, reading
from etscope.formats.etrecord.own_members import LoweredNode, MethodPartition, Partitioning
from etscope.formats.etrecord.reader import EDGE, RecordView
from etscope.formats.exported_program.exported_json import mapping, sequence, text, union
from etscope.formats.program.pte import Program
from etscope.formats.program.xnnpack import XnnNode, known_operators
from etscope.model.graph import Graph, Node
from etscope.support.shown import Shown


@dataclass(frozen=True, slots=True)
class AddedLayout:
    """An operator that a backend added to a delegate at its border: its kind ("StaticTranspose"),
    its result, and whether it lays out an input or an output."""

    kind: str
    tensor: str
    is_input: bool


@dataclass(frozen=True, slots=True, eq=False)
class DelegateCall:
    """A call of a delegate, with the nodes of the edge program that it computes.

    number: in the order of the program's instructions, from 0. module: "lowered_module_0", None if
    unknown. instruction: its id, None if unknown. state: the buffers that it owns and changes.
    added: operators of its data that change the layout of values at its border; empty without a
    program, and for backends other than XNNPACK. caller: the node that calls it, in a graph after
    lowering.
    """

    number: int
    backend: str
    module: str | None = None
    instruction: int | None = None
    nodes: tuple[Node, ...] = ()
    state: frozenset[str] = frozenset()
    added: tuple[AddedLayout, ...] = ()
    caller: Node | None = None

    @property
    def label(self) -> str:
        """The backend and the instruction, else the lowered module: "XnnpackBackend #4"."""
        if self.instruction is not None:
            return f"{self.backend} #{self.instruction}"
        return f"{self.backend} {self.module or f'call {self.number}'}"


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """A partitioner's answer about a node that it did not take; see `partitioning.Refusal`."""

    partitioner: str
    backend: str | None
    answer: str
    reason: str | None = None

    @property
    def by(self) -> str:
        """The backend, or the partitioner if it does not name one."""
        return self.backend or self.partitioner


@dataclass(frozen=True)
class Partition(Shown):
    """The partition of a method.

    partitionings: the partitioners' answers, in order; None if unknown. refusals: by `id` of the
    node; also of nodes that a later partitioner took. unsure: the number of nodes in calls that
    another instruction may compute, because the record has only shared handles. lost: how many
    nodes the partitioners named but the edge program lacks. mutated: value -> the buffer that it is
    written to at the end of the method.
    """

    linked: LinkedGraph
    calls: tuple[DelegateCall, ...]
    partitionings: tuple[Partitioning, ...] | None = None
    refusals: Mapping[int, tuple[NodeRefusal, ...]] = field(default_factory=dict)
    unsure: int = 0
    lost: int = 0
    mutated: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def call_of(self) -> Mapping[int, DelegateCall]:
        """The delegate call that computes a node, or that a node makes, by `id` of the node."""
        table = {id(node): call for call in self.calls for node in call.nodes}
        return table | {id(call.caller): call for call in self.calls if call.caller is not None}

    @cached_property
    def places(self) -> tuple[PlacedNode, ...]:
        """The operators of the edge program. Operators of branches and loops follow the node that
        runs them; so do operators inside delegate calls, in a graph after lowering."""
        return tuple(
            place
            for place in placed_nodes(self.linked.graph)
            if place.node.kind == "call_function"
            and place.node.delegate is None
            and place.node.op not in ("getitem", "alloc")
        )

    @cached_property
    def refusals_by_path(self) -> Mapping[str, tuple[NodeRefusal, ...]]:
        """`refusals` by path of the node in the edge program."""
        paths = self.linked.graph.path_of
        return {path: self.refusals[key] for key, path in paths.items() if key in self.refusals}


def partition(capture: Capture, method: str) -> Partition:
    """Find the partition of a method of a record.

    It is exact, with reasons, if etscope recorded the lowering.

    Other records have only the debug handles of each delegate call: nodes that share one may be
    placed wrongly (`unsure`). Without a program, kernel names in the run find the nodes of kernels.

    Raises `MissingDataError` without a record, or if it has no edge program of the method.
    """
    record = capture.needed_record
    name = f"{EDGE}/{method}"
    if name not in record.graph_names:
        raise MissingDataError(
            f"the record has no edge program of {method!r}: its partition is unknown",
            hint=f"methods with an edge program: {', '.join(record.edge_methods) or 'none'}",
        )
    linked = linked_graph(capture, name)
    mutated = mutated_buffers(record, name)
    run = _ProgramCalls(linked)
    callers = [node for node in linked.graph.walk(into_delegates=False) if node.delegate]
    if callers:  # a graph after lowering: partitioners saw the graph before it
        return Partition(linked, tuple(run.lowered(callers)), mutated=mutated)
    kept = None if record.partition is None else record.partition.get(method)
    if kept is None:
        calls, unsure = run.of_handles(linked)
        return Partition(linked, calls, unsure=unsure, mutated=mutated)
    finder = _Finder(linked.graph)
    calls = tuple(run.kept(kept, finder))
    refusals: dict[int, tuple[NodeRefusal, ...]] = {}
    for one in kept.partitionings:
        for refusal in one.refusals:
            node = finder.find(refusal.node)
            if node is not None:
                said = NodeRefusal(one.partitioner, one.backend, refusal.answer, refusal.reason)
                refusals[id(node)] = (*refusals.get(id(node), ()), said)
    return Partition(
        linked, calls, kept.partitionings, refusals, lost=len(finder.lost), mutated=mutated
    )


class _Finder:
    """Finds the nodes that partitioners named: by path, or by debug handle and operator if the
    record's graph has other names. The graph lacks nodes that later passes made."""

    def __init__(self, graph: Graph) -> None:
        self._by_path = graph.calls
        self._by_handle: dict[tuple[int | None, str], list[Node]] = {}
        for node in graph.operators.values():
            self._by_handle.setdefault((node.debug_handle, node.op), []).append(node)
        self.lost: set[str] = set()

    def find(self, wanted: LoweredNode) -> Node | None:
        node = self._by_path.get(wanted.path)
        if node is not None and node.op == wanted.op:
            return node
        alike = self._by_handle.get((wanted.handle, wanted.op), ())
        if wanted.handle is not None and len(alike) == 1:
            return alike[0]
        self.lost.add(wanted.path)
        return None


class _ProgramCalls:
    """The delegate calls of a method's program, in the order of its instructions. Without a
    program: the calls in the record's maps, which lack the calls in branches."""

    def __init__(self, linked: LinkedGraph) -> None:
        program = None if linked.run_nodes is None else linked.run_nodes.program
        delegates = {} if linked.symbols is None else linked.symbols.delegates
        self.backends = {number: delegates[number].backend_id for number in sorted(delegates)}
        self.added: Mapping[int, tuple[AddedLayout, ...]] = {}
        self._in_branches = False
        method = linked.method or ""
        if program is not None and method in [one.name for one in program.methods]:
            records = instructions(program, method).records
            self.backends = {r.instruction_id: r.backend_id for r in records if r.backend_id}
            self.added = _added_layouts(program, method, records)
            self._in_branches = True

    def instructions(self, calls: Sequence[tuple[str, str]]) -> Mapping[str, int]:
        """The instruction of each call, given as lowered module and backend in order; empty if the
        program was made in another way."""
        wanted = [call for call in calls if self._in_branches or "/" not in call[0]]
        if [backend for _, backend in wanted] != list(self.backends.values()):
            return {}
        return dict(zip((module for module, _ in wanted), self.backends, strict=True))

    def kept(self, kept: MethodPartition, finder: _Finder) -> Iterator[DelegateCall]:
        numbers = self.instructions([(call.module, call.backend) for call in kept.calls])
        for position, call in enumerate(kept.calls):
            instruction = numbers.get(call.module)
            found = (finder.find(node) for node in call.nodes)
            yield DelegateCall(
                position,
                call.backend,
                call.module,
                instruction,
                nodes=tuple(node for node in found if node is not None),
                state=frozenset(call.state),
                added=() if instruction is None else self.added.get(instruction, ()),
            )

    def lowered(self, callers: Sequence[Node]) -> Iterator[DelegateCall]:
        """Return the calls of a graph after lowering, which contain their nodes."""
        delegates = [(node, node.delegate) for node in callers if node.delegate is not None]
        numbers = self.instructions([(one.name, one.backend_id) for _, one in delegates])
        for position, (node, one) in enumerate(delegates):
            instruction = numbers.get(one.name)
            yield DelegateCall(
                position,
                one.backend_id,
                one.name,
                instruction,
                nodes=() if one.graph is None else tuple(one.graph.operators.values()),
                added=() if instruction is None else self.added.get(instruction, ()),
                caller=node,
            )

    def of_handles(self, linked: LinkedGraph) -> tuple[tuple[DelegateCall, ...], int]:
        """Return the calls according to the record's maps, and the number of nodes with several
        possible places.
        """
        found = {number: list[Node]() for number in self.backends}
        unsure = 0
        for node in linked.graph.operators.values():
            numbers = linked.instructions.get(id(node), ())
            inside = [number for number in numbers if number in found]
            if inside:
                found[inside[0]].append(node)
                unsure += len(numbers) > 1
        return tuple(
            DelegateCall(
                position,
                self.backends[number],
                instruction=number,
                nodes=tuple(nodes),
                added=self.added.get(number, ()),
            )
            for position, (number, nodes) in enumerate(found.items())
        ), unsure


def _added_layouts(
    program: Program, method: str, records: Iterable[InstructionRecord]
) -> Mapping[int, tuple[AddedLayout, ...]]:
    """The transposes that XNNPACK's passes added at the border of each call, by instruction.

    They have no debug handle, and only type conversions separate them from an input or output.
    XNNPACK needs them because it convolves with the channels last.
    """
    found = {}
    for one in records:
        data = None if one.delegate is None else program.delegate_blob(method, one.delegate)
        operators = () if data is None else known_operators(data)
        if not operators:
            continue
        makers = {id(value): operator for operator in operators for value in operator.outputs}
        readers: dict[int, list[XnnNode]] = {}
        for operator in operators:
            for value in operator.inputs:
                readers.setdefault(id(value), []).append(operator)
        layouts = []
        for operator in operators:
            if operator.debug_handle is None and operator.kind == "StaticTranspose":
                before = [makers[id(v)] for v in operator.inputs if id(v) in makers]
                while before and before[0].kind == "Convert":
                    before = [makers[id(v)] for v in before[0].inputs if id(v) in makers]
                after = [r for v in operator.outputs for r in readers.get(id(v), ())]
                while len(after) == 1 and after[0].kind == "Convert":
                    after = [r for v in after[0].outputs for r in readers.get(id(v), ())]
                if not before or not after:
                    tensor = str(operator.outputs[0]) if operator.outputs else ""
                    layouts.append(AddedLayout(operator.kind, tensor, not before))
        found[one.instruction_id] = tuple(layouts)
    return found


def mutated_buffers(record: RecordView, name: str) -> Mapping[str, str]:
    """Return the buffers that a method writes at its end: the name of the value that is written ->
    the qualified name of the buffer. name: the name of the method's graph.
    """
    with reading("ETRecord", record.path, member=name):
        module = mapping(record.program_json(name)["graph_module"], "graph_module")
        signature = mapping(module["signature"], "signature")
        found = {}
        for spec in sequence(signature.get("output_specs") or [], "output_specs"):
            tag, content = union(spec)
            if tag == "buffer_mutation":
                value = text(mapping(content["arg"], "an argument")["name"], "a value's name")
                found[value] = text(content["buffer_name"], "a buffer's name")
    return found
