"""Records of PyTorch's benchmark database become results of a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etscope_lab.fleet import Dataset, collect, query
from lab_support.benchmark_records import RECORDS, record
from lab_support.dumps import saved_run

COLUMNS = (
    "model, device, backend, mode, state, failure, recorded_at, mean_ns, load_ns, metrics, "
    "labels['commit'] as commit, labels['config'] as config, environment['runner.type'] as os"
)


def results(dataset: Path, columns: str = COLUMNS) -> list[dict[str, Any]]:
    table = query(Dataset.open(dataset), f"select {columns} from results order by state, model")
    return [dict(zip(table.names, row, strict=True)) for row in table.rows()]


@pytest.mark.parametrize("form", ["a list", "an object a line", "one object"])
def test_a_night_of_upstream(tmp_path: Path, form: str) -> None:
    path = tmp_path / "night.json"
    lines = "\n".join(map(json.dumps, RECORDS)) + "\n"
    texts = {"a list": json.dumps(RECORDS, indent=1), "an object a line": lines}
    path.write_text(texts.get(form, json.dumps(RECORDS[2])))
    done = collect([path], tmp_path / "ds")
    *measured, failed = results(tmp_path / "ds")
    assert (done.taken, done.bad, len(measured)) == (1 + len(measured), (), form != "one object")
    assert (failed["state"], failed["failure"], failed["mean_ns"]) == ("failed", "FAILED", None)
    for found in measured:
        assert found == {
            "model": "mv3", "device": "Samsung Galaxy S22 5G", "backend": "xnnpack_q8",
            "mode": "inference", "state": "done", "failure": None,
            "recorded_at": "2025-06-01T00:00:00", "mean_ns": 4.25e6, "load_ns": 30_500_000,
            "metrics": "avg_inference_latency(ms)=4.25, model_load_time(ms)=30.5",
            "commit": "6f37fea", "config": "xnnpack_q8", "os": "Android 13",
        }  # fmt: skip
    assert collect([path], tmp_path / "ds").again == done.taken  # by their content


def test_a_folder_with_dumps_and_records(tmp_path: Path) -> None:
    """Only files of records are taken, and not the report of a dump's app, nor other JSON."""
    saved_run(tmp_path / "runs" / "0")
    (tmp_path / "runs" / "0" / "benchmark_results.json").write_text(json.dumps(RECORDS[:1]))
    (tmp_path / "runs" / "ours.json").write_text(json.dumps(RECORDS[:1]))
    (tmp_path / "runs" / "other.json").write_text('{"model": {"name": "x"}}')
    done = collect([tmp_path / "runs"], tmp_path / "ds")
    assert (done.taken, done.bad) == (2, ())
    states = [(one["model"], one["state"]) for one in results(tmp_path / "ds")]
    assert states == [("mv3", "done"), ("cnn_portable", None)]


def test_milliseconds_and_odd_fields(tmp_path: Path) -> None:
    odd = record("token_per_sec", [30, 32], benchmark_config="not JSON", job_conclusion=["x"])
    odd |= {"timestamp": 1748736000123, "runners": []}
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    collect([tmp_path / "odd.json"], tmp_path / "ds")
    (found,) = results(tmp_path / "ds", "device, state, recorded_at, metrics")
    assert found == {
        "device": "unknown", "state": "done", "recorded_at": "2025-06-01T00:00:00.123000",
        "metrics": "token_per_sec=31.0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps([RECORDS[0], {**RECORDS[1], "metric": 7}]), "record 2: metric must be"),
        (json.dumps(record("a", ["x"])), "record 1: benchmark_values must be a number"),
        (json.dumps(record("a", [])), "record 1: a does not have a value"),
        ("\n".join([json.dumps(RECORDS[0]), '{"benchmark":']), "line 2: broken JSON"),
        (json.dumps(RECORDS)[:-9], "broken JSON"),
    ],
)
def test_damaged_records_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "night.json"
    path.write_text(text)
    (bad,) = collect([path], tmp_path / "ds").bad
    assert (bad.url, bad.slug) == (str(path), "bad-file")
    assert said in bad.error
