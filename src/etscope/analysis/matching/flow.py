"""Who can be whose partner, narrowed down by the flow of values until nothing more can be said.

Each choice starts with all that debug handles, operators' names, shapes and dtypes allow. What an
instruction reads was written by others, and a node reads what other nodes compute: a candidate
stays only if its neighbours have candidates that agree. The last step takes chosen candidates from
all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from etscope.analysis.matching.graph import Paths, Place, Slot

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
