"""From events to graph nodes, lines of Python and modules.

The chain is: instruction id -> debug handles (the record's `debug_handle_map`; for an event inside
a delegate its `delegate_map`) -> nodes of a graph with one of these handles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from etscope.analysis.program.source_location import (
    common_module,
    innermost_lines_of,
    is_located,
    lines_of,
    short_lines,
    user_line,
    user_lines,
)
from etscope.errors import MissingDataError
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView
from etscope.model.event_table import EventKey
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph, Node, SourceLine, source_lines, stem
from etscope.support.shown import Shown

__all__ = ["UNATTRIBUTED", "Attribution", "handle_list"]

# Nodes that upstream folds into others in its operator graph (debug_format/et_schema.py).
_FOLDED_OPS = frozenset({"getitem", "alloc"})


# As in a record: an int for a kernel, a list for a delegate call, None without handles.
Handles = int | Sequence[int] | None


def handle_list(handles: Handles) -> list[int]:
    """Return the handles as a list, from any form in a record."""
    if handles is None:
        return []
    return [handles] if isinstance(handles, int) else list(handles)


@dataclass(frozen=True, slots=True)
class DelegateMap:
    """A delegate's own map: its event identifiers, as text, to debug handles."""

    backend_id: str
    handles: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class MethodSymbols:
    """The debug symbols that a record has for the events of one method.

    `handles` has an int for a kernel's instruction, a list for a delegate's, as in the record.
    `has_maps`: whether the record maps instructions to handles at all (very old ones do not).
    `before_passes`: the edge program, if `graph` is the graph after passes that renumbered the
    debug handles; else None.
    """

    method: str
    graph: Graph | None
    handles: Mapping[int, int | Sequence[int]] = field(default_factory=dict)
    delegates: Mapping[int, DelegateMap] = field(default_factory=dict)
    num_outputs: Mapping[int, int] = field(default_factory=dict)
    has_maps: bool = False
    before_passes: Graph | None = None

    @cached_property
    def nodes_by_handle(self) -> Mapping[int, tuple[Node, ...]]:
        """Nodes of the graph and of all graphs below it, delegates' included, by debug handle."""
        table: dict[int, list[Node]] = {}
        for node in self.graph.walk() if self.graph is not None else ():
            if node.debug_handle is not None and is_operator(node):
                table.setdefault(node.debug_handle, []).append(node)
        return {handle: tuple(nodes) for handle, nodes in table.items()}

    def nodes_of(self, handles: Handles) -> tuple[Node, ...]:
        """The nodes with one of `handles`, in the order of the handles, each once."""
        wanted = tuple(dict.fromkeys(handle_list(handles)))
        if wanted not in self._found:
            found = {
                id(node): node for handle in wanted for node in self.nodes_by_handle.get(handle, ())
            }
            self._found[wanted] = tuple(found.values())
        return self._found[wanted]

    @cached_property
    def _found(self) -> dict[tuple[int, ...], tuple[Node, ...]]:
        return {}

    def users_of(self, node: Node) -> tuple[Node, ...]:
        if self.graph is None:
            return ()
        graph = self.graph.graph_of(node)
        return tuple(graph.by_name[user] for user in graph.users[node.name])


