"""Phases of a dump: the numbers of the table are those of the dump, also where `inspect` shows
them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.generation.pace import phase_times, traced_phase_table
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.units import TimeScale
from tests.support.analysis.generated_runs import PROMPT, SEEING, generated_run
from tests.support.cli.fixtures import Run

MS = Scale(TimeScale.NS, TimeScale.MS)


def rows_of(path: Path, scale: Scale = MS) -> list[dict[str, Any]]:
    table = traced_phase_table(phase_times(Trace(read_etdump(path)).profiles()), scale)
    return [dict(zip(table.names, row, strict=True)) for row in table.rows()]


def profile_of(path: Path, phase: str) -> MethodProfile:
    return next(one for one in Trace(read_etdump(path)).profiles() if one.phase == phase)


def test_the_numbers_are_those_of_the_dump(tmp_path: Path) -> None:
    path = generated_run(tmp_path)
    prefill, decode = rows_of(path)
    for row, tokens, calls in ((prefill, 2 * PROMPT, 2), (decode, 80, 80)):
        total = profile_of(path, row["phase"]).total / 1e6
        assert (row["method"], row["calls"], row["tokens"]) == ("forward", calls, tokens)
        assert row["time"] == pytest.approx(total.sum())
        assert row["call_mean"] == pytest.approx(total.mean())
        assert row["call_p95"] == pytest.approx(np.percentile(total, 95))
        assert row["token_p50"] == pytest.approx(np.percentile(total / (tokens / calls), 50))
        assert row["token_mean"] == pytest.approx(total.sum() / tokens)
        assert row["rate_mean"] == pytest.approx(tokens / total.sum() * 1e3)
        assert row["rate_p95"] == pytest.approx(1e3 / row["token_p95"])
    assert prefill["share"] + decode["share"] == pytest.approx(1)


def test_methods_of_a_phase_add_up(tmp_path: Path) -> None:
    rows = rows_of(generated_run(tmp_path, methods=SEEING))
    assert [(row["phase"], row["method"]) for row in rows] == [
        ("vision_encoder", "vision_encoder"),
        ("prefill", None),
        ("prefill", "token_embedding"),
        ("prefill", "text_decoder"),
        ("decode", None),
        ("decode", "token_embedding"),
        ("decode", "text_decoder"),
    ]
    assert rows[0]["tokens"] is None and rows[0]["rate_mean"] is None
    for whole, *parts in (rows[1:4], rows[4:7]):
        assert whole["calls"] == sum(one["calls"] for one in parts)
        assert whole["time"] == pytest.approx(sum(one["time"] for one in parts))
        assert whole["tokens"] == parts[0]["tokens"] == parts[1]["tokens"]  # each token once
        assert whole["call_mean"] is None  # of different calls
    of_methods = [row for row in rows if row["method"] is not None]
    assert sum(row["share"] for row in of_methods) == pytest.approx(1)


def test_cycles_have_no_rates_and_unknown_phases_no_rows(tmp_path: Path) -> None:
    unknown = tmp_path / "unknown"
    unknown.mkdir()
    assert rows_of(generated_run(unknown, noted=False)) == []
    cycles = Scale(TimeScale.CYCLES, TimeScale.CYCLES)
    rows = rows_of(generated_run(tmp_path), cycles)
    assert all("rate_mean" not in row for row in rows)
    assert rows[1]["token_mean"] == pytest.approx(rows[1]["time"] / 80)


# -- as `etscope inspect` shows them


def inspect(run: Run, *arguments: object) -> str:
    code, out, _ = run("inspect", *arguments)
    assert code == 0
    return out


@pytest.mark.parametrize("width", [80, 140])
def test_the_phases_come_first(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(generated_run(tmp_path, methods=SEEING).parent)
    lines = inspect(run, ".", "-n", 1).splitlines()
    assert lines[0] == "Phases of the calls"
    first_profile = next(n for n, line in enumerate(lines) if line.startswith("vision_encoder · "))
    told = lines[:first_profile]
    assert any(line.split()[:2] == ["decode", "160"] for line in told)
    assert any("text_decoder" in line for line in told)
    assert all(len(line) <= width for line in told)


def test_json_has_the_same_numbers(run: Run, tmp_path: Path) -> None:
    path = generated_run(tmp_path)
    document = json.loads(inspect(run, path, "-f", "json", "-n", 1))
    for found, row in zip(document["phases"], rows_of(path), strict=True):
        assert found["calls"] == row["calls"]
        assert found["time_ms"] == row["time"]
        assert found["rate_p50_tokens_s"] == row["rate_p50"]


def test_only_what_is_chosen_is_counted(run: Run, tmp_path: Path) -> None:
    path = generated_run(tmp_path)

    def phases(*options: object) -> list[tuple[str, int]]:
        document = json.loads(inspect(run, path, "-f", "json", "-n", 1, *options))
        return [(one["phase"], one["calls"]) for one in document["phases"]]

    assert phases("--calls", "decode") == [("decode", 80)]
    assert phases("--calls", "0..9") == [("prefill", 1), ("decode", 9)]
    assert phases("--calls", "decode,0..9") == [("decode", 9)]


@pytest.mark.parametrize("options", [("--select", "name:op3*"), ("--columns", "event,avg")])
def test_what_was_asked_for_stands_alone(
    run: Run, tmp_path: Path, options: tuple[str, str]
) -> None:
    out = inspect(run, generated_run(tmp_path), *options)
    assert "Phases of the calls" not in out
    assert "op3.out" in out
