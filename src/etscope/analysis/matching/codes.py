"""The integers to which a backend quantises the values of a graph, as the record knows them.

In a quantised graph an operator that quantises reads the value. QNN's passes remove these
(`FoldQDQ` of backends/qualcomm/_passes), and the record has the graph from before the passes: a node
of both has the same origin, and the operator that quantised it there says its codes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from etscope.delegates.inner import Codes
from etscope.model.graph import Graph, Node, stem


def codes_of_values(graph: Graph, before: Graph | None) -> Mapping[str, Codes]:
    """The codes of the inputs and of the nodes of one value, by path; those that are not quantised,
    or by scales that the graph does not write out, are left out.

    before: the graph from before the passes that removed what quantises; None if there were none.
    """
    found = _read_by_quantizers(graph)
    if before is None:
        return found
    earlier = _read_by_quantizers(before)
    for node in graph.nodes:
        if node.kind == "placeholder" and node.name in earlier:
            found.setdefault(node.name, earlier[node.name])
    origins = _by_origin(before)
    parts = _by_origin(graph, origins)
    for link, nodes in origins.items():
        for node, part in zip(*_same(nodes, parts.get(link, [])), strict=True):
            if node.name in earlier:
                found.setdefault(part.name, earlier[node.name])
    return found


def _read_by_quantizers(graph: Graph) -> dict[str, Codes]:
    """The codes of each value that operators read that quantise it, all in the same way."""
    found: dict[str, Codes] = {}
    for node in graph.nodes:
        readers = [graph.by_name[name] for name in graph.users[node.name]]
        codes = {Codes.of(reader) for reader in readers}
        if len(codes) == 1 and len(node.outputs) == 1:
            (only,) = codes
            if only is not None:
                found[node.name] = only
    return found


_Link = tuple[str, int]  # the name of a node of an earlier graph, and the graph's id


def _by_origin(graph: Graph, known: Collection[_Link] | None = None) -> Mapping[_Link, list[Node]]:
    """The nodes that compute, by the nearest link of their origins; by the nearest that is `known`,
    if that is given."""
    found: dict[_Link, list[Node]] = {}
    for node in graph.nodes:
        if node.kind != "call_function" or "quantize" in stem(node.op):
            continue
        links = ((origin.name, origin.graph_id) for origin in node.all_origins())
        link = next((link for link in links if known is None or link in known), None)
        if link is not None:
            found.setdefault(link, []).append(node)
    return found


def _same(before: list[Node], after: list[Node]) -> tuple[list[Node], list[Node]]:
    """Pair nodes of one origin: in order, where both graphs have the same operators of it; else the
    last ones, if the graph from before has one alone, whose value the last part has."""
    if [node.op for node in before] == [node.op for node in after]:
        return before, after
    if len(before) == 1 and after and _specs(before[0]) == _specs(after[-1]):
        return before, [after[-1]]
    return [], []


def _specs(node: Node) -> list[object]:
    return [value.tensor and (value.tensor.dtype, value.tensor.shape) for value in node.outputs]
