"""The noise of a device, from jobs that did the same work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import count
from typing import Any

import numpy as np
import pytest

from etscope.analysis.statistics.compare_samples import Policy
from etscope_lab.comparison.noise import (
    IDENTICAL,
    NONE,
    SAME_DEVICE,
    Stability,
    device_noise,
    stability,
    work_of,
)
from etscope_lab.jobs.records import Job, State
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from lab_support.jobs import run_through, spec_of_number

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
NUMBERS = count()


def job(p50: float, model: str = "a", **more: Any) -> Job:
    spec = JobSpec(
        model={"sha256": model * 64},
        **{name: more.pop(name) for name in {*more} & {*JobSpec.model_fields} - {"device"}},
    )
    known: dict[str, Any] = {
        "device": "host",
        "summary": {"latency": {"p50_ms": p50}},
        "environment": {"executorch": "1.5.1", "device": {"cores": "2"}},
    }
    return Job(f"j{next(NUMBERS)}", spec, "h", State.DONE, NOW, **{**known, **more})


def test_identical_jobs_are_identical_work() -> None:
    one = job(1.0)
    for same in (
        job(2.0, name="x", labels={"commit": "1"}, priority=3, timeout_seconds=5),
        replace(one, environment={**one.environment, "conditions": {"load": 3}, "load_1": 2.0}),
    ):
        assert work_of(same) == work_of(one)
    for other in (
        job(1.0, model="b"),
        job(1.0, device="phone"),
        job(1.0, iterations=51),
        job(1.0, threads=1),
        job(1.0, inputs={"sha256": "c" * 64}),
        replace(one, environment={**one.environment, "executorch": "1.5.2"}),
        replace(one, environment={**one.environment, "device": {"cores": "4"}}),
    ):
        assert work_of(other) != work_of(one)


def test_the_spread_is_pooled_over_groups() -> None:
    first, second = [1.0, 1.02, 1.05], [3.0, 3.1]
    history = [*(job(t) for t in first), *(job(t, model="b") for t in second)]
    history.append(job(9.0, model="c"))  # alone: tells nothing
    found = device_noise(history, [history[0], history[3]])
    squares = sum(((np.log(g) - np.log(g).mean()) ** 2).sum() for g in (first, second))
    assert (found.source, found.jobs, found.freedom) == (IDENTICAL, 5, 3)
    assert found.spread == pytest.approx(np.sqrt(squares / 3))
    floor = found.floor(Policy(confidence=0.99))
    # Student's t of 3 degrees of freedom at 0.99, times the error of a difference.
    assert floor == pytest.approx(np.expm1(5.841 * np.sqrt(2 * squares / 3)), rel=1e-3)
    assert found.plain() == {"source": IDENTICAL, "jobs": 5, "spread": found.spread}


def test_other_jobs_of_the_device_stand_in() -> None:
    judged = [job(1.0), job(1.1, model="b")]
    others = [job(t, model="c") for t in (5.0, 5.2)]
    elsewhere = [job(t, device="phone") for t in (1.0, 2.0)]
    assert device_noise([*others, *elsewhere], judged).source == SAME_DEVICE
    nothing = device_noise(elsewhere, judged)
    assert (nothing.source, nothing.noise, nothing.floor(Policy())) == (NONE, None, None)


def test_jobs_under_worse_conditions_do_not_count() -> None:
    judged = job(1.0, marks=("the device warmed from 40 to 55 °C",))
    fine = job(1.1)
    alike = job(1.2, marks=("the device warmed from 41 to 60 °C",))
    worse = job(9.0, marks=("the device was busy before the run: a load of 0.90 a core",))
    failed = replace(job(9.0), state=State.FAILED)
    found = device_noise([fine, alike, worse, failed, judged], [judged])
    assert found.jobs == 3
    assert found.spread == pytest.approx(np.std(np.log([1.0, 1.1, 1.2]), ddof=1))


def test_only_so_many_jobs_are_read() -> None:
    asked: list[str] = []

    def time_of(one: Job) -> float | None:
        asked.append(one.id)
        return None if len(asked) == 2 else 1.0 + len(asked) / 100

    history = [job(1.0) for _ in range(30)]
    found = device_noise(history, [history[0]], time_of=time_of, most=6)
    assert len(asked) == 6 and asked[0] == history[0].id
    assert (found.jobs, found.freedom) == (5, 4)


def test_few_repeats_show_no_floor() -> None:
    history = [job(1.0), job(1.3)]
    found = device_noise(history, history[:1])
    assert (found.jobs, found.freedom) == (2, 1)
    assert found.spread == pytest.approx(np.std(np.log([1.0, 1.3]), ddof=1))
    assert found.noise is not None and found.noise.floor(Policy()) > 1
    assert found.floor(Policy()) is None


def test_stability_is_of_the_noise_and_not_of_changed_models(lab: Lab) -> None:
    draw = np.random.default_rng(1)

    def score(times: Sequence[float], device: str) -> Stability | None:
        for number, time in enumerate(times):
            spec = spec_of_number(number, model_name=f"{device}.pte")
            run_through(lab.database, spec, float(time), device=device)
        return stability(lab.history(device=device))

    assert score([10.0] * 4, "new") is None
    even = score([10.0] * 8, "even")
    assert even is not None and (even.score, even.cv, even.spread) == (100.0, 0.0, 1.0)
    step = score(np.repeat([10.0, 14.0], 10) * draw.lognormal(0, 0.005, 20), "step")
    noisy = score(10 * draw.lognormal(0, 0.05, 30), "noisy")
    assert step is not None and step.score > 90
    assert noisy is not None and 50 < noisy.score < 80 and noisy.results == 30
    # The parts of upstream's score, by hand.
    parts = 1 - 10 * noisy.cv, 1 - (noisy.spread - 1) / 2, 2 - noisy.tail
    assert noisy.score == pytest.approx(100 * np.dot((0.5, 0.25, 0.25), parts))
