"""What the outputs of delegate calls may be: values of the nodes that went into the delegate.

In a graph from after lowering the call is a node, and its elements are the outputs. In one from
before it, the outputs are values of covered nodes that others use. A backend may log tensors of
its own operators, too: its delegate map leads from them to nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from etscope.analysis.matching.flow import Choice
from etscope.analysis.matching.graph import Paths, Place, Slot, difference
from etscope.analysis.matching.run import Found, Reason, Runtime
from etscope.analysis.profile.correlate import MethodSymbols, delegate_handles, handle_list
from etscope.analysis.program.program import InstructionRecord
from etscope.model.graph import Node


def known_delegates(runtime: Runtime, symbols: MethodSymbols) -> list[InstructionRecord]:
    """The delegate calls that the record has handles of: those outside of branches."""
    return [r for r in runtime.of_kind("delegate") if r.instruction_id in symbols.handles]


def match_calls(runtime: Runtime, symbols: MethodSymbols, paths: Paths, found: Found) -> bool:
    """Pair the calls with those of the graph, in order; whether the graph has them."""
    records = known_delegates(runtime, symbols)
    calls = [path for path, node in paths.top.items() if node.delegate is not None]
    if not calls:
        return False
    for record in records:
        if len(calls) != len(records):
            reason = (
                f"the graph has {len(calls)} delegate calls, the run {len(records)}",
                "differs",
            )
            found.say(runtime.slots_of(record), reason)
    if len(calls) == len(records):
        for record, path in zip(records, calls, strict=True):
            _match_call(record, path, runtime, paths, found)
    return True


def _match_call(
    record: InstructionRecord, path: str, runtime: Runtime, paths: Paths, found: Found
) -> None:
    node = paths.nodes[path]
    name = "" if node.delegate is None else node.delegate.name
    found.covered[record.instruction_id] = tuple(
        inner for inner in paths.operators if inner.startswith(f"{name}/")
    )
    slots, places = runtime.slots_of(record), paths.places(node)
    if len(slots) != len(places):
        found.say(
            slots, (f"{len(slots)} outputs, but the graph's call has {len(places)}", "differs")
        )
        return
    for slot, place in zip(slots, places, strict=True):
        why = difference(runtime.spec(slot), paths.spec(place))
        if why is None:
            found.pairs[slot] = place
        else:
            found.say([slot], (f"{why} ({path})", "differs"))


def covered_paths(record: InstructionRecord, symbols: MethodSymbols, paths: Paths) -> list[str]:
    """The nodes with a handle of the delegate. Parts of them may be outside of it."""
    handles = set(handle_list(symbols.handles.get(record.instruction_id)))
    return [path for path, node in paths.top.items() if node.debug_handle in handles]


def delegate_choices(
    record: InstructionRecord,
    covered: Sequence[str],
    surely_inside: set[str],
    runtime: Runtime,
    paths: Paths,
) -> list[Choice]:
    """One for each output: the values of the shape and dtype that others use."""
    leaving = leaving_places(covered, surely_inside, paths)
    return [
        Choice(
            (slot,),
            [(place,) for place in leaving if _fits(runtime, slot, paths, place)],
            is_delegate=True,
        )
        for slot in runtime.slots_of(record)
    ]


def leaving_places(covered: Sequence[str], inside: set[str], paths: Paths) -> list[Place]:
    """The values of covered nodes that are used by others than those of `inside`."""
    return [
        place
        for path in covered
        for place in paths.places(paths.nodes[path])
        if any(paths.path_of[id(user)] not in inside for user in paths.users(place))
    ]


def in_own_order(
    leaving: Sequence[Place], covered: Sequence[str], handles: Sequence[int], paths: Paths
) -> list[Place] | None:
    """Values in the order of the delegate's own graph, whose nodes' handles are `handles`; None
    when that does not tell.

    It does when each value's handle is its own, or when the graph has kept its order.
    """
    own = [paths.nodes[path].debug_handle for path in covered]
    if own == list(handles):
        return list(leaving)
    of_values = {place: paths.nodes[place.path].debug_handle for place in leaving}
    nodes_of = {handle: own.count(handle) for handle in of_values.values()}
    by_handle: dict[int, list[Place]] = {}
    for place, handle in of_values.items():
        if handle is not None:
            by_handle.setdefault(handle, []).append(place)
    for handle, places in by_handle.items():
        same_node = len({place.path for place in places}) == 1
        if not same_node or (
            handles.count(handle) > 1 and nodes_of[handle] != 1 and len(by_handle) > 1
        ):
            return None
    return [place for handle in dict.fromkeys(handles) for place in by_handle.get(handle, ())]


def read_by(covered: Iterable[str], paths: Paths) -> set[Place]:
    """All that the nodes read, and what that is a view or copy of."""
    return {place for path in covered for place in paths.read_through(paths.nodes[path])}


def _fits(runtime: Runtime, slot: Slot, paths: Paths, place: Place) -> bool:
    return difference(runtime.spec(slot), paths.spec(place)) is None


# -- operators inside delegates


def match_inside(runtime: Runtime, symbols: MethodSymbols, paths: Paths, found: Found) -> None:
    """What a delegate logged for its own operators: its map leads from their identifiers to
    handles, and the last node of these has the value."""
    by_handle: dict[int, list[Node]] = {}
    for node in paths.operators.values():
        if node.debug_handle is not None:
            by_handle.setdefault(node.debug_handle, []).append(node)
    for (number, identifier), specs in runtime.delegated.items():
        slots = [Slot(number, output, identifier) for output in range(len(specs))]
        nodes = _nodes_inside(number, identifier, symbols, by_handle)
        places = paths.places(nodes[-1]) if nodes else ()
        if not nodes:
            reason: Reason = (f"the delegate's map has no nodes for {identifier!r}", "unknown")
            found.say(slots, reason)
        elif len(places) != len(slots):
            found.say(slots, (f"{len(slots)} values were logged for {nodes[-1].name}", "differs"))
        else:
            for slot, place in zip(slots, places, strict=True):
                why = difference(runtime.spec(slot), paths.spec(place))
                if why is None:
                    found.pairs[slot] = place
                else:
                    found.say([slot], (f"{why} ({place.path})", "differs"))


def _nodes_inside(
    number: int,
    identifier: int | str,
    symbols: MethodSymbols,
    by_handle: Mapping[int, Sequence[Node]],
) -> list[Node]:
    entry = symbols.delegates.get(number)
    handles = None if entry is None else delegate_handles(identifier, entry.handles)
    return [node for handle in sorted(handles or ()) for node in by_handle.get(handle, ())]
