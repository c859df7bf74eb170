"""Pairs the outputs of instructions with the nodes of the graph that they were made of.

A kernel's debug handle is that of all nodes that one operator of the model was decomposed into.
Among them its operator's name tells; where it has several of one name, what it reads does, or
their order, which is that of the instructions. A delegate has the handles of all its nodes: its
outputs are those of their values that are used elsewhere, in the order of the graph
(`match_delegates`). Instructions of branches and loops are found by `branches.branch_nodes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from etscope.analysis.branches import branch_nodes
from etscope.analysis.check import stem
from etscope.analysis.correlate import MethodSymbols, delegate_handles, handle_list
from etscope.analysis.match_graph import (
    VIEWS,
    LoggedSpec,
    Paths,
    Place,
    Slot,
    difference,
    is_reshaped,
)
from etscope.analysis.program import InstructionRecord
from etscope.model.graph import Node

Specs = Sequence[LoggedSpec | None]
Reason = tuple[str, str]  # in words, and its kind


@dataclass(frozen=True)
class Runtime:
    """What ran: the instructions and what they logged, as `matching.match` is given it."""

    all_records: Sequence[InstructionRecord]
    logged: Mapping[int, Specs]
    delegated: Mapping[tuple[int, int | str], Specs]
    outputs: tuple[int, ...]
    num_outputs: dict[int, int] = field(default_factory=dict)

    @cached_property
    def records(self) -> list[InstructionRecord]:
        """Of the instructions that ran and logged something."""
        return [record for record in self.all_records if record.instruction_id in self.logged]

    def first(self, instruction: int) -> int:
        """Where an instruction's outputs begin among what it logged."""
        count = self.num_outputs.get(instruction)
        return 0 if count is None else len(self.logged[instruction]) - count

    def slots_of(self, record: InstructionRecord) -> list[Slot]:
        """An instruction's outputs."""
        number = record.instruction_id
        count = len(self.logged[number]) - self.first(number)
        return [Slot(number, output) for output in range(count)]

    @cached_property
    def slots(self) -> list[Slot]:
        """All outputs, in order of execution. To be asked for when `num_outputs` is complete."""
        inner = [
            Slot(number, output, identifier)
            for (number, identifier), specs in self.delegated.items()
            for output in range(len(specs))
        ]
        outer = [slot for record in self.records for slot in self.slots_of(record)]
        return sorted(outer + inner, key=lambda slot: slot.order)

    def logged_index(self, slot: Slot) -> int:
        """The place of an output among all that its instruction logged."""
        if slot.delegate_id is not None:
            return slot.output
        return self.first(slot.instruction) + slot.output

    def spec(self, slot: Slot) -> LoggedSpec | None:
        """What was logged for it."""
        if slot.delegate_id is not None:
            return self.delegated[slot.instruction, slot.delegate_id][slot.output]
        return self.logged[slot.instruction][self.logged_index(slot)]

    def value_index(self, record: InstructionRecord, output: int) -> int | None:
        """The index in the program of an instruction's output; None when it is not known."""
        known = len(record.outputs) == len(self.slots_of(record))
        return record.outputs[output] if known else None


@dataclass
class Found:
    """Pairs in the making, and what is known of values without one."""

    pairs: dict[Slot, Place] = field(default_factory=dict)
    views: set[Slot] = field(default_factory=set)
    reasons: dict[Slot, Reason] = field(default_factory=dict)
    node_reasons: dict[str, Reason] = field(default_factory=dict)
    values: dict[int, Place] = field(default_factory=dict)  # by index in the program
    covered: dict[int, tuple[str, ...]] = field(default_factory=dict)  # delegates' nodes

    @property
    def taken(self) -> set[str]:
        """The paths of nodes with a partner."""
        return {place.path for place in self.pairs.values()}

    def reason_of(self, slot: Slot) -> Reason:
        """Why an output has no partner."""
        return self.reasons.get(slot, ("no node of the reference graph is known for it", "unknown"))

    def reason_of_node(self, path: str) -> Reason:
        """Why a node has no partner."""
        return self.node_reasons.get(path, ("no instruction is known to run it", "unknown"))


def match_instructions(runtime: Runtime, symbols: MethodSymbols, paths: Paths) -> Found:
    """Pair all that can be; `symbols.graph` is the graph of `paths`."""
    from etscope.analysis.match_delegates import match_delegates

    found = Found()
    delegates = [record for record in runtime.records if record.kind == "delegate"]
    for record in delegates:
        number = record.instruction_id
        count = symbols.num_outputs.get(number, len(record.outputs))
        runtime.num_outputs[number] = min(count, len(runtime.logged[number]))
    kernels = [record for record in runtime.records if record.kind == "kernel"]
    _match_kernels(kernels, runtime, symbols, paths, found)
    _match_branches(runtime, symbols, paths, found)
    match_delegates(delegates, runtime, symbols, paths, found)
    _match_inside(runtime, symbols, paths, found)
    _match_leftovers(kernels, runtime, symbols, paths, found)
    _explain(runtime, symbols, paths, found)
    return found


