"""The quantization parameters (codes) of a graph's values, from the record.

In a quantized graph a quantize operator reads the value. QNN's passes remove these (`FoldQDQ` of
backends/qualcomm/_passes), but the record has the graph before the passes: nodes with the same
origin in both graphs have the same codes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from etscope.backends.common.inner import Codes
from etscope.model.graph import SAME_VALUE, Graph, Node, NodeValue, stem

_Link = tuple[str, int]  # the name of a node of an earlier graph, and the graph's id


@dataclass(frozen=True)
class GraphCodes:
    """Codes of the values of a graph. Values without quantization, or with scales that the record
    does not store, are excluded.

    values: of nodes and inputs. arguments: codes of a value for one reader only, by the paths of
    the reader and of the node that it reads.
    """

    values: Mapping[NodeValue, Codes] = field(default_factory=dict)
    arguments: Mapping[tuple[str, str], Codes] = field(default_factory=dict)

    @cached_property
    def by_node(self) -> Mapping[str, Mapping[int | None, Codes]]:
        """The codes of each node's values, by its path and their elements."""
        found: dict[str, dict[int | None, Codes]] = {}
        for value, codes in self.values.items():
            found.setdefault(value.path, {})[value.element] = codes
        return found


def codes_of_graph(graph: Graph, before: Graph | None) -> GraphCodes:
    """Find the codes of a graph's values. before: the graph before the passes that removed quantize
    operators; None if there were none."""
    found = _read_by_quantizers(graph)
    if before is None:
        return GraphCodes(found)
    earlier = _read_by_quantizers(before)
    arguments: dict[tuple[str, str], Codes] = {}
    for node in graph.nodes:
        if node.kind == "placeholder" and NodeValue(node.name) in earlier:
            found.setdefault(NodeValue(node.name), earlier[NodeValue(node.name)])
    for part, node in _same_nodes(graph, before):
        for value, other in zip(_values(part), _values(node), strict=False):
            if other in earlier:
                found.setdefault(value, earlier[other])
        if len(part.inputs) == len(node.inputs):
            for read, source in zip(part.inputs, node.inputs, strict=True):
                last = _last_codes(before, source)
                if last is not None and read in graph.by_name:
                    arguments[part.name, graph.by_name[read].name] = last
    of_name = {value: key for node in graph.nodes for value, key in _named(node)}
    for node in graph.nodes:  # inserted by passes, with the values of their input
        if stem(node.op) in SAME_VALUE and node.inputs and node.inputs[0] in of_name:
            name = node.inputs[0]
            known = found.get(of_name[name]) or Codes.of(graph.by_name[name])
            if known is not None:
                found.setdefault(NodeValue(node.name), known)
    return GraphCodes(found, arguments)


def _values(node: Node) -> list[NodeValue]:
    return [value for _, value in _named(node)]


def _named(node: Node) -> list[tuple[str, NodeValue]]:
    """The values of a node outside sub-graphs, with their names."""
    if len(node.outputs) == 1 and node.outputs[0].name == node.name:
        return [(node.name, NodeValue(node.name))]
    return [(one.name, NodeValue(node.name, at)) for at, one in enumerate(node.outputs)]


def _read_by_quantizers(graph: Graph) -> dict[NodeValue, Codes]:
    """The codes of each value that all its quantize operators agree on."""
    readers: dict[str, set[Codes | None]] = {}
    for node in graph.nodes:
        codes = Codes.of(node) if _quantizes(node) else None
        for name in node.inputs:
            readers.setdefault(name, set()).add(codes)
    found: dict[NodeValue, Codes] = {}
    for node in graph.nodes:
        for name, value in _named(node):
            known = readers.get(name, set())
            only = next(iter(known)) if len(known) == 1 else None
            if only is not None and not _is_quantizer(node):
                found[value] = only
    return found


def _is_quantizer(node: Node) -> bool:
    """True for an operator that quantizes or dequantizes."""
    return "quantize" in stem(node.op)


def _quantizes(node: Node) -> bool:
    return stem(node.op).startswith("quantize")


def _last_codes(graph: Graph, name: str) -> Codes | None:
    """Return the codes of a value that two consecutive quantize operators produce; None without
    two."""
    passed = []
    node = graph.by_name.get(name)
    while node is not None and _is_quantizer(node) and node.inputs:
        codes = Codes.of(node) if _quantizes(node) else None
        if codes is not None:
            passed.append(codes)
        node = graph.by_name.get(node.inputs[0])
    return passed[0] if len(passed) > 1 else None


def _same_nodes(graph: Graph, before: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield the nodes of both graphs with the same origin, in order, if both have equally many of
    the operator."""
    origins = _by_origin(before)
    for link, after in _by_origin(graph, origins).items():
        for op in dict.fromkeys(node.op for node in origins[link]):
            one, other = ([n for n in nodes if n.op == op] for nodes in (after, origins[link]))
            if len(one) == len(other):
                yield from zip(one, other, strict=True)


def _by_origin(
    graph: Graph, known: Collection[_Link] | None = None
) -> Mapping[_Link, Sequence[Node]]:
    """The computing nodes, by their nearest origin; by the nearest one in `known`, if given."""
    found: dict[_Link, list[Node]] = {}
    for node in graph.nodes:
        if node.kind != "call_function" or _is_quantizer(node):
            continue
        links = ((origin.name, origin.graph_id) for origin in node.all_origins())
        link = next((link for link in links if known is None or link in known), None)
        if link is not None:
            found.setdefault(link, []).append(node)
    return found
