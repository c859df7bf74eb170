"""`RunGraph`: the edge program of a method with its kernels, delegate calls and values in a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.graphs.partition import DelegateCall, Partition
from etscope.analysis.profile.profile import Leaf
from etscope.model.graph import Graph, Node, TensorSpec, connected_groups, stem
from etscope.support.lazy import MadeOnce

XNNPACK = "XnnpackBackend"
# Functions of torch that are decomposed into many operators.
OF_TORCH = frozenset({"gru", "lstm", "multi_head_attention_forward", "rnn_relu", "rnn_tanh"})


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A node of the edge program that a kernel of the runtime computes, and its leaves."""

    node: Node
    graph: Graph
    members: tuple[Leaf, ...]

    @property
    def op(self) -> str:
        return stem(self.node.op)

    @property
    def call(self) -> str | None:
        """The call of torch's function that the exporter decomposed into this and other nodes, with
        its module. The nodes of one `scaled_dot_product_attention` share it."""
        function = self.node.metadata.get("torch_fn")
        return None if function is None else f"{module_of(self.node)}/{function}"


class RunGraph(MadeOnce):
    """The edge program of a method, linked to the leaves of its profile."""

    def __init__(self, partition: Partition, members: Sequence[Leaf] = ()) -> None:
        """members: the leaves of the profile; their nodes are the partition's."""
        self.partition, self.members_of_run = partition, members

    @property
    def calls(self) -> tuple[DelegateCall, ...]:
        return self.partition.calls

    @property
    def has_xnnpack(self) -> bool:
        return any(call.backend == XNNPACK for call in self.calls)

    # -- leaves

    @cached_property
    def kernels(self) -> Mapping[int, Kernel]:
        """The nodes outside delegates that ran, by `id` of the node. A kernel with several possible
        nodes counts for the first."""
        graph, ran = self.partition.linked.graph, self.partition.linked.ran
        found: dict[int, tuple[Node, list[Leaf]]] = {}
        for member in self.members_of_run:
            number = member[0].head.instruction_id
            if member[1].kind != "kernel" or number is None:
                continue
            nodes = [node for node in ran(number) if id(node) not in self.partition.call_of]
            if nodes and id(nodes[0]) in graph.path_of:
                found.setdefault(id(nodes[0]), (nodes[0], []))[1].append(member)
        return {
            key: Kernel(node, graph.graph_of(node), tuple(members))
            for key, (node, members) in found.items()
        }

    @cached_property
    def _events(self) -> Mapping[int, tuple[Leaf, ...]]:
        """The events inside delegates, by `id` of their node. Events with several possible nodes
        are excluded."""
        found: dict[int, list[Leaf]] = {}
        for member in self.members_of_run:
            nodes = member[1].attribution.nodes
            if member[1].kind == "delegated" and len(nodes) == 1:
                found.setdefault(id(nodes[0]), []).append(member)
        return {key: tuple(members) for key, members in found.items()}

    def members(self, nodes: Iterable[Node]) -> list[Leaf]:
        """The leaves of nodes, as kernels or inside delegates."""
        found: dict[int, Leaf] = {}
        for node in nodes:
            kernel = self.kernels.get(id(node))
            for member in self._events.get(id(node), ()) if kernel is None else ():
                found[id(member[1])] = member
            for member in () if kernel is None else kernel.members:
                found[id(member[1])] = member
        return list(found.values())

    def rests(self, members: Iterable[Leaf]) -> list[Leaf]:
        """The unaccounted time of the delegate calls that have all their events among `members`."""
        given = {id(leaf) for _, leaf in members}
        numbers = [
            number
            for number, events in self.events_of_calls.items()
            if all(id(leaf) in given for _, leaf in events)
        ]
        return [
            member
            for member in self.members_of_run
            if member[1].kind == "unaccounted" and member[0].head.instruction_id in numbers
        ]

    @cached_property
    def events_of_calls(self) -> Mapping[int, tuple[Leaf, ...]]:
        """The events that delegates logged, by the instruction of the call."""
        found: dict[int, list[Leaf]] = {}
        for member in self.members_of_run:
            number = member[0].head.instruction_id
            if member[1].kind == "delegated" and number is not None:
                found.setdefault(number, []).append(member)
        return {number: tuple(members) for number, members in found.items()}

    # -- values

    def givers(self, node: Node) -> Iterator[Node]:
        """The nodes, including placeholders, that a node reads values of in its graph."""
        by_name = self.partition.linked.graph.graph_of(node).by_name
        for name in dict.fromkeys(node.inputs):
            if name in by_name:
                yield by_name[name]

    def readers(self, node: Node) -> Iterator[Node]:
        """The nodes, including the output, that read a value of a node in its graph."""
        graph = self.partition.linked.graph.graph_of(node)
        return (graph.by_name[name] for name in graph.users[node.name])

    def is_weight(self, node: Node) -> bool:
        """Return whether a node is a parameter or a buffer that the method does not write."""
        graph = self.partition.linked.graph
        if node.kind == "get_attr":
            return True
        name = graph.parameters.get(node.name) if node.kind == "placeholder" else None
        if name is None or node.name in graph.state:
            return False
        return name not in self.partition.mutated.values()

    @cached_property
    def constant(self) -> frozenset[int]:
        """The nodes with the same values in each run, by `id`: computed from weights and literals
        only, or from fixed sizes only."""
        found: set[int] = set()
        for graph in self.partition.linked.graph.with_subgraphs():
            for node in graph.nodes:
                if node.kind != "call_function" or node.subgraphs or node.delegate is not None:
                    continue
                if not node.outputs or stem(node.op) in _NEVER_CONSTANT:
                    continue
                specs = [one.tensor for one in node.outputs]
                is_filled = stem(node.op) in _OF_SIZES and all(
                    spec is not None and all(isinstance(size, int) for size in spec.shape)
                    for spec in specs
                )
                read = [graph.by_name[name] for name in node.inputs if name in graph.by_name]
                if is_filled or all(id(one) in found or self.is_weight(one) for one in read):
                    found.add(id(node))
        return frozenset(found)

    # -- delegate calls that could merge

    def merged_calls(self, nodes: Iterable[Node]) -> int:
        """The number of delegate calls that the method would save if these nodes were gone, or
        inside delegates."""
        absorbed = {id(node) for node in nodes}
        if len(self.calls) < 2 or not absorbed:
            return 0
        before = self.once("merged calls", lambda: self._number_of_calls(set()))
        return max(0, before - self._number_of_calls(absorbed))

    def _number_of_calls(self, absorbed: set[int]) -> int:
        """The number of delegates of a partition with some kernels moved inside.

        Each call is one unit. Connected units share a delegate if no path between them leaves it:
        the longest paths to them leave a delegate equally often.
        """
        call_of = self.partition.call_of
        before, is_call = self._units
        within = {unit for unit in before if is_call[unit] or unit in absorbed}
        after: dict[int, list[int]] = {unit: [] for unit in before}
        waits = {unit: len(sources) for unit, sources in before.items()}
        for unit, sources in before.items():
            for source in sources:
                after[source].append(unit)
        ready = [unit for unit, number in waits.items() if not number]
        level: dict[int, int] = {}
        links: list[tuple[int, int]] = []
        while ready:
            unit = ready.pop()
            leaves = unit not in within
            level[unit] = max(
                (level[one] + (leaves and one in within) for one in before[unit]), default=0
            )
            links += (
                (source, unit)
                for source in before[unit]
                if {unit, source} <= within and level[source] == level[unit]
            )
            for reader in after[unit]:
                waits[reader] -= 1
                if not waits[reader]:
                    ready.append(reader)
        if len(level) < len(before):  # a cycle: a node that shares its handle is in a wrong call
            return len(set(map(id, call_of.values())))
        return sum(any(map(is_call.__getitem__, one)) for one in connected_groups(level, links))

    @cached_property
    def _units(self) -> tuple[Mapping[int, list[int]], Mapping[int, bool]]:
        """The calls and the nodes outside them, by `id`: the units that each reads, and whether it
        is a call. Nodes of branches count for the runtime."""
        call_of = self.partition.call_of
        graph = self.partition.linked.graph
        before: dict[int, set[int]] = {}
        is_call: dict[int, bool] = {}
        for node in graph.nodes:
            if node.kind != "call_function":
                continue
            call = call_of.get(id(node))
            unit = id(node) if call is None else id(call)
            is_call[unit] = call is not None
            sources = before.setdefault(unit, set())
            for name in node.inputs:
                giver = graph.by_name.get(name)
                if giver is not None and giver.kind == "call_function":
                    other = call_of.get(id(giver))
                    sources.add(id(giver) if other is None else id(other))
            sources.discard(unit)
        return {unit: sorted(sources) for unit, sources in before.items()}, is_call


