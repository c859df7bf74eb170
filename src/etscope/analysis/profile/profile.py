"""The profile of a method: one row for each instruction, which add up to its time.

``Method::execute`` holds the calls of the instructions, a call holds its kernel or the events of
its delegate. The time that no call accounts for is a row of its own, so that the rows sum to the
method's time to the tick, in every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.correlate import UNATTRIBUTED, Attribution
from etscope.errors import MissingDataError
from etscope.model.event_table import (
    CALL_ROLES,
    EXECUTE,
    KERNEL_PREFIX,
    LOAD_EVENTS,
    Block,
    Clock,
    EventKey,
    framework_ticks,
)

Ticks = npt.NDArray[np.int64]
Attribute = Callable[[EventKey], Attribution]


@dataclass(frozen=True, slots=True)
class Row:
    """Time of one instruction, of one event inside a delegate, or of a remainder.

    kind: "kernel", "delegate", "control", "delegated", "other", "unaccounted" or "total".
    ticks, calls: int64 arrays, one element for each run of the profile; 0 where it did not run.
    kernel_ticks: the part of `ticks` inside the kernel; the rest is the cost of the call.
    own_clock: a delegate's event whose times are not on the method's clock (cycles of an
        accelerator, say): they are shown, but never added to or compared with the others.
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
    own_clock: bool = False

    @property
    def kernel_name(self) -> str:
        """The name; a delegate's kernel without the number that tells it from others of that name:
        "Convolution (NHWC, F32) IGEMM #3"."""
        return re.sub(r" #\d+$", "", self.name) if self.kind == "delegated" else self.name

    @property
    def ran(self) -> npt.NDArray[np.bool_]:
        """The runs in which it ran."""
        return self.calls > 0


@dataclass(frozen=True, slots=True)
class InstructionRows:
    """The rows of one instruction: its own, and those of the events that its delegate logged.

    first: index of `head` in the profile's rows; the rows `below` follow it.
    """

    first: int
    head: Row
    below: tuple[Row, ...]

    @property
    def is_split(self) -> bool:
        """True if the rows below add up to the head. A call without events, with events on a clock
        of their own, or with one event inside another, is never divided."""
        return any(row.kind == "unaccounted" for row in self.below)

    @property
    def leaves(self) -> tuple[Row, ...]:
        """The rows whose times are added up, in every view: all else is a sum of them."""
        return self.below if self.is_split else (self.head,)

    def kept(self, keep: Callable[[Row], bool] | None) -> tuple[Row, ...]:
        """The leaves that are kept: those that match; all, if only the instruction itself does."""
        if keep is None:
            return self.leaves
        matching = tuple(filter(keep, self.below))
        if matching and self.is_split:
            return matching
        return self.leaves if matching or keep(self.head) else ()


@dataclass(frozen=True, slots=True)
class MethodProfile:
    """All runs of one method. `rows` are in run order, events of a delegate below its call.

    `runs` are indices in the dump; `total` is ``Method::execute`` of each run, in ticks. `load`
    are the samples of the loading events that were logged, by name. `alternatives` are other
    methods of the same instructions, which the runs may be of instead. `traced`: debug data was
    logged, which takes time of its own.
    """

    method: str | None
    runs: Ticks
    total: Ticks
    rows: tuple[Row, ...]
    load: Mapping[str, Ticks]
    traced: bool
    alternatives: tuple[str, ...] = ()

    @property
    def instructions(self) -> list[InstructionRows]:
        """The rows by instruction, in run order."""
        heads = [number for number, row in enumerate(self.rows) if row.depth == 0]
        ends = [*heads, len(self.rows)][1:]
        return [
            InstructionRows(first, self.rows[first], self.rows[first + 1 : end])
            for first, end in zip(heads, ends, strict=True)
        ]

    @property
    def unaccounted(self) -> Ticks:
        """Ticks of each run's total that no instruction accounts for."""
        accounted = sum(
            (row.ticks for row in self.rows if row.depth == 0), np.zeros_like(self.total)
        )
        return self.total - accounted


