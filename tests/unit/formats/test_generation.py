"""The key `generation` of a run.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import FormatError
from etscope.formats.generation import (
    Generation,
    GenerationCalls,
    GenerationPass,
    Sampler,
    parse_generation,
)
from etscope.formats.json_values import JsonValue
from etscope.formats.run_json import (
    encode_run_json,
    saved_calls,
    saved_executions,
    saved_generation,
    saved_methods,
)


def calls(*phases: int) -> GenerationCalls:
    count = len(phases)
    tokens = np.array([3 if phase == 0 else 1 for phase in phases], np.int64)
    return GenerationCalls(
        methods=("forward",),
        phases=("prefill", "decode"),
        run=np.zeros(count, np.int64),
        method=np.zeros(count, np.int64),
        phase=np.array(phases, np.int64),
        position=np.cumsum(tokens) - tokens,
        tokens=tokens,
        start_ns=np.arange(count, dtype=np.int64) * 100,
        execute_ns=np.full(count, 90, np.int64),
        sampling_ns=np.full(count, 5, np.int64),
    )


def generation() -> Generation:
    return Generation(
        prompt_tokens=np.array([1, 2, 3], np.int64),
        generated_tokens=np.array([4, 5], np.int64),
        passes=(GenerationPass(None, 7, calls(0, 1)), GenerationPass("times", 8, calls(0, 1, 1))),
        runs=1,
        stopped_by="length",
        context_length=16,
        vocabulary_size=32,
        sampler=Sampler(0.7, 5, 0.9, 3),
        inputs={"forward": ("tokens", "position")},
    )


def test_what_is_written_is_read() -> None:
    written = generation().to_json()
    read = parse_generation(JsonValue(json.loads(json.dumps(written))))
    assert read.to_json() == written
    assert read.sampler == Sampler(0.7, 5, 0.9, 3)
    times = read.of_pass("times")
    assert times is not None and times.calls.in_phase("decode").tolist() == [False, True, True]
    assert times.calls.select(times.calls.in_phase("decode")).position.tolist() == [3, 4]
    assert read.of_pass("values") is None


def test_the_calls_of_a_saved_dump(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(encode_run_json({"generation": generation().to_json()}))
    dump = tmp_path / "run.etdp"
    assert saved_executions(dump) == ("forward",) * 3
    assert saved_methods(dump) == ("forward",)
    assert [call.runs for call in saved_calls(dump)] == [1, 1, 1]
    found = saved_generation(dump)
    assert found is not None and found[1].phase.tolist() == [0, 1, 1]
    assert saved_generation(tmp_path / "values.etdp") is None  # no pass recorded values
    assert saved_generation(tmp_path / "other.etdp") is None


def changed(path: str, value: Any) -> dict[str, Any]:
    given = generation().to_json()
    at: Any = given
    *way, last = path.split("/")
    for key in way:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[last] = value
    return given


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("prompt_tokens", 3, "an array, found 3"),
        ("prompt_tokens", [1.5], "a whole number, found 1.5"),
        ("generated_tokens", [1 << 70], "a whole number, found 1180591620717411303424"),
        ("passes", {"a": 1}, "an array, found"),
        ("passes/0/calls", [1], "an object, found"),
        ("passes/0/calls/tokens", [1], "2 calls have a run, but 1 have tokens"),
        ("passes/0/calls/phase", [0, 2], "a call has a phase that is not one of prefill, decode"),
        ("passes/0/calls/method", [-1, 0], "a call has a method that is not one of forward"),
        ("passes/0/calls/run", [-1, 0], "a call has a run below 0"),
        ("passes/0/methods", [1], "text, found 1"),
        ("sampler", [1], "an object, found"),
        ("sampler/temperature", "hot", "a number, found 'hot'"),
        ("inputs", ["tokens"], "an object, found"),
        ("stopped_by", 3, "text, found 3"),
        ("context_length", "16", "a whole number, found '16'"),
    ],
)
def test_damaged_generations(path: str, value: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_generation(JsonValue(changed(path, value)))


def test_a_damaged_run_json_names_its_file(tmp_path: Path) -> None:
    damaged = changed("passes/1/calls/tokens", [1])
    (tmp_path / "run.json").write_bytes(encode_run_json({"generation": damaged}))
    for read in (saved_calls, saved_executions, saved_generation):
        with pytest.raises(FormatError, match=r"run\.json"):
            read(tmp_path / "run.etdp")
