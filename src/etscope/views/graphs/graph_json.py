"""Graphs as one JSON document of schema "etscope.graph/1".

The document::

    {"schema": "etscope.graph/1", "time_unit": "ms",
     "graphs": [
       {"key": "edge/forward", "title": "…", "dialect": "EDGE", "method": "forward",
        "runs": 5, "total": 1.25,                    of Method::execute, or null
        "nodes": [
          {"key": "aten_add_tensor", "name": "…", "kind": "call_function", "op": "aten.add.Tensor",
           "target": "…", "call": null,              key of the call with the sub-graph it is in
           "scope": ["blocks", "0"], "outputs": [{"name": "…", "dtype": "float32",
           "shape": [1, 8]}], "arguments": [["self", "x"], …], "weight": null,
           "debug_handle": 7, "instructions": [3], "backend": null, "module": "blocks.0",
           "module_type": "Block", "source": "model.py:12",
           "time": {"avg": …, "p50": …, "p90": …, "min": …, "max": …, "first": …,
                    "nodes": ["…"]},                 all nodes that share it; null without one
           "bytes": 128, "live_bytes": 4096,
           "error": {"metric": "sqnr", "total": …, "local": …, "verdict": "fine"}}, …],
        "edges": [{"source": "x", "output": 0, "target": "…", "input": 0, "value": "x"}, …]}]}

Symbolic sizes are the texts of their expressions. Infinities are "Infinity" and "-Infinity".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from etscope.analysis.graphs.flow import edges
from etscope.analysis.graphs.node_costs import STATISTICS
from etscope.analysis.graphs.views import GraphView, ViewNode
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.source_location import module_path, module_type, user_line
from etscope.views.output import dumps

SCHEMA = "etscope.graph/1"


def write(views: Sequence[GraphView], out: TextIO, *, scale: Scale) -> None:
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
        _lines(out, [_node(view, node, scale) for node in view.nodes])
        out.write('],\n "edges": [')
        names = ("source", "output", "target", "input", "value")
        ends = ((e.source, e.output, e.target, e.input, e.name) for e in edges(view))
        _lines(out, [dict(zip(names, end, strict=True)) for end in ends])
        out.write("]}")
    out.write("\n]}\n")


def _lines(out: TextIO, items: Sequence[Any]) -> None:
    out.write("".join(f"{',' if i else ''}\n  {dumps(item)}" for i, item in enumerate(items)))


def _node(view: GraphView, placed: ViewNode, scale: Scale) -> dict[str, Any]:
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
