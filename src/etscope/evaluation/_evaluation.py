"""What an evaluation finds, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from etscope.analysis.matching.matching import Coverage
from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.rows import described
from etscope.evaluation import _tables
from etscope.evaluation._samples import SKIPPED, SampleResult
from etscope.evaluation._statistics import OperatorStatistics

if TYPE_CHECKING:
    from etscope.evaluation._task import Task
    from etscope.model.table import Table

FRESH, SEQUENCE, DUMP = "fresh", "sequence", "dump"
_STATES = {
    FRESH: "each sample starts from the first state",
    SEQUENCE: "each sample goes on from the one before, on both sides",
    DUMP: "each run goes on from those before it since the model was loaded, on both sides",
}


@dataclass(frozen=True)
class Evaluation:
    """A method on a dataset, on the device and by the reference.

    operators: in order of execution. samples: in the order of the dataset, those that were skipped
    among them. task: None, unless classes were looked at. coverage: of the first sample: what was
    compared of it. state: for a model that keeps state, what a sample starts from (`_STATES`), else
    None. doubts: about the evaluation as a whole.
    """

    method: str
    reference: str
    metric: Metric
    operators: tuple[OperatorStatistics, ...]
    samples: tuple[SampleResult, ...]
    task: Task | None
    coverage: Coverage
    state: str | None = None
    doubts: tuple[str, ...] = ()

    @cached_property
    def compared(self) -> tuple[SampleResult, ...]:
        """The samples that were not skipped."""
        return tuple(sample for sample in self.samples if sample.verdict != SKIPPED)

    @cached_property
    def skipped(self) -> tuple[SampleResult, ...]:
        """The samples that could not be compared."""
        return tuple(sample for sample in self.samples if sample.verdict == SKIPPED)

    @cached_property
    def findings(self) -> tuple[SampleResult, ...]:
        """The samples in which an operator is wrong, or made NaN that the reference has not."""
        return tuple(sample for sample in self.samples if sample.is_finding)

    @cached_property
    def wrong(self) -> tuple[OperatorStatistics, ...]:
        """The operators that are wrong in a sample, in order of execution."""
        return tuple(operator for operator in self.operators if operator.wrong)

    @property
    def is_fine(self) -> bool:
        """Whether all samples were compared, and none is a finding."""
        return not self.findings and not self.skipped

    def worst_samples(self, count: int | None = 10) -> tuple[SampleResult, ...]:
        """Samples by what is wrong with them: findings by excess, then those with another class,
        then by the error of the program's outputs. None: all of them."""
        ranked = sorted(self.compared, key=self._badness, reverse=True)
        return tuple(ranked[:count])

    def _badness(self, sample: SampleResult) -> tuple[bool, float, bool, float]:
        output = self.metric.badness(sample.output) if sample.output is not None else -float("inf")
        excess = sample.excess if sample.is_finding else 0.0
        return sample.is_finding, excess, sample.flips > 0, output

    # -- for people

    @property
    def verdict(self) -> str:
        """In words: how many samples are findings, and the operator that is to blame for most."""
        total = len(self.compared)
        if not self.findings:
            return f"no operator goes wrong in {_samples(total)}"
        text = f"{len(self.findings)} of {_samples(total)} have an operator that goes wrong"
        if not self.wrong:
            return f"{len(self.findings)} of {_samples(total)} have NaN that the reference has not"
        most = max(self.wrong, key=lambda operator: operator.wrong)
        return f"{text}; in {_samples(most.wrong)} it is {described(most.row)}"

    @property
    def notes(self) -> tuple[str, ...]:
        """The verdict, and what else there is to say."""
        notes = [self.verdict]
        worst = self.worst_samples(1)
        if worst and worst[0].is_finding and worst[0].operator is not None:
            notes.append(f"worst: sample {worst[0].name}, {described(worst[0].operator)}")
        if self.task is not None:
            notes += _tables.task_notes(self.task)
        if self.skipped:
            first = self.skipped[0]
            notes.append(
                f"{_samples(len(self.skipped))} skipped, which is not a pass; the first is "
                f"{first.name}: {first.reason}"
            )
        doubted = [sample for sample in self.compared if sample.doubts]
        if doubted:
            notes.append(f"in {_samples(len(doubted))}: {doubted[0].doubts[0]}")
        if self.state is not None:
            notes.append(f"the model keeps state: {_STATES[self.state]}")
        notes += self.doubts
        notes.append(str(self.coverage))
        return tuple(notes)

    def operators_table(self, sort: str = "run") -> Table:
        """A row for each value of the device; sort: "run", or "error": most samples out of the
        limit first, then the worst error."""
        return _tables.operators_table(self, sort)

    def samples_table(self, count: int | None = 10) -> Table:
        """The worst samples, those that were skipped after them."""
        return _tables.samples_table(self, count)

    def flips_table(self, count: int | None = None) -> Table:
        """The rows of scores whose class is another on the device. Raises `MissingDataError` when
        classes were not looked at."""
        return _tables.flips_table(self, count)

    def summary_table(self) -> Table:
        """Counts and shares, a row each."""
        return _tables.summary_table(self)


def _samples(count: int) -> str:
    return f"{count} sample" if count == 1 else f"{count} samples"


__all__ = ["DUMP", "FRESH", "SEQUENCE", "Evaluation"]
