"""Rules that look at times, work and the machine: on events of real programs, with times and
conditions as each case wants them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.insights import insights
from etscope.analysis.insights.rules.kernels import slow_products
from etscope.analysis.profile.counted import counted
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.calibration import Calibration
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.generation import DECODE
from etscope.formats.program.pte import read_pte
from etscope.formats.run_json import SavedRun
from etscope.model.finding import Explanation, Finding, Severity, Sureness
from etscope.units import TimeScale
from tests.support.analysis.exact_peaks import calibration as calibration_of
from tests.support.analysis.exact_peaks import peaks
from tests.support.artifacts import artifacts
from tests.support.timed_dumps import generated_dump, timed_dump

MS = Scale(TimeScale.NS, TimeScale.MS)


def facts(
    folder: Path,
    name: str,
    saved: Mapping[str, Any] | None = None,
    calibration: Calibration | None = None,
    **times: Any,
) -> Facts:
    """The facts of runs of an artefact. saved: the content of run.json, None for no run.json.
    times: of `timed_dump`."""
    timed_dump(events_of(name), folder / "run.etdp", **{"first": 1.0, **times})
    return opened(folder, name, saved, calibration)[0]


def events_of(name: str) -> Path:
    """A dump of the artefact's program, of times alone if there is one."""
    return artifacts(name).etdump_timing or artifacts(name).etdump


def opened(
    folder: Path, name: str, saved: Mapping[str, Any] | None, calibration: Calibration | None
) -> list[Facts]:
    made = artifacts(name)
    if saved is not None:
        (folder / "run.json").write_text(json.dumps(saved))
    trace = Trace(
        read_etdump(folder / "run.etdp"),
        record=read_etrecord(str(made.etrecord)),
        program=read_pte(made.pte),
    )
    return [Facts(trace, profile, MS, calibration) for profile in trace.profiles()]


def only(found: Facts, rule: str) -> Finding:
    """The finding of a rule, which is one."""
    (one,) = insights(found, least_share=0.0, only=[rule])
    assert one.kind == rule
    assert one.explanation.evidence
    return one


def none(found: Facts, rule: str) -> bool:
    return insights(found, least_share=0.0, only=[rule]) == ()


def words(finding: Finding) -> str:
    explained = finding.explanation
    remedies = [one.text for one in explained.remedies]
    return " ".join([finding.sentence, *explained.evidence, *remedies])


def changes(finding: Finding) -> list[tuple[str | None, dict[str, Any]]]:
    return [(one.change, dict(one.arguments)) for one in finding.explanation.remedies]


def calibrated(
    flops: float = 1e11, bandwidth: float = 1e10, dispatch: float = 100.0, call: float = 1000.0
) -> Calibration:
    return calibration_of(peaks(2, bandwidth, dispatch, call, float32=flops), cpu=None)


def conditions(**more: Any) -> dict[str, Any]:
    return {"cpus": "0-1", "cores": 2, "governors": [], "load": 0.1, **more}


def latencies(load: int, first: int, later: int, traced: int | None = None) -> list[dict[str, Any]]:
    one = {"method": "forward", "case": None, "load_ns": load, "first_ns": first}
    found = [{**one, "traced": None, "samples_ns": [later] * 5}]
    if traced is not None:
        found.append({**one, "traced": "times", "samples_ns": [traced] * 5})
    return found


def first_execution(ns: int) -> dict[str, Any]:
    return {"latencies": latencies(30_000_000, ns, 1_000_000)}


@pytest.mark.parametrize(
    ("rule", "name", "saved"),
    [
        ("first-run", "cnn_xnnpack", first_execution(1_200_000)),  # hardly longer
        ("first-run", "cnn_xnnpack", first_execution(1_900_000)),  # less than a millisecond
        ("threads", "cnn_xnnpack", None),  # it is not known how many there were
        ("threads", "cnn_xnnpack", {"threads": 1, "conditions": conditions(cpus="0", cores=2)}),
        ("threads", "cnn_xnnpack", {"threads": 1, "conditions": conditions()}),  # all is small
        ("threads", "large_products", {"threads": 2, "conditions": conditions()}),
        ("threads", "cnn_xnnpack", {"threads": 2, "conditions": conditions()}),
        ("threads", "cnn_portable", {"threads": 8, "conditions": conditions()}),
        ("unsteady", "cnn_portable", {"conditions": conditions()}),
        ("float-weights", "cnn_xnnpack", None),  # products do not limit the time
        ("float-weights", "cnn_xnnpack_int8", None),
        ("float-weights", "cnn_portable", None),
        ("whole-caches", "cnn_xnnpack", None),
        ("whole-caches", "written_state", None),  # state that is no cache
        ("outside-instructions", "cnn_portable", None),
        ("unknown-work", "cnn_xnnpack", None),
    ],
)
def test_what_is_as_it_should_be(
    tmp_path: Path, rule: str, name: str, saved: Mapping[str, Any] | None
) -> None:
    assert none(facts(tmp_path, name, saved, runs=5 if rule == "threads" else 60), rule)


