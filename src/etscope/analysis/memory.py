"""The memory that a method plans and what lives in it when; weights and delegates' data beside it.

Where each tensor goes is in the .pte; when it is alive is not, and is found here from the
instructions that use it, in their order:

- A value lives from the instruction that writes it to the last one that reads it; inputs of the
  method from its start, outputs to its end, state that outlives a run all the time.
- A view that costs no instruction has the place of what it is a view of, and lives from the
  write of that. Values that share place and time count once.
- In a loop (a jump back) what comes in from before or from the last iteration, and what is used
  after it, lives all through the loop.

The bytes are the plan's: for dynamic shapes the upper bounds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from etscope.analysis.program import MethodInstructions, instructions, is_prim, unfolded
from etscope.formats.flatbuffer import Span
from etscope.formats.pte import Program
from etscope.formats.pte_schema import (
    Allocation,
    DelegateCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    Method,
    TensorValue,
)
from etscope.model.table import Column, Kind, Table

_DEBUG_ALIGNMENT = 64  # of each tensor in a debug buffer

_Place = tuple[int, int]  # memory id, offset


@dataclass(frozen=True, slots=True)
class Arena:
    """A planned buffer: its size, and the most of it that is alive at one time."""

    memory_id: int
    device: str
    size: int
    peak_bytes: int


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


@dataclass(frozen=True, slots=True, eq=False)
class MemoryPlan:
    """The memory of a method.

    `live_bytes[i]` are the planned bytes that are alive at instruction i. `constant_bytes` are
    the weights of the method in this file and `external_bytes` those beside it, `state_bytes` the
    initial content of state, `delegate_bytes` the data of its delegates, each piece counted once;
    `named_bytes` what backends can ask for by name, of the whole program.
    """

    method: str
    arenas: tuple[Arena, ...]
    values: tuple[PlannedValue, ...]
    live_bytes: npt.NDArray[np.int64]
    labels: tuple[str, ...]
    constant_bytes: int
    external_bytes: int
    state_bytes: int
    delegate_bytes: int
    named_bytes: int

    @property
    def planned_bytes(self) -> int:
        """What the runtime allocates for the method's tensors."""
        return sum(arena.size for arena in self.arenas)

    @property
    def peak_bytes(self) -> int:
        """The most planned bytes that are alive at one instruction."""
        return int(self.live_bytes.max(initial=0))

    @property
    def peak_instructions(self) -> tuple[int, ...]:
        """The instructions at which the peak is reached."""
        if not len(self.live_bytes):
            return ()
        return tuple(np.flatnonzero(self.live_bytes == self.peak_bytes).tolist())

    def live_at(self, instruction: int) -> tuple[PlannedValue, ...]:
        """The values alive at an instruction, the largest first."""
        alive = [value for value in self.values if value.first <= instruction <= value.last]
        return tuple(sorted(alive, key=lambda value: -value.nbytes))

    def table(self) -> Table:
        """One row a planned value, in order of first use."""
        peak = self.peak_instructions[:1]
        values = sorted(self.values, key=lambda value: (value.first, value.value))
        return Table(
            columns=(
                Column("value", Kind.INT),
                Column("tensor"),
                Column("role", priority=1),
                Column("op"),
                Column("memory", Kind.INT, priority=3),
                Column("offset", Kind.INT, priority=2),
                Column("size", Kind.BYTES),
                Column("first", Kind.INT, priority=1),
                Column("last", Kind.INT, priority=1),
                Column("at_peak", Kind.BOOL, priority=2),
            ),
            values={
                "value": [value.value for value in values],
                "tensor": [str(value.tensor) for value in values],
                "role": [value.role for value in values],
                "op": [value.op for value in values],
                "memory": [value.place.memory_id for value in values],
                "offset": [value.place.offset for value in values],
                "size": [value.nbytes for value in values],
                "first": [value.first for value in values],
                "last": [value.last for value in values],
                "at_peak": [any(value.first <= i <= value.last for i in peak) for value in values],
            },
            title=f"Planned memory of {self.method}",
            notes=tuple(
                f"The peak is reached at instruction {i} ({self.labels[i]})." for i in peak
            ),
        )

    def summary(self) -> Table:
        """One row for each kind of memory that the method takes."""
        rows = [
            (f"planned memory {arena.memory_id} ({arena.device})", arena.size, arena.peak_bytes)
            for arena in self.arenas
        ] + [
            (name, size, None)
            for name, size in (
                ("weights", self.constant_bytes),
                ("weights in a .ptd file", self.external_bytes),
                ("initial state", self.state_bytes),
                ("delegates' data", self.delegate_bytes),
                ("named data of the program", self.named_bytes),
            )
            if size
        ]
        return Table(
            columns=(
                Column("memory"),
                Column("size", Kind.BYTES),
                Column("peak", Kind.BYTES, title="alive at peak"),
            ),
            values={
                "memory": [name for name, _, _ in rows],
                "size": [size for _, size, _ in rows],
                "peak": [peak for _, _, peak in rows],
            },
            title=f"Memory of {self.method}",
        )


