"""`Graph`: nodes, edges and module groups of a program in any dialect, without torch.

One graph is one method of one program. Control-flow branches and delegated sub-graphs hang below
the node that calls them. Nodes of sub-graphs are found by path: "true_graph_0/add".
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeVar

from etscope.errors import UsageError
from etscope.formats.program.scalar_type import scalar_type_of
from etscope.support.shown import Shown

# Operators, by `stem`, that do not compute. Memory planning turns some into views, and passes
# remove others, so users of their output may read their input instead.
VIEWS = frozenset({"view", "et_view", "reshape"})
SAME_VALUE = VIEWS | {
    "alias", "clone", "clone_dim_order", "contiguous", "detach", "lift_fresh", "squeeze", "to",
    "to_dim_order", "unsqueeze",
}  # fmt: skip

_Member = TypeVar("_Member", bound=Hashable)


@lru_cache(maxsize=4096)
def stem(op: str) -> str:
    """The operator's name without namespace, overload, underscores and "_copy"."""
    parts = op.rpartition("::")[2].split(".")
    name = parts[1] if len(parts) > 2 else parts[0]
    return name.strip("_").removesuffix("_copy")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The type of a tensor value. `dtype` is torch's name without the prefix ("float32").

    A symbolic size is the expression's text ("2*s6"), with its hint in `hints` if recorded.
    """

    dtype: str
    shape: tuple[int | str, ...]
    strides: tuple[int | str, ...] = ()
    device: str = "cpu"
    hints: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        """Type and shape: "float32[1, 8]", symbolic sizes as written."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def nbytes(self) -> int | None:
        """Bytes of the tensor; symbolic sizes count with their hints. None if one is unknown."""
        hints = (*self.hints, *[None] * len(self.shape))
        sizes = [s if isinstance(s, int) else h for s, h in zip(self.shape, hints, strict=False)]
        known = [size for size in sizes if size is not None]
        try:
            scalar_type = scalar_type_of(self.dtype)
        except UsageError:
            return None
        return scalar_type.nbytes(math.prod(known)) if len(known) == len(sizes) else None


_OF_WINDOWS = re.compile(r"[A-Za-z]:\\|\\\\")  # "C:\net.py", "\\server\net.py"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One frame of a Python stack: file, 1-based line, function, and the line's text. A path of
    Windows has slashes: "C:/net.py"."""

    file: str
    line: int
    function: str
    text: str = ""

    def __post_init__(self) -> None:
        # A record of another system: Windows takes slashes, too, and only it takes the others.
        if _OF_WINDOWS.match(self.file):
            object.__setattr__(self, "file", self.file.replace("\\", "/"))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class ModuleFrame:
    """One level of `nn_module_stack`: its key, the module's path ("blocks.0.conv") and type."""

    key: str
    path: str
    type: str


@dataclass(frozen=True, slots=True)
class Origin:
    """One link of a `from_node` chain: the node of an earlier graph that this one came from."""

    name: str
    target: str
    graph_id: int
    pass_name: str = ""
    actions: tuple[str, ...] = ()
    origins: Sequence[Origin] = ()


@dataclass(frozen=True, slots=True)
class Value:
    """A named result of a node. `tensor` is None for scalars and symbols."""

    name: str
    tensor: TensorSpec | None = None


