"""Runs of a dump grouped into blocks: the runs that logged the same sequence of events.

Nothing is copied but indices: a `Block` says which rows of the dump's columns its events are, so
the run index of every sample stays known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError
from etscope.formats.etdump.reader import ETDump, EventKind

Ints = npt.NDArray[np.int64]

# What the runtime logs for itself, not for an instruction (method.cpp, program.cpp).
FRAMEWORK_EVENTS = frozenset({"Method::init", "Program::load_method", "Method::execute"})
DELEGATE_CALL = "DELEGATE_CALL"
# The chain index of what is logged outside any instruction.
NO_CHAIN = -1
# Clocks of 32 bits wrap here; a 64-bit one does not wrap in practice.
_UINT32 = 1 << 32


class EventKey(NamedTuple):
    """What makes an event of a block: two runs with equal keys in the same order share a block.

    `profile` and `debug` are positions in the run: of its profiling event (None: only debug data
    was logged), and of the debug events that its instruction logged. `occurrence` counts equal
    events of one run.
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
        """The instruction that it was logged for; None outside any, where the runtime writes 0."""
        return None if self.chain_index == NO_CHAIN else self.instruction_id

    @property
    def is_framework(self) -> bool:
        """Logged by the runtime for the method as a whole, outside any instruction."""
        return self.name in FRAMEWORK_EVENTS and self.chain_index == NO_CHAIN


