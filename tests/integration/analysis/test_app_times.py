"""The app's times beside the runtime's, on recorded runs of an app that logs as ExecuTorch's do."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch")

from etscope.analysis.generation.reconcile import (
    Reconciliation,
    executions,
    findings_of,
    reconcile_app,
    reconcile_calls,
    reconciliation_table,
)
from etscope.analysis.profile.trace import Trace
from etscope.errors import CyclesError, MismatchError
from etscope.formats.app_report import AppReport, parse_app_report, read_app_report
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.generation import GenerationCalls
from etscope.formats.program.pte import read_pte
from etscope.formats.run_json import read_run_json
from etscope.units import TimeScale
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run

PROMPT, FURTHER = 14, 12  # tokens of the prompt, and those that were generated after the first


@dataclass(frozen=True)
class Ran:
    """A recorded run of the app, whose program has this dump and this log."""

    dump: Path
    log: Path

    @property
    def program(self) -> Path:
        return self.dump.with_name("decoder.pte")

    def trace(self, *, with_program: bool = True) -> Trace:
        return Trace(
            read_etdump(self.dump), program=read_pte(self.program) if with_program else None
        )

    @property
    def report(self) -> AppReport:
        return read_app_report(self.log)

    def reconciled(self) -> Reconciliation:
        return reconcile_app(self.trace(), self.report)


@pytest.fixture(scope="module")
def runs() -> dict[str, Ran]:
    made = artifacts("app_runs")
    names = ("at_once", "by_token", "warm", "twice")
    return {n: Ran(made.extra(f"{n}.etdump"), made.extra(f"{n}.log")) for n in names}


@pytest.fixture
def at_once(runs: dict[str, Ran]) -> Ran:
    return runs["at_once"]


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("at_once", (1, FURTHER)),
        ("by_token", (PROMPT, FURTHER)),
        ("warm", (1, FURTHER)),
        ("twice", (2, FURTHER + FURTHER // 2)),
    ],
)
def test_phases_are_those_that_ran(runs: dict[str, Ran], name: str, calls: tuple[int, int]) -> None:
    ran = runs[name]
    found = ran.reconciled()

    prefill, decode, total = found.phases
    assert [one.phase for one in found.phases] == ["prefill", "decode", "all"]
    assert (prefill.calls, decode.calls) == calls
    tokens = (ran.report.prompt_tokens, ran.report.generated_tokens)
    assert (prefill.tokens, decode.tokens) == tokens
    assert found.by_token == (name == "by_token")
    # The runtime's times are those of the dump, without the methods that return constants.
    ns = executions(ran.trace()).ns
    kept = ns[-total.calls :] if total.calls else ns
    assert len(ns) == (2 if name == "warm" else 1) * sum(calls)
    assert total.runtime_ns == pytest.approx(kept.sum())
    if name == "at_once":
        assert prefill.runtime_ns == pytest.approx(ns[0])
    assert ("left out" in " ".join(found.notes)) == (name == "warm")
    # A real app takes longer than its runtime, and its parts add up.
    assert total.app_ns is not None and total.difference_ns is not None
    assert 0 < total.difference_ns < total.app_ns
    assert total.rest_ns == pytest.approx(total.difference_ns - (total.sampling_ns or 0))
    assert total.app_ns == prefill.app_ns + decode.app_ns  # type: ignore[operator]
    assert reconcile_app(ran.trace(with_program=False), ran.report).phases == found.phases


def test_the_apps_numbers_tell_the_phases_of_a_trace(runs: dict[str, Ran]) -> None:
    """A prompt that is evaluated token by token looks like decoding otherwise."""
    ran = runs["by_token"]
    assert ran.trace().calls_of_runs.phases in ((), ("decode",))
    told = replace(ran.trace(), app=ran.report).calls_of_runs

    known = [phase for phase in told.phase if phase is not None]
    assert known == ["prefill"] * PROMPT + ["decode"] * FURTHER
    assert told.position[-1] == PROMPT + FURTHER - 1
    assert told.inferred is not None and "app" in told.inferred


def test_findings(runs: dict[str, Ran]) -> None:
    kinds = [one.kind for one in findings_of(runs["by_token"].reconciled())]
    assert sorted(kinds) == ["outside-the-runtime", "prompt-by-token"]
    kinds = [one.kind for one in findings_of(runs["at_once"].reconciled())]
    assert kinds == ["outside-the-runtime"]


def changed(report: AppReport, **changes: Any) -> AppReport:
    (one,) = report.generations
    return replace(report, generations=(replace(one, **changes),))


def test_an_app_that_contradicts_its_runtime_is_told(at_once: Ran) -> None:
    trace, report = at_once.trace(), at_once.report
    (one,) = report.generations
    assert one.inference_ns is not None and one.prefill_ns is not None
    assert one.execution_ns is not None
    half = changed(report, inference_ns=one.prefill_ns + (one.decode_ns or 0) // 2)

    table = reconciliation_table(reconcile_app(trace, half))
    assert [f["kind"] for f in table.findings] == ["app-contradicts"] * len(table.findings)
    assert "Decode: the runtime's" in table.findings[0]["sentence"]
    assert min(table.values["difference"]) < 0  # it is shown as it is

    far = findings_of(reconcile_app(trace, report, TimeScale.US))
    assert far[0].kind == "app-contradicts"
    assert "--source-unit" in far[0].sentence
    with pytest.raises(CyclesError):
        reconcile_app(trace, report, TimeScale.CYCLES)

    # The app says that its time was in the runtime, whose time is far less: of a faster run.
    slow = changed(report, inference_ns=9 * one.inference_ns, execution_ns=8 * one.execution_ns)
    (finding,) = findings_of(reconcile_app(trace, slow))
    assert finding.kind == "app-contradicts"
    assert "were in Module::execute, but the dump has" in finding.sentence

    sampling = reconcile_app(trace, changed(report, sampling_ns=one.inference_ns))
    assert "of sampling are more than" in findings_of(sampling)[0].sentence


@pytest.mark.parametrize("tokens", [FURTHER + 9, 3])
def test_a_log_of_another_run(at_once: Ran, tokens: int) -> None:
    with pytest.raises(MismatchError, match=r"another run: 14 prompt and .* the dump has 13"):
        reconcile_app(at_once.trace(), changed(at_once.report, generated_tokens=tokens))


def two_methods() -> Trace:
    """An embedding of 1 us before each call of the decoder of 10 us; the prompt takes one call."""
    writer = ETDumpWriter()
    for call in range(5):
        for name, ticks in (("embedding.out", 1_000), ("mm.out", 10_000 + (call == 0) * 40_000)):
            place = {"chain_index": 0, "instruction_id": 0}
            writer.create_event_block("Execute")
            writer.log_profiling(f"native_call_{name}", 0, ticks, **place)
            writer.log_profiling("OPERATOR_CALL", 0, ticks, **place)
            writer.log_profiling("Method::execute", 0, ticks)
    return Trace(read_etdump(writer.finish()))


def test_an_embedding_is_of_the_call_that_follows() -> None:
    tokens = {"prompt_tokens": 9, "generated_tokens": 4}
    told = {**tokens, "inference_ns": 200_000, "prefill_ns": 80_000}
    report = parse_app_report({"source": "PyTorchObserver", "generations": [told]})
    prefill, decode, _ = reconcile_app(two_methods(), report).phases
    assert (prefill.calls, prefill.tokens, prefill.runtime_ns) == (2, 9, 51_000)
    assert (decode.calls, decode.tokens, decode.runtime_ns) == (8, 4, 44_000)
    assert decode.sampling_ns is None


def own_calls(count: int = 5) -> GenerationCalls:
    """Two methods in turn, each 5 us apart, as `etscope generate` notes them."""
    calls = 2 * count
    column = np.arange(calls, dtype=np.int64)
    decoder = column % 2
    return GenerationCalls(
        methods=("token_embedding", "text_decoder"),
        phases=("prefill", "decode"),
        run=np.zeros(calls, np.int64),
        method=decoder,
        phase=(column > 1).astype(np.int64),
        position=np.maximum(0, 8 + column // 2 - (column < 2) * 8),
        tokens=np.where(column < 2, 9, 1),
        start_ns=column * 60_000,
        execute_ns=np.where(decoder, 55_000, 2_000),
        sampling_ns=decoder * 3_000,
    )


def test_the_calls_of_generate_have_their_sampling_and_host() -> None:
    found = reconcile_calls(two_methods(), own_calls())
    prefill, decode, total = found.phases

    assert (prefill.tokens, decode.tokens, total.tokens) == (9, 4, 13)
    assert prefill.app_ns == 2 * 60_000
    assert decode.app_ns == 7 * 60_000 + 58_000  # the last call ends when its token is chosen
    assert (prefill.runtime_ns, decode.runtime_ns) == (51_000, 44_000)
    assert (prefill.sampling_ns, decode.sampling_ns) == (3_000, 12_000)
    assert total.rest_ns == total.difference_ns - 15_000  # type: ignore[operator]
    with pytest.raises(MismatchError, match=r"run\.json has 8 calls, the dump 10"):
        reconcile_calls(two_methods(), own_calls(4))


# -- The command.


@pytest.mark.parametrize("columns", ["80", "140"])
def test_a_person_sees_the_app_below_the_tables(
    run: Run, monkeypatch: pytest.MonkeyPatch, at_once: Ran, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.chdir(at_once.dump.parent)
    files = (at_once.dump.name, "-p", "decoder.pte", "--app-log", at_once.log.name)
    code, out, err = run("inspect", *files, "-n", 2)

    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= int(columns)
    assert "forward · prefill · 1 run" in out
    assert f"forward · decode · {FURTHER} runs" in out
    table = out[out.index("PyTorchObserver and the runtime") :]
    assert "tokenizer," in table and "sampling" in table
    assert "are outside of the runtime" in " ".join(table.split())
    assert "first token after" in table


def test_a_program_gets_the_app_alone(run: Run, at_once: Ran) -> None:
    code, out, _ = run("inspect", at_once.dump, "--app-log", at_once.log, "-f", "json")
    found = json.loads(out)
    assert code == 0
    assert [row["phase"] for row in found["rows"]] == ["prefill", "decode", "all"]
    assert found["rows"][1]["calls"] == FURTHER


def test_the_report_is_kept_in_run_json(run: Run, runs: dict[str, Ran], tmp_path: Path) -> None:
    ran = runs["at_once"]
    (tmp_path / "run.etdp").write_bytes(ran.dump.read_bytes())
    (tmp_path / "run.json").write_text('{"device": "pixel", "program": "decoder.pte"}')
    inspect = ("inspect", tmp_path, "-p", ran.program)
    code, first, err = run(*inspect, "--app-log", ran.log, "--keep-app-log")
    assert code == 0
    assert "the app's report is kept in" in err
    saved = read_run_json(tmp_path / "run.json")
    assert saved.text("device") == "pixel"
    assert saved.generation is not None and saved.generation.app is not None
    assert parse_app_report(saved.generation.app) == ran.report

    assert run(*inspect) == (0, first, "")  # the log is not needed now

    code, _, err = run("inspect", tmp_path, "--app-log", runs["twice"].log)
    assert code == 3
    assert "the app's log is of another run" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--keep-app-log",), 2, "--keep-app-log needs --app-log"),
        (("--app-log", "{log}", "--keep-app-log"), 2, "there is no run.json beside"),
        (("--app-log", "{log}", "--coverage"), 2, "--app-log does not go with --coverage"),
        (("--app-log", "{dump}"), 4, "no line PyTorchObserver"),
        (("--app-log", "none.log"), 2, "app's log file not found"),
        (("--app-log", "{other}"), 3, "the app's log is of another run"),
    ],
)
def test_a_wrong_call_is_told(
    run: Run, runs: dict[str, Ran], arguments: tuple[str, ...], code: int, message: str
) -> None:
    ran = runs["at_once"]
    names = {"log": ran.log, "dump": ran.dump, "other": runs["twice"].log}
    found, _, err = run("inspect", ran.dump, *(one.format(**names) for one in arguments))
    assert (found, message in err) == (code, True), err
