"""How a classifier does on a dataset, on the device and by the reference."""

from __future__ import annotations

from dataclasses import dataclass

from etscope.evaluation._classes import Answer

MAX_FLIPS = 10_000  # that are kept with their margins


@dataclass(frozen=True, slots=True)
class Task:
    """Counts over all rows of scores.

    rows: those in which the reference has a class. agree: the device has the same. agree_top: it is
    among the device's `top` best. undecided: rows without a class of the reference (NaN), which
    count nowhere else. labelled: rows with a label; right, right_top, reference_right and
    reference_right_top count among these. flips: rows with another class than the reference's, the
    surest of the reference first; at most `MAX_FLIPS` are kept, and `flipped` counts all.
    """

    top: int
    output: int
    rows: int = 0
    agree: int = 0
    agree_top: int = 0
    undecided: int = 0
    labelled: int = 0
    right: int = 0
    right_top: int = 0
    reference_right: int = 0
    reference_right_top: int = 0
    flips: tuple[Answer, ...] = ()

    @property
    def flipped(self) -> int:
        """How many rows have another class than the reference's."""
        return self.rows - self.agree

    @property
    def agreement(self) -> float | None:
        """Share of rows with the reference's class; None without any row."""
        return _share(self.agree, self.rows)

    @property
    def top_agreement(self) -> float | None:
        """Share of rows in which the reference's class is among the device's best."""
        return _share(self.agree_top, self.rows)

    @property
    def flip_share(self) -> float | None:
        """Share of rows with another class than the reference's."""
        return _share(self.flipped, self.rows)

    @property
    def accuracy(self) -> float | None:
        """Share of labelled rows in which the device is right."""
        return _share(self.right, self.labelled)

    @property
    def reference_accuracy(self) -> float | None:
        """Share of labelled rows in which the reference is right."""
        return _share(self.reference_right, self.labelled)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


class TaskCounts:
    """Takes answers, one sample after the other."""

    def __init__(self, top: int, output: int) -> None:
        self._top, self._output = top, output
        self._counts = dict.fromkeys(
            (
                "rows", "agree", "agree_top", "undecided", "labelled", "right", "right_top",
                "reference_right", "reference_right_top",
            ),
            0,
        )  # fmt: skip
        self._flips: list[Answer] = []

    def add(self, answer: Answer) -> None:
        """Count a row in."""
        decided = answer.reference is not None
        for name, counts in (
            ("rows", decided),
            ("agree", decided and not answer.flipped),
            ("agree_top", answer.in_top),
            ("undecided", not decided),
            ("labelled", answer.label is not None),
            ("right", answer.right),
            ("right_top", answer.right_top),
            ("reference_right", answer.reference_right),
            ("reference_right_top", answer.reference_right_top),
        ):
            self._counts[name] += counts
        if answer.flipped:
            self._flips.append(answer)
            if len(self._flips) > 2 * MAX_FLIPS:
                self._flips = self._surest()

    def _surest(self) -> list[Answer]:
        ranked = sorted(self._flips, key=lambda flip: -(flip.reference_margin or 0.0))
        return ranked[:MAX_FLIPS]

    def task(self) -> Task:
        """What was counted."""
        return Task(self._top, self._output, flips=tuple(self._surest()), **self._counts)


__all__ = ["Task", "TaskCounts"]