@dataclass(frozen=True)
class Block:
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
        return tuple(_event_keys(self.dump, self.rows[self.first[0] :][: self.length]))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Positions of the debug events that hold the program's outputs, in order."""
        rows = self.rows[self.first[0] :][: self.length]
        return tuple(np.flatnonzero(_holds_output(self.dump, rows)).tolist())

    def row(self, run: int, position: int) -> int:
        """The dump's event row of a position of the block's run `run`."""
        return int(self.rows[self.first[run] + position])

    def column(self, position: int) -> Ints:
        """The dump's event rows of a position, one for each run."""
        return self.rows[self.first + position]

    @cached_property
    def profiled(self) -> tuple[int, ...]:
        """Indices into `keys` of the events with times."""
        return tuple(i for i, key in enumerate(self.keys) if key.profile is not None)

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Start times in source units, shape (number of keys, number of runs).

        Rows of events without times are 0, here and in `ticks`; `profiled` tells which have one.
        """
        return self._by_key(self.dump.start[self._profile_rows])

    @cached_property
    def ticks(self) -> npt.NDArray[np.int64]:
        """Elapsed times, as `starts`. Raises `FormatError` for one that cannot be."""
        return self._by_key(_elapsed(self.dump, self._profile_rows))

    @cached_property
    def own_clock(self) -> frozenset[int]:
        """Instructions whose delegate logged times that do not lie inside its call: they are of
        another clock (cycles of an accelerator, or another start) than the runtime's."""
        calls: dict[int, list[int]] = {}
        delegated: dict[int, list[int]] = {}
        for index in self.profiled:
            key = self.keys[index]
            if key.instruction is None:
                continue
            if key.delegate_id is not None:
                delegated.setdefault(key.instruction, []).append(index)
            elif key.name == DELEGATE_CALL:
                calls.setdefault(key.instruction, []).append(index)
        return frozenset(
            instruction
            for instruction, inner in delegated.items()
            if instruction in calls and not self.span_holds(calls[instruction], inner)
        )

    def span_holds(self, outer: list[int], inner: list[int]) -> bool:
        """Whether, in every run, all `inner` events lie between the ends of the `outer` ones.
        Both are indices into `keys`."""
        outer_end = (self.starts[outer] + self.ticks[outer]).max(axis=0)
        inner_end = (self.starts[inner] + self.ticks[inner]).max(axis=0)
        starts_inside = self.starts[outer].min(axis=0) <= self.starts[inner].min(axis=0)
        return bool((starts_inside & (inner_end <= outer_end)).all())

    @property
    def _profile_rows(self) -> Ints:
        """The dump's event rows of the profiled keys, shape (profiled keys, runs)."""
        positions = [key.profile for key in self.keys if key.profile is not None]
        rows: Ints = self.rows[np.array(positions, dtype=np.int64)[:, None] + self.first]
        return rows

    def _by_key(self, profiled: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        values = np.zeros((len(self.keys), len(self.runs)), dtype=np.int64)
        values[list(self.profiled)] = profiled
        return values


def find_blocks(dump: ETDump) -> tuple[Block, ...]:
    """The blocks of a dump in order of first appearance. Runs without an event list are left out.

    Upstream's blocks, except that a loop's repeated events all count, and that a dump with
    allocation events can be read.
    """
    rows = np.flatnonzero(dump.kind != EventKind.ALLOCATION)
    first = np.searchsorted(rows, dump.run_first_event)
    packed = _pack(dump, rows)
    groups: dict[tuple[int, int, bytes], list[int]] = {}
    names = dump.run_name.tolist()
    bundled = dump.run_bundled_input_index.tolist()
    bounds = (first * packed.itemsize).tolist()
    data = packed.view(np.uint8).data if len(packed) else memoryview(b"")
    for run, name in enumerate(names):
        sequence = data[bounds[run] : bounds[run + 1]].tobytes()
        groups.setdefault((name, bundled[run], sequence), []).append(run)
    return tuple(
        Block(
            dump=dump,
            name=dump.strings[name] if name >= 0 else "",
            bundled_input_index=index,
            runs=np.asarray(runs),
            first=first[runs],
            length=len(sequence) // packed.itemsize,
            rows=rows,
        )
        for (name, index, sequence), runs in groups.items()
    )


def _pack(dump: ETDump, rows: Ints) -> npt.NDArray[np.void]:
    """What identifies an event, as one record each, so that sequences compare as bytes."""
    fields = ("name", "instruction_id", "delegate_id_int", "delegate_id_str")
    packed = np.empty(
        len(rows),
        dtype=[("chain_index", "<i8"), *((name, "<i4") for name in fields), ("kind", "<i4")],
    )
    for name in ("chain_index", *fields):
        packed[name] = getattr(dump, name)[rows]
    packed["kind"] = dump.kind[rows].astype(np.int32) * 2 + dump.is_output[rows]
    return packed


def _event_keys(dump: ETDump, rows: Ints) -> Iterator[EventKey]:
    """Keys of one run's events. Small: a run's sequence, not the dump."""
    columns = (dump.instruction_id, dump.chain_index, dump.delegate_id_int, dump.delegate_id_str)
    signatures = zip(*(column[rows].tolist() for column in columns), strict=True)
    outputs = _holds_output(dump, rows).tolist()
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
        # The identifier, or the name that debug data gives, stands before the profile's name.
        name = names[debug[0]] if debug else ""
        if delegate_id is not None:
            name = str(delegate_id)
        seen: dict[str, int] = {}
        for event, values in _with_debug(profile, debug, names):
            own = name or ("" if event is None else names[event])
            occurrence = seen.get(own, 0)
            seen[own] = occurrence + 1
            yield EventKey(
                name=own,
                instruction_id=None if instruction == -1 else instruction,
                chain_index=chain,
                delegate_id=delegate_id,
                profile=event,
                debug=values,
                occurrence=occurrence,
            )


def _holds_output(dump: ETDump, rows: Ints) -> npt.NDArray[np.bool_]:
    """Debug events that hold an output of the program.

    The runtime marks tensors alone; an int, float or bool among the outputs is known by being
    logged outside any instruction.
    """
    outside = (dump.kind[rows] == EventKind.DEBUG) & (dump.chain_index[rows] == NO_CHAIN)
    holds: npt.NDArray[np.bool_] = dump.is_output[rows] | outside
    return holds


def _with_debug(
    profile: list[int], debug: tuple[int, ...], names: list[str]
) -> list[tuple[int | None, tuple[int, ...]]]:
    """The profiling events of one instruction, each with the debug events that belong to it.

    The kernel's event and the call around it both carry the instruction's values. A loop runs an
    instruction several times in a run: each pass ends with the call's event, and has the values
    that were logged since the pass before. Debug events alone belong to no profiling event.
    """
    if not profile:
        return [(None, debug)]
    ends = [position for position in profile if names[position] == names[profile[-1]]]
    by_pass: dict[int, list[int]] = {}
    for position in debug:
        # What was logged after the last pass ended is the last pass's.
        by_pass.setdefault(min(bisect_left(ends, position), len(ends) - 1), []).append(position)
    return [(event, tuple(by_pass.get(bisect_left(ends, event), ()))) for event in profile]


def _elapsed(dump: ETDump, rows: Ints) -> npt.NDArray[np.int64]:
    """End minus start in ticks; a 32-bit clock that wrapped in between is put right."""
    start, end = dump.start[rows], dump.end[rows]
    wrapped = start > end
    elapsed = (end - start).astype(np.int64)  # unsigned: wraps around as 64 bits
    if wrapped.any():
        broken = wrapped & ((start >= _UINT32) | (end >= _UINT32))
        if broken.any():
            raise _bad_times(
                dump, int(rows[broken][0]), "ends before it starts, and is on no 32-bit clock"
            )
        elapsed[wrapped] += _UINT32
    if (elapsed < 0).any():
        raise _bad_times(dump, int(rows[elapsed < 0][0]), "takes longer than any clock runs")
    return elapsed


def _bad_times(dump: ETDump, row: int, why: str) -> FormatError:
    return FormatError(
        f"event {row} of run {int(dump.run[row])} {why}: "
        f"{int(dump.start[row])} to {int(dump.end[row])}",
        path=dump.path,
    )
