"""`Timeline`: tracks of spans, the input of trace exports and timeline views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Track:
    """A line of a timeline. `parent` is the index of the track above it.

    `note` is what a reader must know about the clock of this track ("cycles, not time").
    """

    name: str
    parent: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Spans as columns, with a parent before its children on the same track.

    `start` and `end` are integers in ticks of `ticks_per_second` (1e9: nanoseconds; None: cycles of
    unknown length). Spans of one track nest or are disjoint (a view moves one that crosses
    another's end to a separate track). `name_id` indexes `names`; `args_id` indexes `args` (-1:
    none), the annotations that a view shows with a span: text, numbers or bools by name. The name
    "source" is the span's line, as "file:line".
    """

    tracks: tuple[Track, ...]
    names: tuple[str, ...]
    args: Sequence[Mapping[str, Any]]
    ticks_per_second: float | None
    track: npt.NDArray[np.int32]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    name_id: npt.NDArray[np.int32]
    args_id: npt.NDArray[np.int32]
    title: str = ""

    def __len__(self) -> int:
        return len(self.start)
