"""Findings: numbers are what the tables say, links pick what they say, none is of noise."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.insights import insights
from etscope.analysis.insights.leaf_times import LeafTimes
from etscope.analysis.insights.rules.delegation import ISLANDS_SHARE, coarse_clock
from etscope.analysis.insights.rules.memory import memory_of
from etscope.analysis.insights.rules.runs import outlier
from etscope.analysis.insights.rules.time import module_of_roll_up, slowest_module
from etscope.analysis.insights.steadiness import steadiness
from etscope.analysis.matching.export import Export
from etscope.analysis.matching.instructions import INSIDE_A_DELEGATE
from etscope.analysis.matching.matching import Coverage, Unpaired
from etscope.analysis.memory.file_parts import by_module
from etscope.analysis.memory.plan import memory_plan
from etscope.analysis.memory.size import sized_program
from etscope.analysis.memory.stored import WEIGHTS
from etscope.analysis.profile.counted import DRIFT_CONFIDENCE
from etscope.analysis.profile.profile import MethodProfile, Row
from etscope.analysis.profile.rollup import rollup
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.source_location import common_module
from etscope.analysis.statistics.compare_samples import Policy, compare_samples
from etscope.analysis.tables.profile_table import grouped_table, profile_table
from etscope.cli.output.tables import row_filter
from etscope.errors import FormatError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.formats.run_json import SavedRun
from etscope.model.finding import Files, Finding, Place, Quantity, Severity, ranked
from etscope.units import TimeScale, format_bytes
from tests.support.analysis.traces import open_trace
from tests.support.artifacts import artifacts

MS = Scale(TimeScale.NS, TimeScale.MS)
NAMES = (
    *("cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8", "transformer", "transformer_portable"),
    *("two_methods", "cond", "while_loop", "dynamic_shape", "bf16_fp16", "attention_xnnpack"),
    *("recurrent_xnnpack", "many_delegates", "batched_linear", "channels_last"),
    *("deconvolution", "written_state"),
)


def found_of(trace: Trace) -> list[tuple[MethodProfile, Finding]]:
    return [
        (p, one) for p in trace.profiles() for one in insights(Facts(trace, p, MS), Level.SUMMARY)
    ]


def kinds(trace: Trace) -> set[str]:
    return {finding.kind for _, finding in found_of(trace)}


@pytest.mark.parametrize("name", NAMES)
def test_numbers_links_and_commands_are_those_of_the_tables(name: str) -> None:
    trace = open_trace(name)
    found = found_of(trace)
    in_time = [(p, one) for p, one in found if one.quantity and one.quantity.unit == "ms"]
    in_memory = [one for _, one in found if one.kind in ("memory", "largest-tensor")]
    assert in_time and in_memory
    for profile, one in in_time:
        check_time(profile, one)
    for one in in_memory:
        plan = memory_plan(trace.recorded_program, one.method)
        tensors = [value.nbytes for value in plan.values]
        sizes = plan.summary().values["size"] if one.kind == "memory" else tensors
        assert one.quantity.value in sizes
        assert format_bytes(one.quantity.value) in one.sentence
    for profile, one in found:
        words = shlex.split(one.next_command(Files("run.etdp", "model.etrecord", "model.pte")))
        assert words[0] == "etscope" and "model.pte" in words
        if "--select" in words:
            table = profile_table(profile, MS, keep=row_filter(words[words.index("--select") + 1]))
            assert min(table.breaks) > 0


def check_time(profile: MethodProfile, one: Finding) -> None:
    """Fail unless the time of a finding is that of the rows or of the group it leads to."""
    if one.quantity.share is None:  # of runs that differ: no part of the time of one
        assert one.kind in ("first-run", "unsteady")
        return
    total = float(MS(profile.total).mean())
    assert 0 <= one.quantity.value <= total * (1 + 1e-9)
    assert one.quantity.share == pytest.approx(one.quantity.value / total)
    if one.place is not None and one.place.select is not None:
        keep = row_filter(one.place.select)
        picked = [leaf for group in profile.instructions for leaf in group.kept(keep)]
        assert picked, one.sentence
        times = [float(MS(leaf.ticks).mean()) for leaf in picked]
        assert sum(times) == pytest.approx(one.quantity.value)
    elif one.place is not None and one.place.by is not None:
        table = grouped_table(profile, MS, one.place.by)
        at = list(table.values[one.place.by]).index(one.place.name or "(root)")
        assert table.values["avg"][at] == pytest.approx(one.quantity.value)


def test_repeated_blocks_count_as_one_layer() -> None:
    (profile,) = open_trace("transformer_portable").profiles()

    def slow(row: Row) -> Row:  # whatever stood out when the artefact was made
        paths = {module for node in row.attribution.located for module in [common_module([node])]}
        is_up = any(str(path).endswith("mlp.up") for path in paths)
        return dataclasses.replace(row, ticks=row.ticks * 1000) if is_up else row

    one = slowest_module(LeafTimes(changed(profile, slow), MS))
    assert one.place.select == "module:blocks.*.mlp.up"
    assert "blocks.*.mlp.up (3 modules, Linear): " in one.sentence


def test_a_portable_model_has_nothing_outside_of_delegates() -> None:
    portable = kinds(open_trace("cnn_portable"))
    assert "not-delegated" in portable
    assert "outside-delegates" not in portable
    assert "not-delegated" not in kinds(open_trace("cnn_xnnpack"))
    trace = open_trace("many_delegates")
    (profile,) = trace.profiles()
    members = [row for row in profile.rows if row.kind == "kernel"]
    assert ("outside-delegates" not in kinds(trace)) == (
        sum(float(row.ticks.mean()) for row in members)
        < ISLANDS_SHARE * float(profile.total.mean())
    )


# -- what is made up for one finding


def changed(profile: MethodProfile, change: Callable[[Row], Row]) -> MethodProfile:
    return dataclasses.replace(profile, rows=tuple(map(change, profile.rows)))


def of_totals(totals: np.ndarray) -> LeafTimes:
    """A profile of these totals, in ms, of one kernel."""
    ticks = np.round(np.asarray(totals) * 1e6).astype(np.int64)
    row = Row("kernel", "mm.out", ticks, np.ones_like(ticks), instruction_id=0)
    profile = MethodProfile("forward", np.arange(len(ticks)), ticks, (row,), {}, traced=False)
    return LeafTimes(profile, MS)


def told(totals: np.ndarray) -> list[str]:
    return [one.kind for one in steadiness(of_totals(totals))]


def test_runs_that_differ_are_told() -> None:
    noise = np.random.default_rng(3).normal(1.0, 0.01, 40)
    assert told(noise) == []
    assert told(np.concatenate([[3.0], noise])) == ["first-run"]
    assert told(np.concatenate([[3.0], noise]) / 100) == ["first-run"]
    assert told(np.concatenate([[3.0], noise]) / 1000) == []  # 3 us, of 1 us
    assert told(noise[:4]) == []
    assert told(noise[:1]) == ["measured-once"]
    assert told(noise * np.where(np.arange(40) % 2, 1.0, 1.5)) == ["two-speeds"]
    assert told(noise * np.where(np.arange(40) < 20, 1.0, 1.3)) == ["drift"]
    spiked = noise.copy()
    spiked[[7, 23]] = 6.0
    assert told(spiked) == ["slow-runs"]


@pytest.mark.parametrize("events", [1, 2])
def test_one_event_of_a_coarse_clock_is_one(events: int) -> None:
    ones = np.ones(3, dtype=np.int64)
    inner = [
        Row("delegated", f"Sigmoid #{i}", 2000 * ones, ones, 0, delegate_id=i, depth=1)
        for i in range(events)
    ]
    rest = Row("unaccounted", "(rest)", 7001 * ones, ones, 0, depth=1)
    head = Row("delegate", "XnnpackBackend", (2000 * events + 7001) * ones, ones, 0)
    rows = (head, *inner, rest)
    profile = MethodProfile("forward", np.arange(3), head.ticks, rows, {}, traced=False)
    found = coarse_clock(Facts(Trace(read_etdump(artifacts("cnn_portable").etdump)), profile, MS))
    expected = "its one event" if events == 1 else "each of 2 events"
    assert f"whole microseconds: {expected} can be up to 1 us too short" in found.sentence


def test_runs_that_differ_are_told_with_what_they_had() -> None:
    noise = np.random.default_rng(3).normal(1.0, 0.01, 40)
    (one,) = steadiness(of_totals(noise * np.where(np.arange(40) % 2, 1.0, 1.5)), "2 threads")
    assert one.sentence.endswith("none lies between. They had 2 threads.")
    (one,) = steadiness(of_totals(noise[:1]), "2 threads")
    assert "threads" not in one.sentence
    content = {"threads": 2, "conditions": {"cpus": "0-1", "cores": 2, "load": 3.1}}
    assert SavedRun(content).conditions.in_words(2) == "2 threads, CPUs 0-1 of 2, load 3.10"
    assert SavedRun({"threads": 2}).conditions is None


@pytest.mark.parametrize("content", [
    {"conditions": 3}, {"conditions": {"load": "much"}}, {"conditions": {"cores": 1.5}},
    {"memory": {"peak_rss_bytes": "all"}}, {"memory": [1]}, {"conditions": {"governors": 3}},
])  # fmt: skip
def test_damaged_conditions_and_memory_are_refused(content: dict[str, Any]) -> None:
    saved = SavedRun(content)
    with pytest.raises(FormatError):
        _ = saved.conditions, saved.memory


@pytest.mark.parametrize("shape", ["normal", "uniform", "lognormal", "exponential tail"])
def test_steady_runs_of_any_shape_are_not_accused(shape: str) -> None:
    draw = np.random.default_rng(11)
    sets = {
        "normal": lambda n: draw.normal(1.0, 0.03, n),
        "uniform": lambda n: draw.uniform(0.9, 1.1, n),
        "lognormal": lambda n: draw.lognormal(0.0, 0.05, n),
        "exponential tail": lambda n: 1.0 + draw.exponential(0.03, n),
    }[shape]
    accused = [kind for size in (10, 20, 30, 100) for _ in range(100) for kind in told(sets(size))]
    assert len(accused) <= 2, accused  # of 400 sets
    assert Policy().alpha > 1 - DRIFT_CONFIDENCE


def test_the_layer_with_most_weights_is_that_of_the_table() -> None:
    files = artifacts("cnn_xnnpack_int8")
    program, record = read_pte(files.pte), read_etrecord(files.etrecord)
    export = Export(program, record)
    parts = [part for file in sized_program(export, export.edge_nodes) for part in file.parts]
    (one,) = (f for f in memory_of("forward", export, parts) if f.kind == "weights")
    rows = [row for row in by_module(parts).table.rows() if row[0] == WEIGHTS]
    sums: dict[str, int] = {}
    for _, module, _, _, size, _ in rows:
        family = re.sub(r"(^|\.)\d+(?=\.)", r"\1*", str(module or ""), count=1)
        sums[family] = sums.get(family, 0) + int(size or 0)
    assert one.quantity.value == max(sums.values())
    assert f"of {format_bytes(sum(sums.values()))}." in one.sentence
    without = list(memory_of("forward", Export(program)))
    assert without and all(f.kind != "weights" for f in without)


def test_steady_runs_are_told_without_student(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(
        "etscope.analysis.statistics.compare_samples.compare_samples",
        lambda *sides: called.append(sides) or compare_samples(*sides),
    )
    draw = np.random.default_rng(5)
    for _ in range(50):
        told(draw.normal(1.0, 0.1, 30))
    assert len(called) <= 1  # it takes milliseconds
    told(draw.normal(1.0, 0.01, 40) * np.where(np.arange(40) < 20, 1.0, 1.3))
    assert called


def test_one_run_that_makes_an_average_is_told_with_its_median() -> None:
    (profile,) = open_trace("cnn_portable").profiles()
    row = max(profile.rows, key=lambda row: float(row.ticks.mean()))
    ticks = np.full_like(row.ticks, 10)
    ticks[len(ticks) // 2] = int(row.ticks.sum())
    even_totals = np.full_like(profile.total, int(profile.total.mean()))
    profile = dataclasses.replace(profile, total=even_totals)  # no run is slow as a whole
    spoilt = changed(profile, lambda r: dataclasses.replace(r, ticks=ticks) if r is row else r)
    one = outlier(LeafTimes(spoilt, MS))
    assert one.place.instruction == row.instruction_id
    assert f"in run {int(profile.runs[len(ticks) // 2])}" in one.sentence
    even = changed(
        profile, lambda r: dataclasses.replace(r, ticks=np.full_like(r.ticks, r.ticks[0]))
    )
    assert outlier(LeafTimes(even, MS)) is None


def test_layout_changes_are_those_of_nodes_that_compute_nothing() -> None:
    for name in NAMES:
        for _, one in found_of(open_trace(name)):
            if one.kind == "layout-conversions":
                assert "conv" not in str(one.place.select)
                return
    pytest.fail("no artefact changes layouts")


def test_without_a_record_or_program_that_is_said() -> None:
    bare = Trace(read_etdump(artifacts("cnn_portable").etdump))
    found = kinds(bare)
    assert {"no-record", "no-program"} <= found
    assert "slowest-module" not in found
    assert not {"no-record", "no-program"} & kinds(open_trace("cnn_portable"))


def test_problems_come_first_and_what_is_not_known_last() -> None:
    found = [one for _, one in found_of(open_trace("cnn_xnnpack_int8"))]
    sentences = {one.kind: one.sentence for one in found}
    # `info --memory` adds these to its total.
    assert sentences["memory"].startswith("What takes most memory is ")
    assert " without delegates' packed copies; " in sentences["memory"]
    assert "no values were logged" in sentences["no-values"]
    order = [list(Severity).index(one.severity) for one in found]
    assert order == sorted(order)
    assert list(ranked(found)) == found

    def at_stake(findings: Iterable[Finding]) -> list[float]:
        shares = [one.quantity and one.quantity.share for one in findings]
        return [round(share or 0, 9) for share in shares]

    assert at_stake(ranked(found[::-1])) == at_stake(found)


def test_plain_values_of_a_finding_have_only_its_members() -> None:
    quantity = Quantity(1.5, "ms", 0.5)
    place = Place("events", select="op:mul")
    one = Finding(
        "a", Severity.COST, "It is.", "forward", quantity, place, ("inspect", "--by", "op")
    )
    where = {"view": "events", "select": "op:mul", "by": None, "name": None, "instruction": None}
    assert one.plain(Files("run.etdp")) == {
        "kind": "a",
        "severity": "cost",
        "sentence": "It is.",
        "method": "forward",
        "quantity": {"value": 1.5, "unit": "ms", "share": 0.5},
        "where": where,
        "next": "etscope inspect run.etdp --by op",
    }
    bare = Finding("a", Severity.FACT, "It is.").plain(Files())
    assert bare["quantity"] is None and bare["where"] is None and bare["next"] is None


def test_findings_of_one_share_keep_their_order() -> None:
    first, second = (
        Finding("kind", Severity.FACT, text, quantity=Quantity(1, "ms", share))
        for text, share in (("module", 0.3), ("line", 0.1 + 0.2))
    )
    assert ranked([first, second]) == (first, second)


def test_the_module_of_the_roll_up_is_told_where_no_selector_picks_it() -> None:
    (profile,) = open_trace("cnn_portable").profiles()
    module = next(one for one in rollup(profile, "module").tree() if one.depth == 1)
    one = module_of_roll_up(LeafTimes(profile, MS), module.name, "Sequential")
    assert one.quantity.value == pytest.approx(float(MS(module.average)))


def test_a_reference_inside_delegates_is_said_with_the_way_to_see_it() -> None:
    def coverage(inside: int, others: int) -> Coverage:
        reason = f"{INSIDE_A_DELEGATE} of instruction 0"
        nodes = [Unpaired(reason, "inside")] * inside + [Unpaired("a view", "view")] * others
        return Coverage(pairs=1, outputs=(), nodes=tuple(nodes), paired_nodes=1)

    hidden = coverage(299, 0).hidden
    assert "299 of 300 reference nodes are inside delegates" in hidden
    assert "etscope export -X taps" in hidden
    assert coverage(3, 9).hidden is None
