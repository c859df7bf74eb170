"""What a metric is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from etscope.analysis.metrics._arrays import Array
from etscope.analysis.metrics._summary import Summary
from etscope.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Metric:
    """A named number for a pair of arrays.

    name: the word for commands and columns (snake_case). title, unit: for people; the unit of a
        plain number is "". better: whether "lower" or "higher" is nearer to the reference.
    perfect: the value of equal arrays.
    function: ``(reference, value) -> float``. Both are arrays of one shape, in their own types.
    doc: what it says, with its formula.
    of_summary: the number from a `Summary`, for metrics that can share one pass over the arrays.
    errors_only: whether a summary of errors alone will do for that.
    """

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    perfect: float
    function: Callable[[Array, Array], float]
    doc: str = ""
    of_summary: Callable[[Summary], float] | None = field(default=None, repr=False)
    errors_only: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} is no name for a metric",
                hint="names have lower-case letters, digits and _, and begin with a letter",
            )
        if self.better not in ("lower", "higher"):
            raise UsageError(f'better must be "lower" or "higher", not {self.better!r}')

    def badness(self, number: float | None) -> float:
        """A key to sort by, the worst last: NaN is worse than any number, None (no value) too."""
        if number is None or math.isnan(number):
            return math.inf
        return number if self.better == "lower" else -number