def method_profile(
    blocks: Sequence[Block],
    attribute: Attribute,
    method: str | None = None,
    load: Mapping[str, Ticks] | None = None,
    alternatives: tuple[str, ...] = (),
) -> MethodProfile:
    """Add up the events of `blocks`, the runs of one method in all its patterns.

    Raises `MissingDataError` when no block has a ``Method::execute``.
    """
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
    sums: dict[tuple[object, ...], _Sum] = {}
    total = np.zeros(len(runs), dtype=np.int64)
    offset = 0
    for block in blocks:
        columns = column[offset : offset + len(block.runs)]
        offset += len(block.runs)
        total[columns] = block.ticks[list(block.executions)].sum(axis=0)
        for index in block.profiled:
            key = block.keys[index]
            if key.is_framework:
                continue
            if key.instruction is None and not block.span_holds(block.executions, [index]):
                continue  # logged around the method or beside it: not a part of its time
            role = key.role
            named = role not in (*CALL_ROLES, "delegated")
            identity = (key.instruction, key.delegate_id, key.name if named else role)
            entry = sums.get(identity)
            if entry is None:
                entry = sums[identity] = _Sum(key, len(runs))
            entry.ticks[columns] += block.ticks[index]
            entry.calls[columns] += 1
            entry.own_clock |= block.clock(key) is Clock.DEVICE
    by_instruction: dict[int | None, list[_Sum]] = {}
    for entry in sums.values():
        by_instruction.setdefault(entry.key.instruction, []).append(entry)
    ordered = sorted(by_instruction, key=lambda i: (i is None, i or 0))
    rows = [row for i in ordered for row in _instruction_rows(i, by_instruction[i], attribute)]
    return MethodProfile(
        method=method,
        runs=runs[order],
        total=total,
        rows=tuple(rows),
        load=load or {},
        alternatives=alternatives,
        traced=any(key.debug for block in blocks for key in block.keys),
    )


def load_ticks(blocks: Sequence[Block]) -> dict[str, Ticks]:
    """Return the samples of the loading events that were logged, by name, in ticks."""
    found = {name: framework_ticks(blocks, name) for name in LOAD_EVENTS}
    return {name: ticks for name, ticks in found.items() if len(ticks)}


class _Sum:
    """Ticks and calls of one event, added up over its occurrences in each run."""

    def __init__(self, key: EventKey, runs: int) -> None:
        self.key = key
        self.ticks = np.zeros(runs, dtype=np.int64)
        self.calls = np.zeros(runs, dtype=np.int64)
        self.own_clock = False


def _instruction_rows(
    instruction: int | None, entries: list[_Sum], attribute: Attribute
) -> Iterator[Row]:
    """Yield the row of the call, then those of the events that its delegate logged."""

    def row(kind: str, entry: _Sum, **more: Any) -> Row:
        key = entry.key
        attribution = attribute(key)
        fields: dict[str, Any] = {"name": key.name, "attribution": attribution, **more}
        if kind == "delegated":
            fields["name"] = attribution.told_name(key.name)
        return Row(
            kind=kind,
            ticks=entry.ticks,
            calls=entry.calls,
            instruction_id=key.instruction,
            delegate_id=key.delegate_id,
            **fields,
        )

    call = next((entry for entry in entries if entry.key.role in CALL_ROLES), None)
    delegated = [entry for entry in entries if entry.key.role == "delegated"]
    kernels = [entry for entry in entries if entry is not call and entry not in delegated]
    head: Row | None = None
    if call is None:
        for entry in kernels:
            kind = "kernel" if entry.key.role == "kernel" else "other"
            yield row(kind, entry, name=entry.key.name.removeprefix(KERNEL_PREFIX))
    else:
        # A kernel may log its phases, which are a part of its own event.
        kernels = [entry for entry in kernels if entry.key.role == "kernel"] or kernels
        names = dict.fromkeys(entry.key.name.removeprefix(KERNEL_PREFIX) for entry in kernels)
        # Both events of a kernel have its handles; the kernel's own also names the operator.
        attribution = attribute(kernels[0].key if kernels else call.key)
        name = ", ".join(names) or attribution.backend_id or attribution.operator or call.key.name
        head = row(
            "kernel" if call.key.role == "call" else call.key.role,
            call,
            name=name,
            kernel_ticks=np.sum([entry.ticks for entry in kernels], axis=0) if kernels else None,
        )
        yield head
    own_clock = any(entry.own_clock for entry in delegated)
    for entry in delegated:
        inner = row("delegated", entry, depth=0 if call is None else 1, own_clock=own_clock)
        yield inner if head is None else replace(inner, attribution=_within(head, inner))
    if head is not None and delegated and not own_clock:
        rest = head.ticks - np.sum([entry.ticks for entry in delegated], axis=0)
        if (rest >= 0).all():  # else they hold one another, and which to add up is not known
            left = Row(
                kind="unaccounted",
                name="(rest of the delegate call)",
                ticks=rest,
                calls=head.calls,
                instruction_id=instruction,
                depth=1,
            )
            yield replace(left, attribution=_within(head, left))


def _within(head: Row, inner: Row) -> Attribution:
    """The attribution of a part of a delegate's call. A part of which no node is known is shown at
    the module that holds all of the call."""
    own, whole = inner.attribution, head.attribution
    if own.located:
        return own
    return replace(
        own,
        backend_id=own.backend_id or whole.backend_id,
        inherited=whole.located,
        stack=() if whole.located else own.stack or whole.stack,
    )
