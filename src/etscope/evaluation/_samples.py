"""What is kept of a sample when it is done: a line of a table, and no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etscope.analysis.numerics.limits import difference
from etscope.analysis.numerics.rows import Numerics, NumericsRow
from etscope.evaluation._classes import Answer
from etscope.evaluation._statistics import worst_of

FINE, WRONG, NAN, SKIPPED = "fine", "wrong", "nan", "skipped"


@dataclass(frozen=True, slots=True)
class SampleResult:
    """A sample and how it went.

    verdict: "wrong" when an operator is, "nan" when none is and there are NaN that the reference
    has not, "skipped" when it could not be compared; or "fine". wrong: how many operators are.
    operator: the first that is wrong, or made the NaN; of a fine sample the one nearest to its
    limit. excess: the largest own error over what is allowed, in root mean squares. output: the
    worst error of the program's outputs to the reference's, in the metric. flips: rows of scores
    whose class is another. doubts: why its inputs may not be those that ran. reason: of a skipped
    one.
    """

    number: int
    name: str
    verdict: str
    wrong: int = 0
    operator: NumericsRow | None = None
    excess: float = 0.0
    output: float | None = None
    flips: int = 0
    doubts: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether an operator is wrong, or made NaN."""
        return self.verdict in (WRONG, NAN)


def sample_result(
    number: int,
    name: str,
    found: Numerics,
    outputs: tuple[Sequence[Any], Sequence[Any]],
    answers: Sequence[Answer],
) -> SampleResult:
    """What is kept of a sample. outputs: of the reference, and of the device."""
    verdict = WRONG if found.wrong else (FINE if found.stray_nan is None else NAN)
    nearest = max(found.rows, key=lambda row: row.excess)
    errors = [difference(found.metric, *pair) for pair in zip(*outputs, strict=False)]
    return SampleResult(
        number=number,
        name=name,
        verdict=verdict,
        wrong=len(found.wrong),
        operator=found.first or found.stray_nan or nearest,
        excess=nearest.excess,
        output=worst_of(found.metric, errors),
        flips=sum(answer.flipped for answer in answers),
        doubts=found.doubts,
    )


__all__ = ["FINE", "NAN", "SKIPPED", "WRONG", "SampleResult", "sample_result"]
