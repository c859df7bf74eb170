"""Whether the reference had the inputs that ran on the device, as far as the dump tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from etscope.analysis.matching.logged_run import LoggedRun, unfolded
from etscope.analysis.numerics.rows import WRONG, NumericsRow
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.program import unfolded as unfolded_indices

_EVERYWHERE = 0.9  # share of elements
_ADVICE = "give those that ran with inputs= (--inputs)"


def doubts_of_inputs(
    trace: Trace, logged: LoggedRun, inputs: Sequence[Any], rows: Sequence[NumericsRow]
) -> Iterator[str]:
    """What speaks against the inputs, in words.

    A delegate logs what goes into it, inputs of the program as well: these are compared. Without
    such, inputs are in doubt when all that is computed from them directly is wrong everywhere, and
    nothing else is.
    """
    compared = dict(_logged_inputs(trace, logged))
    different = [
        index
        for index, value in compared.items()
        if index < len(inputs) and not _are_same(value, inputs[index])
    ]
    if different:
        listed = ", ".join(map(str, different))
        yield (
            f"these are not the inputs that ran: a delegate logged others for input {listed}; "
            + _ADVICE
        )
    elif not compared:
        yield from _by_the_rows(rows)


def _by_the_rows(rows: Sequence[NumericsRow]) -> Iterator[str]:
    first = [row for row in rows if row.inputs and row.loop_pass == 0]
    wrong = [row for row in rows if row.verdict == WRONG]
    if not wrong or any(row not in first for row in wrong):
        return
    if any(row.verdict != WRONG or row.share < _EVERYWHERE for row in first):
        return
    if len(first) > 1:
        yield (
            f"these may not be the inputs that ran: all {len(first)} values that are computed from "
            f"them are wrong in nearly all elements, and no other is; {_ADVICE}"
        )
    else:
        yield (
            "the wrong value is the only one that is computed from the inputs, and wrong in nearly "
            f"all elements: if these are not the inputs that ran, that is why; {_ADVICE}"
        )


def _logged_inputs(trace: Trace, logged: LoggedRun) -> Iterator[tuple[int, Any]]:
    """The program's inputs that delegates logged, by their position."""
    program = trace.recorded_program
    if program is None:
        return
    method = program.method(logged.method)
    positions = {value: position for position, value in enumerate(method.inputs)}
    records = {r.instruction_id: r for r in trace.instructions(logged.method)}
    for (number, inner), passes in logged.passes.items():
        record = records.get(number)
        if record is None or record.kind != "delegate" or inner is not None:
            continue
        arguments = unfolded_indices(method.values, record.inputs)
        values = unfolded(trace.values(logged.block, logged.run, passes[0]))
        if len(values) != len(arguments) + len(unfolded_indices(method.values, record.outputs)):
            continue
        for value, argument in zip(values, arguments, strict=False):
            if argument in positions:
                yield positions[argument], value


def _are_same(one: Any, other: Any) -> bool:
    first, second = np.asarray(one), np.asarray(other)
    if first.size != second.size:
        return False
    floats = first.dtype.kind not in "biu" and second.dtype.kind not in "biu"
    return np.array_equal(
        first.reshape(-1).astype(np.float64) if floats else first.reshape(-1),
        second.reshape(-1).astype(np.float64) if floats else second.reshape(-1),
        equal_nan=floats,
    )
