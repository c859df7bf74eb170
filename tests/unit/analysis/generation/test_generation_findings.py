"""Findings about a language model's calls: what was put into a run is told, and nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from etscope.analysis.insights.facts import Facts, Level
from etscope.analysis.insights.insights import insights
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.cli import main
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.run_json import saved_run
from etscope.model.finding import Files, Finding, Severity
from etscope.units import TimeScale
from tests.support.analysis.generated_runs import HOST, KERNELS, SAMPLING, SEEING, generated_run

MS = Scale(TimeScale.NS, TimeScale.MS)


def found_of(path: Path, phase: str, method: str = "forward") -> dict[str, Finding]:
    trace = Trace(read_etdump(path))
    profile = next(one for one in trace.profiles() if (one.phase, one.method) == (phase, method))
    return {one.kind: one for one in insights(Facts(trace, profile, MS), Level.SUMMARY)}


def test_growth_is_told_with_its_operator(tmp_path: Path) -> None:
    found = found_of(generated_run(tmp_path, growth=40.0, decodes=200, generations=1), "decode")
    one = found["growth"]
    assert one.severity is Severity.COST
    told = re.match(r"A token takes ([\d.]+).*?: ([\d.]+)% of that in op3.out, ", one.sentence)
    assert float(told[1]) == pytest.approx(40, rel=0.1)
    assert float(told[2]) == pytest.approx(100, abs=10)
    assert one.sentence.endswith("from position 6 to 205.")
    # At the middle position, of the growth since the first one.
    assert one.quantity.value == pytest.approx(40 * 99.5e-6, rel=0.1)


def test_growth_is_of_the_longest_operator_and_no_drift_of_the_machine(tmp_path: Path) -> None:
    found = found_of(generated_run(tmp_path, growth=400.0, decodes=200, generations=1), "decode")
    assert "growth" in found and not {"unsteady", "first-run"} & found.keys()
    sentence = found["decode-operator"].sentence
    assert "op3.out" in sentence
    assert re.search(r"; it grows with context there, by [\d.]+ ns for each token before", sentence)


def test_where_nothing_grows_nothing_is_told(tmp_path: Path) -> None:
    found = found_of(generated_run(tmp_path, decodes=200, generations=1), "decode")
    assert "growth" not in found
    assert "grows" not in found["decode-operator"].sentence


def test_decode_spends_most_in_its_longest_operator(tmp_path: Path) -> None:
    found = found_of(generated_run(tmp_path), "decode")["decode-operator"]
    name, ns = KERNELS["forward"][-1]
    share = ns / sum(ns for _, ns in KERNELS["forward"])
    assert found.sentence.startswith("Decode spends ") and name in found.sentence
    assert found.quantity.share == pytest.approx(share, abs=0.02)


def test_the_first_token_and_the_host_are_of_the_untraced_run(tmp_path: Path) -> None:
    path = generated_run(tmp_path, sigma=0.0)
    saved = saved_run(path)
    calls = saved.generation.passes[0].calls
    first, later = int(calls.execute_ns[0]), int(calls.execute_ns[1])
    prefill = found_of(path, "prefill")["first-token"]
    whole = (first + SAMPLING) / 1e6
    assert f"{first / 1e6:.3f} of {whole:.3f} ms" in prefill.sentence
    assert prefill.quantity.share == pytest.approx(first / 1e6 / whole)
    # The made calls begin where those of the traced run did: half of its time is the host's.
    beside = found_of(path, "decode")["beside-the-runtime"]
    between = 2 * later + SAMPLING + HOST
    assert beside.quantity.share == pytest.approx(1 - later / between, rel=0.05)
    assert beside.severity is Severity.COST


def test_sampling_is_told_once_of_the_decoder(tmp_path: Path) -> None:
    path = generated_run(tmp_path, methods=SEEING)
    assert "beside-the-runtime" in found_of(path, "decode", "text_decoder")
    assert "beside-the-runtime" not in found_of(path, "decode", "token_embedding")
    told = found_of(path, "prefill", "text_decoder")["first-token"]
    assert told.sentence.startswith("Prefill of text_decoder is ")
    assert told.command[1:3] == ("--method", "text_decoder")
    longest = found_of(path, "decode", "token_embedding")["decode-operator"]
    assert longest.sentence.startswith("Decode of token_embedding spends ")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_commands_show_the_same_phase(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, phase: str
) -> None:
    path = generated_run(tmp_path, growth=40.0, decodes=60)
    found = found_of(path, phase).values()
    ran = 0
    for one in found:
        line = one.next_command(Files(str(path)))
        words = [] if line is None else shlex.split(line)
        assert words[1:2] != ["run"]  # a language model is run by generate
        if words[1:2] == ["inspect"] and one.place is not None:
            assert words[words.index("--calls") + 1] == phase
            assert main(words[1:]) == 0
            ran += 1
    assert ran >= 2
