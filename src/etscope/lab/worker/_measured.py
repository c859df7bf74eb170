"""What comes of measuring: a result, or the end of the job's time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class TimeUp(Exception):
    """The job's time is over."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured. broken: limits that did not hold, in words: with one, it is no result."""

    summary: Mapping[str, Any]
    environment: Mapping[str, Any]
    marks: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
