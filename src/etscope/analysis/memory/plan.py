"""The planned memory of a method: its buffers, when each value is alive, and the peak.

The bytes are the plan's: upper bounds for dynamic shapes. Values that share place and time, such as
views, count once. Weights and delegates' data are listed apart from the plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from etscope.analysis.program.program import (
    InstructionRecord,
    MethodInstructions,
    instructions,
    is_prim,
    unfolded,
)
from etscope.errors import MissingDataError
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import (
    Allocation,
    DelegateCall,
    JumpFalseCall,
    KernelCall,
    Method,
    TensorValue,
)
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown

if TYPE_CHECKING:
    from etscope.analysis.matching.export import Export
    from etscope.analysis.program.correlate import Attribution

# -- The .pte stores the place of a tensor, but not when it is alive. That follows from
# instructions:
#
# - A value is alive from the instruction that writes it to the last one that reads it; inputs of
#   the method from its start, outputs to its end, state that outlives a run all the time.
# - A view that costs no instruction has the place of its base, and is alive from the base's write.
# - In a loop (a jump back), values from before and values used after it are alive all through the
#   loop.

BEFORE = -1  # the caller writes the inputs before instruction 0


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """A tensor in planned memory, alive at the instructions `first` to `last`, both included.

    role: "input", "output", "state" (keeps its content between runs), "activation" or "unused" (by
    any instruction; `last` is -1). op: label of the instruction that first writes it.
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
    planned = list(_without_loops(method, listing))
    loops: list[tuple[int, int]] = []  # first and last instruction; overlapping loops are one
    jumps_back = (
        (instruction.destination, index)
        for index, instruction in enumerate(method.instructions)
        if isinstance(instruction, JumpFalseCall) and instruction.destination <= index
    )
    for start, end in sorted(jumps_back):
        if loops and start <= loops[-1][1]:
            loops[-1] = loops[-1][0], max(loops[-1][1], end)
        else:
            loops.append((start, end))
    if not loops:
        return tuple(planned)

    def around(instruction: int) -> tuple[int, int]:
        position = bisect_right(loops, instruction, key=lambda loop: loop[0])
        loop = loops[position - 1] if position else (0, -1)
        return loop if instruction <= loop[1] else (instruction, instruction)

    for number, value in enumerate(planned):
        before, after = around(value.first), around(value.last)
        if before != after and value.last >= value.first:
            planned[number] = replace(value, first=before[0], last=after[1])
    return tuple(planned)


def _without_loops(method: Method, listing: MethodInstructions) -> Iterator[PlannedValue]:
    """Yield the planned values as if no instruction jumped back."""
    views, state = unwritten_values(method, listing.records)
    end = max(len(listing.records) - 1, 0)
    written: dict[int, int] = {}  # value -> the first instruction that writes it
    used: dict[int, int] = {}  # value -> the last one that reads or writes it
    for record in listing.records:
        outputs = unfolded(method.values, record.outputs)
        for index in outputs:
            written.setdefault(index, record.instruction_id)
        for index in (*unfolded(method.values, record.inputs), *outputs):
            used[index] = record.instruction_id
    for index, tensor in enumerate(method.values):
        if not isinstance(tensor, TensorValue) or tensor.allocation is None:
            continue
        last = end if index in method.outputs else used.get(index, -1)
        role = "output" if index in method.outputs else "activation"
        first, op = 0, None
        if index in method.inputs:
            role, last = "input", max(last, 0)
        elif last < 0:
            role = "unused"
        elif index in state:
            role, last = "state", end
        else:
            maker = views[index][1] if index in views else written[index]
            first = max(maker, 0)
            op = None if maker == BEFORE else listing.records[maker].label
        size = tensor.nbytes or 0
        yield PlannedValue(index, tensor, tensor.allocation, size, first, last, role, op)


