"""When the outputs of a piece are wrong."""

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

# What trying a piece answers.


GOOD = "good"
VALUE = "value"  # an output is too far from what eager PyTorch has there
COMMAND = "command"  # the user's command says so
LOWER = "lower"  # ExecuTorch cannot lower it
RUN = "run"  # the runtime fails, or dies
UNKNOWN = "unknown"  # nothing can be said
KINDS = (GOOD, VALUE, COMMAND, LOWER, RUN, UNKNOWN)

_BY_REASON = (LOWER, RUN)


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one piece.

    number: the worst output's metric, or the exit status of the command. outputs: names of those
    that are wrong. detail: why, in words.
    """

    kind: str
    number: float | None = None
    outputs: tuple[str, ...] = ()
    detail: str = ""

    @property
    def reason(self) -> str:
        """What two failures of the same kind have in common: their words without names, numbers
        and what follows a colon."""
        text = re.sub(r"[\w.]+::[\w.]+(, [\w.]+::[\w.]+)*", "*", self.detail)
        return re.sub(r"\b\d+\b", "#", re.split(r": |\n", text)[0])

    def like(self, whole: Answer) -> bool | None:
        """Whether it is the failure that the whole model has; None when that cannot be said."""
        if self.kind == GOOD:
            return False
        if self.kind == UNKNOWN or self.kind != whole.kind:
            return None
        return True if self.kind not in _BY_REASON or self.reason == whole.reason else None

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


SKIP = 125  # as for `git bisect run`
PROGRAM, INPUTS, EXPECTED = "{program}", "{inputs}", "{expected}"


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """An output is wrong when its metric is worse than the tolerance, or when it has NaN
    elsewhere than the expected one."""

    metric: Metric
    tolerance: float

    def number(self, expected: Any, value: Any) -> float:
        """The metric of one output; NaN for shapes or NaNs that differ."""
        first, second = np.asarray(expected), np.asarray(value)
        if first.shape != second.shape:
            return math.nan
        nan, other = _nan(first), _nan(second)
        if not np.array_equal(nan, other):
            return math.nan
        if nan.any():
            first, second = first[~nan], second[~nan]
        if not first.size:
            return self.metric.perfect
        number = measure(self.metric, first, second)
        return math.nan if number is None else number

    def is_wrong(self, number: float) -> bool:
        if math.isnan(number):
            return True
        return number > self.tolerance if self.metric.better == "lower" else number < self.tolerance

    def answer(
        self, names: Sequence[str], expected: Sequence[Sequence[Any]], got: Sequence[Sequence[Any]]
    ) -> Answer:
        """Of a piece's outputs, for each sample."""
        numbers: dict[str, float] = {}
        for wanted, outputs in zip(expected, got, strict=True):
            for name, first, second in zip(names, wanted, outputs, strict=True):
                number = self.number(first, second)
                if name not in numbers or self._worse(number, numbers[name]):
                    numbers[name] = number
        if not any(np.asarray(one).size for wanted in expected for one in wanted):
            return Answer(UNKNOWN, detail="all outputs are empty")
        wrong = tuple(name for name in names if self.is_wrong(numbers[name]))
        worst = max(numbers.values(), key=self.metric.badness)
        return Answer(VALUE if wrong else GOOD, worst, wrong)

    def _worse(self, number: float, than: float) -> bool:
        return self.metric.badness(number) > self.metric.badness(than)


def metric_check(name: str, tolerance: float) -> MetricCheck:
    """Raises `UsageError` for a metric that is not there and a tolerance that is no number."""
    if math.isnan(tolerance):
        raise UsageError("a tolerance must be a number, not NaN")
    return MetricCheck(find_metric(name), tolerance)


def _nan(array: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return array != array  # also of the types of ml_dtypes; no integer differs from itself


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """A command that decides by its exit status: 0 good, 125 unknown, else bad."""

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

    def words(self, program: Path, inputs: Path, expected: Path) -> list[str]:
        places = {PROGRAM: program, INPUTS: inputs, EXPECTED: expected}
        words = shlex.split(self.command)
        for place, path in places.items():
            words = [word.replace(place, str(path)) for word in words]
        return words

    def answer(self, program: Path, samples: Sequence[tuple[Path, Path]]) -> Answer:
        """Of a piece, tried on each sample: (inputs, expected outputs)."""
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
        return Answer(UNKNOWN, SKIP, detail="the command said so") if unknown else Answer(GOOD, 0)