# -- kernels


def _match_kernels(
    kernels: Iterable[InstructionRecord],
    runtime: Runtime,
    symbols: MethodSymbols,
    paths: Paths,
    found: Found,
) -> None:
    """By handle and operator. Groups go in order of their first instruction, so that what an
    instruction reads is known when it matters."""
    groups: dict[tuple[int, str], list[InstructionRecord]] = {}
    for record in kernels:
        handles = symbols.handles.get(record.instruction_id)
        if isinstance(handles, int):
            groups.setdefault((handles, stem(record.operator or "")), []).append(record)
    nodes: dict[tuple[int, str], list[Node]] = {}
    for node in paths.top.values():
        if node.debug_handle is not None:
            nodes.setdefault((node.debug_handle, stem(node.op)), []).append(node)
    for key, records in groups.items():
        _match_alike(records, nodes.get(key, []), runtime, paths, found)


def _match_alike(
    records: list[InstructionRecord],
    nodes: list[Node],
    runtime: Runtime,
    paths: Paths,
    found: Found,
) -> None:
    """Instructions and nodes of one operator that share a handle."""
    free = list(nodes)
    waiting = list(records)
    same_number = len(records) == len(nodes)
    while waiting:
        chosen = None
        fitting = {}
        for record in waiting:
            fitting[record.instruction_id] = [
                node
                for node in free
                if _fits(record, node, runtime, paths) and _may_read(record, node, paths, found)
            ]
        for record in waiting:
            if len(fitting[record.instruction_id]) == 1:
                chosen = record, fitting[record.instruction_id][0]
                break
        if chosen is None and same_number and fitting[waiting[0].instruction_id]:
            chosen = waiting[0], fitting[waiting[0].instruction_id][0]
        if chosen is None:
            break
        _pair(*chosen, runtime, paths, found)
        waiting.remove(chosen[0])
        free.remove(chosen[1])
    for record in waiting:
        fits = [node for node in free if _fits(record, node, runtime, paths)]
        _say(record, runtime, found, _why_none(record, fits, free, runtime, paths))


def _fits(record: InstructionRecord, node: Node, runtime: Runtime, paths: Paths) -> bool:
    return _misfit(record, node, runtime, paths) is None


def _misfit(record: InstructionRecord, node: Node, runtime: Runtime, paths: Paths) -> str | None:
    """Why an instruction's outputs cannot be the node's values."""
    slots, places = runtime.slots_of(record), paths.places(node)
    if len(slots) != len(places):
        return f"{len(slots)} values were logged, and the node {node.name} has {len(places)}"
    for slot, place in zip(slots, places, strict=True):
        why = difference(runtime.spec(slot), paths.spec(place))
        if why is not None:
            return f"{why} ({node.name})"
    return None


def _may_read(record: InstructionRecord, node: Node, paths: Paths, found: Found) -> bool:
    """Whether nothing that the instruction is known to read is strange to the node."""
    known = {found.values[index] for index in record.inputs if index in found.values}
    return not known or known <= paths.read_through(node)


def _pair(
    record: InstructionRecord, node: Node, runtime: Runtime, paths: Paths, found: Found
) -> None:
    for slot, place in zip(runtime.slots_of(record), paths.places(node), strict=True):
        found.pairs[slot] = place
        index = runtime.value_index(record, slot.output)
        if index is not None:
            found.values[index] = place


def _say(record: InstructionRecord, runtime: Runtime, found: Found, reason: Reason) -> None:
    for slot in runtime.slots_of(record):
        found.reasons.setdefault(slot, reason)


def _why_none(
    record: InstructionRecord,
    fits: Sequence[Node],
    free: Sequence[Node],
    runtime: Runtime,
    paths: Paths,
) -> Reason:
    if len(fits) > 1:
        names = ", ".join(node.name for node in fits)
        return f"nothing tells which of these it ran: {names}", "ambiguous"
    if not free:
        return "the reference graph has no node of this operator with its debug handle", "unknown"
    if fits:
        return f"it does not read what {fits[0].name} reads", "differs"
    return _misfit(record, free[0], runtime, paths) or "no node fits", "differs"


# -- branches and loops


def _match_branches(runtime: Runtime, symbols: MethodSymbols, paths: Paths, found: Found) -> None:
    labels = [record.operator or record.kind for record in runtime.all_records]
    by_number = {record.instruction_id: record for record in runtime.records}
    for number, node in branch_nodes(labels, symbols).items():
        record = by_number.get(number)
        if record is None:
            path = paths.path_of.get(id(node))
            if path is not None:
                found.node_reasons[path] = ("its branch was not taken in this run", "not run")
            continue
        why = _misfit(record, node, runtime, paths)
        if why is None:
            _pair(record, node, runtime, paths, found)
        else:
            _say(record, runtime, found, (why, "differs"))


