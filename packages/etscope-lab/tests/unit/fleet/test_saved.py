"""The saved queries, each against numbers that the Inspector gives for the same dumps."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope import Inspector
from etscope.analysis.comparison.diff import diff_traces
from etscope.analysis.comparison.waterfall import waterfall
from etscope.analysis.statistics.compare_samples import compare_samples, locations, pooled_noise
from etscope.errors import FormatError, MissingDataError, UsageError
from etscope_lab.fleet import collect, query, saved_queries
from etscope_lab.fleet.sql import parse_query, saved_query
from lab_support.dumps import record_of, saved_run
from tests.support.artifacts import artifacts

# folder -> what is special of it; of each device and commit one dump of each program
DEVICES = ("pixel", "s24", "s25", "slow")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two programs on four devices, one of which is slow, before and after a change."""
    folder = tmp_path_factory.mktemp("saved")
    seed = 0
    for program in ("cnn_portable", "transformer"):
        for place, device in enumerate(DEVICES):
            for day, commit in enumerate(("old", "new")):
                seed += 1
                slower = dict.fromkeys(range(200), 3.0) if device == "slow" else {}
                if commit == "new":
                    slower[0] = slower.get(0, 1.0) * 2
                saved_run(
                    folder / f"{program}-{device}-{commit}",
                    program,
                    seed=seed,
                    runs=4,
                    first=1.0,  # so that all runs count
                    slower=slower,
                    device=device,
                    recorded_at=f"2026-05-0{1 + day}T0{place}:00:00Z",
                    labels={"commit": commit},
                    calls=[{"warmup": 0 if program == "transformer" else 3}],
                )
    return folder


