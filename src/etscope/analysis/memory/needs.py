"""The memory that methods need, by owner, and its growth with the context length.

The owners of a method sum to its need when it is loaded alone. For all methods together, shared
weights and shared mutable buffers count once. Planned memory is split at its peak: the instruction
where most bytes are alive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.plan import MemoryPlan, PlannedValue, memory_plans
from etscope.analysis.memory.state import (
    KV_CACHE,
    OTHER_STATE,
    ProgramState,
    StateTensor,
    program_state,
    state_section,
)
from etscope.analysis.memory.stored import (
    ESTIMATE,
    FILE,
    MEASURED,
    PLAN,
    STATE,
    UNKNOWN,
    WEIGHTS,
    OwnedBytes,
    StoredTensor,
    stored_tensors,
    with_total,
)
from etscope.errors import MissingDataError
from etscope.formats.program.ptd import ExternalData
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import Method, ShapeDynamism, TensorValue
from etscope.formats.run_json import MeasuredMemory
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown
from etscope.units import format_bytes

__all__ = ["memory_by_context", "program_memory"]

WEIGHTS_IN_PROGRAM = "weights in the program"
WEIGHTS_IN_PTD = "weights in .ptd files"
WEIGHTS_IN_DELEGATES = "weights in delegates' data"
DELEGATES = "delegates' data without weights"
INITIAL = "initial state"
PACKED = "packed copies of delegates"
STATE_IN_DELEGATES = "state inside delegates"
ACTIVATIONS = "activations"
INPUTS = "inputs and outputs"
CALLERS = "inputs and outputs that the caller gives"
FRAGMENTS = "planned, not alive at the peak"
_OWNERS = (
    *(WEIGHTS_IN_PROGRAM, WEIGHTS_IN_PTD, WEIGHTS_IN_DELEGATES, DELEGATES, INITIAL, PACKED),
    *(STATE_IN_DELEGATES, KV_CACHE, OTHER_STATE, ACTIVATIONS, INPUTS, FRAGMENTS, CALLERS),
)
ALL_METHODS, TOTAL = "all methods", "total"

_PACKING = "XnnpackBackend"  # packs its weights, and never keeps state of a model
_LENGTHS = 8  # powers of two in the table by context length: it fits one screen


@dataclass(frozen=True, slots=True)
class ProgramMemory(Shown):
    """The memory of each method that needs any, and of all methods together.

    plans, state: the memory plans and the state of the same program.
    """

    methods: Mapping[str, tuple[OwnedBytes, ...]]
    together: tuple[OwnedBytes, ...]
    plans: Mapping[str, MemoryPlan]
    state: ProgramState

    def copied_caches(self, method: str) -> int:
        """Bytes of the activations at a method's peak that copy whole caches."""
        plan = self.plans[method]
        caches = (one for one in self.state.methods[method] if one.kind == KV_CACHE)
        copies = {value for one in caches for value in one.copies}
        at = plan.peak_instructions[0] if plan.peak_instructions else 0
        return _bytes_of(value for value in plan.live_at(at) if value.value in copies)

    def notes(self) -> Iterator[str]:
        """Yield notes on what is estimated, copied, unknown or shared."""
        owners = [one for owned in self.methods.values() for one in owned]
        if any(one.owner == PACKED and one.known_by == ESTIMATE for one in owners):
            yield (
                "XNNPACK packs its weights into copies. Estimate: the size of the weights; "
                "etscope run --memory measures it."
            )
        copied = {name: self.copied_caches(name) for name in self.state.methods}
        if any(copied.values()):
            sizes = " and ".join(
                f"{format_bytes(size)} of {name}" for name, size in copied.items() if size
            )
            yield (
                f"Activations include copies of caches, which grow with the caches: {sizes}. "
                "Operators such as index_put make them; "
                "ExecutorchBackendConfig(run_reinplace_pass=True) writes in place."
            )
        unknown = sorted({one.owner for one in owners if one.size is None})
        if unknown:
            yield f"Unknown, and not in the totals: {', '.join(unknown)}."
        if len(self.methods) > 1:
            shared = sum(one.size or 0 for one in owners)
            shared -= sum(one.size or 0 for one in self.together)
            size = format_bytes(max(shared, 0))
            yield f"Methods share {size}, which counts once in '{ALL_METHODS}'."