@dataclass(frozen=True, slots=True)
class Delegate:
    """A backend's part of a program: the size of its blob, and its source sub-graph."""

    backend_id: str
    name: str  # "lowered_module_0"
    graph: Graph | None
    processed_bytes: int
    compile_specs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node(Shown):
    """A node of a graph.

    `kind` is fx's word: "placeholder", "call_function", "get_attr" or "output". `op` is the name in
    upstream's `Event.op_types` ("aten.convolution.default"), `target` the full one. `inputs` are
    the names of the used values, `arguments` all arguments as (name, text), in order.
    `debug_handle` is None for a node without one. `origins` may be parsed only on access.

    `recorded` is the node in the record, if stack trace and modules come from its source node in
    the exported program.
    """

    name: str
    kind: str
    target: str
    op: str
    inputs: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    outputs: tuple[Value, ...] = ()
    debug_handle: int | None = None
    stack_trace: str | None = None
    modules: tuple[ModuleFrame, ...] = ()
    origins: Sequence[Origin] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    delegate: Delegate | None = None
    subgraphs: tuple[Graph, ...] = ()
    recorded: Node | None = None

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The control-flow sub-graphs, and the delegated one."""
        if self.delegate is None or self.delegate.graph is None:
            return self.subgraphs
        return (*self.subgraphs, self.delegate.graph)

    def all_origins(self) -> Iterator[Origin]:
        """All links of the `from_node` chains, each before the links behind it."""
        waiting = list(reversed(self.origins))
        while waiting:
            origin = waiting.pop()
            yield origin
            waiting.extend(reversed(origin.origins))


@dataclass(frozen=True, slots=True)
class NodeValue:
    """A value of the node at `path`; `element` is None unless the node has several values."""

    path: str
    element: int | None = None


@dataclass(frozen=True)
class Graph(Shown):
    """Nodes in execution order. `name` is the graph's name in its file ("edge_dialect/forward").

    `parameters` maps a placeholder's name to the fully qualified name of the weight behind it.
    `graph_id` is the exporting process's `id()` of the graph, if recorded. `state` are the
    placeholders of buffers that the graph writes back; `limits` the largest values of symbols.
    """

    name: str
    nodes: tuple[Node, ...]
    dialect: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    graph_id: int | None = None
    state: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def own_name(self) -> str:
        """The last part of the name: a sub-graph's name without the names of the graphs around
        it.
        """
        return self.name.rpartition("/")[2]

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes of this graph (not of its sub-graphs) by their own and their values' names."""
        table = {value.name: node for node in self.nodes for value in node.outputs}
        table.update((node.name, node) for node in self.nodes)
        return table

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """For each node's name, the names of the nodes that use a value of it, in order."""
        table: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for used in dict.fromkeys(
                self.by_name[value].name for value in node.inputs if value in self.by_name
            ):
                table[used].append(node.name)
        return {name: tuple(users) for name, users in table.items()}

    def walk(self, *, into_delegates: bool = True) -> Iterator[Node]:
        """Yield every node, each followed by the nodes of its control-flow and delegated
        sub-graphs."""
        for node in self.nodes:
            yield node
            for graph in node.graphs if into_delegates else node.subgraphs:
                yield from graph.walk(into_delegates=into_delegates)

    def with_subgraphs(self) -> Iterator[Graph]:
        """This graph, and all control-flow and delegated sub-graphs."""
        yield self
        for node in self.nodes:
            for graph in node.graphs:
                yield from graph.with_subgraphs()

    # -- parts of this graph, as ascending positions of its nodes

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the positions of the nodes that compute its inputs."""
        position = {node.name: index for index, node in enumerate(self.nodes)}
        return tuple(
            tuple(
                sorted({position[self.by_name[v].name] for v in node.inputs if v in self.by_name})
            )
            for node in self.nodes
        )

    def leading_to(self, part: Sequence[int], outputs: Iterable[str]) -> tuple[int, ...]:
        """Return the part's nodes named in `outputs`, and the part's nodes that they depend on."""
        wanted, inside = set(outputs), set(part)
        kept = {index for index in part if self.nodes[index].name in wanted}
        for index in reversed(part):
            if index in kept:
                kept.update(used for used in self.sources[index] if used in inside)
        return tuple(sorted(kept))

    def connected(self, part: Sequence[int]) -> list[tuple[int, ...]]:
        """Split the part into parts without shared values, in order of their first nodes."""
        inside = set(part)
        links = ((index, used) for index in part for used in self.sources[index] if used in inside)
        return connected_groups(part, links)

    # -- nodes by path, including sub-graphs

    @cached_property
    def _placed(self) -> list[tuple[str, Node, Graph]]:
        """All nodes with their paths and their graphs."""

        def walk(graph: Graph, prefix: str) -> Iterator[tuple[str, Node, Graph]]:
            for node in graph.nodes:
                yield prefix + node.name, node, graph
                for below in node.subgraphs:
                    yield from walk(below, f"{prefix}{below.own_name}/")
                if node.delegate is not None and node.delegate.graph is not None:
                    yield from walk(node.delegate.graph, f"{prefix}{node.delegate.name}/")

        return list(walk(self, ""))

    @cached_property
    def calls(self) -> Mapping[str, Node]:
        """Path -> node, for all nodes that call something, in order."""
        return {path: node for path, node, _ in self._placed if node.kind == "call_function"}

    @cached_property
    def operators(self) -> Mapping[str, Node]:
        """`calls` without `getitem` and `alloc`."""
        return {
            path: node for path, node in self.calls.items() if node.op not in ("getitem", "alloc")
        }

    @cached_property
    def own_operators(self) -> Mapping[str, Node]:
        """`operators` without sub-graphs."""
        return {path: node for path, node in self.operators.items() if "/" not in path}

    @cached_property
    def path_of(self) -> Mapping[int, str]:
        """The path of each node, by its `id`."""
        return {id(node): path for path, node, _ in self._placed}

    @cached_property
    def _graphs(self) -> Mapping[int, Graph]:
        return {id(node): graph for _, node, graph in self._placed}

    def graph_of(self, node: Node) -> Graph:
        """Return the graph of the node: this one or a sub-graph."""
        return self._graphs[id(node)]

    # -- values

    def values_of(self, node: Node) -> tuple[NodeValue, ...]:
        """The node's values, in order."""
        path = self.path_of[id(node)]
        if len(node.outputs) == 1 and node.outputs[0].name == node.name:
            return (NodeValue(path),)
        return tuple(NodeValue(path, index) for index in range(len(node.outputs)))

    def value_named(self, name: str, graph: Graph) -> NodeValue | None:
        """The value of that name in `graph` (this one or a sub-graph); None if it is not computed
        by a node."""
        node = graph.by_name.get(name)
        if node is None or node.kind != "call_function":
            return None
        names = [output.name for output in node.outputs]
        values = self.values_of(node)
        index = names.index(name) if name in names else 0
        return values[index] if index < len(values) else None

    def spec_of(self, value: NodeValue) -> TensorSpec | None:
        """The type of a value, None for a number."""
        outputs = self.calls[value.path].outputs
        index = value.element or 0
        return outputs[index].tensor if index < len(outputs) else None

    def read_by(self, node: Node) -> list[NodeValue]:
        """The values that the node reads."""
        graph = self.graph_of(node)
        found = (self.value_named(name, graph) for name in node.inputs)
        return [value for value in found if value is not None]

    def read_through(self, node: Node) -> frozenset[NodeValue]:
        """Return the values that the node reads, and the sources of views and copies among them."""
        known = self._read_through.get(id(node))
        if known is not None:
            return known
        found: set[NodeValue] = set()
        waiting = self.read_by(node)
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                source = self.calls[value.path]
                if stem(source.op) in SAME_VALUE:
                    waiting.extend(self.read_by(source))
        return self._read_through.setdefault(id(node), frozenset(found))

    @cached_property
    def _read_through(self) -> dict[int, frozenset[NodeValue]]:
        return {}

    def seen_through(self, node: Node, operators: Collection[str] = SAME_VALUE) -> Node:
        """Return the node whose value this one has, through views and copies; or itself."""
        while stem(node.op) in operators and node.inputs and node.inputs[0] in self.by_name:
            node = self.by_name[node.inputs[0]]
        return node

    def users_of(self, value: NodeValue) -> list[Node]:
        """The nodes that read the value, the output node of its graph among them."""
        node = self.calls[value.path]
        return self.graph_of(node)._readers.get(node.outputs[value.element or 0].name, [])

    @cached_property
    def _readers(self) -> Mapping[str, list[Node]]:
        """The nodes of this graph that read a value, by the value's name."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(node)
        return found

    def readers_of(self, value: NodeValue) -> list[Node]:
        """`users_of` the value; for a delegate's output the nodes that read it from the call."""
        call = self._delegate_calls.get(id(self.graph_of(self.calls[value.path])))
        found: list[Node] = []
        for user in self.users_of(value):
            if user.kind != "output" or call is None:
                found.append(user)
                continue
            for outer in self.values_of(call):
                if self.inner_value(outer) == value:
                    found.extend(self.readers_of(outer))
        return found

    def inner_value(self, value: NodeValue) -> NodeValue:
        """Return the value inside a delegate for a value of its call; any other value itself."""
        delegate = self.calls[value.path].delegate
        graph = None if delegate is None else delegate.graph
        if graph is None or (value.element or 0) >= len(graph.outputs):
            return value
        return self.value_named(graph.outputs[value.element or 0], graph) or value

    @cached_property
    def _delegate_calls(self) -> Mapping[int, Node]:
        """The call of each delegated graph, by `id` of the graph."""
        return {
            id(node.delegate.graph): node
            for node in self.calls.values()
            if node.delegate is not None and node.delegate.graph is not None
        }


