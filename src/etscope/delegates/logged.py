"""The events of a delegate's call, as a decoder takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """All events that a delegate logged in one instruction, in the order of the log.

    names: of the events, or their numbers as text. identifiers: as they were logged. start, ticks:
    of each event in each run, int64 [events, runs], in ticks of the dump's clock. call_start,
    call_ticks: of the call itself, int64 [runs]; None where it was not logged. metadata: bytes that
    the delegate attached to each event in the first run; () for none.
    """

    names: Sequence[str]
    identifiers: Sequence[int | str]
    start: Ints
    ticks: Ints
    call_start: Ints | None = None
    call_ticks: Ints | None = None
    metadata: Sequence[bytes] = ()

    def metadata_of(self, number: int) -> bytes:
        """Return the bytes attached to an event."""
        return self.metadata[number] if self.metadata else b""

    @property
    def is_inside(self) -> npt.NDArray[np.bool_]:
        """For each event, whether it lies between the ends of the call in all runs."""
        if self.call_start is None or self.call_ticks is None:
            return np.ones(len(self.names), np.bool_)
        begins = self.call_start <= self.start
        ends = self.start + self.ticks <= self.call_start + self.call_ticks
        return np.asarray((begins & ends).all(axis=1), np.bool_)
