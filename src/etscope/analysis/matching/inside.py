"""Pair what a delegate logged for its own operators with nodes of the graph.

The delegate's map leads from the identifier of a value to debug handles, and the last node with one
of these has the value. `delegates.values` tells how the backend's value becomes the node's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from etscope.analysis.matching.codes import codes_of_graph
from etscope.analysis.matching.run import PartialMatching, Reason, Runtime, Slot
from etscope.analysis.profile.correlate import MethodSymbols, handle_list
from etscope.delegates.inner import Form, InnerCall, InnerValue
from etscope.delegates.values import value_forms
from etscope.model.graph import Graph, NodeValue

_Handles = Mapping[str, Sequence[int]]


def match_inside(
    runtime: Runtime, symbols: MethodSymbols, graph: Graph, found: PartialMatching
) -> None:
    """Pair the values that delegates logged inside of their calls, as far as it is known how they
    become the graph's; all others have a reason."""
    if not runtime.delegated:
        return
    calls: dict[int, list[int | str]] = {}
    for number, identifier in runtime.delegated:
        calls.setdefault(number, []).append(identifier)
    nodes = _Nodes.of(graph)
    codes = codes_of_graph(graph, symbols.before_passes).values
    for number, identifiers in calls.items():
        entry = symbols.delegates.get(number)
        handles = {} if entry is None else entry.handles
        logged = [name for name in identifiers if str(name) in handles]
        slots, values = [], []
        for identifier in identifiers:
            own = [
                Slot(number, output, identifier)
                for output in range(len(runtime.delegated[number, identifier]))
            ]
            value = _value_of(identifier, own, handles, logged, runtime, nodes)
            if isinstance(value, NodeValue):
                spec, expected = runtime.spec(own[0]), graph.spec_of(value)
                if spec is not None and expected is not None:
                    slots.append((own[0], value))
                    values.append(
                        InnerValue(
                            identifier,
                            spec.dtype,
                            spec.shape,
                            value.path,
                            expected,
                            codes.get(value),
                        )
                    )
                    continue
                value = ("one is a tensor, the other a number", "differs")
            found.add_reason(own, value)
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
        """The paths of the nodes with one of the handles."""
        positions = {p for handle in handle_list(handles) for p in self.by_handle.get(handle, ())}
        return [self.paths[position] for position in sorted(positions)]


def _value_of(
    identifier: int | str,
    slots: Sequence[Slot],
    handles: _Handles,
    logged: Collection[int | str],
    runtime: Runtime,
    nodes: _Nodes,
) -> NodeValue | Reason:
    """The value of the graph that was logged under an identifier, or the reason why none is known.
    logged: the identifiers that the call logged and its map has."""
    if str(identifier) not in handles:
        return "the delegate's map does not have it", "unknown"
    own = [handle for handle in handles[str(identifier)] if handle in nodes.by_handle]
    if not own:
        return "no node of the reference has its debug handles", "unknown"
    certain, possible = _settled(str(identifier), own, handles, logged)
    last = max((nodes.by_handle[handle][-1] for handle in certain), default=-1)
    if any(nodes.by_handle[handle][-1] > last for handle in possible):
        return "several values of the call are of its debug handles", "ambiguous"
    if last < 0:
        return "another value of the call is of its debug handles", "differs"
    values = nodes.graph.values_of(nodes.graph.calls[nodes.paths[last]])
    if len(values) > 1:  # a batch norm has values that nothing reads
        values = tuple(value for value in values if nodes.graph.users_of(value))
    if len(values) != 1 or len(slots) != 1:
        return f"{len(slots)} values were logged for {nodes.paths[last]}", "differs"
    return values[0]


def _settled(
    identifier: str, own: Sequence[int], handles: _Handles, logged: Collection[int | str]
) -> tuple[list[int], list[int]]:
    """Split the debug handles of a logged value: those whose value it is, and those of which it may
    be an inner part.

    Core ML's map has all of its operators that a node became, and operators that several nodes
    became together; it logs the last operator of each handle. Handles of the same operators have
    the same last one, and each logged operator is the last of one at least.
    """

    def groups(name: str) -> dict[frozenset[str], list[int]]:
        found: dict[frozenset[str], list[int]] = {}
        for handle in handles[name]:
            names = frozenset(other for other in handles if handle in handles[other])
            found.setdefault(names, []).append(handle)
        return found

    mine = groups(identifier)
    for other in map(str, logged):
        if other != identifier and len(found := groups(other)) == 1:
            mine.pop(next(iter(found)), None)
    known = set(own)
    certain, possible = list[int](), list[int]()
    for names, members in mine.items():
        is_certain = len(names) == 1 or len(mine) == 1
        (certain if is_certain else possible).extend(h for h in members if h in known)
    return certain, possible
