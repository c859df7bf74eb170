"""Pair the outputs of instructions with nodes of the graph.

A kernel's debug handle stands for all nodes that one operator of the model was decomposed into.
Among these the kernel's operator, the shapes that it wrote and the values that it reads (`Flow`)
decide. A delegate has the handles of all its nodes. Instructions of branches and loops have none:
see `correlate.branch_nodes`.

Lowering to a backend sorts nodes anew, so the order of instructions alone decides only in a program
without delegates, as long as no pair contradicts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from etscope.analysis.matching.run import PartialMatching, Reason, Runtime, Slot, type_mismatch
from etscope.analysis.program.correlate import (
    MethodSymbols,
    branch_nodes,
    handle_list,
)
from etscope.analysis.program.program import InstructionRecord
from etscope.model.graph import VIEWS, Graph, Node, NodeValue, TensorSpec, stem

# -- The flow of values narrows candidates down until nothing changes.
#
# Each choice starts with all candidates that debug handles, operators' names, shapes and dtypes
# allow. An instruction reads values that others wrote, and a node reads values of other nodes: a
# candidate stays only if its neighbours have candidates that agree. The only candidate that is left
# of a choice is removed from all other choices.

# The values of a choice's slots, in the order of the slots.
Candidate = tuple[NodeValue, ...]

# The start of the reason of a node inside a delegate.
INSIDE_A_DELEGATE = "inside the delegate"


@dataclass(eq=False)
class Choice:
    """Slots that are matched together: all outputs of a kernel, or one output of a delegate.

    reads: the outputs of instructions that a kernel reads; empty without a program.
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

    def values(self, slot: Slot) -> set[NodeValue]:
        index = self.slots.index(slot)
        return {candidate[index] for candidate in self.candidates}


class Flow:
    """The choices of a run, and the flow of values between them.

    delegate_reads: for each delegate call, the slots that it reads, and all values that its nodes
    read. results: the possible outputs of the graph for each slot that is an output of the program.
    """

    def __init__(
        self,
        choices: Iterable[Choice],
        graph: Graph,
        delegate_reads: Iterable[tuple[Iterable[Slot], set[NodeValue]]],
        results: Mapping[Slot, set[NodeValue]],
    ) -> None:
        self.choices = list(choices)
        self._graph = graph
        self._of_slot = {slot: choice for choice in self.choices for slot in choice.slots}
        self._bind_results(results)
        self._bind_delegates(delegate_reads)

    def narrow(self) -> None:
        """Remove candidates until nothing changes."""
        changed = True
        while changed:
            changed = sum(self._revise(choice) for choice in self.choices) > 0
            changed = self._take_chosen() or changed

    def choose(self, choice: Choice, candidate: Candidate) -> None:
        choice.candidates = [candidate]
        self._take_chosen()

    def _bind_results(self, results: Mapping[Slot, set[NodeValue]]) -> None:
        """Outputs of the program are outputs of the graph; of delegates, no others are."""
        every = set().union(*results.values()) if results else set()
        for choice in self.choices:
            for index, slot in enumerate(choice.slots):
                wanted = results.get(slot)
                if wanted is not None:
                    self._keep(choice, [c for c in choice.candidates if c[index] in wanted])
                elif every and choice.is_delegate:
                    self._keep(choice, [c for c in choice.candidates if c[index] not in every])

    def _bind_delegates(self, reads: Iterable[tuple[Iterable[Slot], set[NodeValue]]]) -> None:
        for slots, values in reads:
            for slot in slots:
                choice = self._of_slot.get(slot)
                if choice is not None:
                    index = choice.slots.index(slot)
                    self._keep(choice, [c for c in choice.candidates if c[index] in values])

    def _revise(self, choice: Choice) -> bool:
        """Compare a choice with all that it reads, in both directions."""
        changed = False
        for slot in choice.reads:
            source = self._of_slot.get(slot)
            if source is None or choice.is_delegate or not choice.candidates:
                continue
            through = {
                c: self._graph.read_through(self._graph.calls[c[0].path]) for c in choice.candidates
            }
            written = source.values(slot)
            changed |= self._keep(choice, [c for c, read in through.items() if read & written])
            read = set().union(*(through[c] for c in choice.candidates))
            index = source.slots.index(slot)
            changed |= self._keep(source, [c for c in source.candidates if c[index] in read])
        return changed

    def _take_chosen(self) -> bool:
        changed = False
        chosen = [(choice, choice.chosen[0]) for choice in self.choices if choice.chosen]
        by_kernels = {value.path for choice, value in chosen if not choice.is_delegate}
        by_delegates = {value for choice, value in chosen if choice.is_delegate}
        in_delegates = {value.path for value in by_delegates}
        for choice in self.choices:
            if choice.chosen is None:
                free = [
                    (value, *rest)
                    for value, *rest in choice.candidates
                    if value.path not in by_kernels
                    and value not in by_delegates
                    and (choice.is_delegate or value.path not in in_delegates)
                ]
                changed |= self._keep(choice, free)
        return changed

    def _keep(self, choice: Choice, kept: list[Candidate]) -> bool:
        """Narrow a choice down. A choice decided by handles and names stays, and so does the last
        candidate: if the flow contradicts all candidates, passes changed the graph."""
        if choice.was_sure or not kept or len(kept) == len(choice.candidates):
            return False
        choice.candidates = kept
        return True