def connected_groups(
    members: Iterable[_Member], links: Iterable[tuple[_Member, _Member]]
) -> list[tuple[_Member, ...]]:
    """Split members into groups without links between them, in order of their first members."""
    parent = {member: member for member in members}

    def root(member: _Member) -> _Member:
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    for one, other in links:
        parent[root(one)] = root(other)
    groups: dict[_Member, list[_Member]] = {}
    for member in parent:
        groups.setdefault(root(member), []).append(member)
    return [tuple(group) for group in groups.values()]


# -- Python stack traces in a graph, read back into source lines.

_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d{1,9})(?:, in (?P<function>.*))?\s*')
_CARETS = re.compile(r"[\s~^]*")


@lru_cache(maxsize=4096)
def source_lines(stack_trace: str | None) -> tuple[SourceLine, ...]:
    """The frames of a traceback text, outermost first and innermost last.

    Reads the forms of Python's `traceback` module: with or without the line's text, of several
    lines (Python 3.13), with markers of carets or tildes, with or without a function name. Text
    that holds no frame gives no lines.
    """
    frames: list[tuple[re.Match[str], list[str]]] = []  # each with the lines of text below it
    for line in (stack_trace or "").splitlines():
        match = _FRAME.fullmatch(line)
        if match is not None:
            frames.append((match, []))
        elif frames and not _CARETS.fullmatch(line):
            frames[-1][1].append(line.strip())
    return tuple(
        SourceLine(at["file"], int(at["line"]), (at["function"] or "").strip(), " ".join(texts))
        for at, texts in frames
    )
