"""Jobs of the kind generate: their specification, prompts, rows, verdicts and findings."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from etscope.analysis.generation.agreement import Agreement
from etscope.analysis.statistics.compare_samples import Policy, Verdict
from etscope.errors import FormatError, UsageError
from etscope.evaluation._token_results import TokenEvaluation, TokenPlaces
from etscope.formats.generation import Generation, GenerationCalls, GenerationPass
from etscope.formats.run_json import SavedRun
from etscope_lab.cli.options import exit_code
from etscope_lab.cli.submit import read_spec
from etscope_lab.comparison.ab import MODEL, SIDES, Round, family_summary, judge_family
from etscope_lab.comparison.noise import spec_facts
from etscope_lab.jobs.generations import (
    COLD_STARTS,
    cold_starts,
    generation_row,
    prompt_file,
    rows_of,
    samples_of,
    times_of,
)
from etscope_lab.jobs.job_tables import findings_of, job_report
from etscope_lab.jobs.records import Job, State
from etscope_lab.jobs.spec import MOST_PROMPTS, FileRef, JobSpec, Quality, spec_of
from etscope_lab.worker.generations import gate_result, prompts_of

MODEL_FILE = {"sha256": "0" * 64, "name": "llama.pte"}
REFERENCE, TEXT = {"sha256": "1" * 64}, {"sha256": "2" * 64, "name": "text.txt"}
GATE = {"reference": REFERENCE, "tokens": TEXT, "max_kl": 0.1}


def spec(**more: Any) -> JobSpec:
    return spec_of({"kind": "generate", "model": MODEL_FILE, **more})


# -- the specification


@pytest.fixture(scope="module")
def schema() -> Validator:
    plain = JobSpec.model_json_schema()
    return validator_for(plain)(plain)


def test_defaults() -> None:
    found = spec()
    assert (found.generation.new_tokens, found.lengths) == (128, (128,))
    assert spec(prompts={"sha256": "3" * 64}).lengths == ()  # those of the file alone
    assert spec(generation={"lengths": [8, 9]}).lengths == (8, 9)
    assert JobSpec(model=FileRef(sha256="0" * 64)).lengths == ()
    # Computed by the etscope before there were generate jobs: their results are found again.
    known = "9f514c29196e08bacea4d1a0a50249dbbc25bca0c4612916f2bffcbfad560167"
    assert JobSpec(model=FileRef(sha256="0" * 64, name="m")).content_hash == known


def test_files_within_the_gate_are_files_of_the_job() -> None:
    wanted = spec(
        quality={**GATE, "tokens": "ids/text.txt"}, prompts="prompts.txt", data="weights.ptd"
    )
    names = ["model", "data", "prompts", "quality.reference", "quality.tokens"]
    assert list(wanted.files) == names
    with pytest.raises(UsageError, match=r"not in the lab yet: data, prompts, quality\.tokens"):
        _ = wanted.content_hash
    known = wanted.with_files(
        {name: FileRef(sha256=f"{index}" * 64) for index, name in enumerate(names)}
    )
    assert [ref.sha256 for ref in known.files.values()] == [f"{n}" * 64 for n in range(5)]
    assert known.quality is not None and known.quality.max_kl == 0.1
    assert known.content_hash != known.with_files({"quality.tokens": REFERENCE_REF}).content_hash
    assert spec_of(json.loads(known.model_dump_json())) == known
    # The gate does not change the times: jobs with and without are repeats of each other.
    without = known.model_copy(update={"quality": None})
    assert spec_facts(known) == spec_facts(without)


REFERENCE_REF = FileRef(sha256="9" * 64)

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "benchmark", "generation": {}}, "only for the kinds generate and ab"),
    ({"kind": "benchmark", "prompts": "p.txt"}, "prompts go with a generation"),
    ({"kind": "benchmark", "quality": GATE}, "quality is only for the kind generate"),
    ({"kind": "ab", "baseline": "b.pte", "quality": GATE}, "quality is only for the kind generate"),
    ({"kind": "ab", "baseline": "b.pte", "prompts": "p.txt"}, "prompts go with a generation"),
    ({"generation": None}, "a generate job needs a generation"),
    ({"generation": {"top_k": 3}}, "need a temperature above 0"),
    ({"generation": {"lengths": [0]}}, r"generation\.lengths\.0"),
    ({"generation": {"lengths": [4] * (MOST_PROMPTS + 1)}}, r"generation\.lengths"),
    ({"generation": {"new_tokens": 0}}, r"generation\.new_tokens"),
    ({"generation": {"warm": 0}}, r"generation\.warm"),
    ({"generation": {"prompt": 1}}, "unknown field"),
    ({"quality": {"reference": "r", "tokens": "t"}}, "a quality gate needs a limit"),
    ({"quality": {"reference": "r", "tokens": "t", "max_kl": 0}}, r"quality\.max_kl"),
    ({"quality": {"reference": "r", "tokens": "t", "min_agreement": 2}}, "min_agreement"),
    ({"quality": {"tokens": "t", "max_kl": 1}}, r"quality\.reference"),
    ({"baseline": "b.pte"}, "baseline is only for the kind ab"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_what_is_wrong_is_said(wrong: dict[str, Any], said: str, schema: Validator) -> None:
    plain = {"kind": "generate", "model": "m.pte", **wrong}
    with pytest.raises(UsageError, match=said):
        spec_of(plain)
    assert not schema.is_valid(plain)  # editors see it, too


@pytest.mark.parametrize(
    "right",
    [
        {},
        {"generation": {"lengths": [16, 32], "temperature": 0.8, "top_k": 40, "top_p": 0.9}},
        {"prompts": "p.txt", "quality": GATE},
        {"kind": "ab", "baseline": "b.pte"},
        {"kind": "ab", "baseline": "b.pte", "generation": {}, "prompts": "p.txt"},
        {"kind": "benchmark"},
    ],
)
def test_what_is_right_is_right_by_the_schema(right: dict[str, Any], schema: Validator) -> None:
    plain = {"kind": "generate", "model": "m.pte", **right}
    schema.validate(plain)
    schema.validate(spec_of(plain).model_dump(mode="json"))


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "kind: generate\nmodel: m.pte\nprompts: p.txt\n"
        "quality: {reference: {path: fp32.pte}, tokens: t.txt, min_agreement: 0.9}\n"
    )
    found = spec_of(read_spec(str(file)))
    paths = {field: ref.path for field, ref in found.files.items()}
    assert paths == {
        "model": str(tmp_path / "m.pte"),
        "prompts": str(tmp_path / "p.txt"),
        "quality.reference": str(tmp_path / "fp32.pte"),
        "quality.tokens": str(tmp_path / "t.txt"),
    }


# -- prompts


def test_prompts_of_a_file_and_of_lengths(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("1, 2,3\n\n  [4 5]\n")
    named = spec(prompts={"sha256": "3" * 64, "name": "p.txt"}, generation={"lengths": [7]}, seed=5)
    found = prompts_of(named, file)
    assert [(one.name, one.tokens, one.length) for one in found] == [
        ("p.txt, line 1", (1, 2, 3), None),
        ("p.txt, line 3", (4, 5), None),
        ("7 tokens of seed 5", None, 7),
    ]
    rows = spec(prompts={"sha256": "3" * 64, "name": "p.npy"})
    np.save(tmp_path / "p.npy", np.array([[1, 2], [3, 4]]))
    assert [one.tokens for one in prompts_of(rows, tmp_path / "p.npy")] == [(1, 2), (3, 4)]
    np.save(tmp_path / "p.npy", np.array([6, 7]))
    assert [one.tokens for one in prompts_of(rows, tmp_path / "p.npy")] == [(6, 7)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.txt", b"1,2\n3,four\n", r"p\.txt, line 2: 'four' is not a token id"),
        ("p.txt", b"/etc/passwd\n", r"line 1: '/etc/passwd' is not a token id"),
        ("p.txt", b"\n \n", "has no prompt"),
        ("p.txt", b"1\n" * (MOST_PROMPTS + 1), "a job has 64 at most"),
        ("p.npy", b"no array", "not a file of numpy"),
        ("p.npy", [0.5], "prompts are integers"),
    ],
)
def test_wrong_prompts(tmp_path: Path, name: str, content: bytes | list[float], said: str) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, np.array(content))
    with pytest.raises((UsageError, FormatError), match=said):
        prompts_of(spec(prompts={"sha256": "3" * 64, "name": name}), file)


# -- rows

STEPS = 20


def a_pass(load_ns: int = 5_000_000, *, runs: int = 2, decode_ns: int = 100_000) -> GenerationPass:
    """Generations of a prompt of 4 tokens and `STEPS` decode calls; each call samples for 1 µs and
    takes 10 ns more for each position."""
    columns: dict[str, list[int]] = {
        name: [] for name in (
            "run", "method", "phase", "position", "tokens", "start_ns", "execute_ns", "sampling_ns"
        )
    }  # fmt: skip
    for run in range(runs):
        at = 0
        calls = [(0, 0, 4, 900_000), *((1, 4 + n, 1, decode_ns + 10 * n) for n in range(STEPS))]
        for phase, position, tokens, ns in calls:
            row = (run, 0, phase, position, tokens, at, ns, 1_000)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
            at += ns + 1_000
    arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
    calls = GenerationCalls(("forward",), ("prefill", "decode"), **arrays)
    return GenerationPass(None, load_ns, calls, cold_first_token_ns=2_000_000)


def a_generation() -> Generation:
    return Generation(
        prompt_tokens=np.array([1, 2, 3, 4]),
        generated_tokens=np.arange(STEPS + 1),
        passes=(a_pass(),),
        runs=2,
        stopped_by="length",
        context_length=128,
    )


def test_a_row() -> None:
    cold = [a_pass(load_ns=7_000_000, runs=1), a_pass(load_ns=9_000_000, runs=1)]
    row = generation_row("4 tokens of seed 0", a_generation(), cold, 1 << 20)
    assert json.loads(json.dumps(row)) == row
    counts = ("prompt_tokens", "generated_tokens", "cold", "warm")
    assert [row[name] for name in counts] == [4, 21, 2, 2]
    assert row["load_ms"] == 7.0
    assert row["cold_first_token_p50_ms"] == pytest.approx(8.0 + 2.0)  # with the load
    assert row["first_token_p50_ms"] == pytest.approx(0.901)
    between = 0.001 + (100_000 + 10 * np.arange(STEPS)) / 1e6
    assert row["token_p50_ms"] == pytest.approx(np.median(between))
    assert row["token_p95_ms"] == pytest.approx(np.percentile(np.tile(between, 2), 95))
    assert row["prefill_tokens_per_s"] == pytest.approx(4 / 0.901e-3)
    assert row["decode_tokens_per_s"] == pytest.approx(1e3 / between.mean())
    assert row["growth_ns"] == pytest.approx(10.0, rel=0.02)  # of medians of groups
    assert row["growth_low_ns"] < row["growth_ns"] < row["growth_high_ns"]
    assert [(one["phase"], one["calls"], one["tokens"]) for one in row["phases"]] == [
        ("prefill", 1, 4), ("decode", STEPS, STEPS),
    ]  # fmt: skip
    other = generation_row("other", a_generation(), [], None)
    assert other["tokens_sha256"] == row["tokens_sha256"]
    assert other["cold_first_token_p50_ms"] is None
    assert list(times_of(other)) == ["token", "first token"]
    assert times_of(row)["cold first token"]["p50_ms"] == pytest.approx(10.0)
    assert rows_of({"generation": [row]}) == [row] and rows_of({}) == []


def test_samples_of_a_prompts_run_json() -> None:
    cold = [a_pass(load_ns=7_000_000, runs=1)]
    content = {"generation": a_generation().to_json(), COLD_STARTS: cold_starts(cold)}
    found = samples_of(SavedRun(json.loads(json.dumps(content))))
    assert {name: len(samples) for name, samples in found.items()} == {
        "token": 2 * STEPS, "first token": 2, "cold first token": 1,
    }  # fmt: skip
    assert found["cold first token"].tolist() == [9_000_000]
    assert samples_of(SavedRun({})) == {}
    with pytest.raises(FormatError, match="load_ns"):
        samples_of(SavedRun({**content, COLD_STARTS: [{"first_token_ns": 3}]}))
    assert [prompt_file(n, "run.json") for n in (0, 1)] == ["run.json", "prompt-1.run.json"]


# -- several verdicts of an A/B job


def rounds(slower: float, seed: int, count: int = 20) -> list[Round]:
    draw = np.random.default_rng(seed)
    found = []
    for number in range(count):
        drift = draw.normal(0, 0.02)
        samples = {}
        for side in SIDES:
            factor = 1e6 * (1 + slower if side == MODEL else 1.0)
            times = factor * draw.lognormal(drift + draw.normal(0, 0.005), 0.02, 30)
            samples[side] = tuple(np.rint(times).astype(int).tolist())
        found.append(Round(number, MODEL, samples))
    return found


def test_each_time_has_its_verdict_and_the_worst_one_is_the_jobs() -> None:
    family = {"token": rounds(0.0, 1), "first token": rounds(0.2, 2)}
    found = judge_family(family, Policy(0.05, 0.99))
    assert found["token"].verdict is Verdict.NO_DIFFERENCE
    assert found["first token"].verdict is Verdict.REGRESSED
    assert found["token"].policy.confidence == pytest.approx(0.995)  # together: 0.99
    summary = family_summary(found)
    assert (summary["metric"], summary["verdict"]) == ("first token", "regressed")
    assert summary["metrics"]["token"]["verdict"] == "no difference"
    assert summary["metrics"]["first token"]["model_ms"] == pytest.approx(1.2, rel=0.05)
    job = a_job(ab=summary)
    assert findings_of(job)[0].endswith("(first token)")
    section = job_report(job).section("metrics")
    assert section.table.values["metric"] == ["token", "first token"]
    same = family_summary(judge_family({"token": rounds(0.0, 1)}, Policy(0.05, 0.99)))
    assert (same["metric"], same["verdict"]) == ("token", "no difference")


# -- the gate


def evaluated(agree: bool, *, nan: bool = False) -> TokenEvaluation:
    draw = np.random.default_rng(0)
    reference = draw.normal(size=(10, 8)) * 4
    program = reference + (0.0 if agree else draw.normal(size=reference.shape) * 4)
    if nan:
        program[3] = np.nan
    count = np.arange(10)
    places = TokenPlaces(count + 1, count * 0, count, count, ("decode",) * 10)
    return TokenEvaluation(
        program="p", reference="r", agreement=Agreement.of(reference, program, [1] * 10),
        places=places, windows=(), context=16, stride=16, text_tokens=11,
    )  # fmt: skip


def a_job(**summary: Any) -> Job:
    now = datetime.now(timezone.utc)
    return Job("ab12", spec(), "cd" * 32, State.DONE, now, summary=summary)


def test_a_job_whose_gate_failed_is_marked_so() -> None:
    row = generation_row("p", a_generation(), [], None)
    gate = Quality.model_validate({**GATE, "min_agreement": 0.95})
    result = gate_result(gate, evaluated(agree=True))
    assert result["fine"] is True and (result["mean_kl"], result["agreement"]) == (0.0, 1.0)
    assert result["first_divergence"] is None
    fine = a_job(generation=[row], quality=result)
    assert (findings_of(fine), exit_code(fine)) == ((), 0)
    result = gate_result(gate, evaluated(agree=False))
    assert result["fine"] is False
    assert result["mean_kl"] > result["limit_mean_kl"] == 0.1
    assert "the limit is 0.1" in result["verdict"] and "the limit is 95.0%" in result["verdict"]
    assert result["first_divergence"] is not None and result["first_divergence"] >= 1
    failed = a_job(generation=[row], quality=result)
    [finding] = findings_of(failed)
    assert finding.startswith(
        "the quality gate failed: the mean KL divergence from the reference is "
    )
    assert exit_code(failed) == 1
    report = job_report(failed)
    assert [one.name for one in report.sections] == ["job", "generation", "phases", "quality"]
    generation, phases = (report.section(name) for name in ("generation", "phases"))
    assert generation.table.values["token_p50_ms"] == [row["token_p50_ms"]]
    assert phases.table.values["phase"] == ["prefill", "decode"]
    # Only the limit that was set counts; but NaN never passes.
    lenient = Quality.model_validate({"reference": REFERENCE, "tokens": TEXT, "max_kl": 1e3})
    assert gate_result(lenient, evaluated(agree=False))["fine"] is True
    not_numbers = gate_result(lenient, evaluated(agree=True, nan=True))
    assert not_numbers["fine"] is False
    assert "NaN in the logits of 1 tokens" in not_numbers["verdict"]