# -- the runs that are counted


def test_times_are_of_the_runs_that_nothing_interrupted(tmp_path: Path) -> None:
    known = facts(tmp_path, "cnn_xnnpack", first=6.0)
    total = known.profile.every.total
    is_slow = total >= 1.5 * np.median(total)
    assert is_slow.sum() == 1
    assert known.time.total == pytest.approx(total[~is_slow].mean())
    members = known.time.members
    assert known.time.share(known.time.ticks(members)) <= 1.0
    measured = Explanation(Sureness.MEASURED, ())
    one = known.part("threads", "It takes time.", known.profile.total, (), measured)
    assert one.quantity is not None and one.quantity.share == pytest.approx(1.0)
    assert one.explanation.high < known.scale(total.mean())  # the slow run is in no interval


# -- portable-kernels


def test_convolutions_of_the_package_run_on_portable_kernels(tmp_path: Path) -> None:
    """Where nothing is delegated, it is said once, with the rates of slow products."""
    known = facts(tmp_path, "cnn_portable", {"runner": "python"})
    assert none(known, "portable-kernels")
    slow = slow_products(known)
    assert slow is not None and slow.is_known
    assert {leaf.name for _, leaf in slow.members} <= {"convolution.out", "addmm.out"}
    one = only(known, "not-delegated")
    assert "have no optimized one" in words(one)
    assert words(one).count("--backend xnnpack") == 1
    assert changes(one) == [("backend", {"backend": "xnnpack"})]


def test_products_of_an_unknown_runner_may_be_linked_otherwise(tmp_path: Path) -> None:
    known = facts(tmp_path, "transformer_portable")
    slow = slow_products(known)
    assert slow is not None and not slow.is_known
    one = only(known, "not-delegated")
    assert "Which kernels the runner was linked with is not known" in words(one)
    assert "preserve_ops=[torch.ops.aten.linear.default]" in words(one)
    products = {leaf.name for _, leaf in slow.members}
    has_optimised = bool(products & {"mm.out", "bmm.out"})
    assert (("kernels", {"library": "optimized"}) in changes(one)) == has_optimised


def test_a_product_that_reaches_the_peak_is_on_no_portable_kernel(tmp_path: Path) -> None:
    slow_machine = calibrated(flops=1e8)
    assert slow_products(facts(tmp_path, "cnn_portable", None, slow_machine)) is None
    assert slow_products(facts(tmp_path, "cnn_xnnpack")) is None


# -- first-run


def test_the_first_run_of_a_dump_that_nothing_warmed(tmp_path: Path) -> None:
    known = long_first(facts(tmp_path, "cnn_xnnpack"))
    one = only(known, "first-run")
    assert one.severity is Severity.FACT
    total = known.profile.every.total
    assert one.quantity.value == pytest.approx(MS(total[0] - np.median(total[1:])))
    assert one.quantity.share is None  # it is in no average
    assert "times the median of the 60 later ones" in one.sentence
    assert one.sentence.endswith("It is excluded.")
    assert one.explanation.sites
    every = replace(known, profile=known.profile.every)
    assert only(every, "first-run").severity is Severity.PROBLEM
    assert "all averages hold it" in only(every, "first-run").sentence
    # Of a saved run, loading is the time that `etscope run` shows: without tracing.
    saved = {"runner": "python", "latencies": latencies(30_000_000, 9_000_000, 1_000_000)}
    known = long_first(facts(tmp_path, "cnn_xnnpack", saved))
    assert "Loading took 30 ms" in words(only(known, "first-run"))


