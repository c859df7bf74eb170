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
    code, out, err = run("convert", files.etdump, "-r", files.etrecord, "-o", target)
    assert (code, out, err) == (0, "", "")


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
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    convert(run, name, tmp_path / "run.pftrace")

    trace = pb2.Trace.FromString((tmp_path / "run.pftrace").read_bytes())

    names: dict[int, str] = {}
    open_slices: dict[int, list[tuple[str, int]]] = defaultdict(list)
    found: dict[str, float] = defaultdict(float)
    for packet in trace.packet:
        names.update((entry.iid, entry.name) for entry in packet.interned_data.event_names)
        event = packet.track_event
        if event.type == event.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append((names[event.name_iid], packet.timestamp))
        elif event.type == event.TYPE_SLICE_END:
            slice_name, start = open_slices[event.track_uuid].pop()
            found[slice_name] += packet.timestamp - start
    assert not any(open_slices.values())
    assert dict(found) == pytest.approx(totals(name))


def test_perfetto_slices_tell_handle_module_and_line(run: Run, tmp_path: Path) -> None:
    convert(run, "cnn_portable", tmp_path / "run.pftrace")

    content = (tmp_path / "run.pftrace").read_bytes()

    assert b"debug_handle" in content and b"stem.conv" in content and b"cnn.py:" in content


@pytest.mark.parametrize("name", NAMES)
def test_chrome_totals_are_ours(run: Run, tmp_path: Path, name: str) -> None:
    convert(run, name, tmp_path / "run.json")

    found: dict[str, float] = defaultdict(float)
    for event in json.loads((tmp_path / "run.json").read_text())["traceEvents"]:
        if event["ph"] == "X":
            found[event["name"]] += event["dur"] * 1000
    assert dict(found) == pytest.approx(totals(name))


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


def test_an_unknown_suffix_is_refused(run: Run, tmp_path: Path) -> None:
    code, _, err = run("convert", artifacts("cnn_portable").etdump, "-o", tmp_path / "run.docx")

    assert code == 2
    assert "suffixes are" in err
    assert not list(tmp_path.iterdir())