def program_memory(export: Export, measured: MeasuredMemory | None = None) -> ProgramMemory:
    """Find the owners of the memory of each method, and of all methods together.

    export: its record names the mutable buffers, its .ptd files give the sizes of delegates'
    weights. measured: the memory of a run, for the copies that delegates make.
    """
    program, plans = export.needed_program, memory_plans(export)
    state = program_state(export)
    stored: dict[str, list[StoredTensor]] = {}
    for tensor in stored_tensors(program):
        stored.setdefault(tensor.method, []).append(tensor)
    needs = {
        name: _Needs.of(
            program.method(name),
            plan,
            state.methods.get(name, ()),
            stored.get(name, ()),
            export.data,
            measured,
        )
        for name, plan in plans.items()
    }
    needs = {name: one for name, one in needs.items() if one.owners()}
    buffers = [one for group in state.groups for one in state.group(group)]
    together = _Needs.together(program, list(needs.values()), buffers)
    methods = {name: one.owners() for name, one in needs.items()}
    return ProgramMemory(methods, together.owners(), plans, state)


@dataclass(frozen=True, slots=True)
class _Needs:
    """The needs of methods: stored bytes by place, so that shared ones count once; planned bytes by
    owner.

    places: owner -> place -> bytes, None if the size is unknown.
    """

    places: Mapping[str, Mapping[object, int | None]]
    sizes: Mapping[str, int]
    packed_by: str = ESTIMATE

    @classmethod
    def of(
        cls,
        method: Method,
        plan: MemoryPlan,
        state: Sequence[StateTensor],
        stored: Sequence[StoredTensor],
        data: Sequence[ExternalData],
        measured: MeasuredMemory | None,
    ) -> _Needs:
        name = method.name
        own = [one for one in stored if one.kind == WEIGHTS]
        initial = [one for one in stored if one.kind == STATE]
        kernels = [one for one in own if one.value is not None and one.key is None]
        inside = [one for one in own if one.value is None and one.key is None]
        blobs: dict[object, int | None] = {one.blob: one.blob.size for one in method.delegates}
        begins = sorted({one.blob for one in method.delegates}, key=lambda blob: blob.offset)
        for span in {one.span for one in inside}:
            number = bisect_right(begins, span.offset, key=lambda blob: blob.offset) - 1
            if number >= 0 and span.offset < begins[number].offset + begins[number].size:
                blobs[begins[number]] = (blobs[begins[number]] or 0) - span.size
        grown = [one.growth for one in measured.delegates if one.method == name] if measured else []
        is_measured = bool(grown) and all(growth is not None for growth in grown)
        unknown = {one.backend_id: None for one in method.delegates if one.backend_id != _PACKING}
        packed: dict[object, int | None] = {
            (name, one.instruction, one.key or one.span): _stored(one, data)[1]
            for one in own
            if one.value is None
            and one.instruction is not None
            and method.operator_of(method.instructions[one.instruction]) == _PACKING
        }
        packed |= {(name, backend): None for backend in unknown}
        if is_measured:
            packed = {(name, "measured"): sum(growth or 0 for growth in grown)}
        return cls(
            places={
                WEIGHTS_IN_PROGRAM: {one.span: one.span.size for one in kernels},
                WEIGHTS_IN_PTD: dict(_stored(one, data) for one in own if one.key is not None),
                WEIGHTS_IN_DELEGATES: {one.span: one.span.size for one in inside},
                DELEGATES: blobs,
                INITIAL: {one.span: one.span.size for one in initial},
                PACKED: packed,
                STATE_IN_DELEGATES: {(name, backend): None for backend in unknown},
            },
            sizes={**_state_sizes(state), **cls._planned_sizes(method, plan)},
            packed_by=MEASURED if is_measured else ESTIMATE,
        )

    @classmethod
    def together(
        cls, program: Program, parts: Sequence[_Needs], buffers: Sequence[StateTensor]
    ) -> _Needs:
        """The needs of all methods when they are loaded together."""
        places: dict[str, dict[object, int | None]] = {}
        sizes: dict[str, int] = {}
        for one in parts:
            for owner, own in one.places.items():
                places.setdefault(owner, {}).update(own)
            for owner, size in one.sizes.items():
                sizes[owner] = sizes.get(owner, 0) + size
        named = {entry.blob: entry.blob.size for entry in program.named_data}
        known = {place for own in places.values() for place in own}
        places.setdefault(DELEGATES, {}).update(
            {blob: size for blob, size in named.items() if blob not in known}
        )
        packed_by = {one.packed_by for one in parts if one.places[PACKED]}
        return cls(
            places,
            {**sizes, **_state_sizes(buffers)},
            MEASURED if packed_by == {MEASURED} else ESTIMATE,
        )

    @staticmethod
    def _planned_sizes(method: Method, plan: MemoryPlan) -> dict[str, int]:
        """Split the planned memory without state at its peak, so that the parts sum to it. Add the
        inputs and outputs that the caller allocates."""
        at = plan.peak_instructions[0] if plan.peak_instructions else 0
        alive = plan.live_at(at) if plan.peak_bytes else ()
        kept = _bytes_of(value for value in alive if value.role == "state")
        around = _bytes_of(value for value in alive if value.role in ("input", "output"))
        values = (method.values[index] for index in {*method.inputs, *method.outputs})
        given = [
            value.nbytes or 0
            for value in values
            if isinstance(value, TensorValue) and value.allocation is None and not value.is_constant
        ]
        return {
            ACTIVATIONS: plan.peak_bytes - kept - around,
            INPUTS: around,
            FRAGMENTS: plan.planned_bytes - plan.peak_bytes,
            CALLERS: sum(given),
        }

    def owners(self) -> tuple[OwnedBytes, ...]:
        """The owners that have any bytes, in the order of `_OWNERS`."""
        found = []
        for owner in _OWNERS:
            places = self.places.get(owner, {})
            known = [size for size in places.values() if size is not None]
            if owner in self.sizes:
                if self.sizes[owner]:
                    found.append(OwnedBytes(owner, self.sizes[owner], PLAN))
            elif places and not known:
                found.append(OwnedBytes(owner, None, UNKNOWN))
            elif sum(known):
                is_part = len(known) < len(places)
                known_by = self.packed_by if owner == PACKED else FILE
                found.append(OwnedBytes(owner, sum(known), known_by))
                if is_part:
                    found.append(OwnedBytes(f"{owner}, others", None, UNKNOWN))
        return tuple(found)


