"""The values that one run of a method logged, by instruction: what `matching` pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etscope.analysis.matching.graph import LoggedSpec
from etscope.analysis.matching.matching import Pair
from etscope.analysis.matching.program import with_flow
from etscope.analysis.profile.profile import KERNEL_PREFIX
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.program import InstructionRecord
from etscope.formats.etdump.debug_values import DebugValue, TensorRef
from etscope.model.event_table import DELEGATE_CALL, Block, EventKey

_Key = tuple[int, int | str | None]


@dataclass(frozen=True)
class LoggedRun:
    """One run: `run` counts those of its block. Tensors are read when `values` asks for them.

    `specs` and `delegated_specs` are what `match` takes, `instructions` the method's, of the
    program or, without one, as far as the dump names them. `outputs` are the indices of the
    program's outputs, empty without a program.
    """

    trace: Trace
    block: Block
    run: int
    method: str
    instructions: Sequence[InstructionRecord]
    outputs: tuple[int, ...]
    passes: Mapping[_Key, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    specs: Mapping[int, Sequence[LoggedSpec | None]] = field(default_factory=dict)
    delegated_specs: Mapping[tuple[int, int | str], Sequence[LoggedSpec | None]] = field(
        default_factory=dict
    )

    def values(self, pair: Pair) -> list[Any]:
        """The logged value of a pair, once for each pass of a loop: arrays of the debug buffer."""
        passes = self.passes[pair.instruction, pair.delegate_id]
        return [
            unfolded(self.trace.values(self.block, self.run, positions))[pair.logged]
            for positions in passes
        ]


def logged_run(trace: Trace, block: Block, run: int, method: str) -> LoggedRun:
    """What the block's run `run` (a position in `block.runs`) logged."""
    passes: dict[_Key, list[tuple[int, ...]]] = {}
    for key in block.keys:
        if key.debug and key.instruction is not None:
            found = passes.setdefault((key.instruction, key.delegate_id), [])
            if key.debug not in found:
                found.append(key.debug)
    specs: dict[_Key, list[LoggedSpec | None]] = {
        key: [
            _spec(value)
            for value in unfolded([trace.dump.value(block.row(run, p)) for p in found[0]])
        ]
        for key, found in passes.items()
    }
    instructions = trace.instructions(method)
    return LoggedRun(
        trace=trace,
        block=block,
        run=run,
        method=method,
        instructions=_flow(trace, method, instructions) or _named(block, trace, method),
        outputs=_program_outputs(trace, method),
        passes=passes,
        specs={number: found for (number, inner), found in specs.items() if inner is None},
        delegated_specs={
            (number, inner): found for (number, inner), found in specs.items() if inner is not None
        },
    )


def unfolded(values: Sequence[Any]) -> list[Any]:
    """The values with the tensors of lists one by one."""
    found: list[Any] = []
    for value in values:
        found.extend(value) if isinstance(value, (list, tuple)) else found.append(value)
    return found


def _spec(value: DebugValue) -> LoggedSpec | None:
    if not isinstance(value, TensorRef):
        return None
    return LoggedSpec(value.scalar_type.torch_name, value.sizes)


def _program_outputs(trace: Trace, method: str) -> tuple[int, ...]:
    program = trace.recorded_program
    return () if program is None else tuple(program.method(method).outputs)


def _flow(
    trace: Trace, method: str, records: Sequence[InstructionRecord]
) -> list[InstructionRecord]:
    program = trace.recorded_program
    if program is None or not records:
        return []
    return with_flow(program.method(method).values, records)


def _named(block: Block, trace: Trace, method: str) -> list[InstructionRecord]:
    """Instructions by the names of their events, when there is no program to tell them."""
    labels = trace.labels.get(method, ())
    found: dict[int, InstructionRecord] = {}
    for key in block.keys:
        number = key.instruction
        if number is None or key.delegate_id is not None:
            continue
        label = labels[number] if 0 <= number < len(labels) else ""
        record = _from_event(number, key, label)
        if record is not None and (number not in found or record.operator):
            found[number] = record
    return [found[number] for number in sorted(found)]


def _from_event(number: int, key: EventKey, label: str) -> InstructionRecord | None:
    kinds = {DELEGATE_CALL: "delegate", "MOVE_CALL": "move", "JF_CALL": "jump", "FREE_CALL": "free"}
    operator = label if "::" in label else None
    if key.name.startswith(KERNEL_PREFIX):
        operator = operator or f"aten::{key.name[len(KERNEL_PREFIX) :]}"
    kind = kinds.get(key.name, "kernel")
    return InstructionRecord(
        number, kind, key.name, (operator or kind).rpartition("::")[2], (), (), operator=operator
    )


__all__ = ["LoggedRun", "logged_run", "unfolded"]
