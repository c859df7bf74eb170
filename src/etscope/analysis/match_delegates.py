"""Pairs the outputs of delegate calls with the values of the nodes that went into the delegate.

In a graph from after lowering the call is a node, and its elements are the outputs. In one from
before it, the outputs are the values of the covered nodes that are used outside, in the order in
which the lowering finds them: that of the graph. What the program's flow of values says (which
output of the program it is, which instruction reads it) comes first.
"""

from __future__ import annotations

from collections.abc import Sequence

from etscope.analysis.correlate import MethodSymbols, handle_list
from etscope.analysis.match_graph import Paths, Place, Slot, difference
from etscope.analysis.match_instructions import Found, Reason, Runtime
from etscope.analysis.program import InstructionRecord


def match_delegates(
    delegates: Sequence[InstructionRecord],
    runtime: Runtime,
    symbols: MethodSymbols,
    paths: Paths,
    found: Found,
) -> None:
    """Pair what the calls have logged as outputs."""
    calls = [path for path, node in paths.top.items() if node.delegate is not None]
    known = [r for r in delegates if not isinstance(symbols.handles.get(r.instruction_id), int)]
    if calls and len(calls) == len(known):
        for record, path in zip(known, calls, strict=True):
            _match_call(record, path, runtime, paths, found)
        return
    for record in known:
        _match_covered(record, runtime, symbols, paths, found)


def _match_call(
    record: InstructionRecord, path: str, runtime: Runtime, paths: Paths, found: Found
) -> None:
    """A call that is a node of the graph."""
    node = paths.nodes[path]
    name = "" if node.delegate is None else node.delegate.name
    found.covered[record.instruction_id] = tuple(
        inner for inner in paths.operators if inner.startswith(f"{name}/")
    )
    slots, places = runtime.slots_of(record), paths.places(node)
    if len(slots) != len(places):
        reason = (
            f"the call has {len(places)} values in the graph, and {len(slots)} here",
            "differs",
        )
        found.reasons.update(dict.fromkeys(slots, reason))
        return
    for slot, place in zip(slots, places, strict=True):
        _pair_or_say(record, slot, place, runtime, paths, found)


def _match_covered(
    record: InstructionRecord,
    runtime: Runtime,
    symbols: MethodSymbols,
    paths: Paths,
    found: Found,
) -> None:
    """A call of which the graph has only the nodes that went into it."""
    number = record.instruction_id
    handles = set(handle_list(symbols.handles.get(number)))
    taken = found.taken
    covered = tuple(
        path
        for path, node in paths.top.items()
        if node.debug_handle in handles and path not in taken
    )
    found.covered[number] = covered
    slots = runtime.slots_of(record)
    if not covered:
        reason: Reason = ("the record has no nodes for this delegate", "unknown")
        found.reasons.update(dict.fromkeys(slots, reason))
        return
    leaving = _leaving(covered, paths)
    chosen = _assigned(record, slots, leaving, runtime, paths, found)
    for slot in slots:
        if slot in chosen:
            _pair_or_say(record, slot, chosen[slot], runtime, paths, found)
        else:
            found.reasons[slot] = _why_none(slot, leaving, runtime, paths)


def _leaving(covered: Sequence[str], paths: Paths) -> list[Place]:
    """The values of covered nodes that others use, in the order of the graph."""
    inside = set(covered)
    return [
        place
        for path in covered
        for place in paths.places(paths.nodes[path])
        if any(paths.path_of[id(user)] not in inside for user in paths.users(place))
    ]


def _assigned(
    record: InstructionRecord,
    slots: Sequence[Slot],
    leaving: Sequence[Place],
    runtime: Runtime,
    paths: Paths,
    found: Found,
) -> dict[Slot, Place]:
    """The value of each output: the only one that fits, and in order if there is one for each."""
    fitting = {
        slot: [
            place
            for place in leaving
            if difference(runtime.spec(slot), paths.spec(place)) is None
            and _flows(record, slot, place, runtime, paths, found)
        ]
        for slot in slots
    }
    chosen: dict[Slot, Place] = {}
    in_order = len(slots) == len(leaving) and all(
        place in fitting[slot] for slot, place in zip(slots, leaving, strict=True)
    )
    if in_order:
        return dict(zip(slots, leaving, strict=True))
    while True:
        free = {
            slot: [place for place in places if place not in chosen.values()]
            for slot, places in fitting.items()
            if slot not in chosen
        }
        sure = [(slot, places[0]) for slot, places in free.items() if len(places) == 1]
        if not sure:
            return chosen
        chosen[sure[0][0]] = sure[0][1]


def _flows(
    record: InstructionRecord,
    slot: Slot,
    place: Place,
    runtime: Runtime,
    paths: Paths,
    found: Found,
) -> bool:
    """Whether the program uses the output as the graph uses the value, as far as is known."""
    index = runtime.value_index(record, slot.output)
    if index is None:
        return True
    results = paths.graph.outputs[-len(runtime.outputs) :] if runtime.outputs else ()
    name = paths.nodes[place.path].outputs[place.element or 0].name
    if len(results) == len(runtime.outputs):
        for result, written in zip(results, runtime.outputs, strict=True):
            if (written == index) != (result == name):
                return False
    for reader in runtime.records:
        if index in reader.inputs and reader.kind == "kernel":
            partner = found.pairs.get(Slot(reader.instruction_id, 0))
            if partner is not None and place not in paths.read_through(paths.nodes[partner.path]):
                return False
    return True


def _pair_or_say(
    record: InstructionRecord,
    slot: Slot,
    place: Place,
    runtime: Runtime,
    paths: Paths,
    found: Found,
) -> None:
    why = difference(runtime.spec(slot), paths.spec(place))
    if why is not None:
        found.reasons[slot] = (f"{why} ({place.path})", "differs")
        return
    found.pairs[slot] = place
    index = runtime.value_index(record, slot.output)
    if index is not None:
        found.values[index] = place


def _why_none(slot: Slot, leaving: Sequence[Place], runtime: Runtime, paths: Paths) -> Reason:
    fits = [p for p in leaving if difference(runtime.spec(slot), paths.spec(p)) is None]
    if fits:
        names = ", ".join(place.path for place in fits)
        return f"nothing tells which of these values it is: {names}", "ambiguous"
    return "no value that leaves the delegate's nodes has its shape and dtype", "differs"
