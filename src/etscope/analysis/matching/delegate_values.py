"""Pair the values that a delegate logged for its operators with nodes of the graph.

The delegate's map leads from the identifier of a value to debug handles, and the last node with one
of these has the value. `backends.registry.values` converts the backend's value to the node's, by
the quantization parameters (codes) that the record has for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from etscope.analysis.matching.run import PartialMatching, Reason, Runtime, Slot
from etscope.analysis.program.correlate import MethodSymbols, handle_list
from etscope.backends.common.logged import Codes, Form, InnerCall, InnerValue
from etscope.backends.registry.decoders import value_forms
from etscope.model.graph import SAME_VALUE, Graph, Node, NodeValue, stem


def match_delegate_values(
    runtime: Runtime, symbols: MethodSymbols, graph: Graph, found: PartialMatching
) -> None:
    """Pair the values that delegates logged inside their calls, if the conversion to the graph's
    values is known; all others get a reason."""
    calls: dict[int, list[int | str]] = {}
    for number, identifier in runtime.delegated:
        calls.setdefault(number, []).append(identifier)
    nodes = _Nodes.of(graph)
    codes = codes_of_graph(graph, symbols.before_passes).values
    for number, identifiers in calls.items():
        entry = symbols.delegates.get(number)
        table = LoggedHandles({} if entry is None else entry.handles, list(map(str, identifiers)))
        slots, values = [], []
        for identifier in identifiers:
            own = [
                Slot(number, output, identifier)
                for output in range(len(runtime.delegated[number, identifier]))
            ]
            value = nodes.logged_as(str(identifier), len(own), table)
            if not isinstance(value, NodeValue):
                found.add_reason(own, value)
                continue
            spec, expected = runtime.spec(own[0]), graph.spec_of(value)
            if spec is None or expected is None:
                found.add_reason(own, ("one is a tensor, the other a number", "differs"))
                continue
            slots.append((own[0], value))
            known = codes.get(value)
            values.append(
                InnerValue(identifier, spec.dtype, spec.shape, value.path, expected, known)
            )
        call = InnerCall(graph, nodes.inside(symbols.handles.get(number)), values)
        forms = value_forms(None if entry is None else entry.backend_id, call)
        for (slot, value), form in zip(slots, forms, strict=True):
            if isinstance(form, Form):
                found.pairs[slot] = value
                found.forms[slot] = form
            else:
                found.add_reason([slot], (form, "differs"))


@dataclass(frozen=True)
class _Nodes:
    """The operators of a graph by debug handle, as positions in `paths`."""

    graph: Graph
    paths: Sequence[str]
    by_handle: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, graph: Graph) -> _Nodes:
        paths, by_handle = list(graph.operators), dict[int, list[int]]()
        for position, path in enumerate(paths):
            handle = graph.calls[path].debug_handle
            if handle is not None:
                by_handle.setdefault(handle, []).append(position)
        return cls(graph, paths, by_handle)

    def inside(self, handles: int | Sequence[int] | None) -> list[str]:
        positions = {p for handle in handle_list(handles) for p in self.by_handle.get(handle, ())}
        return [self.paths[position] for position in sorted(positions)]

    def logged_as(self, identifier: str, count: int, table: LoggedHandles) -> NodeValue | Reason:
        """Return the value of the graph for an identifier, or the reason why it is unknown. count:
        how many values were logged under the identifier.
        """
        if identifier not in table.handles:
            return "the delegate's map lacks it", "unknown"
        if not any(handle in self.by_handle for handle in table.handles[identifier]):
            return "no node of the reference has its debug handles", "unknown"
        certain, possible = (
            [self.by_handle[handle][-1] for handle in handles if handle in self.by_handle]
            for handles in table.of(identifier)
        )
        last = max(certain, default=-1)
        if max(possible, default=-1) > last:
            return "several values of the call have its debug handles", "ambiguous"
        if last < 0:
            return "another value of the call has its debug handles", "differs"
        values = self.graph.values_of(self.graph.calls[self.paths[last]])
        if len(values) > 1:  # values without readers do not count: a batch norm has some
            values = tuple(value for value in values if self.graph.users_of(value))
        if len(values) != 1 or count != 1:
            return f"{count} values were logged for {self.paths[last]}", "differs"
        return values[0]


@dataclass(frozen=True)
class LoggedHandles:
    """The debug handles of a delegate's map, and the identifiers that a call logged values
    under.

    Core ML's map lists all operators made from a node, and operators made from several nodes
    together. It logs the last operator of each handle. Handles with the same operators share the
    last of them, and each logged operator is the last operator of at least one handle.
    """

    handles: Mapping[str, Sequence[int]]
    logged: Sequence[str]

    def of(self, identifier: str) -> tuple[list[int], list[int]]:
        """Split the debug handles of a logged value: handles with this value, and handles that it
        may be an inner part of."""
        mine = {
            names: handles
            for names, handles in self._groups(identifier).items()
            if self._owners.get(names, {identifier}) == {identifier}
        }
        certain, possible = list[int](), list[int]()
        for names, handles in mine.items():
            (certain if len(names) == 1 or len(mine) == 1 else possible).extend(handles)
        return certain, possible

    def _groups(self, identifier: str) -> dict[frozenset[str], list[int]]:
        """The handles of an identifier, by the identifiers that share them."""
        found: dict[frozenset[str], list[int]] = {}
        for handle in self.handles[identifier]:
            found.setdefault(self._sharing[handle], []).append(handle)
        return found

    @cached_property
    def _sharing(self) -> Mapping[int, frozenset[str]]:
        found: dict[int, set[str]] = {}
        for name, handles in self.handles.items():
            for handle in handles:
                found.setdefault(handle, set()).add(name)
        return {handle: frozenset(names) for handle, names in found.items()}

    @cached_property
    def _owners(self) -> Mapping[frozenset[str], set[str]]:
        """The logged identifiers that are the only candidates for the last operator of some
        handle."""
        found: dict[frozenset[str], set[str]] = {}
        for name in self.logged:
            groups = self._groups(name) if name in self.handles else {}
            if len(groups) == 1:
                found.setdefault(next(iter(groups)), set()).add(name)
        return found


# -- the quantization parameters (codes) of a graph's values, from the record
#
# In a quantized graph a quantize operator reads the value. QNN's passes remove these (`FoldQDQ` of
# backends/qualcomm/_passes), but the record has the graph before the passes: nodes with the same
# origin in both graphs have the same codes.


_Link = tuple[str, int]  # the name of a node of an earlier graph, and the graph's id


@dataclass(frozen=True)
class GraphCodes:
    """The integer codes of the values of a graph. Values without quantization are left out, and
    values whose scales are not in the record.

    values: the codes of nodes and inputs. arguments: the codes that only one reader uses for a
    value, by the path of the reader and the path of the node that it reads.
    """

    values: Mapping[NodeValue, Codes] = field(default_factory=dict)
    arguments: Mapping[tuple[str, str], Codes] = field(default_factory=dict)

    @cached_property
    def by_node(self) -> Mapping[str, Mapping[int | None, Codes]]:
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
