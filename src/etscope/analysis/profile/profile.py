"""Where the time of a method goes: one row for each instruction, and it adds up.

``Method::execute`` holds the calls of the instructions, a call holds its kernel or the events of
its delegate. What no call accounts for is a row of its own, so that the rows sum to the method's
time to the tick, in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.correlate import UNATTRIBUTED, Attribution
from etscope.errors import MissingDataError
from etscope.model.event_table import Block, EventKey

Ticks = npt.NDArray[np.int64]
Attribute = Callable[[EventKey], Attribution]

EXECUTE = "Method::execute"
LOAD_METHOD = "Program::load_method"
LOAD_EVENTS = (LOAD_METHOD, "Method::init")
KERNEL_PREFIX = "native_call_"
# The runtime's own events around an instruction (method.cpp, `Method::execute_instruction`).
_CALLS = {
    "OPERATOR_CALL": "kernel",
    "DELEGATE_CALL": "delegate",
    "JF_CALL": "control",
    "MOVE_CALL": "control",
    "FREE_CALL": "control",
}


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
    def ran(self) -> npt.NDArray[np.bool_]:
        """The runs in which it ran."""
        return self.calls > 0


@dataclass(frozen=True, slots=True)
class MethodProfile:
    """All runs of one method. `rows` are in run order, events of a delegate below its call.

    `runs` are indices in the dump; `total` is ``Method::execute`` of each run, in ticks. `load`
    are the samples of the loading events that were logged, by name. `alternatives` are methods of
    the same instructions, of which the runs may be as well. `traced`: whether debug data
    was logged, which takes time of its own.
    """

    method: str | None
    runs: Ticks
    total: Ticks
    rows: tuple[Row, ...]
    load: Mapping[str, Ticks]
    traced: bool
    alternatives: tuple[str, ...] = ()

    @property
    def unaccounted(self) -> Ticks:
        """What of each run's total no instruction accounts for, in ticks."""
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
    """The profile of the runs of `blocks`, which ran one method (other patterns of it included).

    Raises `MissingDataError` when no block has a ``Method::execute``.
    """
    blocks = [block for block in blocks if executes(block)]
    if not blocks:
        raise MissingDataError(
            f"no {EXECUTE} event: nothing was executed, or only debug data was logged",
            hint="run the method with the event tracer on (profiling level kProfileAllEvents)",
        )
    runs = np.concatenate([block.runs for block in blocks])
    order = np.argsort(runs, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    columns: dict[tuple[object, ...], _Sum] = {}
    total = np.zeros(len(runs), dtype=np.int64)
    offset = 0
    for block in blocks:
        where = place[offset : offset + len(block.runs)]
        offset += len(block.runs)
        executions = _executions(block)
        total[where] = block.ticks[executions].sum(axis=0)
        for index in block.profiled:
            key = block.keys[index]
            if key.is_framework:
                continue
            if key.instruction is None and not block.span_holds(executions, [index]):
                continue  # logged around the method or beside it: no part of its time
            identity = (key.instruction, key.delegate_id, _role(key))
            entry = columns.get(identity)
            if entry is None:
                entry = columns[identity] = _Sum(key, len(runs))
            entry.add(block, index, where)
    rows = _rows(columns.values(), attribute)
    return MethodProfile(
        method=method,
        runs=runs[order],
        total=total,
        rows=tuple(rows),
        load=load or {},
        alternatives=alternatives,
        traced=any(key.debug for block in blocks for key in block.keys),
    )


def executes(block: Block) -> bool:
    """Whether the block's runs executed a method."""
    return bool(_executions(block))


def _executions(block: Block) -> list[int]:
    """The block's ``Method::execute`` events, as indices into its keys."""
    keys = enumerate(block.keys)
    return [index for index, key in keys if key.is_framework and key.name == EXECUTE]


def load_ticks(blocks: Iterable[Block]) -> dict[str, Ticks]:
    """Samples of the loading events, by name, in ticks; only those that were logged."""
    samples: dict[str, list[Ticks]] = {}
    for block in blocks:
        for index in block.profiled:
            key = block.keys[index]
            if key.is_framework and key.name in LOAD_EVENTS:
                samples.setdefault(key.name, []).append(block.ticks[index])
    return {name: np.concatenate(parts) for name, parts in samples.items()}


class _Sum:
    """Ticks and calls of one event, added up over its occurrences in each run."""

    def __init__(self, key: EventKey, runs: int) -> None:
        self.key = key
        self.ticks = np.zeros(runs, dtype=np.int64)
        self.calls = np.zeros(runs, dtype=np.int64)
        self.own_clock = False

    def add(self, block: Block, index: int, where: Ticks) -> None:
        self.ticks[where] += block.ticks[index]
        self.calls[where] += 1
        if self.key.delegate_id is not None:
            self.own_clock |= self.key.instruction in block.own_clock


def _role(key: EventKey) -> str:
    if key.delegate_id is not None:
        return "delegated"
    return _CALLS.get(key.name, key.name)


def _rows(sums: Iterable[_Sum], attribute: Attribute) -> Iterable[Row]:
    by_instruction: dict[int | None, list[_Sum]] = {}
    for entry in sums:
        by_instruction.setdefault(entry.key.instruction, []).append(entry)
    ordered = sorted(by_instruction, key=lambda i: (i is None, i or 0))
    for instruction in ordered:
        yield from _instruction_rows(instruction, by_instruction[instruction], attribute)


def _instruction_rows(
    instruction: int | None, entries: list[_Sum], attribute: Attribute
) -> Iterable[Row]:
    """The row of the call, then those of what its delegate logged."""
    call = next((entry for entry in entries if _role(entry.key) in _CALLS.values()), None)
    delegated = [entry for entry in entries if _role(entry.key) == "delegated"]
    kernels = [entry for entry in entries if entry is not call and entry not in delegated]
    if call is None:
        for entry in kernels:
            kind = "kernel" if entry.key.name.startswith(KERNEL_PREFIX) else "other"
            yield _row(kind, entry, attribute, name=_kernel_name(entry.key.name))
    else:
        # What a kernel logs of its phases is a part of its own event.
        own = [entry for entry in kernels if entry.key.name.startswith(KERNEL_PREFIX)]
        kernels = own or kernels
        kind = _role(call.key)
        kernel_ticks = None
        if kernels:
            kernel_ticks = np.sum([entry.ticks for entry in kernels], axis=0)
        names = dict.fromkeys(_kernel_name(entry.key.name) for entry in kernels)
        # Both events of a kernel have its handles; the kernel's own is the more telling one.
        source = kernels[0] if kernels else call
        attribution = attribute(source.key)
        name = ", ".join(names) or attribution.backend_id or attribution.operator or call.key.name
        yield _row(kind, call, attribute, name=name, kernel_ticks=kernel_ticks)
    own_clock = any(entry.own_clock for entry in delegated)
    for entry in delegated:
        yield _row(
            "delegated", entry, attribute, depth=0 if call is None else 1, own_clock=own_clock
        )
    if call is not None and delegated and not own_clock:
        rest = call.ticks - np.sum([entry.ticks for entry in delegated], axis=0)
        if (rest < 0).any():  # they hold one another: nothing tells which to add up
            return
        yield Row(
            kind="unaccounted",
            name="(rest of the delegate call)",
            ticks=rest,
            calls=call.calls,
            instruction_id=instruction,
            depth=1,
        )


def _row(
    kind: str,
    entry: _Sum,
    attribute: Attribute,
    *,
    name: str | None = None,
    kernel_ticks: Ticks | None = None,
    depth: int = 0,
    own_clock: bool = False,
) -> Row:
    return Row(
        kind=kind,
        name=entry.key.name if name is None else name,
        ticks=entry.ticks,
        calls=entry.calls,
        instruction_id=entry.key.instruction,
        kernel_ticks=kernel_ticks,
        delegate_id=entry.key.delegate_id,
        attribution=attribute(entry.key),
        depth=depth,
        own_clock=own_clock,
    )


def _kernel_name(event_name: str) -> str:
    return event_name.removeprefix(KERNEL_PREFIX)
