"""The nodes of a graph as a `Table`: what they give, where they come from, how long they took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etscope.analysis.graphs.graph_names import short_name
from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.graphs.node_times import NodeTimes
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.source_location import (
    module_path,
    module_type,
    short_lines,
    user_line,
)
from etscope.analysis.selector_fields import fields_of_node
from etscope.model.graph import Graph, Node, TensorSpec
from etscope.model.report import filled_columns
from etscope.model.selector import Fields
from etscope.model.table import Column, Kind, Table
from etscope.units import format_duration

# What is shown when nobody asked for columns, those that hold something. The names of nodes tell
# their operators.
DEFAULT_COLUMNS = (
    "node", "output", "avg", "share", "nodes", "instructions", "handle", "backend", "module",
    "source", "users",
)  # fmt: skip
# As torch abbreviates them in a printed graph.
_SHORT_DTYPES = (("float", "f"), ("uint", "u"), ("int", "i"))


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node and where it is: in which graph, how deep below the first, inside which backend."""

    node: Node
    graph: Graph
    depth: int = 0
    backend: str | None = None

    @property
    def is_plumbing(self) -> bool:
        """Whether it only brings a weight or a lowered module to the nodes that use it."""
        if self.node.kind == "get_attr":
            return self.node.target not in _branches(self.graph)
        return self.node.name in self.graph.parameters


def placed_nodes(graph: Graph, *, into_delegates: bool = True) -> Iterator[PlacedNode]:
    """All nodes of a graph, each followed by those of its sub-graphs.

    Nodes of a lowered module are one level below their call; those of a branch two, below the
    `get_attr` node that names it, which stands below the call.
    """
    yield from _placed(graph, 0, None, into_delegates)


def _placed(
    graph: Graph, depth: int, backend: str | None, into_delegates: bool
) -> Iterator[PlacedNode]:
    named = {node.target: node for node in graph.nodes if node.kind == "get_attr"}
    branches = _branches(graph)
    for node in graph.nodes:
        if node.kind == "get_attr" and node.target in branches:
            continue
        yield PlacedNode(node, graph, depth, backend)
        for branch in node.subgraphs:
            name = _last(branch)
            if name in named:
                yield PlacedNode(named[name], graph, depth + 1, backend)
            yield from _placed(branch, depth + 2, backend, into_delegates)
        if node.delegate is not None and node.delegate.graph is not None and into_delegates:
            inner = node.delegate.backend_id
            yield from _placed(node.delegate.graph, depth + 1, inner, into_delegates)


def _branches(graph: Graph) -> set[str]:
    return {_last(branch) for node in graph.nodes for branch in node.subgraphs}


def _last(branch: Graph) -> str:
    """A sub-graph's own name, which follows that of the graph around it."""
    return branch.name.rpartition("/")[2]


def fields_of(linked: LinkedGraph, place: PlacedNode) -> Fields:
    """What the node offers to a selector: also its instructions, and its backend if it is
    delegated."""
    backend = place.backend or linked.backends.get(id(place.node))
    return {
        **fields_of_node(place.node),
        "delegate": [] if backend is None else [backend],
        "id": [str(number) for number in linked.instructions.get(id(place.node), ())],
    }


def columns(times: bool, unit: str) -> tuple[Column, ...]:
    """All columns of `node_table`; the higher the priority the sooner a narrow terminal leaves the
    column out."""
    measured = (
        Column("avg", Kind.DURATION, unit),
        Column("share", Kind.SHARE),
        Column("nodes", Kind.COUNT, title="of nodes", priority=2),
    )
    return (
        Column("node"),
        Column("kind", priority=9),
        Column("op", priority=8),
        Column("output"),
        Column("outputs", Kind.LIST, priority=9),
        *(measured if times else ()),
        Column("instructions", Kind.LIST, title="#", priority=3),
        Column("handle", Kind.INT, title="debug handle", priority=6),
        Column("backend", priority=5),
        Column("module", Kind.PATH, priority=2),
        Column("module_type", title="module type", priority=8),
        Column("source", priority=1),
        Column("source_path", Kind.PATH, title="source line", priority=9),
        Column("users", Kind.COUNT, priority=7),
        Column("used_by", Kind.LIST, priority=9),
        Column("inputs", Kind.LIST, priority=9),
        Column("target", priority=9),
        Column("graph", Kind.PATH, priority=9),
    )


def default_columns(table: Table) -> tuple[str, ...]:
    """The columns of `node_table` that people get, when they ask for none."""
    several = any(count is not None and count > 1 for count in table.values.get("nodes", ()))
    wanted = {*DEFAULT_COLUMNS} - ({"nodes"} if not several else set())
    return tuple(name for name in filled_columns(table) if name in wanted)


def node_table(
    linked: LinkedGraph,
    *,
    keep: Callable[[Fields], bool] | None = None,
    into_delegates: bool = True,
    times: NodeTimes | None = None,
    scale: Scale | None = None,
    sort: str | None = None,
    limit: int | None = None,
) -> Table:
    """One row a node, in execution order, those of sub-graphs below the node that calls them.

    keep: which nodes to show, with the calls around them; None: all but weights and `get_attr`.
    times, scale: for the columns of times; see `NodeTimes`. sort: a column, with "-" largest
    first; sub-graphs stay below their calls. limit: at most so many nodes of the graph itself.
    """
    places = list(placed_nodes(linked.graph, into_delegates=into_delegates))
    shown = [
        not place.is_plumbing if keep is None else keep(fields_of(linked, place))
        for place in places
    ]
    hidden = len(shown) - sum(shown) if keep is None else 0
    _show_calls(places, shown)
    places = [place for place, is_shown in zip(places, shown, strict=True) if is_shown]
    table = _table(linked, places, times, scale)
    groups = _groups(table)
    if sort is not None:
        groups = _sorted(table, groups, sort)
    rows = [row for group in groups[:limit] for row in group]
    notes = [*_hidden_notes(hidden, len(groups[limit:]) if limit is not None else 0)]
    if times is not None and scale is not None:
        notes += _time_notes(times, scale, [places[row] for row in rows])
    return replace(table.take(rows), notes=tuple(notes))