def test_the_first_execution_before_the_dump(tmp_path: Path) -> None:
    saved = {"runner": "python", "latencies": latencies(30_000_000, 9_000_000, 1_000_000)}
    one = only(facts(tmp_path, "cnn_xnnpack", saved), "first-run")
    assert one.severity is Severity.FACT
    assert one.quantity.value == pytest.approx(8.0)
    assert one.sentence == "The first execution takes 8 ms (88.9%) longer than later ones."
    assert "as long as 30 later runs: there XNNPACK packs its weights" in words(one)
    assert "weight_cache_enabled" in words(one)


def test_a_slow_run_after_a_warm_up_is_no_first_one(tmp_path: Path) -> None:
    call = {"method": "forward", "iterations": 60, "warmup": 3, "inputs_from": None}
    found = long_first(facts(tmp_path, "cnn_xnnpack", {"calls": [call]}))
    assert none(found, "first-run")
    assert found.profile.excluded.warmup == 0 and found.profile.excluded.disturbed == 1
    assert none(found, "unsteady")  # one of 61, which is excluded
    saved = found.trace
    in_memory = replace(saved, calls=saved.known_calls, ran=SavedRun({}))
    assert in_memory.warmups("forward") == saved.warmups("forward") == [3]


# -- threads


def test_more_threads_than_cores(tmp_path: Path) -> None:
    saved = {"threads": 8, "conditions": conditions()}
    one = only(facts(tmp_path, "cnn_xnnpack", saved), "threads")
    assert "8 threads share 2 cores" in one.sentence
    assert one.severity is Severity.COST
    assert one.explanation.sureness is Sureness.LIKELY
    assert changes(one) == [("threads", {"threads": 2})]


def test_one_thread_for_large_operators(tmp_path: Path) -> None:
    saved = {"threads": 1, "conditions": conditions(cpus="0-3", cores=4)}
    one = only(facts(tmp_path, "large_products", saved, runs=5), "threads")
    assert "3 cores could help" in one.sentence
    assert "GFLOP/s" in words(one)
    assert changes(one) == [("threads", {"threads": 4})]


# -- unsteady


def test_a_drift_of_all_operators_is_the_machine(tmp_path: Path) -> None:
    found = facts(tmp_path, "cnn_portable", {"conditions": conditions(governors=["powersave"])})
    drifted = slowed(found, np.where(np.arange(61) < 30, 1.0, 1.3))
    one = only(drifted, "unsteady")
    assert one.severity is Severity.PROBLEM
    assert "Runs get slower" in one.sentence
    assert "governor powersave" in one.sentence
    assert "the cause is the machine, not the model" in words(one)
    assert "cpupower frequency-set -g performance" in words(one)


def test_two_speeds_of_one_operator_are_not_the_machine(tmp_path: Path) -> None:
    found = facts(tmp_path, "cnn_portable", {"conditions": conditions(load=3.0)})
    factors = np.where(np.arange(len(found.profile.runs)) % 2, 2.0, 1.0)
    one = only(slowed(found, factors, only_longest=True), "unsteady")
    assert "two speeds" in one.sentence
    assert "not the model" not in words(one)
    assert "the load was 3.00 on 2 cores" in words(one)


@pytest.mark.parametrize(("runs", "is_asked"), [(40, True), (120, False)])
def test_disturbed_runs_have_no_share_and_enough_are_enough(
    tmp_path: Path, runs: int, is_asked: bool
) -> None:
    """They are not among the runs that a share is of; nor is advised what was done."""
    found = facts(tmp_path, "cnn_portable", runs=runs)
    places = np.arange(len(found.profile.runs))
    one = only(slowed(found, np.where(places % 9 == 4, 8.0, 1.0)), "unsteady")
    assert "were disturbed" in one.sentence
    assert one.quantity is not None and one.quantity.share is None
    assert ("Run more often: `--iterations 100`." in words(one)) == is_asked


def long_first(found: Facts) -> Facts:
    """The facts with a first run that takes five times as long."""
    return slowed(found, np.where(np.arange(len(found.profile.runs)) == 0, 5.0, 1.0))


