"""Decide whether the outputs of a piece are wrong: by a metric, or by a command of the user."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from etscope.analysis.metrics import Metric, find_metric, measure
from etscope.errors import FormatError, UsageError
from etscope.search import LOWER, RUN, check_tolerance, reaches

GOOD = "good"
VALUE = "value"  # an output is too far from eager PyTorch's
COMMAND = "command"  # the user's command reports a failure
UNKNOWN = "unknown"  # it could not be tried, or fails in another way than the whole model
KINDS = (GOOD, VALUE, COMMAND, LOWER, RUN, UNKNOWN)

SKIP = 125  # as for `git bisect run`
PROGRAM, INPUTS, EXPECTED = "{program}", "{inputs}", "{expected}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of trying one piece.

    number: the worst output's metric, or the exit status of the command. outputs: names of the
    wrong ones. detail: the reason in words.
    """

    kind: str
    number: float | None = None
    outputs: tuple[str, ...] = ()
    detail: str = ""

    @property
    def reason(self) -> str:
        """The detail without names, numbers and the text after a colon, to compare failures by."""
        text = re.sub(r"[\w.]+::[\w.]+(, [\w.]+::[\w.]+)*", "*", self.detail)
        return re.sub(r"\b\d+\b", "#", re.split(r": |\n", text)[0])

    def like(self, whole: Answer) -> bool | None:
        """Return whether this is the failure of the whole model; None when it is unknown."""
        if self.kind == GOOD:
            return False
        if self.kind == UNKNOWN or self.kind != whole.kind:
            return None
        same = self.kind not in (LOWER, RUN) or self.reason == whole.reason
        return True if same else None

    def to_json(self) -> dict[str, Any]:
        number = None if self.number is None else str(self.number)  # JSON has no NaN
        return {**asdict(self), "number": number, "outputs": list(self.outputs)}

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> Answer:
        number = content["number"]
        if content["kind"] not in KINDS:
            raise FormatError(f"there is no answer {content['kind']!r:.40}")
        return cls(
            kind=content["kind"],
            number=None if number is None else float(number),
            outputs=tuple(map(str, content["outputs"])),
            detail=str(content["detail"]),
        )


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """An output is wrong when its metric is worse than the tolerance, or when it has NaN at other
    positions than the expected output."""

    metric: Metric
    tolerance: float

    def __str__(self) -> str:
        return f"{self.metric.name} {self.tolerance!r}"

    def number(self, expected: Any, value: Any) -> float:
        """The metric of one output; NaN for different shapes or positions of NaN."""
        first, second = np.asarray(expected), np.asarray(value)
        if first.shape != second.shape:
            return math.nan
        # x != x finds NaN in types of ml_dtypes too; integers never differ from themselves.
        with np.errstate(invalid="ignore"):
            nan, other = first != first, second != second
        if not np.array_equal(nan, other):
            return math.nan
        if nan.any():
            first, second = first[~nan], second[~nan]
        if not first.size:
            return self.metric.perfect
        number = measure(self.metric, first, second)
        return math.nan if number is None else number

    def is_wrong(self, number: float) -> bool:
        return not reaches(self.metric, number, self.tolerance)

    def answer(
        self, names: Sequence[str], expected: Sequence[Sequence[Any]], got: Sequence[Sequence[Any]]
    ) -> Answer:
        """Judge the named outputs of a piece by the worst sample of each: [samples][outputs]."""
        if not any(np.asarray(one).size for wanted in expected for one in wanted):
            return Answer(UNKNOWN, detail="all outputs are empty")
        numbers = [
            [self.number(*pair) for pair in zip(wanted, outputs, strict=True)]
            for wanted, outputs in zip(expected, got, strict=True)
        ]
        worst = [max(each, key=self.metric.badness) for each in zip(*numbers, strict=True)]
        wrong = tuple(
            name for name, number in zip(names, worst, strict=True) if self.is_wrong(number)
        )
        return Answer(VALUE if wrong else GOOD, max(worst, key=self.metric.badness), wrong)


def metric_check(name: str, tolerance: float) -> MetricCheck:
    """Raises `UsageError` for an unknown metric and a tolerance that is NaN."""
    check_tolerance(tolerance)
    return MetricCheck(find_metric(name), tolerance)


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """A command that decides by its exit status: 0 good, 125 unknown, anything else bad."""

    command: str

    def __post_init__(self) -> None:
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UsageError(f"cannot read the command: {error}") from error
        if not words or not any(PROGRAM in word for word in words):
            raise UsageError(
                "the command does not say where the program goes",
                hint=f"put {PROGRAM} into it, and {INPUTS} and {EXPECTED} as needed",
            )

    def __str__(self) -> str:
        return self.command

    def words(self, program: Path, inputs: Path, expected: Path) -> list[str]:
        """The command with files in place of {program}, {inputs} and {expected}."""
        words = shlex.split(self.command)
        for name, path in ((PROGRAM, program), (INPUTS, inputs), (EXPECTED, expected)):
            words = [word.replace(name, str(path)) for word in words]
        return words

    def answer(self, program: Path, samples: Sequence[tuple[Path, Path]]) -> Answer:
        """Run the command on each sample, (inputs, expected outputs), until one is bad."""
        unknown = False
        for inputs, expected in samples:
            words = self.words(program, inputs, expected)
            try:
                done = subprocess.run(words, capture_output=True, text=True, check=False)
            except OSError as error:
                raise UsageError(f"cannot start {words[0]}: {error.strerror}") from error
            if done.returncode not in (0, SKIP):
                last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                return Answer(COMMAND, done.returncode, detail="".join(last)[:200])
            unknown = unknown or done.returncode == SKIP
        if unknown:
            return Answer(UNKNOWN, SKIP, detail=f"the command's exit status is {SKIP}")
        return Answer(GOOD, 0)