@dataclass(frozen=True, slots=True)
class Attribution(Shown):
    """The source of an event.

    debug_handles: as in the record: an int, a list, or None. The fields from `operator` on come
    from the program, None or empty without one: the operator ("aten::add.out"), the tensors read
    and written ("float32[1, 8]"), their bytes, and the stack trace stored with the instruction,
    innermost last. Without tensors in the program, they come from the nodes; an event inside a
    delegate has the delegate's tensors, if known. inherited: the nodes that the instruction reads
    values of, if its nodes have neither module nor line: memory planning and emission add views and
    write-backs without nodes. The event is shown at their modules and lines; it keeps its operator
    and handles.
    """

    debug_handles: Handles = None
    nodes: tuple[Node, ...] = ()
    backend_id: str | None = None
    num_outputs: int = 1
    operator: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    bytes_read: int | None = None
    bytes_written: int | None = None
    stack: tuple[SourceLine, ...] = ()
    inherited: tuple[Node, ...] = ()

    @property
    def located(self) -> tuple[Node, ...]:
        """The nodes that give the event its modules and lines."""
        return self.inherited or self.nodes

    @property
    def op_types(self) -> list[str]:
        """Ops of the nodes; the program's operator if no node is known, as in branches."""
        if self.nodes or self.operator is None:
            return [node.op for node in self.nodes]
        return [self.operator]

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        """The distinct lines of Python behind the event, from the nodes or else the program."""
        return lines_of(self.nodes) or user_lines(self.stack) or lines_of(self.inherited)

    @property
    def module(self) -> str | None:
        """Path of the innermost module that contains all `located` nodes; see `common_module`."""
        return common_module(self.located)

    @property
    def source(self) -> str | None:
        """The lines for a table cell: "model.py:34 +2"; None if unknown."""
        return short_lines(self.lines) or None

    @property
    def all_lines(self) -> tuple[SourceLine, ...]:
        """`lines`, then the lines of libraries that they call, if these differ."""
        innermost = innermost_lines_of(self.nodes) or user_lines(self.stack, "")
        innermost = innermost or innermost_lines_of(self.inherited)
        return tuple(dict.fromkeys((*self.lines, *innermost)))

    def told_name(self, name: str) -> str:
        """Name an event without a name in its backend by its operator, if known: "hardswish
        (Invalid Unary Op) #1" for XNNPACK's "Invalid Unary Op #1"."""
        operators = {stem(op) for op in self.op_types}
        if not name.startswith("Invalid ") or len(operators) != 1:
            return name
        kind, mark, number = name.partition(" #")
        return f"{operators.pop()} ({kind}){mark}{number}"


UNATTRIBUTED = Attribution()


def is_operator(node: Node) -> bool:
    """Return whether upstream's operator graph has an operator for the node."""
    return node.kind == "call_function" and node.op not in _FOLDED_OPS


def attribute(key: EventKey, symbols: MethodSymbols) -> Attribution:
    instruction = key.instruction
    if instruction is None:
        return UNATTRIBUTED
    handles = symbols.handles.get(instruction)
    delegate = symbols.delegates.get(instruction)
    if handles is None and delegate is None:
        return UNATTRIBUTED
    backend = None if delegate is None else delegate.backend_id
    if key.delegate_id is not None:
        handles = None if delegate is None else delegate_handles(key.delegate_id, delegate.handles)
        if delegate is not None and delegate.backend_id in _NAMES_NODES and not delegate.handles:
            inside = symbols.nodes_of(symbols.handles.get(instruction))
            named = (node for node in inside if node.name == key.delegate_id)
            handles = [node.debug_handle for node in named if node.debug_handle is not None] or None
    elif delegate is not None and key.role == "other":
        handles = None  # a phase of the call
    elif key.name != "DELEGATE_CALL":
        backend = None
    return Attribution(
        debug_handles=handles,
        nodes=symbols.nodes_of(handles),
        backend_id=backend,
        num_outputs=symbols.num_outputs.get(instruction, 1),
    )


def delegate_handles(
    identifier: int | str, handles: Mapping[str, Sequence[int]]
) -> Sequence[int] | None:
    """Return the handles of a delegate's map for an event's identifier, or None.

    The key is the identifier, else the longest key that is a whole word in it: backends log
    "conv_1:OpId_24 (cycles)" for the key "conv_1". A key inside a word ("1" in "15", "conv" in
    "conv_1") is another operator. Numbers in names are counters ("Sigmoid (NC) #1"): a number as
    key must be the whole identifier. Two equally long keys decide nothing.
    """
    text = str(identifier)
    if text in handles:
        return handles[text]
    words = [
        key
        for key in handles
        if key
        and not key.isdecimal()
        and key in text
        and re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text)
    ]
    longest = [key for key in words if len(key) == max(map(len, words))]
    return handles[longest[0]] if len(longest) == 1 else None