def slowed(found: Facts, factors: Any, only_longest: bool = False) -> Facts:
    """The facts with the times of each run by a factor: of all rows, or of the longest alone."""
    profile = found.profile
    longest = max(profile.rows, key=lambda row: int(row.ticks.sum()))
    rows, more = [], np.zeros(len(factors))
    for row in profile.rows:
        ticks = row.ticks
        if not only_longest or row is longest:
            ticks = (row.ticks * factors).astype(np.int64)
        if row.depth == 0:
            more = more + (ticks - row.ticks)
        rows.append(replace(row, ticks=ticks))
    total = profile.total + more.astype(np.int64)
    changed = replace(profile, rows=tuple(rows), total=total)
    warmed_up = any(found.trace.warmups("forward"))
    return replace(found, profile=counted(changed, is_warmed_up=warmed_up))


# -- small-operators


def test_kernels_with_next_to_nothing_to_do(tmp_path: Path) -> None:
    found = facts(tmp_path, "recurrent_xnnpack", None, calibrated(dispatch=8000.0))
    one = only(found, "small-operators")
    assert "kernels have so little to do" in one.sentence
    assert "a kernel takes 8 us by the calibration" in words(one)
    assert "a loop, which export unrolls" in words(one)
    assert one.explanation.sites
    assert one.explanation.low <= one.quantity.value <= one.explanation.high


def test_the_cost_of_calls_by_a_calibration(tmp_path: Path) -> None:
    found = facts(tmp_path, "transformer", None, calibrated(dispatch=1e-3, call=5000.0))
    one = only(found, "small-operators")
    assert "delegate calls have so little to do" in one.sentence
    assert "takes 5 us by the calibration" in words(one)
    calls = int(one.sentence.split()[0])
    assert one.quantity.value <= calls * 0.005 * 1.001


def test_calls_that_have_something_to_do(tmp_path: Path) -> None:
    assert none(facts(tmp_path, "cnn_portable"), "small-operators")
    fast_machine = calibrated(dispatch=1e-3, call=1e-3)
    assert none(facts(tmp_path, "recurrent_xnnpack", None, fast_machine), "small-operators")


# -- memory-bound


def decode(folder: Path, calibration: Calibration | None, name: str = "llama_generate") -> Facts:
    generated_dump(events_of(name), folder / "run.etdp", [40] + [1] * 12)
    every = opened(folder, name, None, calibration)
    return next(one for one in every if one.profile.phase == DECODE)


def waiting(found: Facts, share: float | None) -> Facts:
    """The facts with so long products of weights that they have most of the time of decode, on a
    machine of which they reach a share of the bandwidth; of None, on one that is not calibrated."""

    def products(known: Facts) -> list[Any]:
        delegated = [one for one in known.time.members if one[1].kind == "delegated"]
        return [one for one in delegated if known.work_of(one).traffic.weights]

    profile, longer = found.profile, {id(leaf) for _, leaf in products(found)}
    rows, more = [], np.zeros_like(profile.total)
    for group in profile.instructions:
        parts = sum(id(row) in longer for row in group.below)
        rows.append(replace(group.head, ticks=group.head.ticks + parts * 1_000_000))
        for row in group.below:
            is_longer = id(row) in longer
            rows.append(replace(row, ticks=row.ticks + 1_000_000) if is_longer else row)
        more += parts * 1_000_000
    made = replace(found, profile=replace(profile, rows=tuple(rows), total=profile.total + more))
    if share is None:
        return made
    members = products(made)
    weights = sum(made.work_of(one).traffic.weights for one in members)
    rate = weights / made.time.ticks(members) * 1e9
    return replace(made, calibration=calibrated(bandwidth=rate / share))


def test_decode_at_the_bandwidth_of_the_machine_waits_for_weights(tmp_path: Path) -> None:
    found = decode(tmp_path, None)
    slow = replace(found, calibration=calibrated(bandwidth=1e6))
    assert none(slow, "memory-bound")  # weights take little of the time
    one = only(waiting(found, 0.8), "memory-bound")
    assert one.explanation.sureness is Sureness.LIKELY
    assert "of float32 weights" in words(one)
    assert "80.0% of the" in words(one)
    assert ("quantize", {"scheme": "8da4w"}) in changes(one)
    far = only(waiting(found, 0.3), "memory-bound")
    assert far.explanation.sureness is Sureness.POSSIBLE
    assert none(waiting(found, 0.1), "memory-bound")
    assert none(waiting(found, None), "memory-bound")  # these weights fit a cache


