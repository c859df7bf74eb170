"""What a record or a program knows of each method, in the shape that correlation needs."""

from __future__ import annotations

from etscope.analysis.profile.correlate import DelegateMap, MethodSymbols
from etscope.errors import MissingDataError
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView
from etscope.model.exported_graph import graph_from_program_json
from etscope.model.graph import Graph

# Upstream's name for the edge program in `op_graph_dict` and `reference_graph_name`.
EDGE_GRAPH = "edge_dialect_graph_module"


def record_methods(record: RecordView) -> tuple[str, ...]:
    """The methods that the record has any symbols of."""
    names = dict.fromkeys(record.edge_methods)
    for table in (record.debug_handle_map, record.delegate_map):
        names.update(dict.fromkeys(table or ()))
    return tuple(names)


def graph_name(record: RecordView, reference: str, method: str) -> str:
    """The name in the record of the graph that a person calls `reference`, for a method.

    "edge_dialect_graph_module" is the method's edge program; another name may leave the method
    out. `MissingDataError` when the record has no such graph.
    """
    if reference in (EDGE_GRAPH, EDGE):
        candidates = [f"{EDGE}/{method}"]
    elif reference == EXPORTED:
        # ExecuTorch keeps the exported program of "forward" alone, under the bare name.
        candidates = [f"{EXPORTED}/{method}", *([EXPORTED] if method == "forward" else [])]
        if len(record.edge_methods) <= 1:
            candidates.append(EXPORTED)
    else:
        candidates = [f"{reference}/{method}", reference]
    for name in candidates:
        if name in record.graph_names:
            return name
    raise MissingDataError(
        f"the record has no graph {reference!r} for method {method!r}",
        hint="its graphs are: " + (", ".join(record.graph_names) or "none"),
    )


def graphs_after_passes(record: RecordView, method: str) -> tuple[str, ...]:
    """The record's graphs of a method beside its edge and its exported program."""
    known = (EDGE, EXPORTED)
    return tuple(
        name
        for name in record.graph_names
        if name.endswith(f"/{method}") and name.partition("/")[0] not in known
    )


def load_graph(record: RecordView, name: str) -> Graph:
    """The graph of that name in the record."""
    return graph_from_program_json(record.program_json(name), name)


def method_symbols(record: RecordView, method: str, reference: str = EDGE_GRAPH) -> MethodSymbols:
    """The symbols of one method; its nodes are those of the graph called `reference`."""
    graph = None
    if record.graph_names:
        graph = load_graph(record, graph_name(record, reference, method))
    lists = record.handle_lists.get(method, frozenset())
    handles = (record.debug_handle_map or {}).get(method, {})
    delegates = (record.delegate_map or {}).get(method, {})
    return MethodSymbols(
        method=method,
        graph=graph,
        handles={
            instruction: list(values) if instruction in lists else values[0]
            for instruction, values in handles.items()
            if values or instruction in lists
        },
        delegates={
            instruction: DelegateMap(entry.name, entry.identifiers)
            for instruction, entry in delegates.items()
        },
        has_maps=record.debug_handle_map is not None,
        num_outputs=(record.instruction_id_to_num_outs_map or {}).get(method, {}),
    )
