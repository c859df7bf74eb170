"""Values that another instruction overwrites before they are read.

A memory planner gives two values the same bytes if no instruction needs both. The check follows the
instructions of a method over all paths and finds the reads for which the plan breaks that rule. It
needs the program alone.

- A move does not copy a tensor: the runtime lets the destination point to the bytes of the source
  (`EValue` assignment in `method.cpp`). So the result of a branch of `torch.cond` lies in the bytes
  of the branch, whatever place the plan has for it (pytorch/executorch#21490).
- A view that costs no instruction has the place of its base, and lives as long as it.
- State must hold its content at the end of the method, and outputs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from etscope.analysis.memory.plan import BEFORE, unwritten_values
from etscope.analysis.program.program import (
    SHAPE_OPERATORS,
    InstructionRecord,
    unfolded,
)
from etscope.formats.program.pte_schema import Allocation, Method, TensorValue


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A read of a value after another instruction has written its bytes.

    value: the index of the value that is read. made_by: the instruction that wrote it, -1 for an
    input and for state. writer: the instruction that wrote over it, and written: its value. reader:
    the first instruction that reads it afterwards; None at the end of the method (an output or
    state). moved: a move lets the value point to another value's bytes.
    """

    value: int
    made_by: int
    writer: int
    written: int
    reader: int | None
    moved: bool


@dataclass(slots=True)
class _Contents:
    """The content of planned memory before one instruction, over all paths that lead there.

    made: the instruction that last wrote each value. lost: overwritten values, with the
    instruction and the value that it wrote. pointers: the values that a moved value may point to.
    """

    made: dict[int, int] = field(default_factory=dict)
    lost: dict[int, tuple[int, int]] = field(default_factory=dict)
    pointers: dict[int, frozenset[int]] = field(default_factory=dict)

    def copy(self) -> _Contents:
        return _Contents(dict(self.made), dict(self.lost), dict(self.pointers))

    def join(self, other: _Contents) -> bool:
        """Add the contents that are possible on another path. Return True if one of them is new."""
        before = len(self.made), len(self.lost), sum(map(len, self.pointers.values()))
        self.made = {**other.made, **self.made}
        self.lost = {**other.lost, **self.lost}
        for value, targets in other.pointers.items():
            self.pointers[value] = self.pointers.get(value, frozenset()) | targets
        return before != (len(self.made), len(self.lost), sum(map(len, self.pointers.values())))


def overwritten_values(
    method: Method, records: Sequence[InstructionRecord], *, is_split_known: bool
) -> tuple[Overwritten, ...]:
    """Find the reads of a method that get another value's bytes: the first such read of each
    value.

    is_split_known: whether the outputs of delegate calls are known, from
    `instructions(delegate_outputs=)`. If they are not, and a call's first output is at the place of
    a value that still holds data, the output is assumed to be an input: a view of the value looks
    the same.
    """
    return _Check(method, records, is_split_known=is_split_known).run()


