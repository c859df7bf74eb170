"""What was measured of one variant, and of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric
from etscope.model.table import Table
from etscope.sensitivity._groups import Group

LOWER, RUN = "lower", "run"
Key = frozenset[int]  # positions of the groups that are kept in float


@dataclass(frozen=True, slots=True)
class Variant:
    """A program with something kept in float.

    error: the metric of the worst output, all samples taken together; NaN if an output has NaN
    where the float model has none. worst: of the worst sample alone, and which that is.
    size: bytes of the program. failure: "lower" or "run" when there are no numbers, and why.
    """

    error: float | None = None
    worst: float | None = None
    worst_sample: int | None = None
    size: int | None = None
    failure: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity:
    """What keeping parts of a model in float buys, and costs.

    int8, full: all quantised, and all in float. groups: what may be kept. variants: what was
    measured, by the positions of the groups kept. chosen: the set that the search ended with;
    empty when int8 is good enough, None when there was no search or no set is good enough.
    best: the best set that was measured. confirmed: the chosen set exported anew by its
    selectors. times: ms, [rounds] of each program, by "int8", "float", "chosen" and the variants'
    keys; rounds of one kind were interleaved.
    """

    metric: Metric
    tolerance: float | None
    samples: int
    groups: tuple[Group, ...]
    int8: Variant
    full: Variant
    variants: Mapping[Key, Variant]
    chosen: Key | None
    best: Key
    confirmed: Variant | None
    times: Mapping[Any, npt.NDArray[np.float64]] = field(repr=False)
    final_times: Mapping[str, npt.NDArray[np.float64]] = field(repr=False)

    @property
    def reached(self) -> bool | None:
        """Whether the tolerance is reached by what is proposed; None without a tolerance."""
        return None if self.tolerance is None else self.chosen is not None

    @property
    def keep_float(self) -> tuple[str, ...]:
        """The selectors for `export(keep_float=)`: of the chosen set."""
        return tuple(self.groups[index].selector for index in sorted(self.chosen or ()))

    def table(self) -> Table:
        """A row for each program that was measured, or failed."""
        from etscope.sensitivity._report import report_table

        return report_table(self)


def is_good(metric: Metric, number: float | None, tolerance: float) -> bool:
    """Whether a number reaches the tolerance; NaN and no number do not."""
    if number is None or number != number:
        return False
    return number <= tolerance if metric.better == "lower" else number >= tolerance


def gain(metric: Metric, number: float | None, base: float | None) -> float | None:
    """By how much a number is better than that of the int8 model, in the metric's own unit."""
    if number is None or base is None:
        return None
    if number == base:
        return 0.0
    difference = number - base if metric.better == "higher" else base - number
    return difference if difference == difference else None
