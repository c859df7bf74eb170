"""The runs that count: which are excluded, which never are, and that all views agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from etscope import Inspector
from etscope.analysis.comparison.diff import diff_traces
from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.insights import insights
from etscope.analysis.profile.calls import RunCalls
from etscope.analysis.profile.counted import slow_runs
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.capture.files import RunFiles, run_of_files
from etscope.model.finding import Severity
from etscope.reporting.tensorboard import tables
from etscope.units import TimeScale
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.timed_dumps import timed_dump
from tests.support.views.page_reports import document_of_files

MS = Scale(TimeScale.NS, TimeScale.MS)
DISTURBED = {3: 3.0, 4: 9.0, 9: 2.5, 13: 4.0, 14: 2.0, 17: 20.0}


def excluded(times: object, calls: RunCalls | None = None, *, warmed_up: bool = False) -> str:
    """The numbers of the runs that are excluded: warm-up | disturbed."""
    total = np.round(np.asarray(times) * 1e6).astype(np.int64)
    found = slow_runs(total, calls, is_warmed_up=warmed_up)
    parts = (np.flatnonzero(mask).tolist() for mask in (found.warmup, found.disturbed))
    return " | ".join(",".join(map(str, part)) for part in parts)


def noise(runs: int = 40, sigma: float = 0.03, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0.0, sigma, runs)


def with_slow(runs: int = 40) -> np.ndarray:
    times = noise(runs)
    times[[7, 8, 23]] *= 4
    return times


def test_a_cold_first_run_and_disturbed_ones_are_excluded() -> None:
    assert excluded(noise()) == " | "
    assert excluded(with_slow()) == " | 7,8,23"
    assert excluded(np.concatenate([[6.0], with_slow()])) == "0 | 8,9,24"
    assert excluded(np.concatenate([[6.0], noise()]), warmed_up=True) == " | 0"
    half = noise(20)
    half[9:18] *= np.linspace(1.6, 20, 9)
    assert excluded(half) == f" | {','.join(map(str, range(9, 18)))}"


def test_of_few_runs_only_a_cold_first_one_is_excluded() -> None:
    assert excluded([]) == excluded([3.0]) == excluded([9.0, 1.0]) == " | "
    assert excluded([9.0, 1.0, 1.1]) == "0 | "
    assert excluded([9.0, 1.0, 8.0]) == " | "  # one of two may be the odd one
    assert excluded([1.0, 1.1, 9.0, 1.0]) == " | "
    assert excluded([9.0, 1.0, 1.1], warmed_up=True) == " | "


def test_states_of_the_machine_are_not_excluded() -> None:
    """Two speeds and a drift: none of the runs is the usual one."""
    assert excluded(noise() * np.where(np.arange(40) % 3, 1.0, 1.9)) == " | "
    assert excluded(noise() * np.linspace(1.0, 4.0, 40)) == " | "
    slightly = with_slow() * np.linspace(1.0, 1.2, 40)  # which makes no run slow
    assert excluded(slightly) == " | 7,8,23"


def test_times_that_vary_by_themselves_are_not_disturbed() -> None:
    left = [excluded(noise(100, 0.4, seed)).count(",") for seed in range(50)]
    assert np.mean(left) < 1.5  # of 100 runs


def calls_at(position: np.ndarray, tokens: int | np.ndarray = 1) -> RunCalls:
    runs = np.arange(len(position))
    return RunCalls(runs, ("decode",) * len(runs), position, tokens + 0 * position)


def test_calls_that_grow_are_compared_with_their_neighbours() -> None:
    position = np.tile(np.arange(100), 2)
    grown = np.random.default_rng(2).lognormal(0.0, 0.03, 200) * (1 + position / 40)
    assert excluded(grown, calls_at(position)) == " | "
    grown[[5, 120]] *= 2  # at 5 as short as an undisturbed call at 60
    assert excluded(grown, calls_at(position)) == " | 5,120"
    unknown = np.full(200, -1)
    assert excluded(grown, calls_at(unknown)) == " | "
    prompts = np.where(np.arange(200) % 50, 1, 64)
    assert excluded(grown, calls_at(position, prompts)) == " | "


# -- one set of runs in all views


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("disturbed") / "run.etdp"
    source = artifacts("cnn_xnnpack").etdump_timing or artifacts("cnn_xnnpack").etdump
    return timed_dump(source, target, runs=20, first=1.0, disturbed=DISTURBED)


def profile_of(dump: Path) -> MethodProfile:
    made = artifacts("cnn_xnnpack")
    (profile,) = (
        run_of_files([dump], RunFiles.given(record=made.etrecord, program=made.pte))
        .open()
        .profiles()
    )
    return profile


def slowest(profile: MethodProfile) -> tuple[int, str, float]:
    """The leaf that takes longest: its row, name and milliseconds by the quiet runs alone."""
    quiet = np.isin(profile.every.runs, profile.runs)
    leaves = [(row, leaf) for row, leaf in enumerate(profile.every.rows) if leaf.leaf]
    row, leaf = max(leaves, key=lambda one: float(one[1].ticks[quiet].mean()))
    return row, leaf.name, float(MS(leaf.ticks[quiet]).mean())


def test_the_profile_is_of_the_runs_that_nothing_disturbed(dump: Path) -> None:
    profile = profile_of(dump)
    assert (len(profile.runs), len(profile.every.runs)) == (15, 21)
    assert profile.runs_in_words == ("15 of 21 runs (6 excluded: 6 disturbed by other programs)")
    total = sum(row.ticks for row in profile.rows if row.depth == 0) + profile.unaccounted
    np.testing.assert_array_equal(total, profile.total)


def test_inspect_and_explain_have_the_same_runs_and_times(dump: Path, run: Run) -> None:
    made = artifacts("cnn_xnnpack")
    files = (str(dump), "-r", str(made.etrecord), "-p", str(made.pte), "-f", "json")
    _, name, ms = slowest(profile_of(dump))
    inspected, explained, every = (
        json.loads(run(*words)[1])
        for words in (
            ("inspect", *files),
            ("explain", *files, "--least", "0"),
            ("inspect", *files, "--all-runs"),
        )
    )
    (runs,) = inspected["runs"]
    assert (runs["counted"], runs["recorded"]) == (15, 21)
    assert (runs["warmup"], runs["disturbed"]) == (0, 6)
    assert explained["runs"] == inspected["runs"]
    assert every["runs"][0]["counted"] == 21
    assert "15 of 21 runs (6 excluded: 6 disturbed by other programs)" in inspected["title"]
    times = [one["avg"] for one in inspected["rows"] if one["event"] == name]
    assert any(time == pytest.approx(ms) for time in times)
    said = {one["kind"]: one for one in inspected["findings"]}
    why = {one["kind"]: one for one in explained["findings"]}
    slow, unsteady = said["unsteady"], why["unsteady"]
    assert (slow["sentence"], slow["severity"]) == (unsteady["sentence"], unsteady["severity"])
    assert slow["quantity"] == unsteady["quantity"] and slow["quantity"]["share"] is None


def test_the_page_tensorboard_and_diff_have_them_too(dump: Path) -> None:
    made = artifacts("cnn_xnnpack")
    profile = profile_of(dump)
    row, _, ms = slowest(profile)
    (method,) = document_of_files(dump, made.etrecord, made.pte)["runs"][0]["methods"]
    assert method["runIndex"] == profile.runs.tolist()
    assert method["rows"]["values"]["avg"][row] == pytest.approx(ms)
    assert len(method["samples"][row]) == method["runs"] == 15
    assert method["excluded"]["words"] == profile.runs_in_words
    assert sorted([*method["runIndex"], *method["excluded"]["runIndex"]]) == list(range(21))

    trace = run_of_files([dump], RunFiles.given(record=made.etrecord, program=made.pte)).open()
    summary = tables(trace, MS)["forward/1 run summary"]
    assert profile.runs_in_words in summary

    (diff,) = diff_traces(trace, replace(trace, all_runs=True)).methods
    changes = {id(change.pair.before): change for change in diff.changes}
    (mine,) = trace.profiles()
    assert MS(changes[id(mine.rows[row])].before) == pytest.approx(ms)
    assert MS(changes[id(mine.rows[row])].after) > 1.5 * ms
    assert [len(side.runs) for side in (diff.sides.before, diff.sides.after)] == [15, 21]


def test_a_dataset_has_them_too(dump: Path, tmp_path: Path) -> None:
    pytest.importorskip("etscope_lab")
    from etscope_lab.fleet import collect, query

    collect([dump], tmp_path / "ds", etrecord=artifacts("cnn_xnnpack").etrecord)
    profile = profile_of(dump)
    asked = "SELECT DISTINCT run FROM events WHERE kind = 'execute' AND counted ORDER BY run"
    assert list(query(tmp_path / "ds", asked).values["run"]) == profile.runs.tolist()
    of_dump = query(tmp_path / "ds", "SELECT counted, executions, p50_ns FROM dumps")
    assert [of_dump.values[name][0] for name in ("counted", "executions")] == [15, 21]
    assert of_dump.values["p50_ns"][0] == float(np.median(profile.total))


def test_names_of_upstream_have_all_runs(dump: Path) -> None:
    inspector = Inspector(str(dump), etrecord=str(artifacts("cnn_xnnpack").etrecord))
    frame = inspector.to_dataframe()
    (executed,) = (raw for raw, name in zip(frame["raw"], frame["event_name"], strict=True)
                   if name == "Method::execute")  # fmt: skip
    assert len(executed) == 21


def test_many_disturbed_runs_are_a_problem_and_few_are_not(dump: Path) -> None:
    profile = profile_of(dump)
    made = artifacts("cnn_xnnpack")
    trace = run_of_files([dump], RunFiles.given(record=made.etrecord, program=made.pte)).open()
    facts = Facts(trace, profile, MS)
    (unsteady,) = insights(facts, Level.SUMMARY, only=["unsteady"])
    assert unsteady.severity is Severity.PROBLEM  # 6 of 21
    assert facts.time.total == pytest.approx(profile.total.mean())