# Operators with random or uninitialized results.
_NEVER_CONSTANT = frozenset(
    {"alloc", "bernoulli", "multinomial", "native_dropout", "normal", "rand", "rand_like",
     "randint", "randn", "randn_like", "uniform"}
)  # fmt: skip
# Operators that only use the sizes of their inputs.
_OF_SIZES = frozenset(
    {"empty_like", "full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"}
)


def module_of(node: Node) -> str:
    """The path of the innermost module; "" without one."""
    return node.modules[-1].path if node.modules else ""


def spec_of(node: Node) -> TensorSpec | None:
    """The type of a node's first value; None if that is not a tensor."""
    return node.outputs[0].tensor if node.outputs else None


def is_same_type(node: Node, other: Node) -> bool:
    """Return whether the first values of two nodes have one type, shape and order in memory."""
    one, two = spec_of(node), spec_of(other)
    return (
        one is not None
        and two is not None
        and (one.dtype, one.shape, order_of(one)) == (two.dtype, two.shape, order_of(two))
    )


def order_of(spec: TensorSpec) -> tuple[int, ...] | None:
    """The dimensions from the outermost in memory to the innermost; None without matching strides.
    Dimensions of one element do not matter: they count as in the usual order."""
    if len(spec.strides) != len(spec.shape):
        return None
    known = [stride for stride in spec.strides if isinstance(stride, int)]
    if len(known) != len(spec.strides):
        return tuple(range(len(spec.shape)))
    real = [axis for axis, size in enumerate(spec.shape) if size != 1]
    ordered = sorted(real, key=lambda axis: (-known[axis], axis))
    if ordered == real:
        return tuple(range(len(spec.shape)))
    return (*(axis for axis in range(len(spec.shape)) if axis not in real), *ordered)


