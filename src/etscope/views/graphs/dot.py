"""A graph in Graphviz's DOT language: modules and delegates as clusters, nodes coloured by time.

Names from files are in quoted strings, where only the quote and the backslash are special, and
nodes are called n0, n1, …, so that a name cannot be read as syntax. Weights and lowered modules are
left out, as in the table of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from etscope.analysis.graphs.flow import edges, own_times
from etscope.analysis.graphs.node_table import short_outputs
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import module_path, short_lines, user_line
from etscope.errors import UsageError
from etscope.units import format_duration
from etscope.views.tables.cells import visible

_LONGEST = 60  # characters of a line in a label
_HEAD = """digraph {name} {{
  graph [fontname="Helvetica", fontsize=10, rankdir=TB, compound=true, label={label}, labelloc=t];
  node [fontname="Helvetica", fontsize=9, shape=box, style="filled,rounded", fillcolor="#ffffff"];
  edge [fontname="Helvetica", fontsize=7, color="#777777", arrowsize=0.6];
"""


def write(views: Sequence[GraphView], out: TextIO, *, scale: Scale) -> None:
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
        out.write(_HEAD.format(name=_quoted([view.key]), label=_quoted(title)))
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
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST - 1]}…"
        # Graphviz reads HTML's "&lt;" in quoted strings, too.
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        escaped.append(text.replace("\\", "\\\\").replace('"', '\\"'))
    return '"' + r"\n".join(escaped) + '"'
