"""The common form of all files that vendor tools write: rows and spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.model.event_table import Clock, Quantity
from etscope.model.graph import SourceLine
from etscope.model.table import Column
from etscope.support.shown import Shown

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Basis(Enum):
    """Origin of a number: measured, derived or estimated."""

    MEASURED = "measured"
    DERIVED = "derived"  # computed from measured numbers
    ESTIMATED = "estimated"  # by a compiler, before any run


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """A row of a file: its name and its main number.

    group: the row's thread, unit or table. unit: the unit of `value`. events: the number of events
    that `value` sums. nodes: names of nodes to find in the record. lines, module: the model's lines
    and module, if the file has them. extra: other numbers, by column name.
    """

    name: str
    value: float | None
    unit: str | None
    group: str = ""
    events: int | None = None
    quantity: Quantity = Quantity.COUNTER
    basis: Basis = Basis.MEASURED
    nodes: tuple[str, ...] = ()
    lines: tuple[SourceLine, ...] = ()
    module: str | None = None
    depth: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportedSpans(Shown):
    """Time spans of a file, as columns.

    start, duration: float64 [N], in `unit` ("us" or "cycles") of the file's clock. lane, name,
    args: int32 [N], indices into `lanes`, `names` and `annotations` (-1: none).
    """

    unit: str
    lanes: tuple[str, ...]
    names: tuple[str, ...]
    annotations: Sequence[Mapping[str, Any]]
    lane: Ids
    name: Ids
    args: Ids
    start: Floats
    duration: Floats

    def __len__(self) -> int:
        return len(self.start)

    def take(self, chosen: npt.NDArray[Any]) -> ImportedSpans:
        """Return the spans of a mask or of indices."""
        columns = (self.lane, self.name, self.args, self.start, self.duration)
        lane, name, args, start, duration = (column[chosen] for column in columns)
        return ImportedSpans(
            self.unit, self.lanes, self.names, self.annotations, lane, name, args, start, duration
        )


@dataclass(frozen=True)
class BackendFile(Shown):
    """A file that a vendor's tool wrote.

    kind: the kind of file in words ("QNN optrace"). backends: ids of the delegates whose data it
    can have; empty for any. group_title, value_title: column titles of the rows' groups and main
    numbers. columns: the columns of the rows' `extra`, in order. of_inference: True if each number
    covers all delegate calls of an inference. calls_per_inference: the number of these calls, if
    the file has it. has_host_clock: True if times are microseconds of the host, perhaps on the
    runtime's clock. between: a function that returns the file limited to intervals, each (begin,
    end) in microseconds; only for files with the host's clock. split: a function that takes the
    number of delegate calls in a run and returns one file for each call, in order; None if the rows
    cannot be divided that way.
    """

    path: str
    kind: str
    backends: tuple[str, ...]
    rows: tuple[ImportedRow, ...]
    clock: Clock = Clock.DEVICE
    group_title: str = "group"
    value_title: str = "value"
    columns: tuple[Column, ...] = ()
    spans: ImportedSpans | None = None
    notes: tuple[str, ...] = ()
    of_inference: bool = False
    calls_per_inference: float | None = None
    has_host_clock: bool = False
    between: Callable[[Sequence[tuple[float, float]]], BackendFile] | None = None
    split: Callable[[int], Sequence[BackendFile] | None] | None = None