def unwritten_values(
    method: Method, records: Sequence[InstructionRecord]
) -> tuple[Mapping[int, tuple[int, int]], frozenset[int]]:
    """Find the planned values that are read before any instruction writes them.

    Returns views that cost no instruction, each with its base (the value written last to its place)
    and the instruction that wrote it; and state, to which nothing was written before.
    """
    places = {
        index: value.allocation
        for index, value in enumerate(method.values)
        if isinstance(value, TensorValue) and value.allocation is not None
    }
    held: dict[Allocation, tuple[int, int]] = {}
    views: dict[int, tuple[int, int]] = {}
    state: set[int] = set()
    known: set[int] = set()

    def write(values: Iterable[int], instruction: int) -> None:
        for index in values:
            known.add(index)
            value = method.values[index]
            if index in places and isinstance(value, TensorValue) and value.nbytes:
                held[places[index]] = index, instruction

    def read(values: Iterable[int]) -> None:
        for index in values:
            if index not in places or index in known:
                continue
            known.add(index)
            if places[index] in held:
                views[index] = held[places[index]]
            else:
                state.add(index)

    write(method.inputs, BEFORE)
    for record in records:
        read(unfolded(method.values, record.inputs))
        outputs = unfolded(method.values, record.outputs)
        if record.writes_back:
            state.update(index for index in outputs if index not in method.inputs)
        write(outputs, record.instruction_id)
    read(method.outputs)
    return {view: base for view, base in views.items() if view not in state}, frozenset(state)


_SUMMARY = (
    Column("memory"),
    Column("size", Kind.BYTES),
    Column("peak", Kind.BYTES, title="alive at peak"),
)
_DEBUG_ALIGNMENT = 64  # bytes: the runtime aligns each tensor in a debug buffer to it


@dataclass(frozen=True, slots=True)
class Arena:
    """A planned buffer: its size, the most of it that is alive at one time, and the size of all
    that is ever in it."""

    memory_id: int
    device: str
    size: int
    peak_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPlan(Shown):
    """The memory of a method.

    live_bytes: planned bytes that are live at each instruction; a method without instructions has
    one entry. labels: the labels of the instructions. constant_bytes: the method's weights in this
    file. external_bytes: its weights in a .ptd file. state_bytes: the initial content of its state.
    delegate_bytes: the data of its delegates, each piece counted once. named_bytes: the whole
    program's data that backends read by name; 0 for a method without delegates.
    """

    method: str
    arenas: tuple[Arena, ...]
    values: tuple[PlannedValue, ...]
    live_bytes: tuple[int, ...]
    labels: tuple[str, ...]
    constant_bytes: int
    external_bytes: int
    state_bytes: int
    delegate_bytes: int
    named_bytes: int

    @property
    def planned_bytes(self) -> int:
        """Bytes that the runtime allocates for the method's tensors."""
        return sum(arena.size for arena in self.arenas)

    @property
    def peak_bytes(self) -> int:
        """The most planned bytes that are alive at one instruction."""
        return max(self.live_bytes, default=0)

    @property
    def peak_instructions(self) -> tuple[int, ...]:
        """The instructions at which the peak is reached."""
        peak = self.peak_bytes
        labelled = zip(self.live_bytes, self.labels, strict=False)
        return tuple(index for index, (size, _) in enumerate(labelled) if size == peak)

    def live_at(self, instruction: int) -> tuple[PlannedValue, ...]:
        """The values alive at an instruction, the largest first."""
        alive = [value for value in self.values if value.first <= instruction <= value.last]
        return tuple(sorted(alive, key=lambda value: -value.nbytes))

    def table(self, attributions: Sequence[Attribution] = ()) -> Table:
        """A table with one row for each planned value, in order of first use.

        attributions: the module and line of each instruction; a value gets what the instruction
        has that writes it.
        """
        places = self.places(attributions)
        peak = self.peak_instructions[:1]
        values = sorted(self.values, key=lambda value: (value.first, value.value))
        return Table.of(
            {
                Column("value", Kind.INT): [value.value for value in values],
                Column("tensor"): [str(value.tensor) for value in values],
                Column("role", priority=1): [value.role for value in values],
                Column("op"): [value.op for value in values],
                Column("module", Kind.PATH, priority=1): [places[v.value][0] for v in values],
                Column("source", Kind.PATH, priority=1): [places[v.value][1] for v in values],
                Column("memory", Kind.INT, priority=3): [value.place.memory_id for value in values],
                Column("offset", Kind.INT, priority=2): [value.place.offset for value in values],
                Column("size", Kind.BYTES): [value.nbytes for value in values],
                Column("first", Kind.INT, priority=1): [value.first for value in values],
                Column("last", Kind.INT, priority=1): [value.last for value in values],
                Column("at_peak", Kind.BOOL, priority=2): [
                    any(value.first <= i <= value.last for i in peak) for value in values
                ],
            },
            title=f"Planned memory of {self.method}",
            notes=tuple(
                f"The peak is reached at instruction {i} ({self.labels[i]})." for i in peak
            ),
        )

    def places(
        self, attributions: Sequence[Attribution]
    ) -> Mapping[int, tuple[str | None, str | None]]:
        """The module and the line of each planned value."""
        found: dict[int, tuple[str | None, str | None]] = {}
        for value in self.values:
            found[value.value] = None, None
            if value.op is not None and value.first < len(attributions):
                writer = attributions[value.first]
                found[value.value] = writer.module, writer.source
        return found

    def summary(self) -> Table:
        """A table with one row for each kind of memory that the method takes."""
        kinds: list[tuple[str, int, int | None]] = [
            (f"planned memory {arena.memory_id} ({arena.device})", arena.size, arena.peak_bytes)
            for arena in self.arenas
        ]
        others = (
            ("weights", self.constant_bytes),
            ("weights in a .ptd file", self.external_bytes),
            ("initial state", self.state_bytes),
            ("delegates' data", self.delegate_bytes),
            ("named data of the program", self.named_bytes),
        )
        kinds += ((name, size, None) for name, size in others if size)
        return Table.of_rows(_SUMMARY, kinds, title=f"Memory of {self.method}")


