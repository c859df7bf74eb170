"""Two done jobs of a lab, with samples and dumps of the real runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import MissingDataError
from etscope_lab.comparison.compare import compare
from etscope_lab.jobs.records import Artifact, Outcome, State, statistics_of
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from tests.support.artifacts import artifacts
from tests.support.timed_dumps import timed_dump


def done(
    lab: Lab,
    tmp_path: Path,
    *,
    factor: float = 1.0,
    seed: int = 0,
    process: float = 0.0,
    dump: bool = False,
    state: State = State.DONE,
    device: str = "host",
    **more: Any,
) -> str:
    """The id of a finished job: samples made of a seed, a real dump with its times lengthened."""
    cnn = artifacts("cnn_portable")
    job = lab.submit(JobSpec(**{"model": {"path": str(cnn.etrecord)}, **more}), again=True)
    assert lab.database.claim(job.id, device=device, engine="e", token=job.id)
    random = np.random.default_rng(seed)
    runs = 2e6 * factor * random.lognormal(random.normal(0, process), 0.01, 60)
    samples = np.rint(runs).astype(int).tolist()
    latencies = [
        {"traced": "times", "samples_ns": [9]},
        {"traced": None, "method": "forward", "samples_ns": samples},
    ]
    kept: list[Artifact] = []
    if state is State.DONE:
        kept.append(
            lab.store.put_stream([json.dumps({"latencies": latencies}).encode()], "run.json")
        )
    if dump:
        assert cnn.etdump_timing is not None
        path = timed_dump(
            cnn.etdump_timing,
            tmp_path / "made.etdp",
            seed=seed,
            runs=40,
            slower=dict.fromkeys(range(100), factor),
        )
        kept.append(lab.store.put_file(path, "run.etdp"))
    assert lab.database.finish(
        Outcome(
            job.id,
            job.id,
            state,
            summary={
                "method": "forward",
                "backend": "portable",
                "latency": statistics_of(samples, 1, 1),
            },
            environment={"executorch": "1.5.1", "device": {"arch": "x86_64"}},
            artifacts=tuple(kept),
        )
    )
    return job.id


def test_without_a_history_small_changes_are_not_told(lab: Lab, tmp_path: Path) -> None:
    jobs = [
        done(lab, tmp_path, seed=1, labels={"commit": "a"}),
        done(lab, tmp_path, seed=2, factor=1.06, iterations=51),
        done(lab, tmp_path, seed=3, factor=1.3, iterations=52),
        done(lab, tmp_path, seed=4, iterations=53),
    ]
    small, large, none = (compare(lab, jobs[0], other) for other in jobs[1:])
    assert small["verdict"] == none["verdict"] == "cannot tell"
    assert "a change below 10% may be noise" in small["reason"]
    assert small["relative"] == pytest.approx(0.06, abs=0.01)
    assert small["noise"] == {"source": "none", "jobs": 0, "spread": None}
    assert small["noise_floor"] is None
    assert large["verdict"] == "regressed" and not large["reason"]
    assert compare(lab, jobs[2], jobs[0])["verdict"] == "improved"
    assert json.loads(json.dumps(small, allow_nan=False)) == small
    assert {one["name"] for one in small["spec"]} == {"labels.commit", "iterations"}
    assert small["environment"] == []


def test_identical_jobs_tell_the_noise(lab: Lab, tmp_path: Path) -> None:
    quiet = [done(lab, tmp_path, seed=seed, process=0.002) for seed in range(6)]
    slower = done(lab, tmp_path, seed=9, factor=1.06, threads=1)
    found = compare(lab, quiet[0], slower)
    assert found["verdict"] == "regressed"
    assert found["noise"]["source"] == "identical jobs" and found["noise"]["jobs"] == 6
    assert 0.001 < found["noise_floor"] < 0.03
    assert "The noise comes from 6 jobs" in found["notes"][0]
    assert compare(lab, quiet[0], quiet[1])["verdict"] == "no difference"


def test_a_noisy_device_hides_what_is_smaller(lab: Lab, tmp_path: Path) -> None:
    noisy = [done(lab, tmp_path, seed=seed, process=0.05) for seed in range(6)]
    slower = done(lab, tmp_path, seed=9, factor=1.06, threads=1)
    found = compare(lab, noisy[0], slower)
    assert found["verdict"] == "cannot tell"
    assert found["noise_floor"] > 0.06
    assert "jobs differ by up to" in found["reason"] and "again lower it" in found["reason"]


def test_operators_are_compared_by_module(lab: Lab, tmp_path: Path) -> None:
    jobs = [
        done(lab, tmp_path, seed=1, dump=True),
        done(lab, tmp_path, seed=2, dump=True),
        done(lab, tmp_path, seed=3, dump=True, factor=1.5, threads=1),
    ]
    found = lab.compare(jobs[0], jobs[2])
    rows = found["operators"]
    assert len(rows) == 24
    convolutions = [row for row in rows if row["name"] == "convolution.out"]
    assert [row["verdict"] for row in convolutions] == ["regressed"] * 6
    assert all(row["change_ms"] > 0.4 * row["first_ms"] for row in convolutions)
    assert [abs(row["change_ms"]) for row in rows] == sorted(
        (abs(row["change_ms"]) for row in rows), reverse=True
    )
    assert "stem.conv" in {row["module"] for row in rows}
    assert "Operators are aligned by module path and operator." in found["notes"]


def test_what_differs_is_named(lab: Lab, tmp_path: Path) -> None:
    here = done(lab, tmp_path, seed=1, limits={"max_load": 2})
    there = done(lab, tmp_path, seed=2, device="phone")
    found = compare(lab, here, there)
    assert found["verdict"] == "cannot tell"
    assert found["reason"] == "they ran on different devices: host and phone"
    assert found["spec"] == [{"name": "limits.max_load", "first": 2.0, "second": None}]


def test_jobs_without_samples_of_their_own(lab: Lab, tmp_path: Path) -> None:
    fine = done(lab, tmp_path)
    failed = done(lab, tmp_path, state=State.FAILED)
    with pytest.raises(MissingDataError, match=f"job {failed} is failed"):
        compare(lab, fine, failed)
    with pytest.raises(MissingDataError):
        compare(lab, fine, "nosuchjob")
    path = str(artifacts("cnn_portable").pte)
    waiting = lab.submit(JobSpec(model={"path": path}))
    with pytest.raises(MissingDataError, match="is queued"):
        compare(lab, waiting.id, fine)
