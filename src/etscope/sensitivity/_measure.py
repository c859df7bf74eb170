"""One program measured on the runtime: its error on all samples, and its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.metrics import Metric, measure
from etscope.errors import EtscopeError, MissingDataError
from etscope.sensitivity._variant import RUN, Variant

_ROUND_NS = 50e6  # of one program in one round of the times
_FEWEST, _MOST = 3, 200  # executions in it
_WARMUP = 2


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """What programs are fed, and what the float model answers to it in PyTorch: flat values of
    each sample. keeps_state: each sample meets the model as it is at first."""

    method: str
    inputs: Sequence[Sequence[Any]]
    expected: Sequence[Sequence[Any]]
    keeps_state: bool = False

    def check(self, metric: Metric) -> None:
        """Raise `MissingDataError` when nothing can be held against the float model."""
        for number, outputs in enumerate(self.expected):
            for index, value in enumerate(outputs):
                if np.asarray(value).dtype.kind == "f" and np.isnan(value).any():
                    raise MissingDataError(
                        f"output {index} of the float model has NaN for sample {number}: there is "
                        "nothing to compare with"
                    )
        if not any(measure(metric, one, one) is not None for one in self.expected[0]):
            raise MissingDataError("the model has no output of numbers to compare")


def measured(
    program: Path, samples: Samples, metric: Metric, *, isolate: bool, timeout: float | None
) -> Variant:
    """The error of a program. A run that fails is an answer."""
    size = program.stat().st_size
    try:
        outputs = _outputs(program, samples, isolate, timeout)
    except EtscopeError as failure:
        return Variant(size=size, failure=RUN, detail=failure.message)
    each = [
        _worst(metric, [_number(metric, [one], [two]) for one, two in _pairs(wanted, got)])
        for wanted, got in zip(samples.expected, outputs, strict=True)
    ]
    columns = [
        ([wanted[index] for wanted in samples.expected], [got[index] for got in outputs])
        for index in range(len(samples.expected[0]))
    ]
    worst = max(range(len(each)), key=lambda index: metric.badness(each[index]))
    error = _worst(metric, [_number(metric, *column) for column in columns])
    return Variant(error=error, worst=each[worst], worst_sample=worst, size=size)


def _outputs(
    program: Path, samples: Samples, isolate: bool, timeout: float | None
) -> list[Sequence[Any]]:
    from etscope.run import Call, run

    calls = [Call(samples.method, list(one), iterations=1, warmup=0) for one in samples.inputs]
    found: list[Sequence[Any]] = []
    for batch in [[call] for call in calls] if samples.keeps_state else [calls]:
        with run(program, batch, trace=False, isolate=isolate, timeout=timeout) as done:
            found += done.arrays
    return found


def _pairs(wanted: Sequence[Any], got: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(wanted, got, strict=True))


def _number(metric: Metric, wanted: Sequence[Any], got: Sequence[Any]) -> float | None:
    """The metric of some values as if they were one; NaN for shapes that differ."""
    first, second = (np.concatenate([np.ravel(one) for one in values]) for values in (wanted, got))
    if first.shape != second.shape:
        return float("nan")
    return measure(metric, first, second) if first.size else None


def _worst(metric: Metric, numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return max(known, key=metric.badness) if known else None


def timed(
    programs: Mapping[Any, Path],
    samples: Samples,
    rounds: int,
    *,
    isolate: bool,
    timeout: float | None,
) -> dict[Any, npt.NDArray[np.float64]]:
    """The median time of an execution on the first sample in each round, in ms: [rounds].

    In a round each program runs for a while, one after the other, and each round begins with
    another one: what disturbs the machine for a while disturbs them all.
    """
    keys = list(programs)
    executions = dict.fromkeys(keys, _FEWEST)
    found: dict[Any, list[float]] = {key: [] for key in keys}
    for number in range(-1, rounds):
        start = number % len(keys) if keys else 0
        for key in keys[start:] + keys[:start]:
            time = _median_ns(programs[key], samples, executions[key], isolate, timeout)
            if number < 0:  # tells only how often to execute
                executions[key] = int(np.clip(_ROUND_NS / max(time, 1), _FEWEST, _MOST))
            else:
                found[key].append(time / 1e6)
    return {key: np.array(times) for key, times in found.items()}


def _median_ns(
    program: Path, samples: Samples, iterations: int, isolate: bool, timeout: float | None
) -> float:
    from etscope.run import Call, run

    call = Call(samples.method, list(samples.inputs[0]), iterations=iterations, warmup=_WARMUP)
    limit = timeout if isolate else None
    with run(program, [call], trace=False, isolate=isolate, timeout=limit) as done:
        return done.latency.p50_ns