# -- The debug symbols of each method, from a record.

# The edge program after the passes of `to_edge_transform_and_lower(transform_passes=)`.
AFTER_PASSES = "edge_after_transform"

# Upstream's name for the edge program in `op_graph_dict` and `reference_graph_name`.
EDGE_GRAPH = "edge_dialect_graph_module"


def record_methods(record: RecordView) -> tuple[str, ...]:
    tables = record.debug_handle_map or (), record.delegate_map or ()
    return tuple(dict.fromkeys((*record.edge_methods, *tables[0], *tables[1])))


def recorded_inputs(record: RecordView, method: str) -> Any:
    """Return the record's inputs of a method; None without. These are the representative inputs,
    which belong to "forward" or the only method; in a record of several methods, also the inputs of
    its export."""
    methods = record_methods(record)
    main = "forward" if "forward" in methods or len(methods) != 1 else methods[0]
    found = record.representative_inputs() if method == main else None
    if found is not None or len(methods) < 2 or method not in record.edge_methods:
        return found
    examples = record.example_inputs(f"{EDGE}/{method}")
    if not isinstance(examples, (list, tuple)) or len(examples) != 2:
        return None
    arguments, keywords = examples
    return [*arguments, *keywords.values()]


def graph_name(record: RecordView, reference: str, method: str) -> str:
    """Return the record's name of the graph `reference` of a method.

    "edge_dialect_graph_module" is the method's edge program; other names need not contain the
    method. Raises `MissingDataError` if the record has no such graph.
    """
    if reference in (EDGE_GRAPH, EDGE):
        candidates = [f"{EDGE}/{method}"]
    elif reference == EXPORTED:
        # ExecuTorch keeps the exported program of "forward" alone, under the bare name.
        candidates = [f"{EXPORTED}/{method}", *([EXPORTED] if method == "forward" else [])]
        if len(record.edge_methods) <= 1:
            candidates.append(EXPORTED)
    else:
        candidates = [f"{reference}/{method}", reference]
    for name in candidates:
        if name in record.graph_names:
            return name
    raise MissingDataError(
        f"the record has no graph {reference!r} for method {method!r}",
        hint="its graphs are: " + (", ".join(record.graph_names) or "none"),
    )


def graphs_after_passes(record: RecordView, method: str) -> tuple[str, ...]:
    """Return the record's graphs of a method other than its edge and exported program."""
    return tuple(
        name
        for name in record.graph_names
        if name.endswith(f"/{method}") and name.partition("/")[0] not in (EDGE, EXPORTED)
    )


# The code that torch generates for a graph: "cos = torch.ops.aten.cos.default(cat);  cat = None".
_GENERATED = re.compile(r"(\w+)(?:: [^=]*)? = (torch\.ops\.[\w.]+)\(")


def with_exported_lines(graph: Graph, exported: Graph) -> Graph:
    """Return the graph with the exported program's stack traces and modules for nodes without a
    line or module, if their `from_node` chains lead there. torch exports the body of `with
    torch.no_grad()` as a sub-graph, and lowering keeps only its call.

    Such a node's trace shows the code that torch generated for the sub-graph, which contains the
    name of the sub-graph's node.
    """

    def located(node: Node) -> Node:
        if not is_operator(node) or is_located(node):
            return node
        frames = source_lines(node.stack_trace)
        written = _GENERATED.match(frames[-1].text) if frames else None
        for origin in node.all_origins():
            source = exported.by_name.get(origin.name)
            if origin.graph_id != exported.graph_id or source is None:
                continue
            for below in source.subgraphs:
                inner = None if written is None else below.by_name.get(written[1])
                if inner is not None and written is not None and inner.target == written[2]:
                    source = inner
            if user_line(source.stack_trace) or len(source.modules) > len(node.modules):
                return replace(
                    node, stack_trace=source.stack_trace, modules=source.modules, recorded=node
                )
        return node

    if exported.graph_id is None:
        return graph
    return replace(graph, nodes=tuple(map(located, graph.nodes)))


