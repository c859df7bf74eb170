"""When the tensors in planned memory are alive, found from the instructions that use them.

Where a tensor goes is in the .pte; when it is alive is not. In the order of the instructions:

- A value lives from the instruction that writes it to the last one that reads it; inputs of the
  method from its start, outputs to its end, state that outlives a run all the time.
- A view that costs no instruction has the place of what it is a view of, and lives from the
  write of that.
- In a loop (a jump back) what comes in from before, and what is used after it, lives all through
  the loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from etscope.analysis.program.program import MethodInstructions, unfolded
from etscope.formats.program.pte_schema import (
    Allocation,
    Instruction,
    JumpFalseCall,
    Method,
    TensorValue,
)

_BEFORE = -1  # the caller writes the inputs before instruction 0


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """A tensor in planned memory, alive at the instructions `first` to `last`, both included.

    `role` is "input", "output", "state" (keeps its content between runs), "activation" or "unused"
    (of no instruction; `last` is -1); `op` the instruction that first writes it, by its name for
    people.
    """

    value: int
    tensor: TensorValue
    place: Allocation
    nbytes: int
    first: int
    last: int
    role: str
    op: str | None


def planned_values(method: Method, listing: MethodInstructions) -> tuple[PlannedValue, ...]:
    """The tensors of a method that are in planned memory, in the order of its values."""
    planned = [
        (index, value, value.allocation)
        for index, value in enumerate(method.values)
        if isinstance(value, TensorValue) and value.allocation is not None
    ]
    uses = _Uses(method, listing)
    lives = _through_loops([uses.life(index) for index, _, _ in planned], method.instructions)
    return tuple(
        PlannedValue(
            value=index,
            tensor=tensor,
            place=place,
            nbytes=tensor.nbytes or 0,
            first=life.first,
            last=life.last,
            role=life.role,
            op=life.op,
        )
        for (index, tensor, place), life in zip(planned, lives, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Life:
    first: int
    last: int
    role: str
    op: str | None


class _Uses:
    """Which instructions read and write which values and places."""

    def __init__(self, method: Method, listing: MethodInstructions) -> None:
        self._method = method
        self._labels = [record.label for record in listing.records]
        self._end = max(len(listing.records) - 1, 0)
        self._inputs, self._outputs = frozenset(method.inputs), frozenset(method.outputs)
        self._reads: dict[int, list[int]] = {}
        self._writes: dict[int, list[int]] = {}
        self._writes_at: dict[Allocation | None, list[int]] = {}
        for index in method.inputs:
            self._writes_at.setdefault(self._place(index), []).append(_BEFORE)
        for record in listing.records:
            for index in unfolded(method.values, record.inputs):
                self._reads.setdefault(index, []).append(record.instruction_id)
            for index in unfolded(method.values, record.outputs):
                self._writes.setdefault(index, []).append(record.instruction_id)
                self._writes_at.setdefault(self._place(index), []).append(record.instruction_id)

    def life(self, index: int) -> _Life:
        """The life of a planned value in straight order."""
        reads, writes = self._reads.get(index, []), self._writes.get(index, [])
        last = self._end if index in self._outputs else max(reads[-1:] + writes[-1:], default=-1)
        if index in self._inputs:
            return _Life(0, max(last, 0), "input", None)
        if last < 0:
            return _Life(0, -1, "unused", None)
        role = "output" if index in self._outputs else "activation"
        if writes and not (reads and reads[0] <= writes[0]):
            return _Life(writes[0], last, role, self._labels[writes[0]])
        source = None if writes else self._source(index, min(reads, default=last))
        if source is None:
            return _Life(0, self._end, "state", None)
        op = None if source == _BEFORE else self._labels[source]
        return _Life(max(source, 0), last, role, op)

    def _source(self, index: int, before: int) -> int | None:
        """The write of what an unwritten value is a view of: the last one to its place."""
        writes = self._writes_at.get(self._place(index), [])
        position = bisect_right(writes, before)
        return writes[position - 1] if position else None

    def _place(self, index: int) -> Allocation | None:
        value = self._method.values[index]
        return value.allocation if isinstance(value, TensorValue) else None


def _through_loops(lives: list[_Life], instructions: Sequence[Instruction]) -> list[_Life]:
    """The lives as they are when loops run more than once. Nested loops count as the outer one."""
    loops = _loops(instructions)
    if not loops:
        return lives
    starts = [start for start, _ in loops]

    def around(instruction: int) -> tuple[int, int]:
        position = bisect_right(starts, instruction)
        loop = loops[position - 1] if position else (0, -1)
        return loop if instruction <= loop[1] else (instruction, instruction)

    extended = []
    for life in lives:
        before, after = around(life.first), around(life.last)
        if before != after and life.last >= life.first:
            life = replace(life, first=before[0], last=after[1])
        extended.append(life)
    return extended


def _loops(instructions: Sequence[Instruction]) -> list[tuple[int, int]]:
    """First and last instruction of each loop; of nested or overlapping ones their union."""
    jumps = sorted(
        (instruction.destination, index)
        for index, instruction in enumerate(instructions)
        if isinstance(instruction, JumpFalseCall) and instruction.destination <= index
    )
    loops: list[tuple[int, int]] = []
    for start, end in jumps:
        if loops and start <= loops[-1][1]:
            loops[-1] = loops[-1][0], max(loops[-1][1], end)
        else:
            loops.append((start, end))
    return loops
