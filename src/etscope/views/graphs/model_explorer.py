"""Graphs in Model Explorer's JSON, and numbers of their nodes as its node data.

`model_explorer.graph_builder` and `node_data_builder` define the format (package
ai-edge-model-explorer, which is not needed here). A node's id is its key. For nodes that are not in
a sub-graph this is their name, as in Model Explorer's own adapter for an `ExportedProgram`, so node
data of one graph fits both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from etscope.analysis.graphs.flow import Edge, edges
from etscope.analysis.graphs.node_costs import STATISTICS, node_work
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import module_path, module_type, user_line
from etscope.errors import MissingDataError, UsageError
from etscope.views.output import dumps
from etscope.views.tables.cells import visible

_ERRORS = ("total_error", "local_error")
# Numbers of `Work`: the bytes that a node reads and writes; "bytes" are its tensors' bytes.
_WORK = {"flops": "known_flops", "moved_bytes": "known_bytes", "intensity": "intensity"}
OVERLAYS = (*STATISTICS, "bytes", "live_bytes", *_WORK, *_ERRORS)
_COLOURS = ((0.0, "#ffffff"), (0.25, "#fff3b0"), (0.6, "#ff9e5e"), (1.0, "#e0301e"))
_LONGEST = 2000  # characters of an attribute, so that long stack traces do not make the file large


def write(views: Sequence[GraphView], out: TextIO, *, scale: Scale) -> None:
    """Write the graphs as one collection."""
    graphs = []
    for view in views:
        incoming: dict[str, list[Edge]] = {}
        for edge in edges(view):
            incoming.setdefault(edge.target, []).append(edge)
        graphs.append(
            {
                "id": view.key,
                "nodes": [_node(node, incoming.get(node.key, ())) for node in view.nodes],
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


def _node(placed: ViewNode, incoming: Sequence[Edge]) -> dict[str, Any]:
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
            {"key": key, "value": visible(text)[:_LONGEST]}
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
