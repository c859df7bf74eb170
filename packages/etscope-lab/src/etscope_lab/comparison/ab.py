"""A/B jobs: compare a model's speed with its baseline's, in rounds; each runs once a round.

*The order.* In a round the model and the baseline run once each, in separate processes, one
directly after the other. In half of the rounds the model goes first, in the other half the
baseline, drawn from the job's seed (`order_of`; one coin more for an odd number). So a drift, a
pattern in time and the differences from process to process affect both sides alike: they are in the
noise of the rounds and not in the result. Runs differ most from process to process, so processes
are counted: T. Kalibera and R. Jones, "Rigorous benchmarking in reasonable time",
ISMM 2013; for the random order T. Mytkowicz and others, "Producing wrong data without doing
anything obviously wrong!", ASPLOS 2009.

*The test.* A process is one number, the lower quartile of its samples. Other work on the device
makes runs longer, never shorter, so the faster runs show more of the model: on a machine of two
cores on which ten processes wanted to run, neighbouring processes of one program differed by 16 %
(median size, as a standard deviation) in the trimmed mean of the middle three fifths, by 4 % in the
median and by 1 % in the lower quartile. A round is one number, ``d = log(model / baseline)`` of the
two quartiles. A change of the slow runs only is not judged; the sides' p50 and p90 are reported.

The test, the change, its interval and the verdict come from
`etscope.analysis.statistics.compare_samples.compare_rounds`; *cannot tell* comes with the number of
rounds that would.

*Why it holds.* Without a difference between the sides, only the draw decides a round's sign,
whatever the noise looks like. The only assumption about the noise is that it does not depend on
the order. As the draw is balanced, the signs are slightly dependent: the variance of the sum of
ranks is at most R / (R - 1) times the variance that the test assumes, 1.05 times with 20 rounds.

*Several times.* A process of a language model measures several: from token to token, and to the
first token, of each prompt. Each is tested, all together at the job's confidence
(`judge_family`).

*It never stops early.* A look at the verdict between the rounds would be one more chance of a false
alarm; the job fixes the number of rounds. A round with a failed process is reported and left
out; a side that fails in its first process, or in more than a quarter of the rounds, fails the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, expm1, inf, isfinite, log1p, pi, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.statistics.compare_samples import (
    Policy,
    Verdict,
    compare_rounds,
    drawn_orders,
)
from etscope.errors import DeviceLost, MissingDataError, RuntimeFailure, UsageError
from etscope.model.statistics import fewest_differences, t_quantile
from etscope_lab.jobs.records import statistics_of
from etscope_lab.jobs.spec import JobSpec

MODEL, BASELINE = "model", "baseline"
SIDES = (MODEL, BASELINE)
MOST_FAILED = 4  # a job fails when more than one round of so many fails

RunSide = Callable[[str, int], Sequence[int]]
Floats = npt.NDArray[np.float64]

_MS = 1e6  # ns
_LARGE_SAMPLE = sqrt(pi / 3)  # the error of Hodges and Lehmann's estimate by a mean's, normal noise
_OFTEN = 1.2816  # of a normal distribution, 90 % lie below
_MOST_ROUNDS = 10_000  # that a job may have
_FOUND = ("reason", "relative", "low", "high", "p", "noise_floor", "rounds_needed")  # of a result


@dataclass(frozen=True, slots=True)
class Round:
    """One run of each side. first: the side that went first. samples_ns: the steady runs of each
    side's process, by side; a side that failed has none. error: the failed side and its error, or
    "".
    """

    number: int
    first: str
    samples_ns: dict[str, tuple[int, ...]]
    error: str = ""

    @property
    def complete(self) -> bool:
        return all(self.samples_ns.get(side) for side in SIDES)


@dataclass(frozen=True, slots=True)
class AbResult:
    """The verdict of an A/B job, with its numbers.

    relative: the change of the model against the baseline, 0.05: it takes 5 % longer; `low` and
    `high` the ends of its interval, None for too few rounds. noise_floor: the largest change that
    the noise of these rounds explains, at this confidence. rounds_needed: number of rounds for a
    verdict when these do not give one, and `reason` the reason; else None and "".
    """

    verdict: Verdict
    policy: Policy
    rounds: tuple[Round, ...]
    relative: float
    low: float | None
    high: float | None
    p: float
    noise_floor: float | None
    rounds_needed: int | None = None
    reason: str = ""

    def summary(self) -> dict[str, Any]:
        """Plain JSON for the job's summary: everything but the samples. Times in ms."""
        judged = [one for one in self.rounds if one.complete]
        return {
            "verdict": self.verdict.value,
            **{name: getattr(self, name) for name in _FOUND},
            "min_effect": self.policy.min_effect,
            "confidence": self.policy.confidence,
            "rounds": len(self.rounds),
            "judged": len(judged),
            "order": [one.first for one in self.rounds],
            "sides": {
                side: _statistics([one.samples_ns[side] for one in judged]) for side in SIDES
            },
            "failed": [
                {"round": one.number, "error": one.error} for one in self.rounds if not one.complete
            ],
        }

    def raw(self) -> dict[str, Any]:
        """Plain JSON for a file of the job: the summary, and `runs` with every sample in ns."""
        runs = [
            {"round": one.number, "first": one.first, "error": one.error}
            | {f"{side}_ns": list(one.samples_ns.get(side, ())) for side in SIDES}
            for one in self.rounds
        ]
        return {**self.summary(), "runs": runs}


