"""The events of a dump as one table: one row for each timed event of each run.

Runs with the same sequence of events form a `Block`. A block has only the indices of its events'
rows in the dump's columns, so the run of every sample stays known. Name, instruction, role,
quantity, clock, unit and parent are stored once for each event of a block. `EventTable` has these
as columns of events, and times as columns of rows. Profile, timeline, diff, the rows of `etscope
lab collect` and `etscope convert`, the report's page and `to_dataframe` all read them from here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError
from etscope.formats.etdump.reader import ETDump, EventKind
from etscope.support.shown import Shown

__all__ = [
    "CALL_ROLES",
    "EXECUTE",
    "KERNEL_PREFIX",
    "LOAD_METHOD",
    "Block",
    "EventKey",
    "EventTable",
    "Quantity",
    "execution_numbers",
    "find_blocks",
    "framework_ticks",
]

Ints = npt.NDArray[np.int64]

# Events of the runtime outside instructions (method.cpp, program.cpp).
EXECUTE = "Method::execute"
LOAD_METHOD = "Program::load_method"
LOAD_EVENTS = (LOAD_METHOD, "Method::init")
FRAMEWORK_EVENTS = frozenset({EXECUTE, *LOAD_EVENTS})
DELEGATE_CALL = "DELEGATE_CALL"
KERNEL_PREFIX = "native_call_"
# The runtime's events around an instruction (method.cpp, `Method::execute_instruction`) by role.
_CALL_ROLES = {
    "OPERATOR_CALL": "call",
    DELEGATE_CALL: "delegate",
    "JF_CALL": "control",
    "MOVE_CALL": "control",
    "FREE_CALL": "control",
}
CALL_ROLES = frozenset(_CALL_ROLES.values())
# The chain index of events outside any instruction.
NO_CHAIN = -1
# Clocks of 32 bits wrap here; a 64-bit one does not wrap in practice.
_UINT32 = 1 << 32


# The displayed word for times without a measurement.
ESTIMATED = "estimated"


class Quantity(Enum):
    """Meaning of an event's numbers. Only intervals are added up."""

    INTERVAL = "interval"
    INSTANT = "instant"
    COUNTER = "counter"  # a value in the event's unit
    ESTIMATE = "estimate"  # of a compiler, not measured


class Clock(Enum):
    """The clock of an event's times. Only times of one clock share a timeline."""

    RUNTIME = "runtime"
    HOST = "host"  # durations by the host's clock, laid end to end by the delegate
    DEVICE = "device"  # the delegate's own: cycles, or another start


@dataclass(frozen=True, slots=True)
class Meaning:
    """Meaning of an event inside a delegate, from the decoder of its backend.

    name: the name to display. identifier: the key in the record's delegate map; None for an event
    without an operator, such as a phase of the call. unit: the unit of its number, "us" or
    "cycles"; None for ticks of the dump's clock. is_placed: True if its start is a time, so that it
    can be placed on a timeline. parent: the index of the event in the same call that contains it;
    None if the call itself does. columns: the backend's other data by name ("compute_unit").
    unit_us: microseconds in one unit, if other events of the call show it.
    """

    name: str
    identifier: int | str | None
    quantity: Quantity = Quantity.INTERVAL
    clock: Clock = Clock.RUNTIME
    unit: str | None = None
    is_placed: bool = True
    parent: int | None = None
    columns: Mapping[str, str | float] = field(default_factory=dict)
    unit_us: float | None = None

    @property
    def is_time(self) -> bool:
        """True for a measured time in ticks of the dump's clock, or of a similar one."""
        return self.quantity is Quantity.INTERVAL and self.unit is None

    @property
    def is_estimate(self) -> bool:
        """True for a time in ticks without a measurement."""
        return self.quantity is Quantity.ESTIMATE and self.unit is None

    def unit_in(self, tick: str) -> str | None:
        """Return the unit for tables of numbers; an estimate has the unit of a tick."""
        return tick if self.is_estimate else self.unit

    @property
    def is_drawn(self) -> bool:
        """True for a time with a place on a timeline, measured or not."""
        return self.is_placed and (self.is_time or self.is_estimate)

    @property
    def adds(self) -> bool:
        """True for a part of the time of its call."""
        return self.is_time and self.is_placed and self.clock is not Clock.DEVICE


