"""Graphs as files: Graphviz's DOT, JSON, Model Explorer's JSON and its node data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from etscope.analysis.graphs.flow import Edge, edges, own_times
from etscope.analysis.graphs.node_costs import STATISTICS, node_work
from etscope.analysis.graphs.node_table import short_outputs
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import (
    module_path,
    module_type,
    short_lines,
    user_line,
)
from etscope.errors import MissingDataError, UsageError
from etscope.units import format_duration
from etscope.views.output import dumps
from etscope.views.tables.cells import visible

# -- DOT: modules and delegates as clusters, nodes coloured by time.
#
# Names from files are in quoted strings, where only the quote and the backslash are special, and
# nodes are called n0, n1, …, so that a name cannot be read as syntax. Weights and lowered modules
# are left out, as in the table of nodes.

_LONGEST_LABEL = 60  # characters of a line in a label
_DOT_HEAD = """digraph {name} {{
  graph [fontname="Helvetica", fontsize=10, rankdir=TB, compound=true, label={label}, labelloc=t];
  node [fontname="Helvetica", fontsize=9, shape=box, style="filled,rounded", fillcolor="#ffffff"];
  edge [fontname="Helvetica", fontsize=7, color="#777777", arrowsize=0.6];
"""


def write_dot(views: Sequence[GraphView], out: TextIO, *, scale: Scale) -> None:
    """Write one graph, with average times in the unit of `scale`. Raises `UsageError` for more."""
    if len(views) != 1:
        raise UsageError(
            "a DOT file has one graph", hint="name one of: " + ", ".join(view.key for view in views)
        )
    _Drawing(views[0], scale).write(out)


@dataclass(slots=True)
class _Box:
    """A cluster. ticks: the time of its nodes."""

    name: str
    nodes: list[ViewNode] = field(default_factory=list)
    boxes: dict[str, _Box] = field(default_factory=dict)
    backend: str | None = None
    ticks: float = 0.0


class _Drawing:
    def __init__(self, view: GraphView, scale: Scale) -> None:
        self._view, self._scale = view, scale
        self._shown = [
            node
            for node in view.nodes
            if node.node.kind != "get_attr" and node.node.name not in node.graph.parameters
        ]
        self._names = {node.key: f"n{i}" for i, node in enumerate(self._shown)}
        self._longest = max((time.avg for time in view.times.values()), default=0.0)
        self._clusters = 0

    def write(self, out: TextIO) -> None:
        view = self._view
        hidden = len(view.nodes) - len(self._shown)
        title = [f"{view.title} · {view.dialect}"]
        if view.profile is not None:
            total = float(self._scale(view.profile.total).mean())
            title.append(f"{self._time(total)} of Method::execute")
        if hidden:
            title.append(f"{hidden:,} weights and lowered modules are not shown")
        out.write(_DOT_HEAD.format(name=_quoted([view.key]), label=_quoted(title)))
        self._box(self._tree(), out, 1)
        for edge in edges(view):
            if edge.source in self._names and edge.target in self._names:
                out.write(f"  {self._names[edge.source]} -> {self._names[edge.target]};\n")
        out.write("}\n")

    def _tree(self) -> _Box:
        """The boxes, each with the sum of its nodes' times."""
        root, own = _Box(""), own_times(self._view, "avg")
        for node in self._shown:
            box = root
            for name in node.scope:
                box = box.boxes.setdefault(name, _Box(name))
                box.ticks += own.get(node.key, 0.0)
            if node.opens and node.node.delegate is not None:
                box.backend = node.backend
            box.nodes.append(node)
        return root

    def _box(self, box: _Box, out: TextIO, depth: int) -> None:
        pad = "  " * depth
        for node in box.nodes:
            out.write(f"{pad}{self._names[node.key]} [{self._attributes(node)}];\n")
        for inner in box.boxes.values():
            out.write(f"{pad}subgraph cluster_{self._clusters} {{\n")
            self._clusters += 1
            lines = [inner.name]
            if inner.backend is not None and inner.backend not in inner.name:
                lines.append(inner.backend)
            if inner.ticks:
                lines.append(self._time(float(self._scale(inner.ticks))))
            style = (
                'style="filled,dashed", color="#5e35b1", fillcolor="#f3effb"'
                if inner.backend is not None
                else 'style="rounded", color="#9e9e9e"'
            )
            out.write(f"{pad}  label={_quoted(lines)}; {style.replace(', ', '; ')};\n")
            self._box(inner, out, depth + 1)
            out.write(f"{pad}}}\n")

    def _attributes(self, placed: ViewNode) -> str:
        node, time = placed.node, self._view.times.get(placed.key)
        lines = [node.op or node.name]
        if node.op and node.op != node.name:
            lines.append(node.name)
        if output := short_outputs(node):
            lines.append(output)
        colour = "#ffffff"
        if time is not None:
            several = f" of {len(time.keys)} nodes" if len(time.keys) > 1 else ""
            lines.append(self._time(float(self._scale(time.avg))) + several)
            # From white to red, by the square root, so that small times differ.
            share = time.avg / self._longest if self._longest else 0.0
            other = round(255 - 175 * min(max(share, 0.0), 1.0) ** 0.5)
            colour = f"#ff{other:02x}{other:02x}"
        elif placed.key in self._view.shared:
            lines.append("(timed with others)")
        line = user_line(node.stack_trace)
        about = [placed.key, module_path(node) or "", "" if line is None else short_lines([line])]
        found = {
            "label": _quoted(lines),
            "fillcolor": f'"{colour}"',
            "tooltip": _quoted([part for part in about if part]),
        }
        if node.kind in ("placeholder", "output"):
            found["shape"] = "ellipse"
        if placed.backend is not None:
            found["color"] = '"#5e35b1"'
        return ", ".join(f"{key}={value}" for key, value in found.items())

    def _time(self, value: float) -> str:
        return f"{format_duration(value, self._scale.unit)} {self._scale.unit}"


def _quoted(lines: Sequence[str]) -> str:
    r"""The lines as a DOT string, separated by "\n", the only escape in it."""
    escaped = []
    for line in lines:
        text = visible(line)
        if len(text) > _LONGEST_LABEL:
            text = f"{text[: _LONGEST_LABEL - 1]}…"
        # Graphviz reads HTML's "&lt;" in quoted strings, too.
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        escaped.append(text.replace("\\", "\\\\").replace('"', '\\"'))
    return '"' + r"\n".join(escaped) + '"'


# -- One JSON document of schema "etscope.graph/1".
#
# The document::
#
#     {"schema": "etscope.graph/1", "time_unit": "ms",
#      "graphs": [
#        {"key": "edge/forward", "title": "…", "dialect": "EDGE", "method": "forward",
#         "runs": 5, "total": 1.25,                    of Method::execute, or null
#         "nodes": [
#           {"key": "aten_add_tensor", "name": "…", "kind": "call_function",
#            "op": "aten.add.Tensor", "target": "…",
#            "call": null,                             key of the call with the sub-graph it is in
#            "scope": ["blocks", "0"], "outputs": [{"name": "…", "dtype": "float32",
#            "shape": [1, 8]}], "arguments": [["self", "x"], …], "weight": null,
#            "debug_handle": 7, "instructions": [3], "backend": null, "module": "blocks.0",
#            "module_type": "Block", "source": "model.py:12",
#            "time": {"avg": …, "p50": …, "p90": …, "min": …, "max": …, "first": …,
#                     "nodes": ["…"]},                 all nodes that share it; null without one
#            "bytes": 128, "live_bytes": 4096,
#            "error": {"metric": "sqnr", "total": …, "local": …, "verdict": "fine"}}, …],
#         "edges": [{"source": "x", "output": 0, "target": "…", "input": 0, "value": "x"}, …]}]}
#
# Symbolic sizes are the texts of their expressions. Infinities are "Infinity" and "-Infinity".

SCHEMA = "etscope.graph/1"


def write_graph_json(views: Sequence[GraphView], out: TextIO, *, scale: Scale) -> None:
    """Write all graphs as one document, with a node or an edge in each line."""
    out.write(f'{{"schema": {dumps(SCHEMA)},\n"time_unit": {dumps(scale.unit)},\n"graphs": [')
    for position, view in enumerate(views):
        out.write(",\n" if position else "\n")
        profile = view.profile
        head = {
            "key": view.key,
            "title": view.title,
            "dialect": view.dialect,
            "method": view.method,
            "runs": None if profile is None else len(profile.runs),
            "total": None if profile is None else float(scale(profile.total).mean()),
        }
        out.write(dumps(head)[:-1] + ',\n "nodes": [')
        _lines(out, [_node_json(view, node, scale) for node in view.nodes])
        out.write('],\n "edges": [')
        names = ("source", "output", "target", "input", "value")
        ends = ((e.source, e.output, e.target, e.input, e.name) for e in edges(view))
        _lines(out, [dict(zip(names, end, strict=True)) for end in ends])
        out.write("]}")
    out.write("\n]}\n")


def _lines(out: TextIO, items: Sequence[Any]) -> None:
    out.write("".join(f"{',' if i else ''}\n  {dumps(item)}" for i, item in enumerate(items)))


def _node_json(view: GraphView, placed: ViewNode, scale: Scale) -> dict[str, Any]:
    node = placed.node
    line = user_line(node.stack_trace)
    error, time = view.errors.get(placed.key), view.times.get(placed.key)
    statistics: dict[str, Any] | None = None
    if time is not None:
        statistics = {name: float(scale(time.statistic(name))) for name in STATISTICS}
        statistics["nodes"] = list(time.keys)
    return {
        "key": placed.key,
        "name": node.name,
        "kind": node.kind,
        "op": node.op or None,
        "target": node.target,
        "call": placed.call,
        "scope": list(placed.scope),
        "outputs": [
            {"name": value.name}
            if (tensor := value.tensor) is None
            else {"name": value.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
            for value in node.outputs
        ],
        "arguments": [[name or None, text] for name, text in node.arguments],
        "weight": placed.graph.parameters.get(node.name),
        "debug_handle": node.debug_handle,
        "instructions": list(placed.instructions),
        "backend": placed.backend,
        "module": module_path(node),
        "module_type": module_type(node),
        "source": None if line is None else str(line),
        "time": statistics,
        "bytes": view.memory.get(placed.key),
        "live_bytes": view.live.get(placed.key),
        "error": None if error is None else asdict(error),
    }


# -- Model Explorer's JSON, and numbers of nodes as its node data.
#
# `model_explorer.graph_builder` and `node_data_builder` define the format (package
# ai-edge-model-explorer, which is not needed here). A node's id is its key. For nodes that are not
# in a sub-graph this is their name, as in Model Explorer's own adapter for an `ExportedProgram`, so
# node data of one graph fits both.

_ERRORS = ("total_error", "local_error")
# Numbers of `Work`: the bytes that a node reads and writes; "bytes" are its tensors' bytes.
_WORK = {"flops": "known_flops", "moved_bytes": "known_bytes", "intensity": "intensity"}
OVERLAYS = (*STATISTICS, "bytes", "live_bytes", *_WORK, *_ERRORS)
_COLOURS = ((0.0, "#ffffff"), (0.25, "#fff3b0"), (0.6, "#ff9e5e"), (1.0, "#e0301e"))
_LONGEST_ATTRIBUTE = (
    2000  # characters of an attribute, so that long stack traces do not make the file large
)


def write_explorer(views: Sequence[GraphView], out: TextIO, *, scale: Scale) -> None:
    """Write the graphs as one collection."""
    graphs = []
    for view in views:
        incoming: dict[str, list[Edge]] = {}
        for edge in edges(view):
            incoming.setdefault(edge.target, []).append(edge)
        graphs.append(
            {
                "id": view.key,
                "nodes": [_explorer_node(node, incoming.get(node.key, ())) for node in view.nodes],
                "groupNodeAttributes": {"": {"title": view.title, "dialect": view.dialect}},
            }
        )
    out.write(dumps({"label": "etscope", "graphs": graphs}) + "\n")


def write_node_data(
    views: Sequence[GraphView], out: TextIO, *, scale: Scale, overlay: str = "avg"
) -> None:
    """Write one of `OVERLAYS` as node data: for one graph in a form that fits any graph with these
    nodes, for several by the graphs' ids.

    Raises `UsageError` for another overlay, `MissingDataError` when no node has such a number.
    """
    data = {view.key: node_data(view, scale, overlay) for view in views}
    data = {key: found for key, found in data.items() if found["results"]}
    if not data:
        raise MissingDataError(
            f"no node of {', '.join(view.key for view in views)} has a value for {overlay!r}",
            hint="times need a run: --dump; errors need its logged values: --debug-buffer",
        )
    out.write(dumps(next(iter(data.values())) if len(views) == 1 else data) + "\n")


def node_data(view: GraphView, scale: Scale, overlay: str = "avg") -> dict[str, Any]:
    """`GraphNodeData` of a graph, as a dict."""
    if overlay not in OVERLAYS:
        raise UsageError(
            f"unknown overlay {overlay!r}", hint="overlays are: " + ", ".join(OVERLAYS)
        )
    title = overlay
    values: Mapping[str, float] = view.live if overlay == "live_bytes" else view.memory
    if overlay in _WORK:
        work_of = node_work(view.linked)
        works = {placed.key: work_of(placed.node) for placed in view.nodes}
        numbers = {key: getattr(work, _WORK[overlay]) for key, work in works.items()}
        values = {key: number for key, number in numbers.items() if number}
    if overlay in STATISTICS:
        title = f"{overlay} ({scale.unit})"
        values = {key: float(scale(time.statistic(overlay))) for key, time in view.times.items()}
    elif overlay in _ERRORS:
        name = overlay.removesuffix("_error")
        metric = next((error.metric for error in view.errors.values()), "")
        title = f"{name} error ({metric})"
        errors = {key: getattr(error, name) for key, error in view.errors.items()}
        values = {key: error for key, error in errors.items() if error is not None}
    return {
        "name": title,
        "results": {key: {"value": value} for key, value in values.items() if math.isfinite(value)},
        "gradient": [{"stop": stop, "bgColor": colour} for stop, colour in _COLOURS],
    }


def _explorer_node(placed: ViewNode, incoming: Sequence[Edge]) -> dict[str, Any]:
    node = placed.node
    line = user_line(node.stack_trace)
    attributes = {
        **{name or str(i): text for i, (name, text) in enumerate(node.arguments)},
        "kind": node.kind,
        "target": node.target,
        "weight": placed.graph.parameters.get(node.name, ""),
        "debug_handle": "" if node.debug_handle is None else str(node.debug_handle),
        "instructions": ", ".join(map(str, placed.instructions)),
        "backend": placed.backend or "",
        "module": module_path(node) or "",
        "module_type": module_type(node) or "",
        "source": "" if line is None else str(line),
    }
    return {
        "id": placed.key,
        "label": visible(node.op or node.name),
        # "/" separates the levels of a namespace.
        "namespace": "/".join(visible(part).replace("/", "\u2215") or "_" for part in placed.scope),
        "attrs": [
            {"key": key, "value": visible(text)[:_LONGEST_ATTRIBUTE]}
            for key, text in attributes.items()
            if text
        ],
        "incomingEdges": [
            {
                "sourceNodeId": edge.source,
                "sourceNodeOutputId": str(edge.output),
                "targetNodeInputId": str(edge.input),
            }
            for edge in incoming
        ],
        "outputsMetadata": [
            {
                "id": str(position),
                "attrs": [
                    {"key": "__tensor_tag", "value": value.name},
                    # As Model Explorer's adapter writes it: "torch.float32[1, 8]".
                    {
                        "key": "tensor_shape",
                        "value": f"torch.{tensor.dtype}{json.dumps(list(tensor.shape))}",
                    },
                ],
            }
            for position, value in enumerate(node.outputs)
            if (tensor := value.tensor) is not None
        ],
    }
