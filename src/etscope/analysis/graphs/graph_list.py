"""The graphs of a record as a `Table`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etscope.analysis.graphs.graph_names import short_name
from etscope.formats.etrecord.reader import RecordView
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph
from etscope.model.table import Column, Kind, Table

_COLUMNS = (
    Column("graph"),
    Column("dialect", priority=2),
    Column("nodes", Kind.COUNT),
    Column("calls", Kind.COUNT, priority=1),
    Column("operators", Kind.COUNT, title="distinct operators", priority=4),
    Column("weights", Kind.COUNT, priority=1),
    Column("inputs", Kind.COUNT, priority=3),
    Column("outputs", Kind.COUNT, priority=3),
    Column("modules", Kind.COUNT, priority=4),
    Column("delegates", Kind.COUNT, title="lowered modules", priority=2),
    Column("backends", Kind.LIST, priority=5),
    Column("branches", Kind.COUNT, title="sub-graphs", priority=5),
    Column("handles", Kind.COUNT, title="with debug handle", priority=5),
    Column("name", title="name in the file", priority=6),
)


def graph_list(record: RecordView) -> Table:
    """One row a graph. Nodes are those of the graph itself; calls, operators, modules, delegates,
    branches and handles are counted in its sub-graphs too."""
    content = [_row(graph_from_record(record, name)) for name in record.graph_names]
    return Table(
        columns=_COLUMNS,
        values={column.name: [row[column.name] for row in content] for column in _COLUMNS},
        title=f"graphs of {record.path or 'the record'}",
    )


def _row(graph: Graph) -> Mapping[str, Any]:
    calls = [node for node in graph.walk() if node.kind == "call_function"]
    delegates = [node.delegate for node in calls if node.delegate is not None]
    return {
        "graph": short_name(graph.name),
        "dialect": graph.dialect,
        "nodes": len(graph.nodes),
        "calls": len(calls),
        "operators": len({node.op for node in calls}),
        "weights": len(graph.parameters),
        "inputs": len(graph.inputs) - len(graph.parameters),
        "outputs": len(graph.outputs),
        "modules": len({frame.path for node in calls for frame in node.modules}),
        "delegates": len(delegates),
        "backends": list(dict.fromkeys(delegate.backend_id for delegate in delegates)),
        "branches": sum(len(node.subgraphs) for node in calls),
        "handles": sum(node.debug_handle is not None for node in calls),
        "name": graph.name,
    }
