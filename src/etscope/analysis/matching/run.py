"""Outputs of instructions, the flow of values between them, and the pairs found so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from etscope.analysis.program.program import InstructionRecord
from etscope.model.graph import NodeValue, TensorSpec

if TYPE_CHECKING:
    from etscope.backends.common.logged import Form

# A recorder may widen a type that an ETDump cannot hold.
_WIDENED = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True, slots=True)
class LoggedSpec:
    """The type of a logged tensor: dtype by torch's name, and shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """An output of an instruction, or of an operator inside an instruction's delegate."""

    instruction: int
    output: int
    delegate_id: int | str | None = None

    @property
    def order(self) -> tuple[int, str, int]:
        inside = "" if self.delegate_id is None else str(self.delegate_id)
        return self.instruction, inside, self.output


Specs = Sequence[LoggedSpec | None]
Reason = tuple[str, str]  # in words, and its kind


@dataclass(frozen=True)
class Runtime:
    """The instructions and the types of their logged values: the arguments of `matching.match`.

    num_outputs: by delegate call, the number of outputs, which are the last values it logged.
    """

    all_records: Sequence[InstructionRecord]
    logged: Mapping[int, Specs]
    delegated: Mapping[tuple[int, int | str], Specs]
    outputs: tuple[int, ...]
    num_outputs: Mapping[int, int]

    @cached_property
    def records(self) -> list[InstructionRecord]:
        """The instructions that ran and logged something."""
        return [record for record in self.all_records if record.instruction_id in self.logged]

    def of_kind(self, kind: str) -> list[InstructionRecord]:
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
        number = record.instruction_id
        count = len(self.logged[number]) - self._first(number)
        return tuple(Slot(number, output) for output in range(count))

    def _first(self, instruction: int) -> int:
        """The index of an instruction's first output among the values it logged."""
        count = self.num_outputs.get(instruction)
        return 0 if count is None else max(len(self.logged[instruction]) - count, 0)

    def logged_index(self, slot: Slot) -> int:
        """The index of an output among the values its instruction logged."""
        inside = slot.delegate_id is not None
        return slot.output if inside else self._first(slot.instruction) + slot.output

    def spec(self, slot: Slot) -> LoggedSpec | None:
        if slot.delegate_id is not None:
            return self.delegated[slot.instruction, slot.delegate_id][slot.output]
        return self.logged[slot.instruction][self.logged_index(slot)]

    # -- the flow of values

    def reads(self, record: InstructionRecord) -> tuple[Slot, ...]:
        """Return the outputs that an instruction reads; empty without a program."""
        return self._flow[0].get(record.instruction_id, ())

    @property
    def results(self) -> Mapping[int, Slot]:
        """The program's outputs: position -> output of an instruction."""
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
        results = {i: written[index] for i, index in enumerate(self.outputs) if index in written}
        return reads, results


@dataclass
class PartialMatching:
    """The pairs found so far, and reasons for the values without one.

    forms: how values logged inside delegates convert to the nodes'. views: the slots with another
    shape than the node's. covered: the paths of the nodes in each delegate call, by instruction.
    """

    pairs: dict[Slot, NodeValue] = field(default_factory=dict)
    forms: dict[Slot, Form] = field(default_factory=dict)
    views: set[Slot] = field(default_factory=set)
    reasons: dict[Slot, Reason] = field(default_factory=dict)
    node_reasons: dict[str, Reason] = field(default_factory=dict)
    covered: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        """The paths of nodes with a partner."""
        return {value.path for value in self.pairs.values()}

    def add_reason(self, slots: Sequence[Slot], reason: Reason) -> None:
        """Record why outputs have no partner, unless a reason is known."""
        for slot in slots:
            self.reasons.setdefault(slot, reason)

    def reason_of(self, slot: Slot) -> Reason:
        return self.reasons.get(slot, ("its node in the reference graph is unknown", "unknown"))

    def reason_of_node(self, path: str) -> Reason:
        return self.node_reasons.get(path, ("its instruction is unknown", "unknown"))


def type_mismatch(logged: LoggedSpec | None, spec: TensorSpec | None) -> str | None:
    """Describe why a logged value cannot be the node's, by shape or dtype; None if it can."""
    if logged is None and spec is None:
        return None
    if logged is None or spec is None:
        return "one is a tensor, the other a number"
    if logged.dtype not in (spec.dtype, _WIDENED.get(spec.dtype)):
        return f"logged as {logged.dtype}, but {spec.dtype} in the reference"
    if len(logged.shape) != len(spec.shape) or any(
        isinstance(size, int) and size != given
        for size, given in zip(spec.shape, logged.shape, strict=True)
    ):
        shapes = [f"[{', '.join(map(str, shape))}]" for shape in (logged.shape, spec.shape)]
        return f"logged as {shapes[0]}, but {shapes[1]} in the reference"
    return None