def measure_ab(
    spec: JobSpec, run_side: RunSide, on_round: Callable[[Round], None] | None = None
) -> AbResult:
    """Run all rounds of an A/B job, and judge them.

    run_side: called with "model" or "baseline" and the number of the round (from 0); runs it in a
    separate process and returns the times of the steady runs in ns, in order. on_round: called
    with each round when it has ended.

    Raises the errors of `run_side`, except a `RuntimeFailure` of a side that ran before, which is
    in the result; `RuntimeFailure` when more than a quarter of the rounds failed;
    `MissingDataError` when a side returns no times.
    """
    if spec.kind != "ab":
        raise UsageError(f"a job of the kind {spec.kind} has no baseline", hint="kind: ab")
    rounds: list[Round] = []
    ran: set[str] = set()
    for number, first in enumerate(order_of(spec.rounds, spec.seed)):
        samples: dict[str, tuple[int, ...]] = {}
        error = ""
        for side in (first, SIDES[first == MODEL]):
            try:
                samples[side] = tuple(int(sample) for sample in run_side(side, number))
            except DeviceLost:
                raise
            except RuntimeFailure as failure:
                if side not in ran:
                    raise
                error = f"{side}: {failure}"
                break
            if not samples[side]:
                raise MissingDataError(f"the {side} was not timed", hint="iterations: 1 or more")
            ran.add(side)
        rounds.append(Round(number, first, samples, error))
        if on_round is not None:
            on_round(rounds[-1])
        failed = [one for one in rounds if not one.complete]
        if len(failed) * MOST_FAILED > spec.rounds:
            raise RuntimeFailure(
                f"{len(failed)} of {len(rounds)} rounds failed, last: {failed[-1].error}"
            )
    return judge(rounds, Policy(spec.min_effect, spec.confidence))


def order_of(rounds: int, seed: int) -> tuple[str, ...]:
    """Draw from the seed the side that goes first in each round: each side in half of them; of an
    odd number, one side once more."""
    return tuple(SIDES[first] for first, _ in drawn_orders(rounds, seed))


def judge(rounds: Sequence[Round], policy: Policy) -> AbResult:
    """Judge rounds that were run in the order of `order_of`; the module's text has the method.

    Raises `MissingDataError` when no round is complete, or a side takes less than a tick.
    """
    complete = [one for one in rounds if one.complete]
    if not complete:
        raise MissingDataError("no round is complete", hint="the job's log has the errors")
    model, baseline = (_quartiles([one.samples_ns[side] for one in complete]) for side in SIDES)
    if min(model.min(), baseline.min()) <= 0:
        raise MissingDataError("a run takes less than a tick of the clock")
    found = compare_rounds(baseline, model, policy)
    relative, p = found.relative or 0.0, 1.0 if found.p is None else found.p
    middle, half = log1p(relative), inf
    if found.low is not None and found.high is not None:
        half = max(log1p(found.high) - middle, middle - log1p(found.low))
    reason, needed = found.reason, None
    if found.verdict is Verdict.CANNOT_TELL:
        differences = np.log(model) - np.log(baseline)
        needed = _rounds_needed(differences, middle, half, policy)
        if needed is None:
            more = f"not even {_MOST_ROUNDS} rounds would give a verdict"
        elif needed > len(differences):
            more = f"{needed} rounds would give a verdict"
        else:
            more = "the same rounds again would probably give a verdict"
        reason = f"{reason}; {more}"
    return AbResult(
        verdict=found.verdict,
        policy=policy,
        rounds=tuple(rounds),
        relative=relative,
        low=found.low,
        high=found.high,
        p=p,
        noise_floor=expm1(half) if isfinite(half) else None,
        rounds_needed=needed,
        reason=reason,
    )