@pytest.fixture(scope="module")
def dataset(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dataset") / "ds"
    for program in ("cnn_portable", "transformer"):
        paths = [str(path) for path in sorted(runs.glob(f"{program}-*"))]
        done = collect(paths, target, etrecord=record_of(program))
        assert (done.taken, done.bad) == (8, ())
    return target


class Samples:
    """What the Inspector says of each dump: times in ms of each execution."""

    def __init__(self, runs: Path) -> None:
        self.whole: dict[tuple[str, str, str], np.ndarray[Any, Any]] = {}
        self.load: dict[tuple[str, str, str], float] = {}
        # (program, device, commit) -> op -> [calls, executions]
        self.ops: dict[tuple[str, str, str], dict[str, list[np.ndarray[Any, Any]]]] = {}
        self.delegated: dict[tuple[str, str], list[np.ndarray[Any, Any]]] = {}  # whole calls
        for folder in sorted(runs.iterdir()):
            program, device, commit = key = tuple(folder.name.split("-"))  # type: ignore[misc]
            record = artifacts(program).etrecord
            inspector = Inspector(folder / "run.etdp", etrecord=record)
            ops: dict[str, list[np.ndarray[Any, Any]]] = defaultdict(list)
            (block,) = inspector.event_blocks
            ran = {
                row.instruction_id: "+".join(dict.fromkeys(row.attribution.op_types))
                for profile in inspector.trace.profiles()
                for row in profile.rows
                if row.kind == "kernel"
            }
            for event in block.events:
                samples = event.perf_data.values
                if event.name == "Method::execute":
                    self.whole[program, device, commit] = samples
                elif event.name == "DELEGATE_CALL":
                    assert event.delegate_backend_name is not None
                    self.delegated.setdefault((program, device), []).append(samples)
                    inside = [
                        one
                        for one in block.events
                        if one.is_delegated_op and one._instruction_id == event._instruction_id
                    ]
                    rest = samples - sum(one.perf_data.values for one in inside)
                    ops[f"(rest of {event.delegate_backend_name})"].append(rest)
                elif event.is_delegated_op:
                    ops[re.sub(r" #\d+$", "", event.name)].append(samples)
                elif event.name == "OPERATOR_CALL":
                    ops[ran[event._instruction_id]].append(samples)
            self.ops[key] = ops

    def times(self, program: str, device: str, commits: tuple[str, ...] = ("old", "new")) -> Any:
        return np.concatenate([self.whole[program, device, commit] for commit in commits])

    def op(self, program: str, device: str, name: str) -> Any:
        """All calls of an operator on a device."""
        parts = [s for c in ("old", "new") for s in self.ops[program, device, c][name]]
        return np.concatenate(parts)


@pytest.fixture(scope="module")
def samples(runs: Path) -> Samples:
    return Samples(runs)


def ask(dataset: Path, name: str, **given: str) -> list[dict[str, Any]]:
    saved = saved_query(name)
    table = query(str(dataset), saved.sql, saved.values(given), timeout=None)
    assert table.names == tuple(saved.columns)
    return [dict(zip(table.names, row, strict=True)) for row in table.rows()]


def test_slowest_ops(dataset: Path, samples: Samples) -> None:
    rows = ask(dataset, "slowest-ops", top="3")
    assert len(rows) == 2 * len(DEVICES) * 3
    for program in ("cnn_portable", "transformer"):
        for device in DEVICES:
            mine = [r for r in rows if (r["model"], r["device"]) == (program, device)]
            names = {name for c in ("old", "new") for name in samples.ops[program, device, c]}
            totals = {name: samples.op(program, device, name).sum() for name in names}
            ordered = sorted(totals, key=lambda name: -totals[name])[:3]
            assert [row["op"] for row in mine] == ordered
            for row in mine:
                calls = samples.op(program, device, row["op"])
                assert row["calls"] == len(calls)
                assert row["total_ms"] == pytest.approx(calls.sum())
                assert row["mean_us"] == pytest.approx(1e3 * calls.mean())
                assert row["p50_us"] == pytest.approx(1e3 * np.percentile(calls, 50))
                assert row["p90_us"] == pytest.approx(1e3 * np.percentile(calls, 90))
                whole = samples.times(program, device).sum()
                assert row["share"] == pytest.approx(calls.sum() / whole)
    picked = ask(dataset, "slowest-ops", device="s2?", model="cnn*")
    assert {row["device"] for row in picked} == {"s24", "s25"}
    kinds = query(str(dataset), "SELECT DISTINCT kind FROM leaves ORDER BY kind")
    assert kinds.values["kind"] == ["delegated", "kernel", "rest"]


def test_drift(dataset: Path, samples: Samples) -> None:
    rows = ask(dataset, "drift", model="cnn_portable", device="pixel")
    assert [row["since"] for row in rows] == ["2026-05-01T00:00:00", "2026-05-02T00:00:00"]
    old, new = (samples.whole["cnn_portable", "pixel", commit] for commit in ("old", "new"))
    assert [row["p50_ms"] for row in rows] == pytest.approx([np.median(old), np.median(new)])
    assert [row["p90_ms"] for row in rows] == pytest.approx(
        [np.percentile(old, 90), np.percentile(new, 90)]
    )
    assert rows[0]["change"] is None
    assert rows[1]["change"] == pytest.approx(np.median(new) / np.median(old) - 1)
    assert rows[1]["change_in_all"] == rows[1]["change"]
    (month,) = ask(dataset, "drift", model="cnn_portable", device="pixel", per="month")
    assert (month["dumps"], month["executions"]) == (2, 10)


def test_op_share(dataset: Path, samples: Samples) -> None:
    rows = ask(dataset, "op-share")
    for program in ("cnn_portable", "transformer"):
        mine = {row["op"]: row for row in rows if row["model"] == program}
        whole = sum(samples.times(program, device).sum() for device in DEVICES)
        assert sum(row["share"] for row in mine.values()) == pytest.approx(1)
        accounted = 0.0
        for name in samples.ops[program, "pixel", "old"]:
            total = sum(samples.op(program, device, name).sum() for device in DEVICES)
            assert mine[name]["total_ms"] == pytest.approx(total)
            assert mine[name]["share"] == pytest.approx(total / whole)
            accounted += total
        assert mine["(the rest)"]["total_ms"] == pytest.approx(whole - accounted)
        assert len(mine) == len(samples.ops[program, "pixel", "old"]) + 1


def test_cold_vs_warm(dataset: Path, samples: Samples, tmp_path: Path) -> None:
    rows = {(row["model"], row["device"]): row for row in ask(dataset, "cold-vs-warm")}
    for device in DEVICES:
        row = rows["transformer", device]
        both = [samples.whole["transformer", device, commit] for commit in ("old", "new")]
        warm = np.median(np.concatenate([one[1:] for one in both]))
        assert row["cold_ms"] == pytest.approx(np.median([one[0] for one in both]))
        assert row["warm_ms"] == pytest.approx(warm)
        assert row["ratio"] == pytest.approx(row["cold_ms"] / warm)
        # Its first executions are not in the dump.
        other = rows["cnn_portable", device]
        assert other["cold_ms"] is None
        times = samples.times("cnn_portable", device)
        assert other["warm_ms"] == pytest.approx(np.median(times))
    made = artifacts("cnn_xnnpack")  # whose dump has the loading, too
    collect([made.etdump_timing], tmp_path / "ds", etrecord=made.etrecord)
    (row,) = ask(tmp_path / "ds", "cold-vs-warm")
    blocks = Inspector(made.etdump_timing, etrecord=made.etrecord).event_blocks
    events = [event for block in blocks for event in block.events if event.perf_data]
    loads = [event.perf_data.sum for event in events if event.name == "Program::load_method"]
    assert row["load_ms"] == pytest.approx(sum(loads)) and row["load_ms"] > 0


def test_delegates(dataset: Path, samples: Samples) -> None:
    rows = {(r["model"], r["device"], r["runs_in"]): r for r in ask(dataset, "delegates")}
    for device in DEVICES:
        assert ("cnn_portable", device, "XnnpackBackend") not in rows
        row = rows["transformer", device, "XnnpackBackend"]
        calls = np.concatenate(samples.delegated["transformer", device])
        whole = samples.times("transformer", device)
        assert row["calls"] == pytest.approx(len(calls) / len(whole))
        assert row["total_ms"] == pytest.approx(calls.sum())
        assert row["mean_ms"] == pytest.approx(calls.sum() / len(whole))
        assert row["share"] == pytest.approx(calls.sum() / whole.sum())
        assert 0 < row["share"] + rows["transformer", device, "kernels"]["share"] <= 1


def test_outlier_devices(dataset: Path, samples: Samples) -> None:
    rows = ask(dataset, "outlier-devices", threshold="10")
    assert {(row["model"], row["device"]) for row in rows if row["outlier"]} == {
        ("cnn_portable", "slow"),
        ("transformer", "slow"),
    }
    own = {d: np.median(samples.times("cnn_portable", d)) for d in DEVICES}
    fleet = np.median(list(own.values()))
    distance = np.median([abs(one - fleet) for one in own.values()])
    for row in rows:
        if row["model"] == "cnn_portable":
            assert row["p50_ms"] == pytest.approx(own[row["device"]])
            assert row["fleet_ms"] == pytest.approx(fleet)
            score = (own[row["device"]] - fleet) / (1.4826 * distance)
            assert row["score"] == pytest.approx(score, rel=1e-3)
    few = ask(dataset, "outlier-devices", devices="5")
    assert len(few) == 8 and {row["outlier"] for row in few} == {None}


def changed_runs(folder: Path, program: str, dumps: int = 1) -> list[dict[str, Any]]:
    """Runs of a commit "old", and of "new", whose first instruction is slower and second faster;
    and what the query says of the change."""
    for number in range(2 * dumps):
        commit = ("old", "new")[number // dumps]
        saved_run(
            folder / f"{commit}{number}",
            program,
            seed=number,
            runs=40,
            first=1.0,
            slower={0: 1.5, 1: 0.7, 2: 1.05} if commit == "new" else {},
            device="pixel",
            recorded_at=f"2026-05-01T0{number}:00:00Z",
            labels={"commit": commit},
        )
    found = sorted(str(path) for path in folder.glob("*/run.etdp"))
    assert collect(found, folder / "ds", etrecord=record_of(program)).taken == 2 * dumps
    return ask(folder / "ds", "changes", label="commit", before="old", after="new")


@pytest.mark.parametrize("program", ["cnn_portable", "transformer"])
def test_changes_has_the_verdicts_of_diff(program: str, tmp_path: Path) -> None:
    """Of the method, and of each operator by `etscope diff --by op`: to the last digit."""
    rows = changed_runs(tmp_path, program)
    traces = [
        Inspector(tmp_path / name / "run.etdp", etrecord=record_of(program)).trace
        for name in ("old0", "new1")
    ]
    (method,) = diff_traces(*traces).methods
    expected = {part.name: part.comparison for part in waterfall(method, "op").own}
    expected["(execute)"] = method.total.comparison
    found = {operator_of_model(row["op"]): row for row in rows}
    assert found.keys() == expected.keys() and len(rows) == len(expected)
    for name, comparison in expected.items():
        row = found[name]
        assert row["verdict"] == comparison.verdict.value, name
        assert row["reason"] == comparison.reason
        numbers = ("relative", "low", "high", "p")
        assert [row[field] for field in numbers] == pytest.approx(
            [getattr(comparison, field) for field in numbers]
        )
        assert row["before_ms"] == pytest.approx(comparison.before / 1e6)
        assert row["after_ms"] == pytest.approx(comparison.after / 1e6)
        assert row["delta_ms"] == row["after_ms"] - row["before_ms"]
        assert (row["before_runs"], row["after_runs"]) == comparison.samples == (41, 41)


def operator_of_model(op: str) -> str:
    """aten.relu.default is relu to `etscope diff --by op`."""
    return op.split(".")[1] if op.startswith("aten.") else op


def test_changes_with_several_dumps_a_side(tmp_path: Path) -> None:
    """The variation between dumps is noise: as the engine's, with the dumps of both sides."""
    rows = changed_runs(tmp_path, "cnn_portable", dumps=3)
    whole = next(row for row in rows if row["op"] == "(execute)")
    sides = [
        [
            Inspector(path).trace.profiles()[0].total
            for path in sorted(tmp_path.glob(f"{commit}*/run.etdp"))
        ]
        for commit in ("old", "new")
    ]
    noise = replace(pooled_noise([locations(side).centre for side in sides]), sides=(3, 3))
    assert noise.dumps == 5
    expected = compare_samples(*map(np.concatenate, sides), noise=noise)
    assert (whole["before_dumps"], whole["after_dumps"], whole["after_runs"]) == (3, 3, 123)
    assert (whole["low"], whole["p"]) == pytest.approx((expected.low, expected.p))
    assert whole["verdict"] == expected.verdict.value


def test_changes_from_device_to_device(dataset: Path) -> None:
    given = {"label": "device", "before": "pixel", "after": "slow"}
    rows = ask(dataset, "changes", **given, model="cnn*")
    assert {row["device"] for row in rows} == {"pixel → slow"}
    whole = next(row for row in rows if row["op"] == "(execute)")
    # Two dumps of five executions each: ten a side, which is enough for a verdict.
    assert (whole["before_dumps"], whole["before_runs"]) == (2, 10)
    assert whole["relative"] > 1 and whole["p"] is not None
    given = {"label": "commit", "before": "old", "after": "new"}
    few = ask(dataset, "changes", **given, model="cnn*", device="pixel")
    assert {row["verdict"] for row in few} == {"cannot tell"}
    assert "at least 10" in few[0]["reason"]


def test_changes_where_one_side_has_it_not(tmp_path: Path) -> None:
    for number, program in enumerate(("cnn_portable", "cnn_xnnpack")):
        saved_run(tmp_path / program, program, runs=20, seed=number, labels={"v": program})
        options = {"labels": {"model": "m"}, "etrecord": record_of(program)}
        collect([tmp_path / program], tmp_path / "ds", **options)
    given = {"label": "v", "before": "cnn_portable", "after": "cnn_xnnpack"}
    rows = {row["op"]: row for row in ask(tmp_path / "ds", "changes", **given)}
    gone, new = rows["aten.convolution.default"], rows["(rest of XnnpackBackend)"]
    assert (gone["after_ms"], gone["verdict"], gone["delta_ms"]) == (None, None, -gone["before_ms"])
    assert (new["before_ms"], new["verdict"], new["delta_ms"]) == (None, None, new["after_ms"])
    assert rows["(execute)"]["verdict"] is not None


def test_heads_and_parameters() -> None:
    for name, saved in saved_queries().items():
        assert saved.question.endswith("?") and len(saved.columns) > 3, name
        for parameter in saved.parameters:
            assert f"${parameter.name}" in saved.sql
        assert saved.details < saved.columns.keys()
    with pytest.raises(FormatError, match="line 2: invalid head line"):
        parse_query("x", "-- question: What?\n-- parm a text: b\nSELECT 1")
    for name, given, said in (
        ("changes", {}, "needs the parameter label"),
        ("changes", {"lable": "x"}, "no parameter 'lable'"),
        ("slowest-ops", {"top": "many"}, "of type int"),
        ("slow", {}, "no saved query"),
    ):
        with pytest.raises((UsageError, MissingDataError), match=said):
            saved_query(name).values(given)
