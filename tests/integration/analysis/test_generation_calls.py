"""The phases of a language model's calls, told from a dump, and what grows with the position."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.analysis.tables.profile_table import profile_table
from etscope.errors import MissingDataError, UsageError
from etscope.explain import explain
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.units import TimeScale
from tests.support.artifacts import artifacts
from tests.support.timed_dumps import generated_dump

NS = Scale(TimeScale.NS, TimeScale.NS)


def seeds(count: int) -> list[Any]:
    """One for each day; the others for the night."""
    return [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, count))]


@cache
def record() -> Any:
    return read_etrecord(artifacts("llama_generate").etrecord)


@pytest.fixture
def generated(tmp_path: Path) -> Callable[..., Trace]:
    """The trace of a run of the small Llama whose calls are of so many tokens each."""

    def generate(plan: list[int], **options: Any) -> Trace:
        source = artifacts("llama_generate").etdump_timing
        dump = generated_dump(source, tmp_path / "x.etdp", plan, **options)
        return Trace(read_etdump(dump), record=record())

    return generate


PLANS = {
    "a prompt": [40, *[1] * 50],
    "two prompts": [12, *[1] * 20, 30, *[1] * 20],
    "a prompt in pieces": [16, 16, 9, *[1] * 30],
    "a short answer": [60, 1, 1, 1],
    "unlike prompts": [100, *[1] * 30, 12, *[1] * 30],
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("seed", seeds(4))
def test_a_known_mix_is_told_from_the_lengths(
    generated: Callable[..., Trace], plan: list[int], seed: int
) -> None:
    calls = generated(plan, seed=seed, growing={66: 30.0}).calls_of_runs
    assert list(calls.phase) == ["decode" if one == 1 else "prefill" for one in plan]
    assert calls.inferred == "by the calls' lengths"
    assert (calls.tokens[np.array(plan) == 1] == 1).all()
    assert (calls.tokens[np.array(plan) > 1] == 0).all()


def test_nothing_is_told_of_calls_of_one_token(generated: Callable[..., Trace]) -> None:
    """With noise, interrupted calls and a first call that is colder: no prefill is made up of it
    but the first, which may be one."""
    trace = generated([1] * 80)
    assert trace.calls_of_runs.phases == ()
    assert len(trace.profiles()) == 1
    with pytest.raises(MissingDataError, match="no call of the dump is known to be of the phase"):
        trace.only("decode")


def test_values_tell_the_number_of_tokens() -> None:
    """The dump of a real run with values: a prompt and calls of one token."""
    made = artifacts("llama_generate")
    calls = Trace(read_etdump(made.etdump), record=record()).calls_of_runs
    prompt = int(np.load(made.inputs)["forward/0/0"].shape[1])
    assert prompt > 1
    assert calls.inferred == "by the sizes of the values"
    assert calls.tokens.tolist() == [prompt, *[1] * (len(calls.run) - 1)]
    assert calls.position.tolist() == [0, *range(prompt, prompt + len(calls.run) - 1)]
    assert calls.phases == ("prefill", "decode")


def test_kernels_of_a_cache_tell_a_language_model(tmp_path: Path) -> None:
    """A dump of `llama_main` without its program: no method has a name, and attention grows."""
    source = artifacts("llama_custom_sdpa").etdump_timing
    plan = [24, *[1] * 128]
    trace = Trace(read_etdump(generated_dump(source, tmp_path / "x.etdp", plan, growing={39: 3.0})))
    calls = trace.calls_of_runs
    assert list(calls.phase) == ["prefill", *["decode"] * 128]
    assert calls.inferred == "by the calls' lengths"
    (decode,) = trace.only("decode").profiles()
    assert len(decode.runs) == 128
    rules = {finding.kind for method in explain(trace) for finding in method.findings}
    assert "outside-delegates" in rules
    assert "unsteady" not in rules


def test_disturbed_calls_of_a_phase_are_excluded(generated: Callable[..., Trace]) -> None:
    slow = {9: 30.0, 24: 8.0, 41: 15.0}
    _, decode = generated([40, *[1] * 60], growing={66: 30.0}, disturbed=slow).profiles()
    assert not slow.keys() & set(decode.runs.tolist())
    assert decode.total.mean() < 1.1 * np.median(decode.total)


def test_profiles_are_of_one_phase_or_of_some_calls(generated: Callable[..., Trace]) -> None:
    trace = generated([40, *[1] * 30])
    prefill, decode = trace.profiles()
    assert (prefill.title(), decode.title()) == ("forward · prefill", "forward · decode")
    assert (len(prefill.runs), len(decode.runs)) == (1, 30)
    assert prefill.total[0] > 2 * decode.total.mean()
    (decode,) = trace.only("decode").profiles()
    assert decode.runs.tolist() == list(range(1, 31))
    (some,) = trace.only("decode", range(11)).profiles()
    assert some.runs.tolist() == list(range(1, 11))
    assert np.unique(trace.only(calls=range(3, 5)).events.call).tolist() == [3, 4]
    with pytest.raises(UsageError, match=r"call 5\.\.31 does not exist"):
        trace.only(calls=range(5, 32))
    with pytest.raises(MissingDataError, match="none of these calls"):
        trace.only("decode", range(1))


def grown(trace: Trace) -> dict[int, list[Any]]:
    """The growth of each instruction with the position of a call, and its confidence."""
    trace.calls_of_runs.position[:] = [0, *range(16, 112)]  # as a run.json would say
    (decode,) = trace.only("decode").profiles()
    values = profile_table(decode, NS).values
    names = ("instruction", "growth", "growth_low", "growth_high")
    rows = zip(*(values[name] for name in names), strict=True)
    return {number: found for number, *found in rows if number is not None}


@pytest.mark.parametrize("seed", seeds(3))
def test_growth_is_found_within_its_confidence(generated: Callable[..., Trace], seed: int) -> None:
    planted = {66: 40.0, 110: 30.0}
    found = grown(generated([16, *[1] * 96], growing=planted, seed=seed))
    assert {number for number, (slope, *_) in found.items() if slope is not None} == set(planted)
    for number, slope in planted.items():
        told, low, high = found[number]
        assert told is not None and low <= slope <= high
        assert abs(told - slope) < 0.35 * slope


@pytest.mark.parametrize("seed", seeds(5))
def test_no_growth_is_claimed_where_none_is(generated: Callable[..., Trace], seed: int) -> None:
    found = grown(generated([16, *[1] * 96], seed=seed, sigma=0.05))
    assert found and all(slope is None for slope, *_ in found.values())


@pytest.mark.parametrize("name", ["cnn_xnnpack", "two_methods"])
def test_an_ordinary_model_has_no_phases(name: str) -> None:
    """Also one whose methods are called encode and decode."""
    made = artifacts(name)
    trace = Trace(
        read_etdump(made.etdump_timing),
        record=read_etrecord(made.etrecord),
        program=read_pte(made.pte),
    )
    assert trace.calls_of_runs.phases == ()
    assert all(profile.phase is None for profile in trace.profiles())