class EventKey(NamedTuple):
    """The identity of an event in a block: runs whose keys are equal and in the same order share a
    block.

    `profile` is the position of the event's profiling event in the run (None if the run has only
    debug data); `debug` are the positions of its instruction's debug events. `occurrence` counts
    equal events in one run.
    """

    name: str
    instruction_id: int | None
    chain_index: int
    delegate_id: int | str | None
    profile: int | None
    debug: tuple[int, ...]
    occurrence: int

    @property
    def instruction(self) -> int | None:
        """The instruction of the event; None outside instructions, where the runtime writes 0."""
        return None if self.chain_index == NO_CHAIN else self.instruction_id

    @property
    def is_framework(self) -> bool:
        """True for an event of the runtime outside any instruction."""
        return self.name in FRAMEWORK_EVENTS and self.chain_index == NO_CHAIN

    @property
    def role(self) -> str:
        """The kind of event: "execute", "load", "call" (of an operator), "kernel", "delegate" (a
        call of a delegate), "delegated" (inside such a call), "control" or "other".
        """
        if self.is_framework:
            return "execute" if self.name == EXECUTE else "load"
        if self.delegate_id is not None:
            return "delegated"
        if self.name.startswith(KERNEL_PREFIX):
            return "kernel"
        return _CALL_ROLES.get(self.name, "other")