def judge_family(rounds: Mapping[str, Sequence[Round]], policy: Policy) -> dict[str, AbResult]:
    """Judge several times of the same processes, by name. Each is judged more strictly, so that all
    together have the policy's confidence (C. E. Bonferroni's correction). Raises as `judge`.
    """
    alpha = (1 - policy.confidence) / max(len(rounds), 1)
    strict = replace(policy, confidence=1 - alpha)
    return {name: judge(one, strict) for name, one in rounds.items()}


def family_summary(found: Mapping[str, AbResult]) -> dict[str, Any]:
    """Return the `summary` of the time that regressed most, or of the first time; "metric" has the
    name of that time, and "metrics" the verdict on each.
    """
    worst = [name for name, one in found.items() if one.verdict is Verdict.REGRESSED]
    main = max(worst, key=lambda name: found[name].relative) if worst else next(iter(found))
    summaries = {name: one.summary() for name, one in found.items()}
    metrics = {
        name: {
            **{key: one[key] for key in ("verdict", *_FOUND)},
            **{f"{side}_ms": one["sides"][side]["location_ms"] for side in SIDES},
        }
        for name, one in summaries.items()
    }
    return {**summaries[main], "metric": main, "metrics": metrics}


def _quartiles(processes: Sequence[Sequence[int]]) -> Floats:
    if len({len(one) for one in processes}) == 1:  # one call for all is much faster
        found: Floats = np.percentile(np.asarray(processes, dtype=np.float64), 25, axis=1)
        return found
    return np.array([np.percentile(one, 25) for one in processes], dtype=np.float64)


def _rounds_needed(differences: Floats, middle: float, half: float, policy: Policy) -> int | None:
    """Return the number of rounds that give a verdict in nine cases of ten, if the change is what
    these show; None for more than a job may have.

    The interval must exclude zero when the change is of the minimum effect, else lie inside that
    effect; a change between two thirds of it and the whole is taken for two thirds.
    """
    count = len(differences)
    if isfinite(half):
        t = float(t_quantile(policy.alpha, count - 1))
        spread = half * sqrt(count) / (t * _LARGE_SAMPLE)
    elif count > 1:
        spread = float(differences.std(ddof=1))
    else:
        return None
    least = log1p(policy.min_effect)
    within = abs(middle) if abs(middle) >= least else max(least - abs(middle), least / 3)
    needed = enough = fewest_differences(policy.alpha)
    for _ in range(20):
        # The quantile falls as the number grows, so this oscillates until it settles.
        factor = float(t_quantile(policy.alpha, max(needed - 1, 1))) + _OFTEN
        needed = max(enough, ceil((factor * _LARGE_SAMPLE * spread / within) ** 2))
        if needed > _MOST_ROUNDS:
            return None
    return needed


def _statistics(processes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Statistics of the processes of one side. location_ms: the median of their lower quartiles;
    process_spread: the standard deviation of the logarithm of these; the others are of all
    samples."""
    centres = _quartiles(processes)
    samples = np.concatenate(processes)
    of_all = statistics_of(samples, 0, 0)
    names = ("p10_ms", "p50_ms", "p90_ms", "mean_ms", "stdev_ms", "min_ms", "max_ms")
    return {
        "processes": len(processes),
        "iterations": len(samples),
        "location_ms": float(np.median(centres)) / _MS,
        "process_spread": float(np.log(centres).std(ddof=1)) if len(processes) > 1 else None,
        **{name: of_all[name] for name in names},
    }