def _stored(one: StoredTensor, data: Sequence[ExternalData]) -> tuple[object, int | None]:
    """Return the place of a tensor's bytes, which several keys may share, and their number."""
    if one.key is None:
        return one.span, one.span.size
    for number, file in enumerate(data):
        if one.key in file.entries:
            blob = file.entries[one.key].blob
            return (number, blob), blob.size
    return one.key, None if one.value is None else one.value.nbytes


def _state_sizes(state: Iterable[StateTensor]) -> dict[str, int]:
    sizes = {KV_CACHE: 0, OTHER_STATE: 0}
    for one in state:
        sizes[one.kind] += one.nbytes
    return sizes


def _bytes_of(values: Iterable[PlannedValue]) -> int:
    """Bytes of values that are alive together; values at one place count once."""
    sizes: dict[object, int] = {}
    for value in values:
        sizes[value.place] = max(sizes.get(value.place, 0), value.nbytes)
    return sum(sizes.values())


# -- with the context length


@dataclass(frozen=True, slots=True)
class MemoryAtLength:
    """The state of a program's methods for a context of `context` tokens.

    per_token: bytes that one more token adds. full_windows: bytes of sliding-window caches that are
    full and no longer grow. activations: the bytes of activations of the method with the most, None
    if unknown. is_own: True if the program was exported for this length.
    """

    context: int
    kv_cache: int
    per_token: int
    full_windows: int
    other_state: int
    activations: int | None
    is_own: bool


def memory_by_context(
    memory: ProgramMemory, methods: Sequence[str], lengths: Sequence[int]
) -> tuple[MemoryAtLength, ...]:
    """Compute the state of methods that share it (a group of `ProgramState`) by context length.

    The program's shapes are fixed numbers, so activations are known only for the context length of
    the export.

    Raises `MissingDataError` if the program's context length is unknown, or if none of its buffers
    grows with it.
    """
    state = memory.state
    tensors = state.group(methods) if methods else ()
    if state.context is None or not any(one.grows for one in tensors):
        raise MissingDataError(
            "no buffer of this program is known to grow with the context length",
            hint="export the constant method get_max_context_len or get_max_seq_len, or add "
            "--etrecord for the names of the buffers",
        )
    owners = [one for name in methods for one in memory.methods[name]]
    activations = max((one.size or 0 for one in owners if one.owner == ACTIVATIONS), default=0)
    found = []
    for length in lengths:
        sizes = {KV_CACHE: 0, OTHER_STATE: 0}
        more, full = 0, 0
        for one in tensors:
            size = one.nbytes_at(length, state.context)
            sizes[one.kind] += size
            more += one.nbytes_at(length + 1, state.context) - size
            if one.kind == KV_CACHE and one.grows is False and length >= (one.length or 0):
                full += size
        is_own = length == state.context
        found.append(
            MemoryAtLength(
                context=length,
                kv_cache=sizes[KV_CACHE],
                per_token=more,
                full_windows=full,
                other_state=sizes[OTHER_STATE],
                activations=activations if is_own else None,
                is_own=is_own,
            )
        )
    return tuple(found)


def lengths_up_to(context: int, own: int | None = None) -> tuple[int, ...]:
    """The last powers of two up to a context length, that length, and the program's length."""
    powers = [1 << bit for bit in range(context.bit_length())][-_LENGTHS:]
    return tuple(sorted({*powers, context, *([] if own is None else [own])}))