def test_decode_with_weights_of_four_bits_has_no_smaller_ones(tmp_path: Path) -> None:
    found = decode(tmp_path, None, "llama_generate_8da4w")
    members = [m for m in found.time.members if found.work_of(m).traffic.weights]
    assert any("8da4w" in dict(found.work_of(one).dtypes) for one in members)
    assert none(waiting(found, 0.8), "memory-bound")


# -- float-weights


def test_products_that_take_the_time_may_be_quantized(tmp_path: Path) -> None:
    one = only(facts(tmp_path, "large_products", runs=5), "float-weights")
    assert one.explanation.sureness is Sureness.POSSIBLE
    assert changes(one) == [("quantize", {"scheme": "int8"}), ("quantize", {"scheme": "8da4w"})]
    assert "FLOPs for each byte" in words(one)


def test_what_bounds_products_by_a_calibration(tmp_path: Path) -> None:
    saved = {"threads": 2}
    found = facts(tmp_path, "large_products", saved, calibrated(flops=1e11), runs=5)
    one = only(found, "float-weights")
    assert "by the calibration: they reach" in words(one)
    unreached = calibrated(flops=1e13, bandwidth=1e13)
    assert none(facts(tmp_path, "large_products", None, unreached, runs=5), "float-weights")


# -- whole-caches


def test_caches_that_are_copied_in_each_call(tmp_path: Path) -> None:
    found = decode(tmp_path, None)
    others = [one.sentence for one in insights(found, least_share=0.0, only=["needless-copies"])]
    assert others
    assert not any("copied twice" in sentence for sentence in others)  # it is said once
    one = only(found, "whole-caches")
    assert {site.name for site in one.explanation.sites} == {"index_put.out", "copy_"}
    assert "4 KV caches are copied whole in each call" in one.sentence
    assert "run_reinplace_pass=True" in words(one)


# -- outside-instructions, delegate-rest


def unaccounted(found: Facts, factor: float) -> Facts:
    """The facts with more time outside of instructions: a factor on all that is inside."""
    profile = found.profile
    inside = profile.total - profile.unaccounted
    total = (inside * factor).astype(np.int64)
    return replace(found, profile=replace(profile, total=total))


def test_time_that_no_instruction_accounts_for_is_held_against_a_run_without_tracing(
    tmp_path: Path,
) -> None:
    found = unaccounted(facts(tmp_path, "cnn_portable"), 1.5)
    one = only(found, "outside-instructions")
    assert one.quantity.share == pytest.approx(1 / 3, abs=1e-3)
    assert one.explanation.sureness is Sureness.POSSIBLE
    assert "own work between them, and what tracing costs" in one.sentence
    traced = int(np.median(found.profile.total))
    outside = int(np.median(found.profile.unaccounted))

    def beside(without: int) -> Facts:
        saved = {"latencies": latencies(1, without, without, traced)}
        return unaccounted(facts(tmp_path, "cnn_portable", saved), 1.5)

    assert none(beside(traced - outside), "outside-instructions")  # it is the tracing
    one = only(beside(traced), "outside-instructions")  # it is the runtime
    assert one.explanation.sureness is Sureness.LIKELY
    assert "tracing costs" not in one.sentence
    assert "Without tracing the median run takes" in words(one)


def test_the_rest_of_delegate_calls_without_what_events_round_off(tmp_path: Path) -> None:
    one = only(facts(tmp_path, "many_delegates"), "delegate-rest")
    assert "of 2 delegate calls" in one.sentence
    assert "of a call is in none of them" in words(one)
    assert none(facts(tmp_path, "large_products", runs=5), "delegate-rest")
    assert none(facts(tmp_path, "cnn_portable"), "delegate-rest")


# -- unknown-work


def test_the_share_of_operators_whose_work_is_not_known(tmp_path: Path) -> None:
    one = only(facts(tmp_path, "many_delegates"), "unknown-work")
    assert one.severity is Severity.UNKNOWN
    assert "aten.topk" in one.sentence
    assert 0 < one.quantity.share < 1


# -- without what a rule needs


def test_rules_without_record_and_program_say_nothing_of_work(tmp_path: Path) -> None:
    timed_dump(events_of("cnn_portable"), tmp_path / "run.etdp", first=1.0)
    (profile,) = (trace := Trace(read_etdump(tmp_path / "run.etdp"))).profiles()
    kinds: Sequence[str] = [
        one.kind for one in insights(Facts(trace, profile, MS), least_share=0.0)
    ]
    assert set(kinds) <= {"not-delegated"}
