"""The commit that made a program slower, found with few A/B jobs.

Every commit of a range may be the guilty one. If it is `c`, then the programs of `c` and of its
descendants in the range are slow, all by the same step, and the others are fast. An A/B job of a
commit and the good end measures a difference with an error, so it changes the weight of each
candidate by Bayes' rule; the next job is of the commit that is most nearly as likely slow as fast.
The size of the step is not known: the job of the two ends exaggerates it, as no other would have
begun the walk. So all sizes count, by how well they explain all jobs. Jobs whose error is not
small against the step get more rounds. A result that fits neither side well, from noise or a
disturbed job, moves the weights little, and the commit's turn comes again. (A binary search with
noisy answers: M. Burnashev and K. Zigangirov, "An interval estimation problem for controlled
observations", 1974.)

A commit is named when an A/B job with the one before it is slower, too. That job is also an answer,
so it comes as soon as one commit has much of the weight. If it is doubtful, it is repeated once
with the most rounds; then several commits are left rather than a wrong one. Jobs of the two ends
that cannot tell are repeated with more rounds.

Merges need no special rule: only the order of ancestors counts. Commits that do not build are
skipped, and stay candidates. Results of a series, such as nights, are answers too, with
more doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, expm1, log, log1p, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.statistics.compare_samples import Verdict
from etscope.errors import UsageError
from etscope.model.statistics import t_quantile
from etscope_lab.comparison.changes import noise_of
from etscope_lab.jobs.records import Series

_SURELY = 0.999  # weight of the commits that are left, if an A/B job does not confirm one
SURE = 0.95  # weight of a commit, or of the smallest group, that is reported
_TRIED = 0.4  # a commit of this weight is compared with the one before, which may end the walk
_UNDECIDED = 0.02  # a commit more certain than this, to be slow or fast, is not measured
_DOUBT, _DOUBT_OF_NIGHT = 1e-3, 0.05  # share of results that are not what the noise explains
_MOST_ROUNDS = 200  # of the A/B jobs, if the specification's are too few
_EXACT = 4.0  # times its error is the step in an A/B job with enough rounds
_SIZES = np.linspace(0.1, 2.0, 96)  # of the step, to that of the two ends
_WIDER = 1.4  # times the error of an interval of 20 rounds, whose width varies by as much
_LEAST_ERROR = 1e-3  # of the same program, whose times differ by nothing
_LEAST_ERROR_OF_NIGHT = 5e-3  # the level before is not known better
_UNKNOWN = 1.0  # error of a result without an interval
SAME = "same program"  # verdict without an A/B job

Floats = npt.NDArray[np.float64]


class Skipped(UsageError):
    """A commit has no program that runs."""

    def __init__(self, commit: str, reason: str) -> None:
        super().__init__(f"{commit[:12]}: {reason}")
        self.commit, self.reason = commit, reason


@dataclass(frozen=True, slots=True)
class Answer:
    """The times of two commits, compared.

    shift: log(commit / baseline); error: its standard deviation; low, high: its interval as
    fractions, None if unknown. verdict: of the A/B job, or `SAME`. job: its id; "" without one.
    rounds_needed, reason: number of rounds for a verdict, and why the job has none. rounds: that
    were judged; 0 without a job.
    """

    commit: str
    baseline: str
    shift: float
    error: float
    verdict: str = ""
    low: float | None = None
    high: float | None = None
    job: str = ""
    rounds_needed: int | None = None
    reason: str = ""
    rounds: int = 0
    doubt: float = _DOUBT

    @classmethod
    def of_summary(cls, commit: str, baseline: str, found: Mapping[str, Any], job: str) -> Answer:
        """Return the answer of an A/B job. found: its summary (`AbResult.summary`)."""
        low, high, error = found["low"], found["high"], _UNKNOWN
        if low is not None and high is not None:
            t = float(t_quantile(1 - found["confidence"], max(found["judged"] - 1, 1)))
            error = (log1p(high) - log1p(low)) / 2 / t
        return cls(
            commit, baseline, log1p(found["relative"]), error, found["verdict"], low, high, job,
            found["rounds_needed"], found["reason"], found["judged"],
        )  # fmt: skip

    @property
    def is_slow(self) -> bool:
        return self.verdict == Verdict.REGRESSED.value

    @property
    def relative(self) -> float:
        """commit / baseline - 1"""
        return expm1(self.shift)


class Candidates:
    """The commits of a range, oldest first; one is guilty.

    parents: of each commit, ancestors first; those outside the range count as the good end. The
    last commit is the bad end.
    """

    def __init__(self, good: str, parents: Mapping[str, Sequence[str]]) -> None:
        self.good, self.names, self.parents = good, list(parents), parents
        place = {name: n for n, name in enumerate(self.names)}
        # [commit, candidate]: slow if the candidate is guilty
        self._slow = np.eye(len(place), dtype=bool)
        for name, n in place.items():
            for parent in parents[name]:
                if parent in place:
                    self._slow[n] |= self._slow[place[parent]]
        self._place = place

    @property
    def bad(self) -> str:
        return self.names[-1]

    @property
    def most_jobs(self) -> int:
        """Number of A/B jobs after which the walk ends without an answer."""
        return 2 * ceil(log2(len(self.names) + 1)) + 4

    def before(self, name: str) -> str:
        """The first parent in the range, else the good end."""
        return next((one for one in self.parents[name] if one in self._place), self.good)

    def weights(self, answers: Sequence[Answer], step: Answer) -> tuple[Floats, float]:
        """The probability of each candidate, and the step by all answers. step: the answer of the
        two ends, which is one of the answers."""
        sizes = step.shift * _SIZES
        total = np.zeros((len(self.names), len(sizes)))
        for one in answers:
            is_in = self._row(one.commit) - self._row(one.baseline)
            error = max(_WIDER * one.error, _LEAST_ERROR)
            z = (one.shift - is_in[:, None] * sizes) / error
            total += np.log(np.exp(-(z**2) / 2) + one.doubt)
        found: Floats = np.exp(total - total.max())
        found /= found.sum()
        return found.sum(axis=1), float(found.sum(axis=0) @ sizes)

    def next(self, weights: Floats, skipped: Mapping[str, str]) -> str | None:
        """The most uncertain commit; None if each is surely slow or surely fast."""
        slow = self._slow @ weights
        chosen = [n for n, name in enumerate(self.names) if name not in skipped]
        best = min(chosen, key=lambda n: abs(slow[n] - 0.5), default=None)
        if best is None or not _UNDECIDED < slow[best] < 1 - _UNDECIDED:
            return None
        return self.names[best]

    def likely(self, weights: Floats, sure: float = SURE) -> list[str]:
        """The fewest commits that hold the guilty one with that probability."""
        order = np.argsort(-weights, kind="stable")
        count = min(int(np.searchsorted(np.cumsum(weights[order]), sure)) + 1, len(order))
        return [self.names[n] for n in sorted(order[:count])]

    def nights(self, series: Series, expected_ms: float) -> list[Answer]:
        """The results of a series with a label `commit` in the range, as answers."""
        fair = [one for one in series.points if not one.marked and one.p50_ms > 0]
        noise = noise_of(np.log([one.p50_ms for one in fair])) if fair else _UNKNOWN
        noise = max(noise, _LEAST_ERROR_OF_NIGHT)
        found = []
        for point in fair:
            label = point.labels.get("commit", "")
            named = [name for name in self.names if label and name.startswith(label)]
            if len(named) == 1:
                shift = log(point.p50_ms / expected_ms)
                found.append(
                    Answer(named[0], self.good, shift, noise, doubt=_DOUBT_OF_NIGHT)
                )  # fmt: skip
        return found

    def _row(self, name: str) -> Floats:
        at = self._place.get(name)
        none = np.zeros(len(self.names))
        return none if at is None else self._slow[at].astype(np.float64)


@dataclass(slots=True)
class Walk:
    """The state of a search, which can go on later. skipped: reasons, by commit. rounds: of further
    A/B jobs, if the specification has too few."""

    answers: list[Answer] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    rounds: int | None = None

    def known(self, commit: str, baseline: str) -> Answer | None:
        """The newest answer of two commits."""
        pair = commit, baseline
        return next((a for a in self.answers[::-1] if (a.commit, a.baseline) == pair), None)

    def be_exact(self, step: float) -> None:
        """Raise the rounds of further A/B jobs if the errors of those so far are too large to find
        a step of this size. The error falls with the root of the rounds."""
        jobs = [one for one in self.answers if one.rounds and one.error < _UNKNOWN]
        if jobs:
            alone = float(np.median([one.error * one.rounds**0.5 for one in jobs]))
            wanted = min(ceil((_EXACT * alone / step) ** 2), _MOST_ROUNDS)
            if wanted > max(self.rounds or 0, jobs[0].rounds):
                self.rounds = wanted

    @property
    def jobs(self) -> int:
        return len({one.job for one in self.answers if one.job})


@dataclass(frozen=True, slots=True)
class Guilty:
    """The result of a walk. commits: one of them is guilty, oldest first; () if the bad end is not
    slower. step: the answer of the two ends. confirmed: of the only commit and the one before it.
    """

    commits: tuple[str, ...]
    step: Answer
    confirmed: Answer | None = None


def find_guilty(
    candidates: Candidates,
    walk: Walk,
    measure: Callable[[str, str], Answer],
    nights: Sequence[Answer] = (),
) -> Guilty:
    """Measure until one commit is guilty with the probability `SURE`, then compare it with the one
    before it.

    measure: compares a commit with a baseline; raises `Skipped` for one without a program. walk: is
    changed. nights: answers that are known without a measurement. Raises `Skipped` for an end of
    the range.
    """
    good = candidates.good
    step = walk.known(candidates.bad, good)
    if step is None:
        walk.answers.append(step := measure(candidates.bad, good))
    while step.verdict == Verdict.CANNOT_TELL.value and (walk.rounds or 0) < _MOST_ROUNDS:
        wanted = max(step.rounds_needed or _MOST_ROUNDS, 2 * step.rounds)
        walk.rounds = min(wanted, _MOST_ROUNDS)
        walk.answers.append(step := measure(candidates.bad, good))
    if not step.is_slow:
        return Guilty((), step)
    while True:
        weights, size = candidates.weights([*nights, *walk.answers], step)
        walk.be_exact(size)
        share, commit = weights.max(), candidates.names[int(weights.argmax())]
        baseline = candidates.before(commit)
        known = walk.known(commit, baseline)
        if share >= SURE and known is not None and known.is_slow:
            return Guilty((commit,), step, known)
        has_programs = not {commit, baseline} & set(walk.skipped)
        if share < _TRIED or not has_programs or known is not None:
            if share >= SURE:
                is_final = known is None or known.rounds_needed is None
                if is_final or walk.rounds == _MOST_ROUNDS:
                    return Guilty(tuple(candidates.likely(weights, _SURELY)), step)
                walk.rounds = _MOST_ROUNDS
            else:
                chosen = candidates.next(weights, walk.skipped)
                if chosen is None or walk.jobs >= candidates.most_jobs:
                    return Guilty(tuple(candidates.likely(weights)), step)
                commit, baseline = chosen, good
        try:
            walk.answers.append(measure(commit, baseline))
        except Skipped as skip:
            if skip.commit == good:
                raise
            walk.skipped[skip.commit] = skip.reason
