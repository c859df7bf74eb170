"""`Graph`: nodes, edges and module groups of a program in any dialect, without torch.

One graph is one method of one program. Control-flow branches and delegated sub-graphs hang below
the node that calls them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What is known of a tensor value. `dtype` is torch's name without the prefix ("float32").

    A symbolic size is the expression's text ("2*s6"), with its hint in `hints` where recorded.
    """

    dtype: str
    shape: tuple[int | str, ...]
    strides: tuple[int | str, ...] = ()
    device: str = "cpu"
    hints: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One frame of a Python stack: file, 1-based line, function, and the line's text."""

    file: str
    line: int
    function: str
    text: str = ""

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
    """What a delegate call hands to a backend: its blob's size and the sub-graph it was made of."""

    backend_id: str
    name: str  # "lowered_module_0"
    graph: Graph | None
    processed_bytes: int
    compile_specs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph.

    `kind` is fx's word: "placeholder", "call_function", "get_attr" or "output". `op` is the name
    that upstream's `Event.op_types` gives ("aten.convolution.default"); `target` the full one.
    `inputs` are the names of the values used, `arguments` all arguments as (name, text), in order.
    `debug_handle` is None when the node has none. `origins` may be read from its text only when
    it is looked at.
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


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order. `name` is the graph's name in its file ("edge_dialect/forward").

    `parameters` maps a placeholder's name to the fully qualified name of the weight behind it.
    `graph_id` is the exporting process's `id()` of the graph when recorded.
    """

    name: str
    nodes: tuple[Node, ...]
    dialect: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    graph_id: int | None = None

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
        """Every node, each followed by those of its control-flow and delegated sub-graphs."""
        for node in self.nodes:
            yield node
            for graph in node.subgraphs:
                yield from graph.walk(into_delegates=into_delegates)
            if into_delegates and node.delegate is not None and node.delegate.graph is not None:
                yield from node.delegate.graph.walk(into_delegates=True)


# Python stack traces as torch writes them into a graph, read back into source lines.


_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d{1,9})(?:, in (?P<function>.*))?\s*')
_CARETS = re.compile(r"[\s~^]*")


@lru_cache(maxsize=4096)
def source_lines(stack_trace: str | None) -> tuple[SourceLine, ...]:
    """The frames of a traceback text, outermost first and innermost last.

    Reads the forms of Python's `traceback` module: with or without the line's text, of several
    lines (Python 3.13), with markers of carets or tildes, with or without a function name. Text
    that holds no frame gives no lines.
    """
    frames: list[SourceLine] = []
    texts: list[str] = []
    for line in (stack_trace or "").splitlines():
        match = _FRAME.fullmatch(line)
        if match is not None:
            _close(frames, texts)
            frames.append(
                SourceLine(match["file"], int(match["line"]), (match["function"] or "").strip())
            )
        elif frames and not _CARETS.fullmatch(line):
            texts.append(line.strip())
    _close(frames, texts)
    return tuple(frames)


def _close(frames: list[SourceLine], texts: list[str]) -> None:
    """Give the last frame the text lines that followed it."""
    if frames and texts:
        last = frames[-1]
        frames[-1] = SourceLine(last.file, last.line, last.function, " ".join(texts))
    texts.clear()
