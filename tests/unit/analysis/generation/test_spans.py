"""The tokens of a language model in traces: a span for each call, in one for its phase."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from etscope.analysis.generation.traced import traced_calls, with_generation
from etscope.analysis.profile.timeline import timeline
from etscope.analysis.profile.trace import Trace
from etscope.cli import main
from etscope.formats.etdump.reader import read_etdump
from etscope.views.traces import nest_spans
from tests.support.analysis.generated_runs import SEEING, generated_run


def trace_of(path: Path) -> Trace:
    return Trace(read_etdump(path))


def test_calls_are_named_by_phase_and_token(tmp_path: Path) -> None:
    calls = traced_calls(trace_of(generated_run(tmp_path, decodes=3)))
    names = [calls.name(at) for at in range(len(calls))]
    decodes = [f"decode {number}: position {6 + number}" for number in range(3)]
    assert names == ["prefill 0: positions 0..5", *decodes] * 2
    assert calls.chosen.tolist() == [100, 101, 102, 103] * 2
    drawn = traced_calls(trace_of(generated_run(tmp_path, decodes=3, temperature=1.0)))
    assert set(drawn.chosen.tolist()) == {-1}  # they are not told
    assert calls.generation.tolist() == [0] * 4 + [1] * 4


def test_a_call_is_the_same_one_when_others_are_left_out(tmp_path: Path) -> None:
    trace = trace_of(generated_run(tmp_path, methods=SEEING))
    every, some = traced_calls(trace), traced_calls(trace.only("decode", range(60, 70)))
    assert some.number.tolist() == list(range(60, 70))
    assert [some.name(at) for at in range(10)] == [every.name(at) for at in range(60, 70)]
    assert some.chosen.tolist() == every.chosen[60:70].tolist()


def test_phases_hold_their_calls(tmp_path: Path) -> None:
    trace = trace_of(generated_run(tmp_path, methods=SEEING, decodes=5))
    plain = timeline(trace)
    found = with_generation(plain, trace)
    assert found.tracks[0].name == "generation" and found.tracks[1].name == "runtime"
    assert len(nest_spans(found).tracks) == len(plain.tracks) + 1  # nothing crosses
    mine = found.track == 0
    assert mine.sum() == 2 * 3 + 2 * (1 + 2 * 6)
    names = [found.names[one] for one in found.name_id[mine].tolist()]
    assert names[:3] == ["vision_encoder", "vision_encoder 0", "prefill"]
    executed = [n for n, name in enumerate(plain.names) if name == "Method::execute"]
    events = np.isin(plain.name_id, executed)
    calls = mine & np.array(
        [": " in found.names[n] or " 0" in found.names[n] for n in found.name_id]
    )
    assert sorted(found.start[calls]) == sorted(plain.start[events])
    assert sorted(found.end[calls]) == sorted(plain.end[events])
    # All else is as it was.
    assert [found.names[n] for n in found.name_id[~mine]] == [plain.names[n] for n in plain.name_id]


def test_another_dump_is_left_alone(tmp_path: Path) -> None:
    trace = trace_of(generated_run(tmp_path, noted=False))
    plain = timeline(trace)
    assert with_generation(plain, trace) is plain


@pytest.mark.parametrize("suffix", [".json", ".speedscope.json"])
def test_convert_writes_them(tmp_path: Path, suffix: str) -> None:
    path, out = generated_run(tmp_path, decodes=3), tmp_path / f"trace{suffix}"
    assert main(["convert", str(path), "-o", str(out)]) == 0
    if suffix == ".speedscope.json":  # a flame graph would count each call twice
        assert "decode" not in out.read_text()
        return
    events = json.loads(out.read_text())["traceEvents"]
    (call,) = [one for one in events if one["name"] == "decode 1: position 7"][:1]
    assert call["args"] == {
        "phase": "decode",
        "call": 2,
        "generation": 0,
        "method": "forward",
        "position": 7,
        "tokens": 1,
        "generated_id": 102,
    }
    (phase,) = [one for one in events if one["name"] == "decode"][:1]
    assert phase["args"] == {"generation": 0, "calls": 3, "generated": 3, "text": "a text"}