# -- operators inside delegates


def _match_inside(runtime: Runtime, symbols: MethodSymbols, paths: Paths, found: Found) -> None:
    """What a delegate logged for its own operators: its map leads from their identifiers to
    handles, and the last node of these has the value."""
    for (number, identifier), specs in runtime.delegated.items():
        entry = symbols.delegates.get(number)
        handles = None if entry is None else delegate_handles(identifier, entry.handles)
        slots = [Slot(number, output, identifier) for output in range(len(specs))]
        nodes = _of_handles(handles, paths)
        places = [place for node in nodes[-1:] for place in paths.places(node)]
        if handles is None or not places:
            reason = (f"the delegate's map has no nodes for {identifier!r}", "unknown")
        elif len(places) != len(slots):
            reason = (f"{len(slots)} values were logged for {nodes[-1].name}", "differs")
        else:
            for slot, place in zip(slots, places, strict=True):
                why = difference(runtime.spec(slot), paths.spec(place))
                if why is None:
                    found.pairs[slot] = place
                else:
                    found.reasons[slot] = (f"{why} ({place.path})", "differs")
            continue
        found.reasons.update(dict.fromkeys(slots, reason))


def _of_handles(handles: Iterable[int] | None, paths: Paths) -> list[Node]:
    wanted = set(handles or ())
    return [node for node in paths.operators.values() if node.debug_handle in wanted]


# -- operators that passes replaced


def _match_leftovers(
    kernels: Iterable[InstructionRecord],
    runtime: Runtime,
    symbols: MethodSymbols,
    paths: Paths,
    found: Found,
) -> None:
    """A node whose operator a pass replaced or decomposed has the value of the last instruction
    with its handle, if that has no partner and there is no other such node."""
    last: dict[int, InstructionRecord] = {}
    for record in kernels:
        handles = symbols.handles.get(record.instruction_id)
        if isinstance(handles, int):
            last[handles] = record
    taken = found.taken
    covered = {path for paths_of in found.covered.values() for path in paths_of}
    for handle, record in last.items():
        if any(slot in found.pairs for slot in runtime.slots_of(record)):
            continue
        names = {stem(node.op) for node in paths.top.values() if node.debug_handle == handle}
        nodes = [
            node
            for path, node in paths.top.items()
            if node.debug_handle == handle and path not in taken and path not in covered
        ]
        # What it is called decides first: a node of its own name would have been found.
        results = [node for node in nodes if _is_result(node, handle, paths)]
        if stem(record.operator or "") in names or len(results) != 1:
            continue
        if _fits(record, results[0], runtime, paths):
            _pair(record, results[0], runtime, paths, found)
            for slot in runtime.slots_of(record):
                found.reasons.pop(slot, None)


def _is_result(node: Node, handle: int, paths: Paths) -> bool:
    """Whether a value of the node is used by one of another handle."""
    users = [user for place in paths.places(node) for user in paths.users(place)]
    return any(user.debug_handle != handle for user in users)


# -- reasons


def _explain(runtime: Runtime, symbols: MethodSymbols, paths: Paths, found: Found) -> None:
    for record in runtime.records:
        if record.instruction_id not in symbols.handles and record.kind == "kernel":
            _say(record, runtime, found, (_why_unknown(record), "unknown"))
    if not symbols.handles:
        for record in runtime.records:
            _say(record, runtime, found, ("the record has no debug handles for it", "unknown"))
    taken = found.taken
    inside = {path: number for number, covered in found.covered.items() for path in covered}
    handled = {h for handles in symbols.handles.values() for h in handle_list(handles)}
    for path, node in paths.operators.items():
        if path in taken or path in found.node_reasons:
            continue
        if path in inside:
            reason = (f"inside the delegate of instruction {inside[path]}", "inside")
        elif stem(node.op) in VIEWS and any(p.path in taken for p in paths.inputs(node)):
            reason = ("a view of its input: memory planning left no instruction for it", "view")
        elif node.subgraphs:
            reason = ("it runs sub-graphs, whose nodes are compared", "inside")
        elif "/" in path:
            reason = ("in a branch or loop, whose instructions are not known", "unknown")
        elif _is_number(node):
            reason = ("a number: the runtime logs tensors only", "not logged")
        elif node.debug_handle in handled:
            reason = ("no instruction of its debug handle runs this operator", "unknown")
        else:
            reason = ("no instruction has its debug handle: passes took it away", "unknown")
        found.node_reasons[path] = reason


def _is_number(node: Node) -> bool:
    return bool(node.outputs) and all(value.tensor is None for value in node.outputs)


def _why_unknown(record: InstructionRecord) -> str:
    if stem(record.operator or "") == "copy":
        return "writes state back: no node of the graph is it"
    return "it has no debug handle"


__all__ = ["Found", "Runtime", "is_reshaped", "match_instructions"]