def memory_plan(program: Program, method: str) -> MemoryPlan:
    """Where the tensors of a method are planned to be, when they are alive, and what else the
    method needs. Raises `MissingDataError` if there is no such method."""
    found = program.method(method)
    listing = instructions(program, method)
    values = _planned_values(found, listing)
    count = max(len(listing.records), 1)
    live = {
        memory_id: _live_bytes([v for v in values if v.place.memory_id == memory_id], count)
        for memory_id in {value.place.memory_id for value in values}
    }
    devices = dict(found.buffer_devices)
    tensors = [value for value in found.values if isinstance(value, TensorValue)]
    return MemoryPlan(
        method=method,
        arenas=tuple(
            Arena(
                memory_id=number,
                device=devices.get(number, "cpu"),
                size=size,
                peak_bytes=int(live[number].max()) if number in live else 0,
            )
            for number, size in enumerate(found.buffer_sizes)
            if number or number in live  # memory 0 is not a buffer
        ),
        values=values,
        live_bytes=sum(live.values(), np.zeros(count, np.int64)),
        labels=tuple(record.label for record in listing.records),
        constant_bytes=_data_bytes(t for t in tensors if t.is_constant and t.has_data),
        external_bytes=sum(t.nbytes or 0 for t in tensors if t.external),
        state_bytes=_data_bytes(t for t in tensors if not t.is_constant and t.has_data),
        delegate_bytes=_span_bytes(delegate.blob for delegate in found.delegates),
        named_bytes=_span_bytes(entry.blob for entry in program.named_data),
    )


def debug_buffer_bytes(program: Program, method: str) -> int:
    """How large a debug buffer one run needs when all intermediate outputs are recorded.

    The runtime then stores the results of each kernel, all arguments of each delegate call and
    the method's outputs, each tensor aligned to 64 bytes; the first may need 63 bytes more. An
    instruction counts once: runs through a loop need more, and branches less.
    """
    found = program.method(method)
    logged: list[int] = []
    for instruction, record in zip(
        found.instructions, instructions(program, method).records, strict=True
    ):
        logged.extend(_logged(found, instruction, record.outputs))
    logged.extend(found.outputs)
    sizes = (
        tensor.nbytes or 0
        for index in logged
        for tensor in [found.values[index]]
        if isinstance(tensor, TensorValue)
    )
    return sum(-(-size // _DEBUG_ALIGNMENT) * _DEBUG_ALIGNMENT for size in sizes)


def _logged(method: Method, instruction: Instruction, outputs: tuple[int, ...]) -> Iterable[int]:
    match instruction:
        case KernelCall(operator) if not is_prim(method.operators[operator]):
            return unfolded(method.values, outputs)
        case DelegateCall(_, args):
            return args
    return ()


def _planned_values(method: Method, listing: MethodInstructions) -> tuple[PlannedValue, ...]:
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
        self._writes_at: dict[_Place, list[int]] = {}
        for record in listing.records:
            for index in unfolded(method.values, record.inputs):
                self._reads.setdefault(index, []).append(record.instruction_id)
            for index in unfolded(method.values, record.outputs):
                self._writes.setdefault(index, []).append(record.instruction_id)
                place = self._place(index)
                if place is not None:
                    self._writes_at.setdefault(place, []).append(record.instruction_id)

    def life(self, index: int) -> _Life:
        """The life of a planned value, but for loops."""
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
        if source is not None:
            return _Life(source, last, role, self._labels[source])
        return _Life(0, self._end, "state", None)

    def _source(self, index: int, before: int) -> int | None:
        """The write of what an unwritten value is a view of: the last one to its place."""
        place = self._place(index)
        writes = self._writes_at.get(place, []) if place is not None else []
        position = bisect_right(writes, before)
        return writes[position - 1] if position else None

    def _place(self, index: int) -> _Place | None:
        value = self._method.values[index]
        if not isinstance(value, TensorValue) or value.allocation is None:
            return None
        return value.allocation.memory_id, value.allocation.offset


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


def _live_bytes(values: Iterable[PlannedValue], count: int) -> npt.NDArray[np.int64]:
    """Bytes alive at each of `count` instructions. What has one place at one time counts once."""
    by_place: dict[int, list[PlannedValue]] = {}
    for value in values:
        if value.last >= value.first:
            by_place.setdefault(value.place.offset, []).append(value)
    change = np.zeros(count + 1, np.int64)
    for tenants in by_place.values():
        tenants.sort(key=lambda value: value.first)
        first, last, size = tenants[0].first, tenants[0].last, tenants[0].nbytes
        for value in tenants[1:]:
            if value.first > last:
                change[first] += size
                change[last + 1] -= size
                first, last, size = value.first, value.last, value.nbytes
            else:
                last, size = max(last, value.last), max(size, value.nbytes)
        change[first] += size
        change[last + 1] -= size
    return np.cumsum(change)[:count]


def _data_bytes(tensors: Iterable[TensorValue]) -> int:
    """Bytes of the tensors in the file; those that share their data count once."""
    sizes: dict[tuple[int, int], int] = {}
    for tensor in tensors:
        key = tensor.mutable_segment, tensor.data_index
        sizes[key] = max(sizes.get(key, 0), tensor.nbytes or 0)
    return sum(sizes.values())


def _span_bytes(spans: Iterable[Span]) -> int:
    return sum(span.size for span in set(spans))
