"""What is known of the samples so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.rows import Numerics
from etscope.errors import EtscopeError, MissingDataError, RuntimeFailure, UsageError
from etscope.evaluation._classes import Answer, answers
from etscope.evaluation._dataset import Sample, named
from etscope.evaluation._evaluation import Evaluation
from etscope.evaluation._labels import Labels
from etscope.evaluation._samples import SKIPPED, SampleResult, sample_result
from etscope.evaluation._statistics import Statistics
from etscope.evaluation._task import TaskCounts

DEFAULT_TOP = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of the evaluation, beyond errors. top: None, unless classes are looked at.
    progress: called after each sample with how many are done, and of how many if that is known."""

    labels: Labels | None = None
    top: int | None = None
    output: int = 0
    keep_going: bool = False
    progress: Callable[[int, int | None], None] | None = None

    @classmethod
    def of(
        cls,
        labels: Labels | None,
        top: int | None,
        output: int,
        keep_going: bool,
        progress: Callable[[int, int | None], None] | None,
    ) -> Wanted:
        """Checked. Labels alone ask for the default number of best classes."""
        if top is not None and top < 1:
            raise UsageError(f"the best K classes are at least 1, not {top}")
        if output < 0:
            raise UsageError(f"outputs are counted from 0, and output {output} is asked for")
        return cls(
            labels, DEFAULT_TOP if top is None and labels else top, output, keep_going, progress
        )


class Collector:
    """Takes samples as they are done."""

    def __init__(self, wanted: Wanted, metric: Metric, count: int | None) -> None:
        self._wanted, self._metric, self._count = wanted, metric, count
        self._statistics = Statistics(metric)
        self._results: list[SampleResult] = []
        self._task = None if wanted.top is None else TaskCounts(wanted.top, wanted.output)
        self._first: Numerics | None = None

    def add(
        self, sample: Sample, found: Numerics, reference: Sequence[Any], device: Sequence[Any]
    ) -> None:
        """Count a sample in: its diagnosis, and the outputs of both sides."""
        given = self._answers(sample, reference, device)
        self._statistics.add(sample.name, found)
        for answer in given:
            if self._task is not None:
                self._task.add(answer)
        outputs = reference, device
        self._results.append(sample_result(sample.number, sample.name, found, outputs, given))
        self._first = self._first or found
        self._tell()

    def skip(self, sample: Sample, error: EtscopeError) -> None:
        """A sample that could not be compared. Without `keep_going` this raises the error, with the
        sample's name."""
        if not self._wanted.keep_going:
            raise _with_name(sample.name, error) from error
        self._results.append(
            SampleResult(sample.number, sample.name, SKIPPED, reason=error.message)
        )
        self._tell()

    def _answers(
        self, sample: Sample, reference: Sequence[Any], device: Sequence[Any]
    ) -> list[Answer]:
        top, output = self._wanted.top, self._wanted.output
        if top is None:
            return []
        known = min(len(reference), len(device))
        if output >= known:
            raise MissingDataError(
                f"there is no output {output} to take classes of: {known} were recorded"
            )
        labels = None if self._wanted.labels is None else self._wanted.labels.of(sample)
        return answers(sample.name, reference[output], device[output], top, labels)

    def _tell(self) -> None:
        if self._wanted.progress is not None:
            self._wanted.progress(len(self._results), self._count)

    def evaluation(self, state: str | None) -> Evaluation:
        """The whole. Raises `MissingDataError` when no sample could be compared."""
        results = tuple(sorted(self._results, key=lambda result: result.number))
        if self._first is None:
            if not results:
                raise MissingDataError("the dataset has no samples")
            raise MissingDataError(
                f"none of {len(results)} samples could be compared; sample {results[0].name}: "
                f"{results[0].reason}"
            )
        return Evaluation(
            method=self._first.method,
            reference=self._first.reference,
            metric=self._metric,
            operators=self._statistics.operators(),
            samples=results,
            task=None if self._task is None else self._task.task(),
            coverage=self._first.coverage,
            state=state,
        )


def _with_name(sample: str, error: EtscopeError) -> EtscopeError:
    if isinstance(error, RuntimeFailure):
        return RuntimeFailure(f"sample {sample}: {error.message}", log=error.log, hint=error.hint)
    return named(sample, error)


__all__ = ["DEFAULT_TOP", "Collector", "Wanted"]