def memory_plan(program: Program, method: str) -> MemoryPlan:
    """Compute the plan of a method: places and lives of its tensors, and its other memory.

    Raises `MissingDataError` for an unknown method.
    """
    found = program.method(method)
    listing = instructions(program, method)
    values = planned_values(found, listing)
    by_place: dict[Allocation, list[PlannedValue]] = {}
    for value in sorted(values, key=lambda value: value.first):
        if value.last >= value.first:
            by_place.setdefault(value.place, []).append(value)
    changes: dict[int, dict[int, int]] = {}  # memory id -> instruction -> bytes
    totals: dict[int, int] = {}  # memory id -> bytes
    for place, tenants in by_place.items():
        arena = changes.setdefault(place.memory_id, {})
        for first, last, size in _tenancies(tenants):
            arena[first] = arena.get(first, 0) + size
            arena[last + 1] = arena.get(last + 1, 0) - size
            totals[place.memory_id] = totals.get(place.memory_id, 0) + size
    live = [0] * (max(len(listing.records), 1) + 1)
    for arena in changes.values():
        for instruction, size in arena.items():
            live[instruction] += size
    devices = dict(found.buffer_devices)
    tensors = [value for value in found.values if isinstance(value, TensorValue)]
    return MemoryPlan(
        method=method,
        arenas=tuple(
            Arena(
                memory_id=number,
                device=devices.get(number, "cpu"),
                size=size,
                peak_bytes=max(
                    accumulate(change for _, change in sorted(changes.get(number, {}).items())),
                    default=0,
                ),
                total_bytes=totals.get(number, 0),
            )
            for number, size in enumerate(found.buffer_sizes)
            if number or number in changes  # memory 0 is not a buffer
        ),
        values=values,
        live_bytes=tuple(accumulate(live[:-1])),
        labels=tuple(record.label for record in listing.records),
        constant_bytes=_data_bytes(t for t in tensors if t.is_constant and t.has_data),
        external_bytes=sum(t.nbytes or 0 for t in tensors if t.external),
        state_bytes=_data_bytes(t for t in tensors if not t.is_constant and t.has_data),
        delegate_bytes=_span_bytes(delegate.blob for delegate in found.delegates),
        named_bytes=_span_bytes(e.blob for e in program.named_data) if found.delegates else 0,
    )


def memory_plans(export: Export) -> Mapping[str, MemoryPlan]:
    """Compute the plan of each method of a program, once; none without a program."""
    program = export.recorded_program
    if program is None:
        return {}
    return export.once(
        "memory plans",
        lambda: {method.name: memory_plan(program, method.name) for method in program.methods},
    )


def methods_sharing_state(program: Program, method: str) -> tuple[str, ...]:
    """Return the other methods that share the mutable buffers of a method."""
    group = next((group for group in groups_sharing_state(program) if method in group), ())
    return tuple(name for name in group if name != method)


