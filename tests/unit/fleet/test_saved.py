"""The saved queries, each against numbers that the Inspector gives for the same dumps."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from etscope import Inspector
from etscope.errors import UsageError
from etscope.fleet import collect, query, saved_queries
from etscope.fleet.sql import parse_query, saved_query
from tests.support.artifacts import artifacts
from tests.support.fleet.dumps import record_of, saved_run

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
            for event in block.events:
                assert event.perf_data is not None
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
                elif event.name.startswith("native_call_"):
                    ops["+".join(dict.fromkeys(event.op_types))].append(samples)
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
    table = query(str(dataset), saved.sql, saved.values(given))
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
    assert {r["device"] for r in ask(dataset, "slowest-ops", device="s2?", model="cnn*")} == {
        "s24",
        "s25",
    }


def test_leaves_add_up_to_the_delegate_calls(dataset: Path) -> None:
    sums = query(
        str(dataset),
        """
        SELECT dump_id, run, sum(duration_ns) AS ns FROM leaves GROUP BY ALL
        EXCEPT
        SELECT dump_id, run, sum(duration_ns) AS ns FROM events
        WHERE kind IN ('kernel', 'delegate') AND iteration IS NOT NULL GROUP BY ALL
        """,
    )
    assert len(sums) == 0
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


def test_cold_vs_warm(dataset: Path, samples: Samples) -> None:
    rows = {(row["model"], row["device"]): row for row in ask(dataset, "cold-vs-warm")}
    for device in DEVICES:
        row = rows["transformer", device]
        both = [samples.whole["transformer", device, commit] for commit in ("old", "new")]
        warm = np.median(np.concatenate([one[1:] for one in both]))
        assert row["cold_ms"] == pytest.approx(np.median([one[0] for one in both]))
        assert row["warm_ms"] == pytest.approx(warm)
        assert row["ratio"] == pytest.approx(row["cold_ms"] / warm)
        # Its first executions are not in the dump.
        assert rows["cnn_portable", device]["cold_ms"] is None
        assert rows["cnn_portable", device]["warm_ms"] == pytest.approx(
            np.median(samples.times("cnn_portable", device))
        )


def test_cold_vs_warm_with_loading(tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    collect([made.etdump_timing], tmp_path / "ds", etrecord=made.etrecord)
    (row,) = ask(tmp_path / "ds", "cold-vs-warm")
    inspector = Inspector(made.etdump_timing, etrecord=made.etrecord)
    loads = [
        event.perf_data.sum
        for block in inspector.event_blocks
        for event in block.events
        if event.name == "Program::load_method" and event.perf_data
    ]
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


def test_changes(dataset: Path, samples: Samples) -> None:
    rows = ask(
        dataset, "changes", label="commit", before="old", after="new", device="pixel"
    )  # fmt: skip
    cnn = {row["op"]: row for row in rows if row["model"] == "cnn_portable"}
    for name, calls in samples.ops["cnn_portable", "pixel", "old"].items():
        before = np.median(np.sum(calls, axis=0))
        after = np.median(np.sum(samples.ops["cnn_portable", "pixel", "new"][name], axis=0))
        assert cnn[name]["before_ms"] == pytest.approx(before)
        assert cnn[name]["after_ms"] == pytest.approx(after)
        assert cnn[name]["delta_ms"] == pytest.approx(after - before)
        assert cnn[name]["change"] == pytest.approx(after / before - 1)
        assert (cnn[name]["before_runs"], cnn[name]["after_runs"]) == (5, 5)
    whole = cnn["(execute)"]
    assert whole["before_ms"] == pytest.approx(
        np.median(samples.whole["cnn_portable", "pixel", "old"])
    )
    assert whole["change"] > 0


def test_heads() -> None:
    for name, saved in saved_queries().items():
        assert saved.question.endswith("?") and len(saved.columns) > 3, name
        for parameter in saved.parameters:
            assert f"${parameter.name}" in saved.sql
    with pytest.raises(ValueError, match="invalid head line"):
        parse_query("x", "-- question: What?\n-- parm a text: b\nSELECT 1")


def test_parameters() -> None:
    changes = saved_query("changes")
    with pytest.raises(UsageError, match="needs the parameter label"):
        changes.values({})
    with pytest.raises(UsageError, match="no parameter 'lable'"):
        changes.values({"lable": "x"})
    with pytest.raises(UsageError, match="of type int"):
        saved_query("slowest-ops").values({"top": "many"})
    with pytest.raises(UsageError, match="no saved query"):
        saved_query("slow")
