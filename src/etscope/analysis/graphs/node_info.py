"""The report on one node of a graph, for `etscope graph --node`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from etscope.analysis.graphs.linked_graph import LinkedGraph, short_name
from etscope.analysis.graphs.node_costs import NodeTimes, node_work
from etscope.analysis.graphs.node_table import PlacedNode, placed_nodes, short_outputs, tensor_text
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import module_path, module_type, user_line
from etscope.errors import MissingDataError, UsageError
from etscope.formats.program.delegate_data import option_texts
from etscope.model.graph import Delegate, Origin, source_lines
from etscope.model.report import Report, Section, facts, rows
from etscope.model.statistics import summarize
from etscope.model.table import Column, Kind

SCHEMA = "etscope.node/1"
_LONGEST_OPTION = 80  # characters of a compile option: one line of a terminal


def find_node(linked: LinkedGraph, name: str) -> PlacedNode:
    """Find a node by its name or its value's name; in a sub-graph "lowered_module_0/add", or only
    "add" if the name is unique. Raises `UsageError` if several have it, `MissingDataError` if none
    has."""
    places = list(placed_nodes(linked.graph))
    parent, _, plain = name.rpartition("/")
    matching = [
        place
        for place in places
        if plain in (place.node.name, *(value.name for value in place.node.outputs))
        and (not parent or f"/{place.graph.name}".endswith(f"/{parent}"))
    ]
    for found in ([place for place in matching if place.graph is linked.graph], matching):
        if len(found) == 1:
            return found[0]
        if found:
            names = (f"{p.graph.own_name}/{p.node.name}" for p in found)
            raise UsageError(
                f"several nodes have the name {name!r}", hint="name one of: " + ", ".join(names)
            )
    known = [place.node.name for place in places]
    close = get_close_matches(name, known, n=1)
    raise MissingDataError(
        f"the graph {short_name(linked.name)} has no node {name!r}",
        hint=f"did you mean {close[0]!r}?" if close else "leave out --node to see all nodes",
    )


def node_info(
    linked: LinkedGraph,
    place: PlacedNode,
    times: NodeTimes | None = None,
    scale: Scale | None = None,
) -> Report:
    """Build a report with the sections "node", "times", "work", "arguments", "outputs", "users",
    "modules", "stack", "metadata", "origins", "delegate", "delegated" and "subgraphs"; those
    without content are left out."""
    found = _Sections(linked, place).all(times, scale)
    about = {"graph": linked.name, "node": place.node.name}
    return Report(about, tuple(section for section in found if len(section.table)))


@dataclass(frozen=True, slots=True)
class _Sections:
    """The sections of the report on a node."""

    linked: LinkedGraph
    place: PlacedNode

    def all(self, times: NodeTimes | None, scale: Scale | None) -> Iterator[Section]:
        node, graph = self.place.node, self.place.graph
        yield self.facts()
        if times is not None and scale is not None:
            yield from self.times(times, scale)
        yield from self.work()
        yield self.arguments()
        yield self.outputs()
        yield rows(
            "users",
            "Used by",
            (Column("node"), Column("op"), Column("module", Kind.PATH)),
            [
                (user.name, user.op or user.kind, module_path(user))
                for user in (graph.by_name[name] for name in graph.users[node.name])
            ],
        )
        yield rows(
            "modules",
            "Modules, outermost first",
            (Column("module"), Column("type", Kind.PATH), Column("key", priority=1)),
            [(frame.path or "(root)", frame.type, frame.key) for frame in node.modules],
        )
        yield rows(
            "stack",
            "Stack, innermost last",
            (
                Column("file", Kind.PATH),
                Column("line", Kind.INT),
                Column("function"),
                Column("text", title="code"),
            ),
            [
                (line.file, line.line, line.function or None, line.text or None)
                for line in source_lines(node.stack_trace)
            ],
        )
        columns = (Column("key"), Column("value"))
        yield rows("metadata", "Metadata", columns, node.metadata.items())
        yield self.origins()
        if node.delegate is not None:
            yield from self.delegate(node.delegate)
        calls = [
            (below, [one.op for one in below.walk() if one.kind == "call_function"])
            for below in node.subgraphs
        ]
        yield rows(
            "subgraphs",
            "Sub-graphs",
            (Column("graph"), Column("nodes", Kind.COUNT), Column("ops", Kind.LIST)),
            [(below.own_name, len(below.nodes), ops) for below, ops in calls],
        )

    def facts(self) -> Section:
        node, linked = self.place.node, self.linked
        line = user_line(node.stack_trace)
        weight = self.place.graph.parameters.get(node.name)
        return facts(
            "node",
            f"{node.name} · node of {short_name(self.place.graph.name)}",
            (
                (Column("op"), node.op or None),
                (Column("kind"), node.kind),
                (Column("target"), node.target),
                (Column("weight"), weight),
                (Column("source", Kind.PATH), None if line is None else str(line)),
                (Column("code"), None if line is None else line.text or None),
                (Column("module"), module_path(node)),
                (Column("module_type"), module_type(node)),
                (Column("debug_handle", Kind.INT), node.debug_handle),
                (Column("instructions", Kind.LIST), list(linked.instructions.get(id(node), ()))),
                (Column("backend"), self.place.backend or linked.backends.get(id(node))),
            ),
        )

    def times(self, times: NodeTimes, scale: Scale) -> Iterator[Section]:
        time = times.of(self.place.node)
        if time is None:
            return
        samples = scale(time.ticks[time.ran])
        total = float(times.profile.total.mean())
        statistics = {
            "avg": scale(time.ticks).mean(),
            **summarize(samples, ("p50", "p90", "min", "max", "first")),
        }
        others = [node.name for node in time.nodes if node is not self.place.node]
        yield facts(
            "times",
            "Times",
            (
                (Column("runs", Kind.COUNT), len(samples)),
                *(
                    (Column(name, Kind.DURATION, scale.unit), float(value))
                    for name, value in statistics.items()
                ),
                (
                    Column("share", Kind.SHARE, title="share of Method::execute"),
                    float(time.ticks.mean()) / total if total else None,
                ),
                (Column("together_with", Kind.LIST), others),
            ),
            notes=("One instruction runs all these nodes: the time is their sum.",)
            if others
            else (),
        )

    def work(self) -> Iterator[Section]:
        work = node_work(self.linked)(self.place.node)
        if self.place.node.kind != "call_function" or work.known_bytes is None:
            return
        traffic = work.traffic
        yield facts(
            "work",
            "Work",
            (
                (Column("flops", Kind.COUNT, title="FLOPs"), work.known_flops),
                (Column("bytes", Kind.BYTES, title="read and written"), traffic.total),
                (Column("intensity", Kind.FLOAT, title="FLOPs for each byte"), work.intensity),
                (Column("weight_bytes", Kind.BYTES, title="weights"), traffic.weights),
                (
                    Column("bytes_read", Kind.BYTES, title="activations read"),
                    traffic.activations_read,
                ),
                (
                    Column("bytes_written", Kind.BYTES, title="activations written"),
                    traffic.activations_written,
                ),
                (Column("state_bytes", Kind.BYTES, title="state"), traffic.state),
            ),
            notes=("Sizes are upper bounds of the export.",) if work.is_bound else (),
        )

    def arguments(self) -> Section:
        node, graph = self.place.node, self.place.graph
        content = []
        for position, (name, text) in enumerate(node.arguments):
            tensors, makers, weights = list[str](), list[str](), list[str]()
            for value in text.strip("[]").split(", "):
                maker = graph.by_name.get(value)
                if maker is not None:
                    tensors += [tensor_text(v.tensor) for v in maker.outputs if v.name == value]
                    makers.append(maker.op or maker.kind)
                    weights += (
                        [graph.parameters[maker.name]] if maker.name in graph.parameters else []
                    )
            cells = [", ".join(filter(None, texts)) or None for texts in (tensors, makers, weights)]
            content.append((name or str(position), text, *cells))
        return rows(
            "arguments",
            "Arguments",
            (
                Column("argument"),
                Column("value"),
                Column("tensor"),
                Column("given_by", title="given by", priority=1),
                Column("weight", Kind.PATH, priority=2),
            ),
            content,
        )

    def outputs(self) -> Section:
        return rows(
            "outputs",
            "Outputs",
            (
                Column("output"),
                Column("tensor"),
                Column("strides", Kind.LIST),
                Column("device"),
                Column("hints", Kind.LIST, title="sizes at export"),
            ),
            [
                (
                    value.name,
                    tensor_text(value.tensor) or None,
                    [] if value.tensor is None else list(value.tensor.strides),
                    None if value.tensor is None else value.tensor.device,
                    [] if value.tensor is None else list(value.tensor.hints),
                )
                for value in self.place.node.outputs
            ],
        )

    def origins(self) -> Section:
        links = list(_walk(self.place.node.origins, 0))
        return rows(
            "origins",
            "Comes from",
            (
                Column("node"),
                Column("target"),
                Column("pass", title="pass"),
                Column("actions", Kind.LIST),
                Column("graph_id", Kind.INT, priority=1),
            ),
            [
                (link.name, link.target, link.pass_name or None, list(link.actions), link.graph_id)
                for _, link in links
            ],
            depth=[depth for depth, _ in links],
        )

    def delegate(self, delegate: Delegate) -> Iterator[Section]:
        inner = delegate.graph
        said = self.linked.delegate_info.get(delegate.name, {})
        options = [(Column(f"info_{key}", title=key or "info"), text) for key, text in said.items()]
        for key, value in delegate.compile_specs.items():
            for name, text in option_texts(delegate.backend_id, key, value).items():
                shown = text if len(text) <= _LONGEST_OPTION else f"{text[:_LONGEST_OPTION]}…"
                options.append((Column(f"option_{name}", title=f"option {name}"), shown))
        yield facts(
            "delegate",
            "Delegate",
            (
                (Column("backend"), delegate.backend_id),
                (Column("name"), delegate.name),
                (Column("data", Kind.BYTES), delegate.processed_bytes),
                (Column("nodes", Kind.COUNT), None if inner is None else len(inner.nodes)),
                *options,
            ),
        )
        if inner is not None:
            yield rows(
                "delegated",
                "Calls inside",
                (
                    Column("node"),
                    Column("op", priority=1),
                    Column("output"),
                    Column("module", Kind.PATH),
                ),
                [
                    (node.name, node.op, short_outputs(node), module_path(node))
                    for node in inner.nodes
                    if node.kind == "call_function"
                ],
            )


def _walk(origins: Iterable[Origin], depth: int) -> Iterator[tuple[int, Origin]]:
    for origin in origins:
        yield depth, origin
        yield from _walk(origin.origins, depth + 1)
