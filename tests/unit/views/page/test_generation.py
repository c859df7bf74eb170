"""The part of the report's document on a language model's calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.generation.pace import phase_times, traced_phase_table
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.capture.files import runs_of_files
from etscope.formats.etdump.reader import read_etdump
from etscope.reporting.report import ReportOptions, report_inputs
from etscope.units import TimeScale
from etscope.views.page import document as page
from etscope.views.page import document_of
from etscope.views.page.elements import table_document
from tests.support.analysis.generated_runs import PROMPT, SEEING, generated_run
from tests.support.views.page_contract import DOCUMENT_TS, Contract
from tests.support.views.page_reports import wrong_indices

MS = Scale(TimeScale.NS, TimeScale.MS)


def document(path: Path, **options: Any) -> dict[str, Any]:
    given = ReportOptions(numerics=False, **options)
    return document_of(list(report_inputs(runs_of_files([path]), given)))


def generation(path: Path, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = document(path, **options)["runs"][0]["generation"]
    return found


@pytest.mark.parametrize("methods", [("forward",), SEEING])
def test_it_is_of_the_form_that_the_page_reads(tmp_path: Path, methods: tuple[str, ...]) -> None:
    path = generated_run(tmp_path, methods=methods)
    whole = document(path)
    assert Contract(DOCUMENT_TS.read_text()).faults(whole, "ReportDocument") == []
    assert list(wrong_indices(whole["runs"][0])) == []
    found = whole["runs"][0]["generation"]
    assert len({len(column) for column in found["calls"].values()}) == 1
    profiles = Trace(read_etdump(path)).profiles()
    assert found["table"] == table_document(traced_phase_table(phase_times(profiles), MS))
    assert set(found["groups"]) == {"op", "module", "source"}
    for groups in found["groups"].values():
        assert len(groups["names"]) == len(groups["times"]) <= 9
        times = np.array(found["calls"]["time"])
        assert np.sum(groups["times"], axis=0) == pytest.approx(times)
    assert found["groups"]["op"]["names"][-1] == "(the rest)"


def test_calls_and_facts_are_those_of_the_dump(tmp_path: Path) -> None:
    run = document(generated_run(tmp_path, decodes=3))["runs"][0]
    found = run["generation"]
    calls = found["calls"]
    assert calls["position"] == [0, 6, 7, 8] * 2
    assert calls["tokens"] == [PROMPT, 1, 1, 1] * 2
    assert calls["token"] == [100, 101, 102, 103] * 2
    assert calls["step"] == [0, 0, 1, 2] * 2
    assert calls["start"][0] == 0
    assert [found["phases"][one] for one in calls["phase"][:2]] == ["prefill", "decode"]
    assert found["untraced"]["execute"][1] == pytest.approx(calls["time"][1] / 2, rel=0.01)
    sections = {section["name"]: section["table"]["values"] for section in run["summary"]}
    assert sections["generation"]["prompt_tokens"] == [PROMPT]
    assert sections["generation"]["text"] == ["a text"]
    assert sections["phases"]["phase"] == ["prefill", "decode"]
    assert sections["pace"]["first_token"][0] > 0
    assert "latency" not in sections
    assert sections["environment"]["calls"] == [None]
    told = dict(zip(run["timeline"]["runs"], run["timeline"]["tracks"], strict=True))
    assert set(told) == {None, *range(8)}
    assert told[3]["name"].startswith("forward · decode · run 3")


def test_many_calls_are_joined_and_lose_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = generated_run(tmp_path, methods=SEEING, decodes=30)
    whole = generation(path)["calls"]
    monkeypatch.setattr(page, "MOST_CALLS", 25)
    found = generation(path)
    calls = found["calls"]
    assert len(calls["time"]) < 60 < len(whole["time"]) == sum(calls["joined"])
    assert "Each point is the mean of" in found["note"]
    assert np.dot(calls["time"], calls["joined"]) == pytest.approx(sum(whole["time"]))
    assert sum(calls["tokens"]) == sum(whole["tokens"])
    for groups in found["groups"].values():
        assert np.sum(groups["times"], axis=0) == pytest.approx(np.array(calls["time"]))
    assert len(json.dumps(found)) < 25 * 500 + 10_000
    # What is joined is of one phase and method.
    kinds = zip(calls["generation"], calls["phase"], calls["method"], calls["joined"], strict=True)
    counts: dict[tuple[int, ...], int] = {}
    for *kind, joined in kinds:
        counts[tuple(kind)] = counts.get(tuple(kind), 0) + joined
    assert sorted(counts.values()) == sorted([1, 1, 1, 30, 30] * 2)


def test_what_is_chosen_or_known_alone_is_shown(tmp_path: Path) -> None:
    path = generated_run(tmp_path, decodes=20)
    found = generation(path, choose=lambda trace: trace.only("decode", range(5, 15)))
    assert found["phases"][found["calls"]["phase"][0]] == "decode"
    assert found["calls"]["number"] == list(range(5, 15))
    cycles = generation(path, source_unit="cycles")
    assert cycles["untraced"] is None
    assert cycles["pace"] is not None  # in milliseconds of its own
    assert generation(generated_run(tmp_path, noted=False)) is None  # of no language model


def test_phases_are_compared_with_the_same_phase_of_another_run(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    one, other = (generated_run(folder, methods=SEEING) for folder in folders)
    assert document(one)["comparisons"] == []
    both = document_of(
        list(report_inputs(runs_of_files([one, other]), ReportOptions(numerics=False)))
    )
    methods = [method["name"] for method in both["runs"][0]["methods"]]
    assert "text_decoder · prefill" in methods and "text_decoder · decode" in methods
    pairs = {(tuple(found["a"]), tuple(found["b"])) for found in both["comparisons"]}
    there = {((0, at), (1, at)) for at in range(len(methods))}
    assert pairs == there | {(b, a) for a, b in there}


def test_the_text_tab_of_tensorboard_has_each_phase(tmp_path: Path) -> None:
    from etscope.reporting.tensorboard import tables

    trace = Trace(read_etdump(generated_run(tmp_path, methods=SEEING)))
    heads = {tag.rpartition("/")[0] for tag in tables(trace, MS)}
    assert heads == {profile.title() for profile in trace.profiles()}
    assert {"text_decoder · prefill", "text_decoder · decode", "vision_encoder"} <= heads
