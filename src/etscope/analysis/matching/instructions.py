"""Pairs the outputs of instructions with the nodes of the graph that they were made of.

A kernel's debug handle is that of all nodes that one operator of the model was decomposed into;
among them its operator's name tells, the shapes that it wrote, and what it reads (`match_flow`). A
delegate has the handles of all its nodes. Instructions of branches and loops are found by
`branches.branch_nodes`.

Lowering to a backend sorts nodes anew, so the order of instructions alone decides only in a
program without delegates, as long as no pair contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from etscope.analysis.matching.graph import VIEWS, Paths, Place, Slot, difference
from etscope.analysis.matching.run import Found, Reason, Runtime
from etscope.analysis.profile.correlate import MethodSymbols, delegate_handles, handle_list
from etscope.analysis.program.branches import branch_nodes
from etscope.analysis.program.compatibility import stem
from etscope.analysis.program.program import InstructionRecord
from etscope.model.graph import Node

# Who can be whose partner, narrowed down by the flow of values until nothing more can be said.
#
# Each choice starts with all that debug handles, operators' names, shapes and dtypes allow. What an
# instruction reads was written by others, and a node reads what other nodes compute: a candidate
# stays only if its neighbours have candidates that agree. The last step takes chosen candidates
# from all others.


# The places of a choice's slots, in their order.
Candidate = tuple[Place, ...]


@dataclass(eq=False)
class Choice:
    """Slots that find their places together: all outputs of a kernel, or one of a delegate.

    `reads` are the slots whose values the instruction reads, as far as they are known.
    """

    slots: tuple[Slot, ...]
    candidates: list[Candidate]
    reads: tuple[Slot, ...] = ()
    is_delegate: bool = False

    def __post_init__(self) -> None:
        self.was_sure = len(self.candidates) == 1

    @property
    def chosen(self) -> Candidate | None:
        """The only candidate left."""
        return self.candidates[0] if len(self.candidates) == 1 else None

    def places(self, slot: Slot) -> set[Place]:
        """Where a slot's value may be."""
        index = self.slots.index(slot)
        return {candidate[index] for candidate in self.candidates}


class Flow:
    """The choices of a run, and what ties them.

    `delegate_reads` has, for each delegate call, the slots that it reads, and all places that its
    nodes read. `results` are the places of the graph's outputs that the program's outputs are, by
    slot.
    """

    def __init__(
        self,
        choices: Iterable[Choice],
        paths: Paths,
        delegate_reads: Iterable[tuple[Iterable[Slot], set[Place]]],
        results: Mapping[Slot, set[Place]],
    ) -> None:
        self.choices = list(choices)
        self._paths = paths
        self._of_slot = {slot: choice for choice in self.choices for slot in choice.slots}
        self._bind_results(results)
        self._bind_delegates(delegate_reads)

    def narrow(self) -> None:
        """Take candidates away until no more can go."""
        changed = True
        while changed:
            changed = sum(self._revise(choice) for choice in self.choices) > 0
            changed = self._take_chosen() or changed

    def choose(self, choice: Choice, candidate: Candidate) -> None:
        """Decide a choice for a reason of the caller's."""
        choice.candidates = [candidate]
        self._take_chosen()

    def _bind_results(self, results: Mapping[Slot, set[Place]]) -> None:
        every = set().union(*results.values()) if results else set()
        for choice in self.choices:
            for index, slot in enumerate(choice.slots):
                wanted = results.get(slot)
                if wanted is not None:
                    self._keep(choice, [c for c in choice.candidates if c[index] in wanted])
                elif every and choice.is_delegate:
                    self._keep(choice, [c for c in choice.candidates if c[index] not in every])

    def _bind_delegates(self, reads: Iterable[tuple[Iterable[Slot], set[Place]]]) -> None:
        for slots, places in reads:
            for slot in slots:
                choice = self._of_slot.get(slot)
                if choice is not None:
                    index = choice.slots.index(slot)
                    self._keep(choice, [c for c in choice.candidates if c[index] in places])

    def _revise(self, choice: Choice) -> bool:
        """Hold a choice against all that it reads, in both directions."""
        changed = False
        for slot in choice.reads:
            source = self._of_slot.get(slot)
            if source is None or choice.is_delegate or not choice.candidates:
                continue
            through = {c: self._read_through(c) for c in choice.candidates}
            written = source.places(slot)
            changed |= self._keep(choice, [c for c, read in through.items() if read & written])
            read = set().union(*(through[c] for c in choice.candidates))
            index = source.slots.index(slot)
            changed |= self._keep(source, [c for c in source.candidates if c[index] in read])
        return changed

    def _read_through(self, candidate: Candidate) -> frozenset[Place]:
        return self._paths.read_through(self._paths.nodes[candidate[0].path])

    def _take_chosen(self) -> bool:
        changed = False
        chosen = [(choice, choice.chosen[0]) for choice in self.choices if choice.chosen]
        by_kernels = {place.path for choice, place in chosen if not choice.is_delegate}
        by_delegates = {place for choice, place in chosen if choice.is_delegate}
        in_delegates = {place.path for place in by_delegates}
        for choice in self.choices:
            if choice.chosen is None:
                free = [
                    (place, *rest)
                    for place, *rest in choice.candidates
                    if place.path not in by_kernels
                    and place not in by_delegates
                    and (choice.is_delegate or place.path not in in_delegates)
                ]
                changed |= self._keep(choice, free)
        return changed

    def _keep(self, choice: Choice, kept: list[Candidate]) -> bool:
        """Narrow a choice down. One that handles and names have decided stays, and nothing may
        take the last candidate: then passes have changed the flow, which so tells nothing."""
        if choice.was_sure or not kept or len(kept) == len(choice.candidates):
            return False
        choice.candidates = kept
        return True


