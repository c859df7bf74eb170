"""The profile of a method: one row for each instruction, which add up to its time.

``Method::execute`` holds the calls of the instructions, a call holds its kernel or the events of
its delegate. The time that no call accounts for has its own row, so that the rows sum to the
method's time to the tick, in every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.calls import RunCalls
from etscope.analysis.program.correlate import UNATTRIBUTED, Attribution
from etscope.errors import MissingDataError
from etscope.model.event_table import (
    CALL_ROLES,
    EXECUTE,
    KERNEL_PREFIX,
    LOAD_EVENTS,
    Block,
    EventKey,
    Meaning,
    framework_ticks,
)
from etscope.support.shown import Shown
from etscope.units import count

__all__ = ["MethodProfile", "Row", "identity", "method_profile"]

Ticks = npt.NDArray[np.int64]
Attribute = Callable[[EventKey], Attribution]
# A row that counts in sums, with its instruction.
Leaf = tuple["InstructionRows", "Row"]
# The meaning of each event that delegates logged in a block, by its index in the block's keys.
Meanings = Callable[[Block], Mapping[int, Meaning]]


@dataclass(frozen=True, slots=True)
class Row(Shown):
    """The time of one instruction, of one event inside a delegate, or of a remainder.

    kind: "kernel", "delegate", "control", "delegated", "other", "unaccounted" or "total". ticks,
    calls: int64 arrays with one element for each run of the profile; 0 where the row did not run.
    kernel_ticks: the part of `ticks` inside the kernel; the rest is the overhead of the call.
    meaning: the meaning of an event inside a delegate. parts: the rows whose sum this row is. leaf:
    True if the row is one of the terms of every sum: all other rows are sums of leaves, or not part
    of the method's time. event: the key of the events that the row sums; for a remainder, the key
    of the event that it remains of; None for other sums.
    """

    kind: str
    name: str
    ticks: Ticks
    calls: Ticks
    instruction_id: int | None = None
    kernel_ticks: Ticks | None = None
    delegate_id: int | str | None = None
    attribution: Attribution = UNATTRIBUTED
    depth: int = 0
    meaning: Meaning | None = None
    parts: tuple[Row, ...] = ()
    leaf: bool = True
    event: EventKey | None = None

    @property
    def own_clock(self) -> bool:
        """True for a delegate's event that is not a part of the method's time: bytes, cycles of an
        accelerator, times on another clock. Tables show it, but it is never added to or compared
        with other rows.
        """
        return self.meaning is not None and not self.meaning.adds

    @property
    def is_time(self) -> bool:
        """True if `ticks` are ticks, and were measured."""
        return self.meaning is None or self.meaning.is_time

    @property
    def kernel_name(self) -> str:
        """The name; a delegate's kernel without the number that distinguishes kernels of one name:
        "Convolution (NHWC, F32) IGEMM #3"."""
        return re.sub(r" #\d+$", "", self.name) if self.kind == "delegated" else self.name

    @property
    def ran(self) -> npt.NDArray[np.bool_]:
        """The runs that executed it, [runs]."""
        return self.calls > 0


@dataclass(frozen=True)
class InstructionRows:
    """The rows of one instruction: its own, and one for each event that its delegate logged.

    first: index of `head` in the profile's rows; the rows `below` follow it.
    """

    first: int
    head: Row
    below: tuple[Row, ...]

    @property
    def is_split(self) -> bool:
        """True if the rows below add up to the head."""
        return not self.head.leaf

    @cached_property
    def leaves(self) -> tuple[Row, ...]:
        """The leaves among its rows, which add up to the head."""
        return tuple(row for row in (self.head, *self.below) if row.leaf)

    def kept(self, keep: Callable[[Row], bool] | None) -> tuple[Row, ...]:
        """Return the leaves to keep: the leaves that match; all of them, if only the instruction
        itself matches.
        """
        if keep is None:
            return self.leaves
        matching = tuple(filter(keep, self.leaves)) if self.is_split else ()
        return matching or (self.leaves if any(map(keep, (self.head, *self.below))) else ())


@dataclass(frozen=True, slots=True, eq=False)
class Excluded:
    """The runs that a profile does not have: see `etscope.analysis.profile.counted`.

    every: the profile of all runs. warmup: 1 if the first run was cold, else 0. disturbed: how many
    other programs disturbed.
    """

    every: MethodProfile
    warmup: int
    disturbed: int

    def in_words(self) -> str:
        """ "7 excluded: 1 warm-up, 6 disturbed by other programs"."""
        reasons = [f"{self.warmup} warm-up"] if self.warmup else []
        if self.disturbed:
            reasons.append(f"{self.disturbed:,} disturbed by other programs")
        return f"{self.warmup + self.disturbed:,} excluded: {', '.join(reasons)}"


@dataclass(frozen=True)
class MethodProfile(Shown):
    """All runs of one method. `rows` are in run order, events of a delegate below their call.

    `runs` are indices in the dump; `total` is ``Method::execute`` of each run, in ticks. `load` has
    the samples of the logged loading events, by name. `alternatives` are other methods with the
    same instructions: the runs may be runs of these methods instead. `traced`: True if debug data
    was logged, which takes extra time. `calls`: the runs as calls of a language model. `excluded`:
    the runs of the dump that are excluded; None if all runs count.
    """

    method: str | None
    runs: Ticks
    total: Ticks
    rows: tuple[Row, ...]
    load: Mapping[str, Ticks]
    traced: bool
    alternatives: tuple[str, ...] = ()
    calls: RunCalls | None = None
    excluded: Excluded | None = None

    @property
    def every(self) -> MethodProfile:
        """The profile of all runs, the excluded ones too."""
        return self if self.excluded is None else self.excluded.every

    @property
    def runs_in_words(self) -> str:
        """ "13 of 20 runs (7 excluded: 1 warm-up, 6 disturbed by other programs)", or "20 runs"."""
        if self.excluded is None:
            return count(len(self.runs), "run")
        return (
            f"{len(self.runs):,} of {count(len(self.every.runs), 'run')} "
            f"({self.excluded.in_words()})"
        )

    @property
    def runs_as_plain(self) -> dict[str, Any]:
        left = self.excluded
        return {
            "method": self.method,
            "phase": self.phase,
            "counted": len(self.runs),
            "recorded": len(self.every.runs),
            "warmup": 0 if left is None else left.warmup,
            "disturbed": 0 if left is None else left.disturbed,
        }

    @property
    def phase(self) -> str | None:
        """The phase of all runs; None where it is not known."""
        return None if self.calls is None else self.calls.phase[0]

    def title(self, unnamed: str = "method") -> str:
        """Return the method with its phase: "forward · decode". unnamed: for an unknown method."""
        return with_phase(self.method or unnamed, self.phase)

    @cached_property
    def instructions(self) -> Sequence[InstructionRows]:
        """The rows by instruction, in run order."""
        heads = [number for number, row in enumerate(self.rows) if row.depth == 0]
        ends = [*heads, len(self.rows)][1:]
        return [
            InstructionRows(first, self.rows[first], self.rows[first + 1 : end])
            for first, end in zip(heads, ends, strict=True)
        ]

    @cached_property
    def leaves(self) -> Sequence[Leaf]:
        """All leaves in run order. With `unaccounted` they add up to `total`."""
        return [(call, row) for call in self.instructions for row in call.leaves]

    @property
    def unaccounted(self) -> Ticks:
        """Ticks of each run's total that no instruction accounts for."""
        accounted = sum(
            (row.ticks for row in self.rows if row.depth == 0), np.zeros_like(self.total)
        )
        return self.total - accounted