def _show_calls(places: Sequence[PlacedNode], shown: list[bool]) -> None:
    """Show the calls around what is shown."""
    wanted = set()  # depths at which the next node before is the call of something shown
    for i in range(len(places) - 1, -1, -1):
        depth = places[i].depth
        shown[i] = shown[i] or depth in wanted
        wanted.discard(depth)
        if shown[i] and depth:
            wanted.add(depth - 1)


def _table(
    linked: LinkedGraph,
    places: Sequence[PlacedNode],
    times: NodeTimes | None,
    scale: Scale | None,
) -> Table:
    heads = columns(times is not None, "" if scale is None else scale.unit)
    values: dict[str, list[Any]] = {column.name: [] for column in heads}
    for place in places:
        cells = {**_identity(linked, place), **_measures(place.node, times, scale)}
        for name, column in values.items():
            column.append(cells[name])
    graph = linked.graph
    return Table(
        columns=heads,
        values=values,
        title=f"{short_name(linked.name)} · {graph.dialect} · {len(graph.nodes):,} nodes",
        depth=[place.depth for place in places],
    )


def _identity(linked: LinkedGraph, place: PlacedNode) -> Mapping[str, Any]:
    node = place.node
    line = user_line(node.stack_trace)
    users = place.graph.users[node.name]
    outputs = [text for value in node.outputs if (text := tensor_text(value.tensor))]
    return {
        "node": node.name,
        "kind": node.kind,
        "op": node.op or node.kind,
        "output": short_outputs(node),
        "outputs": outputs,
        "instructions": list(linked.instructions.get(id(node), ())),
        "handle": node.debug_handle,
        "backend": place.backend or linked.backends.get(id(node)),
        "module": module_path(node),
        "module_type": module_type(node),
        "source": None if line is None else short_lines([line]),
        "source_path": None if line is None else str(line),
        "users": len(users),
        "used_by": list(users),
        "inputs": list(node.inputs),
        "target": node.target,
        "graph": place.graph.name,
    }


def short_outputs(node: Node) -> str | None:
    """The first tensor that the node gives, and how many more: "f32[1,8] +2"."""
    specs = [value.tensor for value in node.outputs if value.tensor is not None]
    if not specs:
        return None
    dtype = specs[0].dtype
    for long, short in _SHORT_DTYPES:
        dtype = dtype.replace(long, short)
    more = f" +{len(specs) - 1}" if len(specs) > 1 else ""
    return f"{dtype}[{','.join(map(str, specs[0].shape))}]{more}"


def _measures(node: Node, times: NodeTimes | None, scale: Scale | None) -> Mapping[str, Any]:
    time = None if times is None else times.at.get(id(node))
    if times is None or time is None or scale is None:
        return {"avg": None, "share": None, "nodes": None}
    mean, total = float(time.ticks.mean()), float(times.profile.total.mean())
    return {
        "avg": float(scale(mean)),
        "share": mean / total if total else None,
        "nodes": len(time.nodes),
    }


def tensor_text(spec: TensorSpec | None) -> str:
    """Type and shape ("float32[1, 8]", symbolic sizes as they are written); "" for no tensor."""
    return "" if spec is None else f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _groups(table: Table) -> list[list[int]]:
    """The rows of each node of the graph itself with those below it."""
    groups: list[list[int]] = []
    for row, depth in enumerate(table.depth or ()):
        if depth == 0 or not groups:
            groups.append([])
        groups[-1].append(row)
    return groups


def _sorted(table: Table, groups: list[list[int]], sort: str) -> list[list[int]]:
    """The groups by a column of their first rows; what has no value comes last."""
    name = sort.removeprefix("-")
    values = table.select([name]).values[name]
    known = [group for group in groups if values[group[0]] is not None]
    unknown = [group for group in groups if values[group[0]] is None]
    return sorted(known, key=lambda group: values[group[0]], reverse=sort != name) + unknown


def _hidden_notes(plumbing: int, rest: int) -> Iterator[str]:
    if rest:
        yield f"{rest:,} more {'node is' if rest == 1 else 'nodes are'} not shown."
    if plumbing:
        yield (
            f"Weights and lowered modules, {plumbing:,} in number, are not shown "
            "(--select 'kind:*' shows all nodes)."
        )


def _time_notes(times: NodeTimes, scale: Scale, shown: Sequence[PlacedNode]) -> Iterator[str]:
    runs = len(times.profile.runs)
    total, accounted = (
        format_duration(float(scale(ticks).mean()), scale.unit)
        for ticks in (times.profile.total, times.accounted)
    )
    yield (
        f"Times are averages of {runs:,} {'run' if runs == 1 else 'runs'}: of {total} {scale.unit} "
        f"of Method::execute, {accounted} {scale.unit} are of instructions of this graph's nodes."
    )
    here = [times.at[id(place.node)] for place in shown if id(place.node) in times.at]
    if any(len(time.nodes) > 1 for time in here):
        yield (
            "A time of several nodes is of one instruction (#) and stands at the first of them; "
            "how it divides is not known."
        )
