"""The fields of events and nodes that a `Selector` matches."""

from __future__ import annotations

from collections.abc import Iterable

from etscope.analysis.profile.profile import Row
from etscope.analysis.program.correlate import handle_list
from etscope.analysis.program.source_location import lines_of, module_path, module_type
from etscope.model.graph import Node
from etscope.model.selector import Fields


def fields_of_row(row: Row) -> Fields:
    """The fields of a profile's row that selectors match, from its names and its nodes."""
    found = row.attribution
    is_delegated = row.depth > 0 or row.kind in ("delegate", "delegated")
    backends = [found.backend_id or "delegate"] if is_delegated else []
    # What the backend calls an event finds it as well, where the row has a better name.
    logged = [row.delegate_id] if isinstance(row.delegate_id, str) else []
    names = list(dict.fromkeys([row.name, *logged]))
    if found.inherited:  # nodes that are not its own: what it has in common with them all
        types = {kind for node in found.inherited if (kind := module_type(node))}
        fields = {
            "module": [found.module] if found.module else [],
            "type": list(types) if len(types) == 1 else [],
        }
    else:
        fields = _fields_of_nodes(found.nodes)
    told = {} if row.meaning is None else row.meaning.columns
    return {
        **{name: [str(value)] for name, value in told.items()},
        **fields,
        "name": names,
        "op": [*names, *found.op_types],
        "file": [str(line) for line in found.lines],
        "delegate": backends,
        "handle": _texts(handle_list(found.debug_handles)),
        "id": _texts([] if row.instruction_id is None else [row.instruction_id]),
        "kind": [row.kind],
        **tensor_fields([*found.inputs, *found.outputs]),
    }


def fields_of_node(node: Node) -> Fields:
    """The fields of a graph's node that selectors match. A delegate call's backend is its
    `delegate`.
    """
    return {
        **_fields_of_nodes([node]),
        "name": [node.name, *(value.name for value in node.outputs)],
        "op": [node.op, node.target],
        "delegate": [] if node.delegate is None else [node.delegate.backend_id],
        "handle": _texts([] if node.debug_handle is None else [node.debug_handle]),
        "kind": [node.kind],
        **tensor_fields(str(value.tensor) for value in node.outputs if value.tensor is not None),
    }


def fields_of_value(node: Node, path: str, instruction: int) -> Fields:
    """The fields of a recorded value: the fields of its node, which may be in a branch, and the
    instruction."""
    found = fields_of_node(node)
    return {**found, "name": [path, *found["name"]], "id": [str(instruction)]}


def tensor_fields(texts: Iterable[str]) -> dict[str, list[str]]:
    """The fields "shape" and "dtype" of tensors: "float32[1, 8]" has the shape "1x8", and a scalar
    the shape "scalar". A bound ("<=") is not part of a shape."""
    parts = [text.rstrip("]").partition("[") for text in texts]
    shapes = (sizes.lstrip("<=?").replace(", ", "x") or "scalar" for _, _, sizes in parts)
    return {"shape": list(shapes), "dtype": [dtype for dtype, _, _ in parts]}


def _fields_of_nodes(nodes: Iterable[Node]) -> dict[str, list[str]]:
    nodes = list(nodes)
    return {
        "module": [path for node in nodes if (path := module_path(node))],
        "type": [kind for node in nodes if (kind := module_type(node))],
        "file": [str(line) for line in lines_of(nodes)],
    }


def _texts(numbers: Iterable[int]) -> list[str]:
    return [str(number) for number in numbers]