def with_phase(method: str, phase: str | None) -> str:
    """Return the name of a method with the phase of its calls, which may have the same name."""
    return method if phase in (None, method) else f"{method} · {phase}"


def method_profile(
    blocks: Sequence[Block],
    attribute: Attribute,
    meanings: Meanings,
    method: str | None = None,
    load: Mapping[str, Ticks] | None = None,
    alternatives: tuple[str, ...] = (),
) -> MethodProfile:
    """Add up the events of `blocks`, the runs of one method in all its patterns. Raises
    `MissingDataError` when no block has a ``Method::execute``."""
    blocks = [block for block in blocks if block.executions]
    if not blocks:
        raise MissingDataError(
            f"no {EXECUTE} event: nothing was executed, or only debug data was logged",
            hint="run the method with the event tracer on (profiling level kProfileAllEvents)",
        )
    runs = np.concatenate([block.runs for block in blocks])
    order = np.argsort(runs, kind="stable")
    column = np.empty_like(order)  # of each run in the profile
    column[order] = np.arange(len(order))
    sums: dict[Hashable, _Sum] = {}
    total = np.zeros(len(runs), dtype=np.int64)
    offset = 0
    for block in blocks:
        mine = slice(offset, offset + len(block.runs))
        columns: Any = slice(None) if len(blocks) == 1 else column[mine]  # one is in their order
        offset += len(block.runs)
        total[columns] = block.ticks[list(block.executions)].sum(axis=0)
        meaning = meanings(block)
        for index in block.profiled:
            key = block.keys[index]
            if key.is_framework:
                continue
            if key.instruction is None and not block.span_holds(block.executions, [index]):
                continue  # logged around the method or outside of it: not a part of its time
            same = identity(key)
            entry = sums.get(same)
            if entry is None:
                found = meaning.get(index)
                around = None if found is None else found.parent
                parent = None if around is None else identity(block.keys[around])
                start = int(block.starts[index][0])
                ticks, calls = np.zeros((2, len(runs)), dtype=np.int64)
                entry = sums[same] = _Sum(key, found, parent, start, ticks, calls)
            entry.ticks[columns] += block.ticks[index]
            entry.calls[columns] += ~block.backwards[index] if index in block.backwards else 1
    by_instruction: dict[int | None, list[_Sum]] = {}
    for entry in sums.values():
        by_instruction.setdefault(entry.key.instruction, []).append(entry)
    ordered = sorted(by_instruction, key=lambda i: (i is None, i or 0))
    rows = [row for i in ordered for row in _instruction_rows(by_instruction[i], attribute)]
    return MethodProfile(
        method=method,
        runs=runs[order],
        total=total,
        rows=tuple(rows),
        load=load or {},
        alternatives=alternatives,
        traced=any(key.debug for block in blocks for key in block.keys),
    )


