"""Short names of a record's graphs, and the list of its graphs."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from etscope.analysis.program.correlate import EDGE_GRAPH
from etscope.errors import MissingDataError, UsageError
from etscope.formats.etrecord.reader import EDGE, EXPORTED, FLOAT, RecordView
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph
from etscope.model.table import Column, Kind, Table

_SHORT = {EDGE: "edge", EXPORTED: "exported"}
_LONG = {"edge": EDGE, EDGE_GRAPH: EDGE, "exported": EXPORTED}


def short_name(name: str) -> str:
    """A short name to display: "edge/forward" for "edge_dialect_exported_program/forward"."""
    head, slash, method = name.partition("/")
    return _SHORT.get(head, head) + slash + method


def find_graph(record: RecordView, wanted: str) -> str:
    """Find the graph `wanted` and return its name in the record.

    wanted: the name in the file, the short name, or a unique part of either: "edge", "forward".
    Raises `UsageError` if several graphs match, `MissingDataError` if none does.
    """
    head, slash, method = wanted.partition("/")
    full = _LONG.get(head, head) + slash + method
    names = record.graph_names
    if full in names:
        return full
    found = [n for n in names if n.startswith(full + "/") or n.endswith("/" + wanted)]
    if len(found) > 1:
        raise UsageError(
            f"{wanted!r} matches several graphs",
            hint="name one of: " + ", ".join(map(short_name, found)),
        )
    if not found:
        known = [short_name(name) for name in names]
        heads = dict.fromkeys(name.partition("/")[0] for name in known)
        close = get_close_matches(wanted, [*heads, *known, *names], n=1)
        raise MissingDataError(
            f"the record has no graph {wanted!r}",
            hint=f"did you mean {close[0]!r}?"
            if close
            else "its graphs are: " + (", ".join(known) or "none"),
        )
    return found[0]


def float_graph(record: RecordView, method: str) -> str | None:
    """Return the name of a method's graph before quantization; None if the record has none."""
    name = f"{FLOAT}/{method}"
    return name if name in record.graph_names else None


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


def graph_cells(graph: Graph) -> dict[str, Any]:
    """A graph's cells in lists of graphs. Nodes count in the graph alone; calls, operators,
    modules, delegates, branches and handles count in its sub-graphs, too."""
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


def graph_list(record: RecordView) -> Table:
    """A table with one row for each graph of a record."""
    rows = [graph_cells(graph_from_record(record, name)) for name in record.graph_names]
    return Table.of_cells(_COLUMNS, rows, title=f"graphs of {record.path or 'the record'}")
