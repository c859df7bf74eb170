"""What ran, as `matching` sees it: outputs of instructions, what each reads, and pairs so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from etscope.analysis.matching.graph import LoggedSpec, Place, Slot
from etscope.analysis.program.program import InstructionRecord

Specs = Sequence[LoggedSpec | None]
Reason = tuple[str, str]  # in words, and its kind


@dataclass(frozen=True)
class Runtime:
    """The instructions and what they logged, as `matching.match` is given it.

    `num_outputs` is of delegate calls: how many of the last values that they logged are outputs.
    """

    all_records: Sequence[InstructionRecord]
    logged: Mapping[int, Specs]
    delegated: Mapping[tuple[int, int | str], Specs]
    outputs: tuple[int, ...]
    num_outputs: Mapping[int, int]

    @cached_property
    def records(self) -> list[InstructionRecord]:
        """Of the instructions that ran and logged something."""
        return [record for record in self.all_records if record.instruction_id in self.logged]

    def of_kind(self, kind: str) -> list[InstructionRecord]:
        """The records of one kind."""
        return [record for record in self.records if record.kind == kind]

    @cached_property
    def slots(self) -> list[Slot]:
        """All outputs, in order of execution."""
        inner = [
            Slot(number, output, identifier)
            for (number, identifier), specs in self.delegated.items()
            for output in range(len(specs))
        ]
        outer = [slot for record in self.records for slot in self.slots_of(record)]
        return sorted(outer + inner, key=lambda slot: slot.order)

    def slots_of(self, record: InstructionRecord) -> tuple[Slot, ...]:
        """An instruction's outputs."""
        number = record.instruction_id
        count = len(self.logged[number]) - self._first(number)
        return tuple(Slot(number, output) for output in range(count))

    def _first(self, instruction: int) -> int:
        """Where an instruction's outputs begin among what it logged."""
        count = self.num_outputs.get(instruction)
        return 0 if count is None else max(len(self.logged[instruction]) - count, 0)

    def logged_index(self, slot: Slot) -> int:
        """The place of an output among all that its instruction logged."""
        inside = slot.delegate_id is not None
        return slot.output if inside else self._first(slot.instruction) + slot.output

    def spec(self, slot: Slot) -> LoggedSpec | None:
        """What was logged for it."""
        if slot.delegate_id is not None:
            return self.delegated[slot.instruction, slot.delegate_id][slot.output]
        return self.logged[slot.instruction][self.logged_index(slot)]

    # -- the flow of values

    def reads(self, record: InstructionRecord) -> tuple[Slot, ...]:
        """The outputs that an instruction reads, as far as the program is known."""
        return self._flow[0].get(record.instruction_id, ())

    @property
    def results(self) -> Mapping[int, Slot]:
        """The outputs that are the program's, by their position there."""
        return self._flow[1]

    @cached_property
    def _flow(self) -> tuple[dict[int, tuple[Slot, ...]], dict[int, Slot]]:
        written: dict[int, Slot] = {}
        reads: dict[int, tuple[Slot, ...]] = {}
        for record in self.all_records:
            number = record.instruction_id
            reads[number] = tuple(written[index] for index in record.inputs if index in written)
            slots = self.slots_of(record) if number in self.logged else ()
            for position, index in enumerate(record.outputs):
                written.pop(index, None)
                if len(slots) == len(record.outputs):
                    written[index] = slots[position]
        results = {
            position: written[index]
            for position, index in enumerate(self.outputs)
            if index in written
        }
        return reads, results


@dataclass
class Found:
    """Pairs in the making, and what is known of values without one.

    `views`: the slots whose values have another shape than the node's. `covered`: the paths of the
    nodes in each delegate call, by instruction.
    """

    pairs: dict[Slot, Place] = field(default_factory=dict)
    views: set[Slot] = field(default_factory=set)
    reasons: dict[Slot, Reason] = field(default_factory=dict)
    node_reasons: dict[str, Reason] = field(default_factory=dict)
    covered: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        """The paths of nodes with a partner."""
        return {place.path for place in self.pairs.values()}

    def say(self, slots: Sequence[Slot], reason: Reason) -> None:
        """Why outputs have no partner, if nothing was said before."""
        for slot in slots:
            self.reasons.setdefault(slot, reason)

    def reason_of(self, slot: Slot) -> Reason:
        """Why an output has no partner."""
        return self.reasons.get(slot, ("no node of the reference graph is known for it", "unknown"))

    def reason_of_node(self, path: str) -> Reason:
        """Why a node has no partner."""
        return self.node_reasons.get(path, ("no instruction is known to run it", "unknown"))