# What the outputs of delegate calls may be: values of the nodes that went into the delegate.
#
# In a graph from after lowering the call is a node, and its elements are the outputs. In one from
# before it, the outputs are values of covered nodes that others use. A backend may log tensors of
# its own operators, too: its delegate map leads from them to nodes.


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


_Group = tuple[int, str]  # a debug handle and an operator's stem


def match_instructions(runtime: Runtime, symbols: MethodSymbols, paths: Paths) -> Found:
    """Pair all that can be; `symbols.graph` is the graph of `paths`."""
    return _Matcher(runtime, symbols, paths).found


class _Matcher:
    def __init__(self, runtime: Runtime, symbols: MethodSymbols, paths: Paths) -> None:
        self._runtime, self._symbols, self._paths = runtime, symbols, paths
        self.found = Found()
        self._position = {path: index for index, path in enumerate(paths.nodes)}
        self._groups: dict[_Group, list[Choice]] = {}
        self._nodes: dict[_Group, list[Node]] = {}
        self._calls: dict[int, list[Choice]] = {}
        self._delegates = known_delegates(runtime, symbols)
        self._group_kernels()
        has_calls = match_calls(runtime, symbols, paths, self.found)
        if not has_calls:
            self._prepare_delegates()
        self._decide()
        self._match_branches()
        match_inside(runtime, symbols, paths, self.found)
        self._match_replaced()
        self._explain()

    # -- what may be whose partner

    def _group_kernels(self) -> None:
        for node in self._paths.top.values():
            if node.debug_handle is not None:
                self._nodes.setdefault((node.debug_handle, stem(node.op)), []).append(node)
        for record in self._runtime.of_kind("kernel"):
            handle = self._symbols.handles.get(record.instruction_id)
            if isinstance(handle, int):
                group = handle, stem(record.operator or "")
                self._groups.setdefault(group, []).append(self._choice(record, group))

    def _choice(self, record: InstructionRecord, group: _Group) -> Choice:
        slots = self._runtime.slots_of(record)
        candidates = [
            self._paths.places(node)
            for node in self._nodes.get(group, ())
            if self._misfit(slots, node) is None
        ]
        return Choice(slots, candidates, self._runtime.reads(record))

    def _misfit(self, slots: Sequence[Slot], node: Node) -> str | None:
        """Why outputs cannot be the node's values."""
        places = self._paths.places(node)
        if len(slots) != len(places):
            return f"{len(slots)} values were logged, but {node.name} has {len(places)}"
        for slot, place in zip(slots, places, strict=True):
            why = difference(self._runtime.spec(slot), self._paths.spec(place))
            if why is not None:
                return f"{why} ({node.name})"
        return None

    def _prepare_delegates(self) -> None:
        for record in self._delegates:
            covered = [
                path
                for path in covered_paths(record, self._symbols, self._paths)
                if not self._is_kernels(path)
            ]
            inside = {path for path in covered if self._is_surely_inside(path)}
            self._calls[record.instruction_id] = delegate_choices(
                record, covered, inside, self._runtime, self._paths
            )
            self.found.covered[record.instruction_id] = tuple(covered)

    def _is_kernels(self, path: str) -> bool:
        """Whether kernels run all nodes of this operator and handle."""
        node = self._paths.nodes[path]
        group = node.debug_handle or 0, stem(node.op)
        return len(self._groups.get(group, ())) == len(self._nodes.get(group, ()))

    def _is_surely_inside(self, path: str) -> bool:
        """Whether no kernel, and no other delegate, can run the node."""
        node = self._paths.nodes[path]
        handle = node.debug_handle
        holders = [
            handles
            for record in self._delegates
            if handle in (handles := handle_list(self._symbols.handles[record.instruction_id]))
        ]
        alone = (handle, stem(node.op)) not in self._groups
        return len(holders) == 1 and (alone or self._count(handle) == holders[0].count(handle or 0))

    def _count(self, handle: int | None) -> int:
        """How many nodes have a handle."""
        return sum(len(nodes) for (own, _), nodes in self._nodes.items() if own == handle)

    # -- who is

    def _decide(self) -> None:
        kernels = [choice for choices in self._groups.values() for choice in choices]
        calls = [choice for choices in self._calls.values() for choice in choices]
        by_number = {record.instruction_id: record for record in self._delegates}
        reads = [
            (self._runtime.reads(by_number[number]), read_by(covered, self._paths))
            for number, covered in self.found.covered.items()
            if number in self._calls
        ]
        flow = Flow(kernels + calls, self._paths, reads, self._results())
        flow.narrow()
        while self._break_tie(flow):
            flow.narrow()
        for choice in flow.choices:
            if choice.chosen is not None:
                self.found.pairs.update(zip(choice.slots, choice.chosen, strict=True))
        taken = {c.chosen[0].path for c in kernels if c.chosen is not None}
        for number, covered in self.found.covered.items():
            self.found.covered[number] = tuple(path for path in covered if path not in taken)
        self._tell(flow)

    def _results(self) -> dict[Slot, set[Place]]:
        """Which outputs of the graph the outputs of the program are. The graph's come after the
        buffers that it writes back."""
        count, graph = len(self._runtime.outputs), self._paths.graph
        named: dict[Slot, set[Place]] = {}
        if not count or count > len(graph.outputs):
            return named
        for position, slot in self._runtime.results.items():
            place = self._paths.place(graph, graph.outputs[len(graph.outputs) - count + position])
            if place is not None:
                named[slot] = named.get(slot, {place}) & {place}
        return {slot: places for slot, places in named.items() if places}

    def _break_tie(self, flow: Flow) -> bool:
        """Decide one of the choices that the flow leaves open: between nodes that do the same with
        the same, or by order where that holds."""
        ordered = self._is_in_order()
        for group, choices in self._groups.items():
            waiting = [c for c in choices if len(c.candidates) > 1]
            if not waiting:
                continue
            first = waiting[0]
            free = {c[0].path: c for choice in waiting for c in choice.candidates}
            exhausted = len(free) == len(waiting) and len(choices) == len(self._nodes[group])
            if _are_same([self._paths.nodes[c[0].path] for c in first.candidates]) or (
                ordered and exhausted
            ):
                earliest = min(first.candidates, key=lambda c: self._position[c[0].path])
                flow.choose(first, earliest)
                return True
        return self._break_tie_of_calls(flow)

    def _break_tie_of_calls(self, flow: Flow) -> bool:
        """The outputs of a delegate come in the order of its own graph, in which the record lists
        the handles of its nodes."""
        kernels = _chosen(choice for choices in self._groups.values() for choice in choices)
        for number, choices in self._calls.items():
            if all(choice.chosen for choice in choices):
                continue
            others = (c for other, cs in self._calls.items() if other != number for c in cs)
            elsewhere = kernels | _chosen(others)
            covered = [path for path in self.found.covered[number] if path not in elsewhere]
            possible = {c[0] for choice in choices for c in choice.candidates}
            leaving = in_own_order(
                [
                    place
                    for place in leaving_places(covered, set(covered), self._paths)
                    if place in possible
                ],
                covered,
                handle_list(self._symbols.handles[number]),
                self._paths,
            )
            if leaving is None or len(leaving) != len(choices):
                continue
            pairs = list(zip(choices, leaving, strict=True))
            if all((place,) in choice.candidates for choice, place in pairs):
                for choice, place in pairs:
                    flow.choose(choice, (place,))
                return True
        return False

    def _is_in_order(self) -> bool:
        """Whether instructions run in the order of the graph's nodes, by the pairs so far."""
        if self._delegates:
            return False
        pairs = sorted(
            (choice.slots[0].instruction, self._position[choice.chosen[0].path])
            for choices in self._groups.values()
            for choice in choices
            if choice.chosen is not None and choice.slots
        )
        positions = [position for _, position in pairs]
        return positions == sorted(positions)

    # -- branches, loops, and operators that passes replaced

    def _match_branches(self) -> None:
        labels = [record.operator or record.kind for record in self._runtime.all_records]
        ran = {record.instruction_id: record for record in self._runtime.records}
        for number, node in branch_nodes(labels, self._symbols).items():
            path = self._paths.path_of[id(node)]
            if number not in ran:
                self.found.node_reasons[path] = ("its branch was not taken in this run", "not run")
                continue
            slots = self._runtime.slots_of(ran[number])
            why = self._misfit(slots, node)
            if why is None:
                self.found.pairs.update(zip(slots, self._paths.places(node), strict=True))
            else:
                self.found.say(slots, (why, "differs"))

    def _match_replaced(self) -> None:
        """A node whose operator a pass replaced or decomposed has the value of the last instruction
        with its handle, if that has no partner and there is no other such node."""
        last: dict[int, InstructionRecord] = {}
        for record in self._runtime.of_kind("kernel"):
            handle = self._symbols.handles.get(record.instruction_id)
            if isinstance(handle, int):
                last[handle] = record
        busy = self.found.taken.union(*self.found.covered.values())
        for handle, record in last.items():
            slots = self._runtime.slots_of(record)
            known = (handle, stem(record.operator or "")) in self._nodes
            if known or any(slot in self.found.pairs for slot in slots):
                continue
            results = [
                node
                for path, node in self._paths.top.items()
                if node.debug_handle == handle and path not in busy and self._is_result(node)
            ]
            if len(results) == 1 and self._misfit(slots, results[0]) is None:
                self.found.pairs.update(zip(slots, self._paths.places(results[0]), strict=True))

    def _is_result(self, node: Node) -> bool:
        """Whether a value of the node is used by one of another handle."""
        return any(
            user.debug_handle != node.debug_handle
            for place in self._paths.places(node)
            for user in self._paths.users(place)
        )

    # -- reasons

    def _tell(self, flow: Flow) -> None:
        taken = self.found.taken
        for choice in flow.choices:
            if choice.chosen is None:
                self.found.say(choice.slots, self._why_not(choice, taken))

    def _why_not(self, choice: Choice, taken: set[str]) -> Reason:
        if choice.candidates:
            names = ", ".join(dict.fromkeys(c[0].path for c in choice.candidates))
            known = "" if self._runtime.outputs else " without the program"
            return f"nothing tells{known} which of these it is: {names}", "ambiguous"
        if choice.is_delegate:
            return "no value that leaves the delegate's nodes has its shape and dtype", "differs"
        record = next(
            r for r in self._runtime.records if r.instruction_id == choice.slots[0].instruction
        )
        handle = self._symbols.handles[record.instruction_id]
        nodes = self._nodes.get((handle, stem(record.operator or "")), [])  # type: ignore[arg-type]
        if not nodes:
            return "the reference graph has no node of this operator and debug handle", "unknown"
        free = [node for node in nodes if self._paths.path_of[id(node)] not in taken]
        return self._misfit(choice.slots, (free or nodes)[0]) or "its node is taken", "differs"

    def _explain(self) -> None:
        """Reasons for what nothing was said of yet."""
        for record in self._runtime.records:
            slots = self._runtime.slots_of(record)
            if not self._symbols.handles:
                self.found.say(slots, ("the record has no debug handles", "unknown"))
            elif record.instruction_id not in self._symbols.handles:
                self.found.say(slots, (_without_handle(record), "unknown"))
        taken = self.found.taken
        inside = {path: n for n, covered in self.found.covered.items() for path in covered}
        handled = {h for hs in self._symbols.handles.values() for h in handle_list(hs)}
        for path, node in self._paths.operators.items():
            if path not in taken and path not in self.found.node_reasons:
                self.found.node_reasons[path] = self._why_no_instruction(
                    path, node, inside, handled
                )

    def _why_no_instruction(
        self, path: str, node: Node, inside: Mapping[str, int], handled: set[int]
    ) -> Reason:
        if path in inside:
            return f"inside the delegate of instruction {inside[path]}", "inside"
        if node.subgraphs:
            return "it runs sub-graphs, whose nodes stand for themselves", "inside"
        if "/" in path:
            return "in a branch or loop, whose instructions are not known", "unknown"
        if node.outputs and all(value.tensor is None for value in node.outputs):
            return "a number: the runtime logs tensors only", "not logged"
        if stem(node.op) in VIEWS:
            return "a view of its input: memory planning left no instruction for it", "view"
        if node.debug_handle in handled:
            return "no instruction of its debug handle is known to run it", "unknown"
        return "no instruction has its debug handle: passes took it away", "unknown"


def _chosen(choices: Iterable[Choice]) -> set[str]:
    """The nodes that were chosen."""
    return {choice.chosen[0].path for choice in choices if choice.chosen}


def _are_same(nodes: Sequence[Node]) -> bool:
    """Whether nodes do the same with the same arguments, so that any is as good."""
    return len({(node.op, node.arguments, node.inputs) for node in nodes}) == 1


def _without_handle(record: InstructionRecord) -> str:
    if stem(record.operator or "") == "copy":
        return "writes state back, or copies for a loop: no node of the graph is it"
    return "the record has no debug handle for it"
