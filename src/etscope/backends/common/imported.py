"""Values of files that tools of backends wrote, the same for all kinds of files."""

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

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Basis(Enum):
    """Origin of a number."""

    MEASURED = "measured"
    DERIVED = "derived"  # computed from measured numbers
    ESTIMATED = "estimated"  # by a compiler, of a program that did not run


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """A row of a file: its name and its main number.

    group: the thread, unit or table of the file that it is of. unit: of `value`. events: how many
    the value is a sum of. nodes: names by which the record may know what is behind it. lines,
    module: of the model, where the file itself has them. extra: other numbers, by the names of the
    file's columns.
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
class ImportedSpans:
    """Spans of time of a file, as columns.

    start, duration: float64 [N], in `unit` ("us" or "cycles") of the file's clock. lane, name,
    args: int32 [N], indices in `lanes`, `names` and `annotations` (-1: none).
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
class BackendFile:
    """A file that a backend's tool wrote.

    kind: for readers ("QNN optrace"). backends: ids of those that it can be of; empty: of any.
    group_title, value_title: of the columns of the rows' groups
    and main numbers. columns: of the rows' `extra`, in order.
    of_inference: the numbers are of all calls of an inference together, which are as many as
    calls_per_inference if the file tells. has_host_clock: times are
    microseconds of the host, on a clock that may be the runtime's. between: returns the same file
    with what lies in one of the intervals, each (begin, end) in microseconds; only of such a file.
    split: returns the parts for the calls of a run, in order, given their number; None if they do
    not divide.
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
