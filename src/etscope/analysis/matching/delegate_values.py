"""Pair the values that a delegate logged for its operators with nodes of the graph.

The delegate's map leads from the identifier of a value to debug handles, and the last node with one
of these has the value. `delegates.values` converts the backend's value to the node's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.matching.quant_params import codes_of_graph
from etscope.analysis.matching.run import PartialMatching, Reason, Runtime, Slot
from etscope.analysis.program.correlate import MethodSymbols, handle_list
from etscope.backends.common.inner import Form, InnerCall, InnerValue
from etscope.backends.registry.values import value_forms
from etscope.model.graph import Graph, NodeValue


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
        """The paths of the nodes with one of the handles."""
        positions = {p for handle in handle_list(handles) for p in self.by_handle.get(handle, ())}
        return [self.paths[position] for position in sorted(positions)]

    def logged_as(self, identifier: str, count: int, table: LoggedHandles) -> NodeValue | Reason:
        """Return the value of the graph for an identifier, or the reason why it is unknown. count:
        of the values logged under the identifier."""
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
    """The debug handles of a delegate's map, and the identifiers that a call logged values under.

    Core ML's map lists all operators made from a node, and operators made from several nodes
    together. It logs the last operator of each handle. Handles of the same operators share the last
    one, and each logged operator is the last of at least one handle.
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
