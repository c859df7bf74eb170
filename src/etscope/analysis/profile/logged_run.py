"""The values that one run of a method logged, by instruction, for `matching` to pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etscope.analysis.matching.matching import Pair, with_flow
from etscope.analysis.matching.run import LoggedSpec, Specs
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.program import InstructionRecord
from etscope.formats.etdump.debug_values import TensorRef
from etscope.model.event_table import DELEGATE_CALL, KERNEL_PREFIX, Block

_Key = tuple[int, int | str | None]


@dataclass(frozen=True)
class LoggedRun:
    """One run; `values` reads its tensors.

    run: position in `block.runs`. specs, delegated_specs: the types of its values, as the arguments
    of `match`. instructions: the method's instructions; without a program, those that the dump
    names. outputs: indices of the program's outputs, empty without a program.
    """

    trace: Trace
    block: Block
    run: int
    method: str
    instructions: Sequence[InstructionRecord]
    outputs: tuple[int, ...]
    passes: Mapping[_Key, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    specs: Mapping[int, Specs] = field(default_factory=dict)
    delegated_specs: Mapping[tuple[int, int | str], Specs] = field(default_factory=dict)
    _read: dict[_Key, list[list[Any]]] = field(default_factory=dict, repr=False, compare=False)

    def values(self, pair: Pair) -> list[Any]:
        """The logged value of a pair, once for each pass of a loop: arrays of the debug buffer, of
        values inside delegates in the form of the reference's."""
        key = pair.instruction, pair.delegate_id
        if key not in self._read:
            self._read[key] = [
                unfolded(self.trace.values(self.block, self.run, positions))
                for positions in self.passes[key]
            ]
        found = [values[pair.logged] for values in self._read[key]]
        return found if pair.form is None else [pair.form.of(value) for value in found]


def logged_run(trace: Trace, block: Block, run: int, method: str) -> LoggedRun:
    """Collect what the block's run `run` (a position in `block.runs`) logged."""
    passes: dict[_Key, list[tuple[int, ...]]] = {}
    for key in block.keys:
        if key.debug and key.instruction is not None:
            found = passes.setdefault((key.instruction, key.delegate_id), [])
            if key.debug not in found:
                found.append(key.debug)
    specs: dict[_Key, list[LoggedSpec | None]] = {
        key: [
            LoggedSpec(value.scalar_type.torch_name, value.sizes)
            if isinstance(value, TensorRef)
            else None
            for value in unfolded([trace.dump.value(block.row(run, p)) for p in found[0]])
        ]
        for key, found in passes.items()
    }
    program, instructions = trace.recorded_program, trace.instructions(method)
    if program is not None and instructions:
        instructions = with_flow(program.method(method).values, instructions)
    else:
        instructions = _instructions_of_dump(block, trace, method)
    return LoggedRun(
        trace=trace,
        block=block,
        run=run,
        method=method,
        instructions=instructions,
        outputs=() if program is None else tuple(program.method(method).outputs),
        passes=passes,
        specs={number: found for (number, inner), found in specs.items() if inner is None},
        delegated_specs={
            (number, inner): found for (number, inner), found in specs.items() if inner is not None
        },
    )


def unfolded(values: Sequence[Any]) -> list[Any]:
    """The values, with the tensors of lists one by one."""
    found: list[Any] = []
    for value in values:
        found += value if isinstance(value, (list, tuple)) else [value]
    return found


def _instructions_of_dump(block: Block, trace: Trace, method: str) -> list[InstructionRecord]:
    """Instructions by the names of their events, without a program."""
    kinds = {DELEGATE_CALL: "delegate", "MOVE_CALL": "move", "JF_CALL": "jump", "FREE_CALL": "free"}
    labels = trace.labels.get(method, ())
    found: dict[int, InstructionRecord] = {}
    for key in block.keys:
        number = key.instruction
        if number is None or key.delegate_id is not None:
            continue
        label = labels[number] if 0 <= number < len(labels) else ""
        operator = label if "::" in label else None
        if key.name.startswith(KERNEL_PREFIX):
            operator = operator or f"aten::{key.name[len(KERNEL_PREFIX) :]}"
        if number not in found or operator:
            kind = kinds.get(key.name, "kernel")
            name = (operator or kind).rpartition("::")[2]
            found[number] = InstructionRecord(
                number, kind, key.name, name, (), (), operator=operator
            )
    return [found[number] for number in sorted(found)]