def groups_sharing_state(program: Program) -> tuple[tuple[str, ...], ...]:
    """Group methods that have the same mutable buffers, as planned by
    `MemoryPlanningPass(share_mutable_buffers=True)`; each other method is alone.

    The file does not store how it was planned. The sign is a second planned buffer of the same
    size.
    """
    groups: dict[int | str, list[str]] = {}
    for one in program.methods:
        sizes = one.buffer_sizes[1:]
        is_shared = len(sizes) == 2 and sizes[1] > 0
        groups.setdefault(sizes[1] if is_shared else one.name, []).append(one.name)
    return tuple(map(tuple, groups.values()))


def debug_buffer_bytes(program: Program, method: str) -> int:
    """Bytes of the debug buffer that one run needs when all intermediate outputs are recorded.

    The runtime then stores the results of each kernel, all arguments of each delegate call and
    the method's outputs, each tensor aligned to 64 bytes; the first may need 63 bytes more. An
    instruction counts once: runs through a loop need more, and branches less.
    """
    values = program.method(method).values
    sizes = (
        tensor.nbytes or 0
        for _, index in recorded_by_a_run(program, method)
        for tensor in [values[index]]
        if isinstance(tensor, TensorValue)
    )
    return sum(-(-size // _DEBUG_ALIGNMENT) * _DEBUG_ALIGNMENT for size in sizes)


def recorded_by_a_run(program: Program, method: str) -> Iterator[tuple[str, int]]:
    """Yield (source, index of the value) of all that one run logs when all intermediate outputs are
    recorded. The source is an instruction ("3 aten::add.out") or "the method's outputs"."""
    found = program.method(method)
    records = instructions(program, method).records
    for number, (instruction, record) in enumerate(zip(found.instructions, records, strict=True)):
        match instruction:
            case KernelCall(operator) if not is_prim(found.operators[operator]):
                logged = unfolded(found.values, record.outputs)
            case DelegateCall(_, args):
                logged = args
            case _:
                logged = ()
        for index in logged:
            yield f"{number} {record.label}", index
    for index in found.outputs:
        yield "the method's outputs", index


def _tenancies(tenants: Sequence[PlannedValue]) -> Iterator[tuple[int, int, int]]:
    """Yield the first and last instruction and the bytes of the values of one place. Values that
    are alive at the same time count once."""
    first, last, size = tenants[0].first, tenants[0].last, tenants[0].nbytes
    for value in tenants[1:]:
        if value.first > last:
            yield first, last, size
            first, last, size = value.first, value.last, value.nbytes
        else:
            last, size = max(last, value.last), max(size, value.nbytes)
    yield first, last, size


def _data_bytes(tensors: Iterable[TensorValue]) -> int:
    """Bytes of the tensors in the file; shared data count once."""
    sizes: dict[tuple[int, int], int] = {}
    for tensor in tensors:
        key = tensor.mutable_segment, tensor.data_index
        sizes[key] = max(sizes.get(key, 0), tensor.nbytes or 0)
    return sum(sizes.values())


def _span_bytes(spans: Iterable[Span]) -> int:
    return sum(span.size for span in set(spans))


# -- the plans of all methods as a report


def memory_report(
    export: Export,
    about: Mapping[str, str],
    *,
    force: bool = False,
    notes: tuple[str, ...] = (),
) -> Report:
    """Build a report of all methods with the sections "memory" (buffers, weights, delegates' data;
    with `notes`),
    "memory_reuse" (how well the buffers are used), "memory_peak" (the values alive at the peak),
    "memory_live" (bytes alive at each instruction) and "memory_values" (place and life of each
    planned value, with module and line if there is a record).

    Raises `MissingDataError` for a program that plans no memory, and `MismatchError` for a record
    of another program unless `force` is given.
    """
    if not force:
        export.check_record()
    plans = memory_plans(export)
    if not any(plan.values for plan in plans.values()):
        raise MissingDataError(
            "this program plans no memory: the places of its tensors are not known before it runs",
            hint="export with memory planning, ExecuTorch's default",
        )
    attributions = export.attributions
    tables = [(name, plan.table(attributions[name])) for name, plan in plans.items()]
    values = rows(
        "memory_values",
        "Values in planned memory",
        (Column("method"), *tables[0][1].columns),
        [(name, *row) for name, table in tables for row in table.rows()],
    )
    sections = [
        summary_section(plans, notes),
        reuse_section(plans),
        peak_section(plans, attributions),
        _live(plans),
        values,
    ]
    return Report(about, tuple(section for section in sections if len(section.table)))


def summary_section(plans: Mapping[str, MemoryPlan], notes: tuple[str, ...] = ()) -> Section:
    """A section with one row for each kind of memory that a method takes, and `notes`."""
    return rows(
        "memory",
        "Memory",
        (Column("method"), *_SUMMARY),
        [(name, *row) for name, plan in plans.items() for row in plan.summary().rows()],
        notes,
    )


def reuse_section(plans: Mapping[str, MemoryPlan]) -> Section:
    """A section with one row for each planned buffer: its size without any reuse, and the lower
    bound of every placement of its values."""
    return rows(
        "memory_reuse",
        "Reuse of planned memory",
        (
            Column("method"),
            Column("memory", Kind.INT),
            Column("size", Kind.BYTES),
            Column("without_reuse", Kind.BYTES, title="without reuse"),
            Column("lower_bound", Kind.BYTES, title="lower bound"),
            Column("fragmentation", Kind.BYTES),
        ),
        [
            (
                name,
                arena.memory_id,
                arena.size,
                arena.total_bytes,
                arena.peak_bytes,
                arena.size - arena.peak_bytes,
            )
            for name, plan in plans.items()
            for arena in plan.arenas
        ],
        (
            "The lower bound is the most that is alive at one instruction; fragmentation is "
            "the rest of the buffer.",
        ),
    )


def peak_section(
    plans: Mapping[str, MemoryPlan], attributions: Mapping[str, Sequence[Attribution]] | None = None
) -> Section:
    """A section with one row for each value that is live at a method's memory peak (the first such
    instruction), the largest first. `share` is the share of the peak; values that share bytes, such
    as views, each have their whole size.
    """
    content, notes = [], []
    for name, plan in plans.items():
        places = plan.places((attributions or {}).get(name, ()))
        for instruction in plan.peak_instructions[:1]:
            peak = plan.peak_bytes
            if not peak:
                continue
            others = len(plan.peak_instructions) - 1
            also = f", and at {others:,} more" if others else ""
            notes.append(
                f"{name}: {peak:,} bytes are alive at instruction {instruction} "
                f"({plan.labels[instruction]}){also}."
                if instruction < len(plan.labels)
                else f"{name}: {peak:,} bytes are alive."
            )
            content += [
                (
                    name,
                    value.value,
                    str(value.tensor),
                    value.nbytes,
                    value.nbytes / peak,
                    value.role,
                    value.op,
                    *places[value.value],
                    value.first if value.op is not None else None,
                    value.last,
                )
                for value in plan.live_at(instruction)
                if value.nbytes
            ]
    return rows(
        "memory_peak",
        "Alive at the peak of planned memory",
        (
            Column("method"),
            Column("value", Kind.INT, priority=4),
            Column("tensor"),
            Column("size", Kind.BYTES),
            Column("share", Kind.SHARE),
            Column("role", priority=1),
            Column("made_by", title="made by"),
            Column("module", Kind.PATH, priority=1),
            Column("source", Kind.PATH, priority=1),
            Column("instruction", Kind.INT, title="#"),
            Column("last", Kind.INT, title="alive until #", priority=2),
        ),
        content,
        tuple(notes),
    )


def _live(plans: Mapping[str, MemoryPlan]) -> Section:
    """A section with one row for each instruction: bytes alive, and values that begin and end."""
    content = []
    for name, plan in plans.items():
        born: dict[int, int] = {}
        last: dict[int, int] = {}
        for value in plan.values:
            if value.last >= value.first:
                born[value.first] = born.get(value.first, 0) + 1
                last[value.last] = last.get(value.last, 0) + 1
        for number, (size, label) in enumerate(zip(plan.live_bytes, plan.labels, strict=False)):
            share = size / plan.peak_bytes if plan.peak_bytes else None
            begin, end = born.get(number, 0), last.get(number, 0)
            content.append((name, number, label, size, share, begin, end))
    return rows(
        "memory_live",
        "Planned memory alive at each instruction",
        (
            Column("method"),
            Column("instruction", Kind.INT, title="#"),
            Column("op"),
            Column("alive", Kind.BYTES),
            Column("of_peak", Kind.SHARE, title="of the peak"),
            Column("begin", Kind.COUNT, title="values that begin", priority=2),
            Column("end", Kind.COUNT, title="values that end", priority=2),
        ),
        content,
    )