# -- as tables


def owners_section(memory: ProgramMemory) -> Section:
    """A section with one row for each owner of each method, then of all methods together."""
    parts = list(memory.methods.items())
    if len(parts) > 1:
        parts.append((ALL_METHODS, memory.together))
    return rows(
        "memory_by_owner",
        "Memory by method and owner",
        (Column("method"), *_OWNER_COLUMNS),
        [
            (method, one.owner, one.size, one.known_by, share)
            for method, owners in parts
            for one, share in with_total(owners, TOTAL)
        ],
        tuple(memory.notes()),
    )


_OWNER_COLUMNS = (
    Column("owner"),
    Column("size", Kind.BYTES),
    Column("known_by", title="known by", priority=1),
    Column("share", Kind.SHARE),
)


def owner_tables(memory: ProgramMemory, method: str) -> tuple[Table, ...]:
    """Narrow tables of one method: its memory by owner, and, if a cache grows with the context, the
    cache by context length, up to 8 times the program's."""
    owners = memory.methods.get(method, ())
    if not owners:
        return ()
    content = [
        (
            f"{one.owner} ({one.known_by})" if one.known_by in (ESTIMATE, MEASURED) else one.owner,
            one.size,
            share,
        )
        for one, share in with_total(owners, TOTAL)
    ]
    columns = [column for column in _OWNER_COLUMNS if column.name != "known_by"]
    found = [Table.of_rows(columns, content, title=f"Memory of {method} by owner")]
    own = memory.state.context
    group = next((group for group in memory.state.groups if method in group), ())
    if own is not None and any(one.grows for one in memory.state.group(group)):
        shown = [row[:3] for row in _context_rows(memory, group, 8 * own)]
        title = f"KV cache by context length, {own:,} as exported"
        found.append(Table.of_rows(_CONTEXT_COLUMNS[:3], shown, title=title))
    return tuple(found)


def context_section(memory: ProgramMemory, context: int) -> Section:
    """A section with one row for each context length up to `context`, for each group of methods
    that share their state. Raises `MissingDataError` as `memory_by_context` does."""
    own = memory.state.context
    groups = [
        group
        for group in memory.state.groups
        if any(one.grows for one in memory.state.group(group))
    ] or [()]
    content, unsure = [], 0
    for group in groups:
        tensors = memory.state.group(group) if group else ()
        unsure += sum(one.kind == KV_CACHE and one.grows is None for one in tensors)
        name = " and ".join(group)
        content += [(name, *row) for row in _context_rows(memory, group, context)]
    notes = [
        f"The program was exported for a context of {own:,} ({memory.state.context_from}). "
        "Activations at another length are unknown: the length is a fixed number in their "
        "shapes."
    ]
    bounds = [
        f"{value.tensor} of {name}"
        for group in groups
        for name in group
        for value in memory.plans[name].values
        if value.role == "input" and value.tensor.dynamism is ShapeDynamism.DYNAMIC_BOUND
    ]
    if bounds:
        notes.append(f"Activations are planned for inputs of any size up to {', '.join(bounds)}.")
    if unsure:
        notes.append(
            f"{unsure:,} caches count with their present size, as it is unknown which "
            "dimension holds the positions."
        )
    return rows(
        "memory_by_context",
        "Memory by context length",
        (Column("method"), *_CONTEXT_COLUMNS),
        content,
        tuple(notes),
    )


_CONTEXT_COLUMNS = (
    Column("context", Kind.COUNT),
    Column("kv_cache", Kind.BYTES, title="KV cache"),
    Column("per_token", Kind.BYTES, title="next token"),
    Column("full_windows", Kind.BYTES, title="of it full windows", priority=1),
    Column("other_state", Kind.BYTES, title="other state", priority=2),
    Column("activations", Kind.BYTES, priority=1),
    Column("is_own", Kind.BOOL, title="as exported", priority=2),
)


def _context_rows(
    memory: ProgramMemory, methods: Sequence[str], context: int
) -> Iterator[tuple[int | bool | None, ...]]:
    lengths = lengths_up_to(context, memory.state.context)
    return map(astuple, memory_by_context(memory, methods, lengths))


# -- all of it as a report


def with_owners(report: Report, memory: ProgramMemory, context: int | None = None) -> Report:
    """Return the `memory_report` of a program with the sections "memory_by_owner",
    "memory_by_context" (up to a `context`, if one is given) and "memory_state" before its own.

    With a context, raises as `memory_by_context` does.
    """
    sections = [owners_section(memory)]
    if context is not None:
        sections.append(context_section(memory, context))
    sections.append(state_section(memory.state))
    shown = tuple(section for section in sections if len(section.table))
    return replace(report, sections=(*shown, *report.sections))