class _Check:
    """The check of one method."""

    def __init__(
        self, method: Method, records: Sequence[InstructionRecord], *, is_split_known: bool
    ) -> None:
        self._method, self._records = method, records
        self._is_split_known = is_split_known
        self._found: dict[int, Overwritten] = {}
        planned = [
            (index, value.allocation, value.nbytes)
            for index, value in enumerate(method.values)
            if isinstance(value, TensorValue) and value.allocation is not None and value.nbytes
        ]
        self._planned = np.array([index for index, _, _ in planned], dtype=np.int64)
        self._memory = np.array([place.memory_id for _, place, _ in planned], dtype=np.int64)
        self._start = np.array([place.offset for _, place, _ in planned], dtype=np.int64)
        self._end = self._start + np.array([size for _, _, size in planned], dtype=np.int64)
        self._row = {index: row for row, (index, _, _) in enumerate(planned)}
        self._place: dict[int, Allocation] = {index: place for index, place, _ in planned}
        self._sharing: dict[int, frozenset[int]] = {}
        views, state = unwritten_values(method, records)
        # A value at the place of state is that state.
        held = {self._place[index] for index in state if index in self._place}
        self._state = frozenset(index for index, place in self._place.items() if place in held)
        self._views = {
            view: base
            for view, (base, _) in views.items()
            if view in self._place and view not in self._state
        }
        self._last_read = self._last_reads()
        self._views_of: dict[int, list[int]] = {}
        for view, base in self._views.items():
            self._views_of.setdefault(base, []).append(view)

    def _last_reads(self) -> dict[int, list[int]]:
        """Return the values that each instruction is the last to read; none in a method with loops,
        where an earlier instruction may run after a later one."""
        records = self._records
        if any((r.destination or len(records)) <= r.instruction_id for r in records):
            return {}
        last: dict[int, int] = {}
        for record in records:
            for index in unfolded(self._method.values, record.inputs):
                last[index] = record.instruction_id
        found: dict[int, list[int]] = {}
        for index in last.keys() - set(self._method.outputs) - self._state:
            found.setdefault(last[index], []).append(index)
        return found

    def run(self) -> tuple[Overwritten, ...]:
        """Follow all paths, until no path adds anything."""
        count = len(self._records)
        meets = {record.destination for record in self._records if record.destination is not None}
        reached: dict[int, _Contents] = {}
        pending = {0: self._at_start()}
        while pending:
            index = min(pending)
            contents = pending.pop(index)
            while index < count:
                if index in meets:
                    if index in reached and not reached[index].join(contents):
                        break  # nothing new here
                    contents = reached.setdefault(index, contents).copy()
                record = self._records[index]
                self._step(record, contents)
                index += 1
                if record.destination is not None:
                    jumped = pending.setdefault(record.destination, contents.copy())
                    jumped.join(contents)
            else:
                self._at_end(contents)
        return tuple(sorted(self._found.values(), key=lambda one: (one.writer, one.value)))

    def _at_start(self) -> _Contents:
        contents = _Contents()
        for index in self._method.inputs:
            self._write(index, BEFORE, contents)
        contents.made |= dict.fromkeys(self._state, BEFORE)
        return contents

    def _step(self, record: InstructionRecord, contents: _Contents) -> None:
        inputs = unfolded(self._method.values, record.inputs)
        outputs = unfolded(self._method.values, record.outputs)
        number = record.instruction_id
        if record.kind == "move" or record.operator == "executorch_prim::et_view.default":
            # Both let the output point to the bytes of the first input.
            for target in outputs:
                self._point(target, inputs[0] if inputs else target, contents)
            return
        if record.kind == "free" or record.operator in SHAPE_OPERATORS:
            return
        if record.kind == "delegate" and not self._is_split_known and outputs:
            place = self._place.get(outputs[0])
            held = (one for one in contents.made if one not in contents.lost)
            if place is not None and any(self._place.get(one) == place for one in held):
                inputs, outputs = (*inputs, outputs[0]), outputs[1:]
        self._read(inputs, number, contents)
        for index in self._last_read.get(number, ()):  # not read again: it may be lost
            contents.made.pop(index, None)
        for index in outputs:
            self._write(index, number, contents)

    def _point(self, target: int, source: int, contents: _Contents) -> None:
        contents.pointers[target] = contents.pointers.get(source, frozenset([source]))
        contents.made[target] = contents.made.get(source, BEFORE)
        contents.lost.pop(target, None)
        if source in contents.lost:
            contents.lost[target] = contents.lost[source]

    def _read(self, values: Iterable[int], reader: int | None, contents: _Contents) -> None:
        for index in values:
            if index in contents.lost and index not in self._found:
                writer, written = contents.lost[index]
                self._found[index] = Overwritten(
                    value=index,
                    made_by=contents.made[index],
                    writer=writer,
                    written=written,
                    reader=reader,
                    moved=index in contents.pointers,
                )

    def _write(self, index: int, writer: int, contents: _Contents) -> None:
        targets = contents.pointers.get(index, frozenset([index]))
        own = {self._views.get(one, one) for one in targets}
        over = frozenset[int]().union(*(self._overlapping(one) for one in targets))
        hit = {
            other
            for other in (over & contents.made.keys()) - contents.pointers.keys()
            if self._views.get(other, other) not in own
        }
        for other, at in contents.pointers.items():
            if other != index and not at.isdisjoint(over | targets):
                hit.add(other)
        for other in hit:
            is_state = other in self._state and index in self._state
            if not (is_state and self._place[other] == self._place[index]):
                contents.lost.setdefault(other, (writer, index))
        for one in (index, *(view for base in own for view in self._views_of.get(base, ()))):
            contents.made[one] = writer
            contents.lost.pop(one, None)

    def _overlapping(self, index: int) -> frozenset[int]:
        """Return the planned values that share bytes with a value, without itself."""
        if index not in self._row:
            return frozenset()
        if index not in self._sharing:
            row = self._row[index]
            shares = self._memory == self._memory[row]
            shares &= (self._start < self._end[row]) & (self._end > self._start[row])
            shares[row] = False
            self._sharing[index] = frozenset(self._planned[shares].tolist())
        return self._sharing[index]

    def _at_end(self, contents: _Contents) -> None:
        self._read((*self._method.outputs, *sorted(self._state)), None, contents)