@dataclass(frozen=True)
class Block(Shown):
    """Runs of one name that logged the same sequence of events.

    `runs` are their indices in the dump, `first` the row of each run's first event in `rows`, the
    rows of the dump's event columns that make the sequences (allocation events are not part).
    """

    dump: ETDump
    name: str
    bundled_input_index: int
    runs: Ints
    first: Ints
    length: int
    rows: Ints

    @cached_property
    def keys(self) -> tuple[EventKey, ...]:
        """The block's events in upstream's order: grouped by instruction, first seen first."""
        return tuple(self._event_keys())

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The role of each of `keys`."""
        return tuple(key.role for key in self.keys)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Positions of the debug events that hold the program's outputs, in order."""
        rows = self.rows[self.first[0] :][: self.length]
        return tuple(np.flatnonzero(_holds_output(self.dump, rows)).tolist())

    def row(self, run: int, position: int) -> int:
        """Return the dump's event row of a position of the block's run `run`."""
        return int(self.rows[self.first[run] + position])

    def column(self, position: int) -> Ints:
        """Return the dump's event rows of a position, one for each run."""
        return self.rows[self.first + position]

    def metadata(self, index: int) -> bytes:
        """Return the bytes that a delegate attached to its event `keys[index]` in the first run."""
        position = self.keys[index].profile
        return b"" if position is None else self.dump.metadata(self.row(0, position))

    def is_logged_in_delegate(self, index: int) -> bool:
        """Return whether a delegate logged the event `keys[index]`: with an identifier, or inside
        its call."""
        role = self.roles[index]
        if role != "other":  # skip the search for a parent for kernels
            return role == "delegated"
        parent = self.parents[index]
        return parent is not None and self.roles[parent] == "delegate"

    @cached_property
    def profiled(self) -> tuple[int, ...]:
        """Indices into `keys` of the events with times."""
        return tuple(i for i, key in enumerate(self.keys) if key.profile is not None)

    @property
    def profile_rows(self) -> Ints:
        """Return the dump's event rows of the profiled keys, shape [profiled keys, runs]. Not kept:
        it is as large as a column of the dump."""
        positions = [key.profile for key in self.keys if key.profile is not None]
        rows: Ints = self.rows[np.array(positions, dtype=np.int64)[:, None] + self.first]
        return rows

    @cached_property
    def starts(self) -> Ints:
        """Start times in source units, shape [keys, runs]; 0 for keys without times."""
        return self._by_key(self.dump.start[self.profile_rows])

    @cached_property
    def ticks(self) -> Ints:
        """Elapsed times, shaped like `starts`; 0 where a delegate's clock runs `backwards`. Raises
        `FormatError` if the runtime's own time is negative or too long."""
        return self._by_key(self._elapsed[0])

    @property
    def backwards(self) -> Mapping[int, npt.NDArray[np.bool_]]:
        """The delegate events that end before they start, so their length is unknown: a mask of
        such runs by index in `keys`."""
        return self._elapsed[1]

    def _by_key(self, profiled: npt.NDArray[Any]) -> Ints:
        values = np.zeros((len(self.keys), len(self.runs)), dtype=np.int64)
        values[list(self.profiled)] = profiled
        return values

    @cached_property
    def executions(self) -> tuple[int, ...]:
        """Indices into `keys` of the ``Method::execute`` events."""
        return tuple(i for i, role in enumerate(self.roles) if role == "execute")

    def span_holds(self, outer: Iterable[int], inner: Iterable[int]) -> bool:
        """Return whether, in every run, all `inner` events lie between the ends of the `outer`
        ones. Both are indices into `keys`."""
        outer, inner = list(outer), list(inner)
        outer_end = (self.starts[outer] + self.ticks[outer]).max(axis=0)
        inner_end = (self.starts[inner] + self.ticks[inner]).max(axis=0)
        starts_inside = self.starts[outer].min(axis=0) <= self.starts[inner].min(axis=0)
        return bool((starts_inside & (inner_end <= outer_end)).all())

    @cached_property
    def parents(self) -> tuple[int | None, ...]:
        """For each of `keys` the index of the event that contains it, if any.

        The runtime logs an event when it ends. So a kernel's or a delegate's event belongs to the
        next call of its instruction, a call to the next ``Method::execute``, and ``Method::init``
        to the next ``Program::load_method``.
        """
        ends: dict[object, list[tuple[int, int]]] = {}  # (position, index), ascending
        for index in sorted(self.profiled, key=lambda i: self.keys[i].profile or 0):
            key, role = self.keys[index], self.roles[index]
            position = key.profile or 0
            if role in CALL_ROLES and key.instruction is not None:
                ends.setdefault((key.instruction, key.chain_index), []).append((position, index))
            elif role == "execute" or (role == "load" and key.name == LOAD_METHOD):
                ends.setdefault(key.name, []).append((position, index))
        found: list[int | None] = [None] * len(self.keys)
        for index in self.profiled:
            key, role = self.keys[index], self.roles[index]
            if role == "execute":
                continue
            around: object = LOAD_METHOD if role == "load" else EXECUTE
            call = (key.instruction, key.chain_index)
            if role not in CALL_ROLES and key.instruction is not None and call in ends:
                around = call
            after = ends.get(around, [])
            next_end = bisect_right(after, (key.profile or 0, len(self.keys)))
            if next_end < len(after):
                found[index] = after[next_end][1]
        return tuple(found)

    @cached_property
    def _elapsed(self) -> tuple[Ints, Mapping[int, npt.NDArray[np.bool_]]]:
        """End minus start in ticks, [profiled keys, runs], corrected for a wrapped 32-bit clock;
        and `backwards`."""
        dump, rows = self.dump, self.profile_rows
        start, end = dump.start[rows], dump.end[rows]
        wrapped = start > end
        elapsed = (end - start).astype(np.int64)  # unsigned: wraps around as 64 bits
        broken = np.zeros(elapsed.shape, np.bool_)
        if wrapped.any():
            broken = wrapped & ((start >= _UINT32) | (end >= _UINT32))
            elapsed[wrapped] += _UINT32
        too_long = (elapsed < 0) & ~broken
        backwards: dict[int, npt.NDArray[np.bool_]] = {}
        for number in np.flatnonzero((broken | too_long).any(axis=1)).tolist():
            if not self.is_logged_in_delegate(self.profiled[number]):
                runs = np.flatnonzero(broken[number])
                why = "ends before it starts, but not on a 32-bit clock"
                if not len(runs):
                    runs, why = (
                        np.flatnonzero(too_long[number]),
                        "takes longer than its clock can run",
                    )
                row = int(rows[number, runs[0]])
                raise FormatError(
                    f"event {row} of run {int(dump.run[row])} {why}: "
                    f"{int(dump.start[row])} to {int(dump.end[row])}",
                    path=dump.path,
                )
            mask = backwards[self.profiled[number]] = broken[number] | too_long[number]
            elapsed[number, mask] = 0
        return elapsed, backwards

    def _event_keys(self) -> Iterator[EventKey]:
        """Yield the keys of one run's events."""
        dump, rows = self.dump, self.rows[self.first[0] :][: self.length]
        columns = (
            dump.instruction_id,
            dump.chain_index,
            dump.delegate_id_int,
            dump.delegate_id_str,
        )
        signatures = zip(*(column[rows].tolist() for column in columns), strict=True)
        outputs = _holds_output(dump, rows).tolist()
        # Python writers of dumps may omit chains: recognize the runtime's events by name.
        has_chains = bool((dump.chain_index[rows] == NO_CHAIN).any())
        groups: dict[tuple[int, int, int, int], list[int]] = {}
        for position, signature in enumerate(signatures):
            if not outputs[position]:
                groups.setdefault(signature, []).append(position)
        kinds = dump.kind[rows].tolist()
        names = [dump.strings[name] if name >= 0 else "" for name in dump.name[rows].tolist()]
        for (instruction, chain, id_int, id_str), positions in groups.items():
            delegate_id: int | str | None = id_int if id_int >= 0 else None
            if delegate_id is None and id_str >= 0:
                delegate_id = dump.strings[id_str] or None
            profile = [p for p in positions if kinds[p] == EventKind.PROFILE]
            debug = tuple(p for p in positions if kinds[p] == EventKind.DEBUG)
            # The identifier, or the name from debug data, has precedence over the profile's name.
            name = names[debug[0]] if debug else ""
            if delegate_id is not None:
                name = str(delegate_id)
            seen: dict[str, int] = {}
            for event, values in _with_debug(profile, debug, names):
                own = name or ("" if event is None else names[event])
                occurrence = seen.get(own, 0)
                seen[own] = occurrence + 1
                is_outside = not has_chains and own in FRAMEWORK_EVENTS and delegate_id is None
                yield EventKey(
                    name=own,
                    instruction_id=None if instruction == -1 else instruction,
                    chain_index=NO_CHAIN if is_outside else chain,
                    delegate_id=delegate_id,
                    profile=event,
                    debug=values,
                    occurrence=occurrence,
                )


