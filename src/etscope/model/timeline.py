"""`Timeline`: tracks of spans. What the trace exports and timeline views take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Track:
    """A line of a timeline. `parent` is the index of the track that it belongs under.

    `note` says what a reader must know of the clock of this track ("cycles, not time").
    """

    name: str
    parent: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Spans as columns, ordered so that a parent stands before its children on the same track.

    `start` and `end` are integers in ticks of `ticks_per_second` (1e9: nanoseconds; None: cycles,
    whose length is unknown). Spans of one track nest or are disjoint (a view moves one that crosses
    another's end to a track of its own). `name_id` indexes `names`; `args_id` indexes `args` (-1:
    none), the annotations that a view shows with a span: text, numbers or bools by name. The name
    "source" is for the line that it comes from, as "file:line".
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
