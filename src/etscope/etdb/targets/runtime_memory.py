"""Where a value is in the runtime's memory, and what has been written over it since.

The program's plan gives a piece of memory to several values, one after the other. A value is gone
as soon as an instruction has written to its bytes; a view of the same bytes writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from etscope.analysis.program.program import InstructionRecord, unfolded
from etscope.etdb.targets.stop_sequence import Ints
from etscope.formats.program.pte_schema import Method, TensorValue

_VIEW = "executorch_prim::et_view"


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes of a planned buffer."""

    memory_id: int
    first: int
    end: int


# Where a value is: in planned memory, or in what belongs to the value of that index alone.
_Where = _Span | int


class Memory:
    """The memory of a method."""

    def __init__(self, method: Method, records: Sequence[InstructionRecord]) -> None:
        self._values, self._records = method.values, records
        self._masks: dict[tuple[_Where, int], npt.NDArray[np.bool_]] = {}

    def overwritten(self, value: int, since: int, now: int, ran: Ints) -> int | None:
        """The first instruction after the step `since` and up to the step `now` that wrote over
        what the value was; None while it is there. ran: the instructions of the run, in order."""
        where = self._where(value, since, ran)
        hits = np.flatnonzero(self._writers(where, value)[ran[since:now]])
        return int(ran[since + hits[0]]) if len(hits) else None

    def _where(self, value: int, step: int, ran: Ints) -> _Where:
        """Where a value is after so many instructions."""
        moves = self._moves.get(value)
        if moves:
            took = np.flatnonzero(np.isin(ran[:step], list(moves)))
            if len(took):
                at = int(took[-1])
                return self._where(moves[int(ran[at])], at, ran)
        return self._planned(value)

    def _planned(self, value: int) -> _Where:
        tensor = self._values[value]
        if isinstance(tensor, TensorValue) and tensor.allocation is not None:
            place = tensor.allocation
            # A tensor that grows as it likes has no memory in the plan.
            size = tensor.nbytes or 0
            return _Span(place.memory_id, place.offset, place.offset + size)
        source = self._views.get(value)
        return value if source is None else self._planned(source)

    def _writers(self, where: _Where, value: int) -> npt.NDArray[np.bool_]:
        """bool [instructions]: those that write to a place, or let the value be another."""
        key = where, value
        if key not in self._masks:
            mask = np.zeros(len(self._records), dtype=np.bool_)
            if isinstance(where, _Span):
                number, memory, first, end = self._written
                over = (memory == where.memory_id) & (first < where.end) & (end > where.first)
                mask[number[over]] = True
            else:
                mask[[number for number, index in self._own_writes if index == where]] = True
            mask[list(self._moves.get(value, ()))] = True
            self._masks[key] = mask
        return self._masks[key]

    @cached_property
    def _moves(self) -> Mapping[int, Mapping[int, int]]:
        """Of each value that others are moved to: by instruction, the value that is."""
        found: dict[int, dict[int, int]] = {}
        for record in self._records:
            if record.kind == "move":
                found.setdefault(record.outputs[0], {})[record.instruction_id] = record.inputs[0]
        return found

    @cached_property
    def _views(self) -> Mapping[int, int]:
        """The values that an instruction makes a view of another, with that."""
        return {
            record.outputs[0]: record.inputs[0]
            for record in self._records
            if record.operator is not None
            and record.operator.startswith(_VIEW)
            and record.outputs[0] != record.inputs[0]
        }

    @cached_property
    def _writes(self) -> list[tuple[int, _Where]]:
        """The places that instructions write to."""
        found: list[tuple[int, _Where]] = []
        for record in self._records:
            if record.kind == "free":
                found.append((record.instruction_id, self._planned(record.inputs[0])))
                continue
            if record.kind == "move" or (record.outputs[:1] and record.outputs[0] in self._views):
                continue
            tensors = unfolded(self._values, record.outputs)
            found.extend(
                (record.instruction_id, self._planned(index))
                for index in dict.fromkeys((*tensors, *record.outputs))
            )
        return found

    @cached_property
    def _written(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Instruction, buffer, first byte and end of each write to planned memory."""
        rows = [
            (number, where.memory_id, where.first, where.end)
            for number, where in self._writes
            if isinstance(where, _Span)
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3]

    @cached_property
    def _own_writes(self) -> list[tuple[int, int]]:
        return [(number, where) for number, where in self._writes if isinstance(where, int)]


__all__ = ["Memory"]