_Group = tuple[int, str]  # a debug handle and an operator's stem
# Libraries with kernels that ExecuTorch generates: they log their name.
_NAMED = ("aten", "dim_order_ops", "quantized_decomposed", "executorch_prim", "et_copy")


class InstructionMatcher:
    """Pairs all values that can be paired; see `found`. symbols: their graph is `graph`."""

    def __init__(self, runtime: Runtime, symbols: MethodSymbols, graph: Graph) -> None:
        self._runtime, self._symbols, self._graph = runtime, symbols, graph
        self.found = PartialMatching()
        self._position = {path: index for index, path in enumerate(graph.calls)}
        self._groups: dict[_Group, list[Choice]] = {}
        self._nodes: dict[_Group, list[Node]] = {}
        self._calls: dict[int, list[Choice]] = {}
        # The delegate calls outside branches: those with handles in the record.
        self._delegates = [
            r for r in runtime.of_kind("delegate") if r.instruction_id in symbols.handles
        ]
        self._group_kernels()
        if not self._match_calls():
            self._prepare_delegates()
        self._decide()
        self._match_branches()
        if runtime.delegated:
            from etscope.analysis.matching.delegate_values import match_delegate_values

            match_delegate_values(runtime, symbols, graph, self.found)
        self._match_replaced()
        self._explain()

    # -- candidates

    def _group_kernels(self) -> None:
        for node in self._graph.own_operators.values():
            if node.debug_handle is not None:
                self._nodes.setdefault((node.debug_handle, stem(node.op)), []).append(node)
        for record in self._runtime.of_kind("kernel"):
            handle = self._symbols.handles.get(record.instruction_id)
            if isinstance(handle, int):
                slots = self._runtime.slots_of(record)
                group = handle, self._stem_of(record, handle)
                candidates = [
                    self._graph.values_of(node)
                    for node in self._nodes.get(group, ())
                    if self._misfit(slots, node) is None
                ]
                choice = Choice(slots, candidates, self._runtime.reads(record))
                self._groups.setdefault(group, []).append(choice)

    def _stem_of(self, record: InstructionRecord, handle: int) -> str:
        """Return the stem of a kernel's operator. Kernels registered by hand, such as ExecuTorch's
        LLM operators, log no name: take the stem of the only node of a custom operator with the
        debug handle; "" without one."""
        if record.operator is not None:
            return stem(record.operator)
        custom = {
            group[1]
            for group, nodes in self._nodes.items()
            if group[0] == handle and nodes[0].op.partition(".")[0] not in _NAMED
        }
        return custom.pop() if len(custom) == 1 else ""

    def _misfit(self, slots: Sequence[Slot], node: Node) -> str | None:
        """Describe why outputs cannot be the node's values; None if they can."""
        values = self._graph.values_of(node)
        if len(slots) != len(values):
            return f"{len(slots)} values were logged, but {node.name} has {len(values)}"
        for slot, value in zip(slots, values, strict=True):
            why = type_mismatch(self._runtime.spec(slot), self._graph.spec_of(value))
            if why is not None:
                return f"{why} ({node.name})"
        return None

    # -- delegates
    #
    # In a graph after lowering, the call is a node, and its elements are the outputs. In a graph
    # before lowering, the outputs are values of covered nodes that other nodes use. A backend may
    # also log tensors of its operators: see `delegate_values`.

    def _match_calls(self) -> bool:
        """Pair the delegate calls with the graph's calls, in order; False if the graph has none."""
        runtime, graph, found = self._runtime, self._graph, self.found
        calls = [path for path, node in graph.own_operators.items() if node.delegate is not None]
        if calls and len(calls) != len(self._delegates):
            why = f"the graph has {len(calls)} delegate calls, the run {len(self._delegates)}"
            for record in self._delegates:
                found.add_reason(runtime.slots_of(record), (why, "differs"))
            return True
        for record, path in zip(self._delegates, calls, strict=False):
            node = graph.calls[path]
            name = "" if node.delegate is None else node.delegate.name
            found.covered[record.instruction_id] = tuple(
                inner for inner in graph.operators if inner.startswith(f"{name}/")
            )
            slots, values = runtime.slots_of(record), graph.values_of(node)
            if len(slots) != len(values):
                why = f"{len(slots)} outputs, but the graph's call has {len(values)}"
                found.add_reason(slots, (why, "differs"))
                continue
            for slot, value in zip(slots, values, strict=True):
                mismatch = type_mismatch(runtime.spec(slot), graph.spec_of(value))
                if mismatch is None:
                    found.pairs[slot] = value
                else:
                    found.add_reason([slot], (f"{mismatch} ({value.path})", "differs"))
        return bool(calls)

    def _prepare_delegates(self) -> None:
        runtime, graph = self._runtime, self._graph
        known: dict[
            frozenset[int], tuple[list[str], list[tuple[NodeValue, TensorSpec | None]]]
        ] = {}
        for record in self._delegates:
            # The parts of a decomposed operator may be in many delegates with the same handles.
            handles = frozenset(handle_list(self._symbols.handles.get(record.instruction_id)))
            if handles not in known:
                covered = [  # some of these nodes may be outside the delegate
                    path
                    for path, node in graph.own_operators.items()
                    if node.debug_handle in handles and not self._is_kernels(path)
                ]
                inside = {path for path in covered if self._is_surely_inside(path)}
                values = self._leaving(covered, inside)
                known[handles] = covered, [(value, graph.spec_of(value)) for value in values]
            covered, leaving = known[handles]
            # One choice for each output: values of its shape and dtype that other nodes use.
            self._calls[record.instruction_id] = [
                Choice(
                    (slot,),
                    [
                        (v,)
                        for v, spec in leaving
                        if type_mismatch(runtime.spec(slot), spec) is None
                    ],
                    is_delegate=True,
                )
                for slot in runtime.slots_of(record)
            ]
            self.found.covered[record.instruction_id] = tuple(covered)

    def _leaving(self, covered: Sequence[str], inside: Collection[str]) -> list[NodeValue]:
        """Return the values of covered nodes that nodes outside `inside` use."""
        graph = self._graph
        return [
            value
            for path in covered
            for value in graph.values_of(graph.calls[path])
            if any(graph.path_of[id(user)] not in inside for user in graph.users_of(value))
        ]

    def _is_kernels(self, path: str) -> bool:
        """True if kernels run all nodes of this operator and handle."""
        node = self._graph.calls[path]
        group = node.debug_handle or 0, stem(node.op)
        return len(self._groups.get(group, ())) == len(self._nodes.get(group, ()))

    def _is_surely_inside(self, path: str) -> bool:
        """True if no kernel and no other delegate can run the node."""
        node = self._graph.calls[path]
        handle = node.debug_handle
        holders = self._holders.get(handle or 0, ())
        alone = (handle, stem(node.op)) not in self._groups
        return len(holders) == 1 and (alone or self._count(handle) == holders[0])

    @cached_property
    def _holders(self) -> Mapping[int, list[int]]:
        """By handle: how often each delegate that has it lists it."""
        found: dict[int, list[int]] = {}
        for record in self._delegates:
            handles = Counter(handle_list(self._symbols.handles[record.instruction_id]))
            for handle, count in handles.items():
                found.setdefault(handle, []).append(count)
        return found

    def _count(self, handle: int | None) -> int:
        return sum(len(nodes) for (own, _), nodes in self._nodes.items() if own == handle)

    # -- decisions

    def _decide(self) -> None:
        kernels = [choice for choices in self._groups.values() for choice in choices]
        calls = [choice for choices in self._calls.values() for choice in choices]
        by_number = {record.instruction_id: record for record in self._delegates}
        reads = [
            (
                self._runtime.reads(by_number[number]),
                {
                    value
                    for path in covered
                    for value in self._graph.read_through(self._graph.calls[path])
                },
            )
            for number, covered in self.found.covered.items()
            if number in self._calls
        ]
        flow = Flow(kernels + calls, self._graph, reads, self._results())
        flow.narrow()
        while self._break_tie(flow):
            flow.narrow()
        for choice in flow.choices:
            if choice.chosen is not None:
                self.found.pairs.update(zip(choice.slots, choice.chosen, strict=True))
        taken = _chosen(kernels)
        for number, covered in self.found.covered.items():
            self.found.covered[number] = tuple(path for path in covered if path not in taken)
        taken = self.found.taken
        for choice in flow.choices:
            if choice.chosen is None:
                self.found.add_reason(choice.slots, self._why_not(choice, taken))

    def _results(self) -> dict[Slot, set[NodeValue]]:
        """Return the graph's outputs for the program's outputs. They follow the buffers that the
        graph writes back."""
        count, graph = len(self._runtime.outputs), self._graph
        named: dict[Slot, set[NodeValue]] = {}
        if not count or count > len(graph.outputs):
            return named
        for position, slot in self._runtime.results.items():
            value = self._graph.value_named(
                graph.outputs[len(graph.outputs) - count + position], graph
            )
            if value is not None:
                named[slot] = named.get(slot, {value}) & {value}
        return {slot: values for slot, values in named.items() if values}

    def _break_tie(self, flow: Flow) -> bool:
        """Decide one of the choices that the flow leaves open: between nodes of the same operator
        and arguments, or by order if instructions keep the order of nodes. False if that decides
        none."""
        ordered = self._is_in_order()
        for group, choices in self._groups.items():
            waiting = [c for c in choices if len(c.candidates) > 1]
            if not waiting:
                continue
            first = waiting[0]
            free = {c[0].path: c for choice in waiting for c in choice.candidates}
            nodes = [self._graph.calls[c[0].path] for c in first.candidates]
            same = len({(node.op, node.arguments, node.inputs) for node in nodes}) == 1
            exhausted = len(free) == len(waiting) and len(choices) == len(self._nodes[group])
            if same or (ordered and exhausted):
                earliest = min(first.candidates, key=lambda c: self._position[c[0].path])
                flow.choose(first, earliest)
                return True
        return self._break_tie_of_calls(flow)

    def _break_tie_of_calls(self, flow: Flow) -> bool:
        """Decide outputs of a delegate by the order of its graph: the record lists the handles of
        its nodes in that order."""
        kernels = _chosen(choice for choices in self._groups.values() for choice in choices)
        for number, choices in self._calls.items():
            if all(choice.chosen for choice in choices):
                continue
            others = (c for other, cs in self._calls.items() if other != number for c in cs)
            elsewhere = kernels | _chosen(others)
            covered = [path for path in self.found.covered[number] if path not in elsewhere]
            possible = {c[0] for choice in choices for c in choice.candidates}
            values = [one for one in self._leaving(covered, set(covered)) if one in possible]
            handles = handle_list(self._symbols.handles[number])
            leaving = self._in_own_order(values, covered, handles)
            if leaving is None or len(leaving) != len(choices):
                continue
            pairs = list(zip(choices, leaving, strict=True))
            if all((value,) in choice.candidates for choice, value in pairs):
                for choice, value in pairs:
                    flow.choose(choice, (value,))
                return True
        return False

    def _in_own_order(
        self, leaving: Sequence[NodeValue], covered: Sequence[str], handles: Sequence[int]
    ) -> list[NodeValue] | None:
        """Sort values into the order of the delegate's graph; None if that is unknown.

        handles: of the nodes of that graph, in order. The order is known if the covered nodes have
        the same handles in the same order. Else each handle must have values of one node only, and
        this node must be its only one or stand at one place in `handles`.
        """
        calls = self._graph.calls
        own = [calls[path].debug_handle for path in covered]
        if own == list(handles):
            return list(leaving)
        by_handle: dict[int, list[NodeValue]] = {}
        for value in leaving:
            handle = calls[value.path].debug_handle
            if handle is not None:
                by_handle.setdefault(handle, []).append(value)
        for handle, values in by_handle.items():
            if len({value.path for value in values}) != 1 or (
                handles.count(handle) > 1 and own.count(handle) != 1 and len(by_handle) > 1
            ):
                return None
        return [value for handle in dict.fromkeys(handles) for value in by_handle.get(handle, ())]

    def _is_in_order(self) -> bool:
        """True if instructions run in the order of the graph's nodes, by the pairs so far."""
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
            path = self._graph.path_of[id(node)]
            if number not in ran:
                self.found.node_reasons[path] = ("its branch was not taken in this run", "not run")
                continue
            slots = self._runtime.slots_of(ran[number])
            why = self._misfit(slots, node)
            if why is None:
                self.found.pairs.update(zip(slots, self._graph.values_of(node), strict=True))
            else:
                self.found.add_reason(slots, (why, "differs"))

    def _match_replaced(self) -> None:
        """Pair a node with the last instruction of its handle, if a pass replaced or decomposed its
        operator, the instruction has no partner, and no other node has a value that leaves the
        nodes of the handle."""
        last: dict[int, InstructionRecord] = {}
        for record in self._runtime.of_kind("kernel"):
            handle = self._symbols.handles.get(record.instruction_id)
            if isinstance(handle, int):
                last[handle] = record
        busy = self.found.taken.union(*self.found.covered.values())
        for handle, record in last.items():
            slots = self._runtime.slots_of(record)
            known = (handle, self._stem_of(record, handle)) in self._nodes
            if known or any(slot in self.found.pairs for slot in slots):
                continue
            results = [
                node
                for path, node in self._graph.own_operators.items()
                if node.debug_handle == handle and path not in busy and self._is_result(node)
            ]
            if len(results) == 1 and self._misfit(slots, results[0]) is None:
                self.found.pairs.update(zip(slots, self._graph.values_of(results[0]), strict=True))

    def _is_result(self, node: Node) -> bool:
        """True if a node of another handle uses a value of the node."""
        return any(
            user.debug_handle != node.debug_handle
            for value in self._graph.values_of(node)
            for user in self._graph.users_of(value)
        )

    # -- reasons

    def _why_not(self, choice: Choice, taken: set[str]) -> Reason:
        if choice.candidates:
            names = ", ".join(dict.fromkeys(c[0].path for c in choice.candidates))
            known = "" if self._runtime.outputs else " without the program"
            return f"it is unknown{known} which of these it is: {names}", "ambiguous"
        if choice.is_delegate:
            return "no value that leaves the delegate's nodes has its shape and dtype", "differs"
        record = next(
            r for r in self._runtime.records if r.instruction_id == choice.slots[0].instruction
        )
        handle = self._symbols.handles[record.instruction_id]
        nodes = []
        if isinstance(handle, int):
            nodes = self._nodes.get((handle, self._stem_of(record, handle)), [])
        if not nodes:
            return "the reference graph has no node of this operator and debug handle", "unknown"
        free = [node for node in nodes if self._graph.path_of[id(node)] not in taken]
        return self._misfit(choice.slots, (free or nodes)[0]) or "its node is taken", "differs"

    def _explain(self) -> None:
        """Add reasons for slots and nodes that have none yet."""
        for record in self._runtime.records:
            slots = self._runtime.slots_of(record)
            if not self._symbols.handles:
                self.found.add_reason(slots, ("the record has no debug handles", "unknown"))
            elif record.instruction_id not in self._symbols.handles:
                why = "the record has no debug handle for it"
                if stem(record.operator or "") == "copy":
                    why = "writes state back, or copies for a loop: the graph has no node for it"
                self.found.add_reason(slots, (why, "unknown"))
        taken = self.found.taken
        inside = {path: n for n, covered in self.found.covered.items() for path in covered}
        handled = {h for hs in self._symbols.handles.values() for h in handle_list(hs)}
        for path, node in self._graph.operators.items():
            if path not in taken and path not in self.found.node_reasons:
                self.found.node_reasons[path] = self._why_no_instruction(
                    path, node, inside, handled
                )

    def _why_no_instruction(
        self, path: str, node: Node, inside: Mapping[str, int], handled: set[int]
    ) -> Reason:
        if path in inside:
            return f"{INSIDE_A_DELEGATE} of instruction {inside[path]}", "inside"
        if node.subgraphs:
            return "it runs sub-graphs, and their nodes are compared", "inside"
        if "/" in path:
            return "in a branch or loop with unknown instructions", "unknown"
        if node.outputs and all(value.tensor is None for value in node.outputs):
            return "a number: the runtime logs only tensors", "not logged"
        if stem(node.op) in VIEWS:
            return "a view of its input: memory planning left no instruction for it", "view"
        if node.debug_handle in handled:
            return "no instruction of its debug handle is known to run it", "unknown"
        return "no instruction has its debug handle: passes removed it", "unknown"


def _chosen(choices: Iterable[Choice]) -> set[str]:
    return {choice.chosen[0].path for choice in choices if choice.chosen}