@dataclass(frozen=True, slots=True)
class TableEvent:
    """An event with times: `index` is into the keys of `block`."""

    block: Block
    index: int

    @property
    def key(self) -> EventKey:
        return self.block.keys[self.index]


@dataclass(frozen=True)
class EventTable(Shown):
    """All timed events of a dump: K distinct events with N rows in all runs.

    methods: the method of each block; None if unknown. meanings: the meanings of each block's
    delegate events, by index in its keys. run_calls: int32 [runs of the dump], for each run its
    number among the executions of its method; -1 for a run without an execution. run_phases: the
    name of each run's phase, if known.
    """

    dump: ETDump
    blocks: tuple[Block, ...]
    methods: tuple[str | None, ...]
    meanings: tuple[Mapping[int, Meaning], ...]
    run_calls: npt.NDArray[np.int32]
    run_phases: Mapping[int, str] = field(default_factory=dict)

    # -- columns of the distinct events, [K]: block after block, in the order of its keys

    @cached_property
    def events(self) -> tuple[TableEvent, ...]:
        """The distinct events."""
        return tuple(TableEvent(block, i) for block in self.blocks for i in block.profiled)

    @cached_property
    def block(self) -> Ints:
        """Index in `blocks`, `methods` and `phases`."""
        counts = np.array([len(block.profiled) for block in self.blocks], np.int64)
        return np.repeat(np.arange(len(self.blocks)), counts)

    @property
    def phases(self) -> tuple[str, ...]:
        """The phase of each block: "load" without a method, else the phase of its first run, or
        "execute"."""
        return tuple(
            self.run_phases.get(int(block.runs[0]), "execute") if block.executions else "load"
            for block in self.blocks
        )

    @cached_property
    def meaning(self) -> tuple[Meaning | None, ...]:
        """The meaning of each event inside a delegate; None for the runtime's own events, which are
        intervals on its clock."""
        found = zip(self.events, self.block.tolist(), strict=True)
        return tuple(self.meanings[block].get(event.index) for event, block in found)

    def where(self, holds: Callable[[Meaning], bool]) -> npt.NDArray[np.bool_]:
        """Return a mask of the runtime's own events, and of the events with a meaning that fits."""
        return np.array([one is None or holds(one) for one in self.meaning], np.bool_)

    @property
    def quantity(self) -> tuple[Quantity, ...]:
        """Meaning of the numbers."""
        return tuple(Quantity.INTERVAL if one is None else one.quantity for one in self.meaning)

    @property
    def clock(self) -> tuple[Clock, ...]:
        """The clock of the times."""
        return tuple(Clock.RUNTIME if one is None else one.clock for one in self.meaning)

    @property
    def unit(self) -> tuple[str | None, ...]:
        """The unit of the numbers; None for ticks of the dump's clock."""
        return tuple(None if one is None else one.unit for one in self.meaning)

    # -- columns of the rows, [N], in the order of the dump

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self._unordered([b.profile_rows for b in self.blocks]), kind="stable")

    @staticmethod
    def _unordered(matrices: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate([np.zeros(0, np.int64), *(m.reshape(-1) for m in matrices)])

    def by_row(self, matrices: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return a column of rows from one matrix for each block, [its profiled keys, its runs]."""
        return self._unordered(matrices)[self._order]

    @cached_property
    def row(self) -> Ints:
        """Row in the event columns of the dump, ascending."""
        return self.by_row(block.profile_rows for block in self.blocks)

    @cached_property
    def event(self) -> Ints:
        """Index in `events`."""
        runs = np.array([len(block.runs) for block in self.blocks], np.int64)
        numbers: Ints = np.repeat(np.arange(len(self.events)), runs[self.block])
        return numbers[self._order]

    @property
    def run(self) -> npt.NDArray[np.int32]:
        """Index of the run in the dump."""
        return self.dump.run[self.row]

    @property
    def start(self) -> npt.NDArray[np.uint64]:
        """Start in ticks, as in the dump."""
        return self.dump.start[self.row]

    @cached_property
    def ticks(self) -> Ints:
        """Elapsed ticks. Raises `FormatError` for a negative and a too long one."""
        return self.by_row(block.ticks[list(block.profiled)] for block in self.blocks)

    @property
    def call(self) -> npt.NDArray[np.int32]:
        """Number of the row's run among the executions of its method; -1 for loading."""
        return self.run_calls[self.run]

    @cached_property
    def parent(self) -> Ints:
        """Row of this table that contains the event, -1 for none; see `Block.parents`."""

        def parent_rows(block: Block) -> Ints:
            found = np.full((len(block.profiled), len(block.runs)), -1, np.int64)
            for number, index in enumerate(block.profiled):
                parent = block.parents[index]
                position = None if parent is None else block.keys[parent].profile
                if position is not None:
                    found[number] = block.column(position)
            return found

        rows = self.by_row(parent_rows(block) for block in self.blocks)
        return np.where(rows < 0, -1, np.searchsorted(self.row, rows))


def execution_numbers(
    dump: ETDump, blocks: Iterable[Block], methods: Iterable[str | None]
) -> npt.NDArray[np.int32]:
    """Return each run's number among the executions of its method; -1 without an execution."""
    found = np.full(dump.num_runs, -1, np.int32)
    by_method: dict[str | None, list[Ints]] = {}
    for block, method in zip(blocks, methods, strict=True):
        if block.executions:
            by_method.setdefault(method, []).append(block.runs)
    for parts in by_method.values():
        mine = np.sort(np.concatenate(parts))
        found[mine] = np.arange(len(mine))
    return found


def framework_ticks(blocks: Iterable[Block], name: str) -> Ints:
    """Return the ticks of the runtime's own event of that name, such as `EXECUTE`, in all runs."""
    found = [
        block.ticks[index]
        for block in blocks
        for index in block.profiled
        if block.keys[index].is_framework and block.keys[index].name == name
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])


def find_blocks(dump: ETDump) -> tuple[Block, ...]:
    """Group the runs of a dump into blocks, in order of first appearance, without runs that lack an
    event list.

    The blocks are upstream's, with two differences: all repeated events of a loop count, and a dump
    with allocation events is readable.
    """
    rows = np.flatnonzero(dump.kind != EventKind.ALLOCATION)
    first = np.searchsorted(rows, dump.run_first_event)
    length = np.diff(first)
    columns = [
        getattr(dump, name)
        for name in ("chain_index", "name", "instruction_id", "delegate_id_int", "delegate_id_str")
    ]
    columns += [dump.kind, dump.is_output]
    if len(rows) < len(dump.kind):
        columns = [column[rows] for column in columns]
    groups: dict[tuple[int, int, int], list[int]] = {}
    kinds = (dump.run_name, dump.run_bundled_input_index, length)
    for run, kind in enumerate(zip(*(column.tolist() for column in kinds), strict=True)):
        groups.setdefault(kind, []).append(run)
    blocks = [
        Block(
            dump=dump,
            name=dump.strings[name_id] if name_id >= 0 else "",
            bundled_input_index=index,
            runs=alike,
            first=first[alike],
            length=count,
            rows=rows,
        )
        for (name_id, index, count), runs in groups.items()
        for alike in _alike(columns, first, count, np.asarray(runs))
    ]
    return tuple(sorted(blocks, key=lambda block: int(block.runs[0])))


_FEW = 8  # different sequences: enough for real dumps; more are distinguished by their bytes


def _alike(
    columns: Sequence[npt.NDArray[Any]], first: Ints, length: int, runs: Ints
) -> Iterator[Ints]:
    """Yield the runs of this length in groups of equal sequences of events. columns: the identity
    of each event."""
    rest = runs
    for _ in range(_FEW):
        if not len(rest):
            return
        same = np.ones(len(rest), np.bool_)
        for column in columns:
            wanted = column[first[rest[0]] :][:length]
            left = np.flatnonzero(same)
            # Consecutive runs already form a matrix.
            begin, end = int(first[rest[left[0]]]), int(first[rest[left[-1]]]) + length
            if end - begin == len(left) * length:
                found = column[begin:end].reshape(len(left), length)
            else:
                found = column[first[rest[left]][:, None] + np.arange(length)]
            same[left] = (found == wanted).all(axis=1)
        yield rest[same]
        rest = rest[~same]
    by_bytes: dict[bytes, list[int]] = {}
    for run in rest.tolist():
        part = slice(int(first[run]), int(first[run]) + length)
        sequence = b"".join(column[part].tobytes() for column in columns)
        by_bytes.setdefault(sequence, []).append(run)
    yield from map(np.asarray, by_bytes.values())


def _holds_output(dump: ETDump, rows: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of the debug events with an output of the program.

    The runtime marks only tensors. An int, float or bool is an output if it is outside any
    instruction.
    """
    outside = (dump.kind[rows] == EventKind.DEBUG) & (dump.chain_index[rows] == NO_CHAIN)
    holds: npt.NDArray[np.bool_] = dump.is_output[rows] | outside
    return holds


def _with_debug(
    profile: list[int], debug: tuple[int, ...], names: list[str]
) -> list[tuple[int | None, tuple[int, ...]]]:
    """Pair the profiling events of one instruction with their debug events.

    The kernel's event and the call around it both have the instruction's values. A loop runs an
    instruction several times in a run: each pass ends with the call's event, and has the values
    logged since the pass before. Debug events alone do not belong to a profiling event.
    """
    if not profile:
        return [(None, debug)]
    ends = [position for position in profile if names[position] == names[profile[-1]]]
    by_pass: dict[int, list[int]] = {}
    for position in debug:
        # Values after the end of the last pass belong to the last pass.
        by_pass.setdefault(min(bisect_left(ends, position), len(ends) - 1), []).append(position)
    return [(event, tuple(by_pass.get(bisect_left(ends, event), ()))) for event in profile]
