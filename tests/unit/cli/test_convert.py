"""`etscope convert`: files for other tools say what the dump says."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest

from etscope import Inspector
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run

NAMES = ("cnn_xnnpack", "transformer", "two_methods", "while_loop")


def convert(run: Run, name: str, target: Path) -> None:
    files = artifacts(name)
    assert run("convert", files.etdump, "-r", files.etrecord, "-o", target) == (0, "", "")


def totals(name: str) -> dict[str, float]:
    """Nanoseconds of each event name over all runs, by the Inspector."""
    inspector = Inspector(
        etdump_path=artifacts(name).etdump,
        debug_buffer_path=artifacts(name).debug_buffer,
        target_time_scale="ns",
    )
    found: dict[str, float] = defaultdict(float)
    for block in inspector.event_blocks:
        for event in block:
            if event.perf_data is not None:
                found[event.name] += event.perf_data.sum
    return dict(found)


@pytest.mark.parametrize("name", NAMES)
def test_perfetto_totals_are_ours(run: Run, tmp_path: Path, name: str) -> None:
    pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    from tests.support.views.trace_checks import check_trace

    convert(run, name, tmp_path / "run.pftrace")
    trace = check_trace((tmp_path / "run.pftrace").read_bytes())
    assert dict(trace.totals()) == pytest.approx(totals(name))
    if name == "transformer":
        told = [one.args for one in trace.slices if "module" in one.args]
        assert any(args["module"].startswith("blocks.0.") for args in told)
        assert all("debug_handle" in args for args in told)
        assert any("transformer.py:" in args["source"] for args in told)


@pytest.mark.parametrize("name", NAMES)
def test_chrome_totals_are_ours(run: Run, tmp_path: Path, name: str) -> None:
    convert(run, name, tmp_path / "run.json")
    found: dict[str, float] = defaultdict(float)
    for event in json.loads((tmp_path / "run.json").read_text())["traceEvents"]:
        if event["ph"] == "X":
            found[event["name"]] += event["dur"] * 1000
    assert dict(found) == pytest.approx(totals(name))
    code, _, err = run("convert", artifacts(name).etdump, "-o", tmp_path / "run.docx")
    assert (code, "suffixes are" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("name", NAMES)
def test_tables_hold_every_event(run: Run, tmp_path: Path, name: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for suffix in ("csv", "jsonl", "parquet"):
        convert(run, name, tmp_path / f"run.{suffix}")
    tables = {
        "csv": list(csv.DictReader((tmp_path / "run.csv").open(newline=""))),
        "jsonl": [json.loads(line) for line in (tmp_path / "run.jsonl").open()],
        "parquet": parquet.read_table(tmp_path / "run.parquet").to_pylist(),
    }
    for rows in tables.values():
        column = next(key for key in rows[0] if key.startswith("elapsed"))
        found: dict[str, float] = defaultdict(float)
        for row in rows:
            found[row["event"]] += float(row[column])
        assert dict(found) == pytest.approx(totals(name))
