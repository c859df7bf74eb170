"""The fields of events and nodes that a `Selector` matches."""

from __future__ import annotations

from collections.abc import Iterable

from etscope.analysis.profile.correlate import handle_list
from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.source_location import lines_of, module_path, module_type
from etscope.model.graph import Node
from etscope.model.selector import Fields


def fields_of_row(row: Row) -> Fields:
    """The fields of a row of a profile: its own names, and those of its nodes."""
    found = row.attribution
    backends = [found.backend_id or "delegate"] if row.kind in ("delegate", "delegated") else []
    return {
        **_fields_of_nodes(found.nodes),
        "name": [row.name],
        "op": [row.name, *found.op_types],
        "file": [str(line) for line in found.lines],
        "delegate": backends,
        "handle": _texts(handle_list(found.debug_handles)),
        "id": _texts([] if row.instruction_id is None else [row.instruction_id]),
        "kind": [row.kind],
    }


def fields_of_node(node: Node) -> Fields:
    """The fields of a node of a graph. A delegate call's backend is its `delegate`."""
    return {
        **_fields_of_nodes([node]),
        "name": [node.name, *(value.name for value in node.outputs)],
        "op": [node.op, node.target],
        "delegate": [] if node.delegate is None else [node.delegate.backend_id],
        "handle": _texts([] if node.debug_handle is None else [node.debug_handle]),
        "kind": [node.kind],
    }


def _fields_of_nodes(nodes: Iterable[Node]) -> dict[str, list[str]]:
    nodes = list(nodes)
    return {
        "module": [path for node in nodes if (path := module_path(node))],
        "type": [kind for node in nodes if (kind := module_type(node))],
        "file": [str(line) for line in lines_of(nodes)],
    }


def _texts(numbers: Iterable[int]) -> list[str]:
    return [str(number) for number in numbers]