# Backends that log the names of nodes, and have a map only if they dump tensors too.
_NAMES_NODES = frozenset({"QnnBackend"})
# Backends with other numbers than debug handles in the delegate map (`vulkan_calls`).
_WITHOUT_HANDLES = frozenset({"VulkanBackend"})


def method_symbols(record: RecordView, method: str, reference: str = EDGE_GRAPH) -> MethodSymbols:
    """Return the symbols of one method with the nodes of the graph `reference`.

    Nodes without lines and modules get the exported program's. The edge program has the debug
    handles of the run, unless passes renumbered them, as QNN's do: then the graph after the passes
    replaces it.
    """
    graph, before = None, None
    if record.graph_names:
        name = graph_name(record, reference, method)
        graph = graph_from_record(record, name)
        renumbered = f"{AFTER_PASSES}/{method}"
        if name == f"{EDGE}/{method}" and renumbered in record.graph_names:
            after = graph_from_record(record, renumbered)
            if _are_renumbered(graph, after):
                name, graph, before = renumbered, after, graph
        if not all(is_located(node) for node in graph.nodes if is_operator(node)):
            with suppress(MissingDataError):
                exported = graph_name(record, EXPORTED, method)
                if exported != name:
                    graph = with_exported_lines(graph, graph_from_record(record, exported))
    lists = record.handle_lists.get(method, frozenset())
    handles = (record.debug_handle_map or {}).get(method, {})
    delegates = (record.delegate_map or {}).get(method, {})
    return MethodSymbols(
        method=method,
        graph=graph,
        handles={
            instruction: list(values) if instruction in lists else values[0]
            for instruction, values in handles.items()
            if values or instruction in lists
        },
        delegates={
            instruction: DelegateMap(
                entry.name, {} if entry.name in _WITHOUT_HANDLES else entry.identifiers
            )
            for instruction, entry in delegates.items()
        },
        has_maps=record.debug_handle_map is not None,
        num_outputs=(record.instruction_id_to_num_outs_map or {}).get(method, {}),
        before_passes=before,
    )


def _are_renumbered(before: Graph, after: Graph) -> bool:
    """True if passes renumbered the debug handles in node order from 1 (`ResolveDebugHandle` of
    backends/qualcomm/_passes)."""
    handles = [node.debug_handle for node in after.nodes if is_operator(node)]
    if handles != list(range(1, len(handles) + 1)):
        return False
    earlier = {
        (node.op, origin.name, origin.graph_id): node.debug_handle
        for node in before.nodes
        for origin in node.origins[:1]
    }
    return any(
        earlier.get((node.op, origin.name, origin.graph_id), node.debug_handle) != node.debug_handle
        for node in after.nodes
        for origin in node.origins[:1]
    )


def branch_nodes(labels: Sequence[str], symbols: MethodSymbols) -> Mapping[int, Node]:
    """The node of each instruction inside a control-flow branch, by instruction id.

    Records have no debug handles for them: ExecuTorch's emitter drops the maps of branches
    (emit/_emitter.py). But it writes a branch's instructions in node order. So the instructions
    without a handle and the nodes of the control-flow sub-graphs are the same sequence of
    operators, apart from jumps, moves and loop counters.

    labels: the labels of the method's instructions ("aten::add.out"). Empty unless the two
    sequences agree in full: this function never guesses.
    """
    if symbols.graph is None:
        return {}
    nodes = [
        node
        for parent in symbols.graph.nodes
        for graph in parent.subgraphs
        for node in graph.walk(into_delegates=False)
        if is_operator(node) and not node.subgraphs
    ]
    instructions = [
        i
        for i, label in enumerate(labels)
        if label.startswith("aten::") and i not in symbols.handles
    ]
    shared = {stem(node.op) for node in nodes} & {stem(labels[i]) for i in instructions}
    nodes = [node for node in nodes if stem(node.op) in shared]
    instructions = [i for i in instructions if stem(labels[i]) in shared]
    if [stem(node.op) for node in nodes] != [stem(labels[i]) for i in instructions]:
        return {}
    return dict(zip(instructions, nodes, strict=True))