def profile_of(profiles: Sequence[MethodProfile], method: str | None) -> MethodProfile | None:
    """Return the longest phase's profile of a method; None if it did not run."""
    of_it = [profile for profile in profiles if profile.method == method]
    return max(of_it, key=lambda profile: int(profile.total.sum()), default=None)


def load_ticks(blocks: Sequence[Block]) -> dict[str, Ticks]:
    """Return the samples of the loading events that were logged, by name, in ticks."""
    found = {name: framework_ticks(blocks, name) for name in LOAD_EVENTS}
    return {name: ticks for name, ticks in found.items() if len(ticks)}


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """One event, added up over its occurrences in each run. parent: the identity of the event that
    it is a part of. start: in ticks, of the first occurrence."""

    key: EventKey
    meaning: Meaning | None
    parent: Hashable
    start: int
    ticks: Ticks
    calls: Ticks

    @property
    def identity(self) -> Hashable:
        return identity(self.key)

    @property
    def adds(self) -> bool:
        return self.meaning is not None and self.meaning.adds


def identity(key: EventKey) -> Hashable:
    """Return the key of an event: events with the same key are added up in one row."""
    named = key.role not in (*CALL_ROLES, "delegated")
    return key.instruction, key.delegate_id, key.name if named else key.role


def _instruction_rows(entries: Sequence[_Sum], attribute: Attribute) -> Iterator[Row]:
    """Yield the row of a call, then a row for each event that its delegate logged."""

    def row(kind: str, entry: _Sum, name: str, **more: Any) -> Row:
        return Row(
            kind,
            name,
            entry.ticks,
            entry.calls,
            instruction_id=entry.key.instruction,
            delegate_id=entry.key.delegate_id,
            attribution=attribute(entry.key),
            meaning=entry.meaning,
            event=entry.key,
            **more,
        )

    call = next((entry for entry in entries if entry.key.role in CALL_ROLES), None)
    delegated = [entry for entry in entries if entry.meaning is not None]
    clocks = {m.clock if m.is_drawn else None for entry in delegated if (m := entry.meaning)}
    if len(clocks) == 1 and None not in clocks:  # Core ML logs in any order
        delegated.sort(key=lambda entry: entry.start)
    kernels = [entry for entry in entries if entry is not call and entry not in delegated]
    head: Row | None = None
    if call is None:
        for entry in kernels:
            kind = "kernel" if entry.key.role == "kernel" else "other"
            yield row(kind, entry, entry.key.name.removeprefix(KERNEL_PREFIX))
    else:
        # A kernel may log its phases, which are parts of its event.
        kernels = [entry for entry in kernels if entry.key.role == "kernel"] or kernels
        names = dict.fromkeys(entry.key.name.removeprefix(KERNEL_PREFIX) for entry in kernels)
        # Both events of a kernel have its handles; the kernel's own also names the operator.
        attribution = attribute(kernels[0].key if kernels else call.key)
        name = ", ".join(names) or attribution.backend_id or attribution.operator or call.key.name
        head = row(
            "kernel" if call.key.role == "call" else call.key.role,
            call,
            name,
            kernel_ticks=np.sum([entry.ticks for entry in kernels], axis=0) if kernels else None,
        )
    yield from _nested(head, delegated, row)