def bytes_of(node: Node) -> int:
    """Bytes of the tensors that a node makes; 0 for unknown sizes."""
    return sum(value.tensor.nbytes or 0 for value in node.outputs if value.tensor)


def function_of(node: Node) -> str:
    """The function of torch that a node was decomposed from ("layer_norm"); "" if unknown."""
    return re.split(r"[;.]", node.metadata.get("torch_fn", ""))[-1]


_MODULES, _FUNCTIONS = "torch.nn.modules.", "torch.nn.functional."


def written_as(node: Node) -> str | None:
    """The module or function of torch that the model has where a decomposition made the node:
    "nn.InstanceNorm2d", "F.silu", "roll"; None if unknown, or if it is the node's operator."""
    source = node.metadata.get("source_fn_stack", "").rpartition(",")[2]
    name = source.rpartition(".")[2]
    if source.startswith(_MODULES):
        found = f"nn.{name}"
    elif source.startswith(_FUNCTIONS):
        found = f"F.{name}"
    else:
        name = found = function_of(node)
    own, written = (one.lower().replace("_", "") for one in (stem(node.op), name))
    return None if not written or written == own else found


def varying_givers(run: RunGraph, node: Node) -> Iterator[Node]:
    """Yield the nodes that make the values that a node reads, except weights and constants."""
    return (
        one for one in run.givers(node) if id(one) not in run.constant and not run.is_weight(one)
    )