def _nested(head: Row | None, delegated: Sequence[_Sum], row: Callable[..., Row]) -> Iterator[Row]:
    """Yield a call's row and the rows of its delegate's events, each below the row that contains
    it, with a rest for each divided row.

    This decides what is a leaf: not a row that is divided into parts and a rest, not the events
    inside an undivided row, and not numbers on another clock.
    """
    known = {entry.identity: entry for entry in delegated}

    def holder(entry: _Sum) -> Hashable:
        """The identity of the event around this one; None if the two contain each other, as events
        of one name may.
        """
        seen, at = {entry.identity}, entry.parent
        while at in known and at not in seen:
            seen.add(at)
            at = known[at].parent
        return None if at in known else entry.parent

    below: dict[Hashable, list[_Sum]] = {}
    for entry in delegated:
        below.setdefault(holder(entry), []).append(entry)

    def with_parts(whole: Row, parts: Sequence[_Sum], adds: bool) -> Iterator[Row]:
        """Yield a row, the rows of its parts, and their rest. adds: every row around `whole` is
        fully divided into parts.
        """
        depth = whole.depth + 1
        rest = None
        if head is not None:
            rest = _rest(whole, [entry.ticks for entry in parts if entry.adds], depth)
        is_leaf = adds and rest is None and not (whole.depth and whole.own_clock)
        yield whole if is_leaf else replace(whole, leaf=False)
        yield from inside(parts, depth, adds and rest is not None)
        if rest is not None and head is not None:
            yield replace(rest, attribution=_within(head, rest), leaf=adds)

    def inside(parts: Sequence[_Sum], depth: int, adds: bool) -> Iterator[Row]:
        for entry in parts:
            inner = row("delegated", entry, "", depth=depth)
            told = inner.attribution.told_name(entry.meaning.name if entry.meaning else "")
            whole = inner.attribution if head is None else _within(head, inner)
            inner = replace(inner, name=told, attribution=whole)
            yield from with_parts(inner, below.get(entry.identity, ()), adds)

    if head is None:
        yield from inside(below.get(None, ()), 0, True)
    else:
        yield from with_parts(head, below.get(None, ()), True)


def _rest(whole: Row, parts: Sequence[Ticks], depth: int) -> Row | None:
    """Return the row of what the parts leave of a whole; None if it is not divided: it has no
    parts, is not a time of the method itself, or the parts overlap."""
    if not parts or whole.own_clock:
        return None
    ticks = whole.ticks - np.sum(parts, axis=0)
    if not (ticks >= 0).all():
        return None
    what = "the delegate call" if whole.meaning is None else whole.name
    return Row(
        kind="unaccounted",
        name=f"(rest of {what})",
        ticks=ticks,
        calls=whole.calls,
        instruction_id=whole.instruction_id,
        depth=depth,
        event=whole.event,
    )


def _within(head: Row, inner: Row) -> Attribution:
    """Return the attribution of a part of a delegate's call. A part without a known node is shown
    at the module that holds all of the call."""
    own, whole = inner.attribution, head.attribution
    if own.located:
        return own
    return replace(
        own,
        backend_id=own.backend_id or whole.backend_id,
        inherited=whole.located,
        stack=() if whole.located else own.stack or whole.stack,
    )
