"""Jobs of the kind generate: a real language model in the process that measures, in the lab's
database, on its pages, and from the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from etscope.cli import main
from etscope.errors import MissingDataError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.run_json import parse_run_json, read_run_json, saved_generation
from etscope.run import generate
from etscope_lab.comparison.compare import compare
from etscope_lab.fleet import query
from etscope_lab.jobs.generations import COLD_STARTS, prompt_file, samples_of
from etscope_lab.jobs.records import Artifact, DeviceConfig, Job, Order, Outcome, State
from etscope_lab.jobs.spec import set_files, spec_of
from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from etscope_lab.server.settings import Settings
from etscope_lab.worker import subprocesses, worker
from etscope_lab.worker.measure import answer_to
from lab_support.devices import device_of
from lab_support.orders import ordered
from tests.support.artifacts import artifacts

NEW = 20
FEW = {"new_tokens": NEW, "cold": 2, "warm": 2, "warmup": 1}
ONCE = {"new_tokens": 4, "cold": 0, "warm": 1, "warmup": 0}
TEXT = "3,17,40,5,9,22,31,8,77,120,64,2,19,50,33"


def answer_of(folder: Path, files: Mapping[str, Path], **more: Any) -> dict[str, Any]:
    """The answer of the process that measures."""
    return answer_to(ordered(folder, files, **{"kind": "generate", "generation": ONCE, **more}))


def llama() -> Path:
    return artifacts("llama_generate").pte


def damaged_llama(folder: Path) -> Path:
    """The same program with other weights in its last matrix: it is as fast, and says other
    things."""
    data = bytearray(llama().read_bytes())
    weights = np.frombuffer(bytes(data), np.float32, count=len(data) // 4)
    is_weight = np.isfinite(weights) & (np.abs(weights) > 1e-3) & (np.abs(weights) < 1.5)
    longest = _longest_stretch(is_weight)
    view = np.frombuffer(memoryview(data), np.float32, count=len(data) // 4)
    view[longest] *= np.random.default_rng(0).normal(1, 2, view[longest].shape).astype(np.float32)
    path = folder / "other.pte"
    path.write_bytes(bytes(data))
    return path


def _longest_stretch(mask: Any) -> slice:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    starts, ends = edges[::2], edges[1::2]
    at = int((ends - starts).argmax())
    return slice(int(starts[at]), int(ends[at]))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a job with two prompts that was measured, and its answer."""
    folder = tmp_path_factory.mktemp("job")
    prompts = folder / "prompts.txt"
    prompts.write_text("3,17,40\n")
    files = {"model": llama(), "prompts": prompts}
    answer = answer_of(folder / "work", files, generation={**FEW, "lengths": [9]})
    return folder / "work", answer


def test_what_is_measured(done: tuple[Path, dict[str, Any]]) -> None:
    folder, answer = done
    assert (answer["state"], answer["error"]) == ("done", "")
    summary = answer["summary"]
    assert (summary["method"], summary["backend"]) == ("forward", "XnnpackBackend")
    first, second = summary["generation"]
    assert (first["prompt"], second["prompt"]) == ("prompts.txt, line 1", "9 tokens of seed 0")
    assert (first["prompt_tokens"], second["prompt_tokens"]) == (3, 9)
    for row, name in ((first, "run.json"), (second, "prompt-1.run.json")):
        saved = read_run_json(folder / "out" / name)
        generation = saved.generation
        assert generation is not None and generation.runs == 2
        assert row["generated_tokens"] == len(generation.generated_tokens) == NEW
        samples = samples_of(saved)
        assert {name: len(found) for name, found in samples.items()} == {
            "token": 2 * (NEW - 1), "first token": 2, "cold first token": 2,
        }  # fmt: skip
        for metric in ("token", "first token", "cold first token"):
            key = metric.replace(" ", "_")
            assert row[f"{key}_p50_ms"] == pytest.approx(np.median(samples[metric]) / 1e6)
        # A new process has to load, and to fill its caches.
        assert samples["cold first token"].tolist() == [
            one["load_ns"] + one["first_token_ns"] for one in saved.content[COLD_STARTS]
        ]
        assert row["load_ms"] > 0
        assert row["decode_tokens_per_s"] > 0 and row["prefill_tokens_per_s"] > 0
        assert row["peak_rss_bytes"] > 1 << 20
        assert saved.content["program"] == "program.pte"
    # The times are of the tokens of the first prompt; the tokens those of plain generation.
    latency = summary["latency"]
    assert latency["iterations"] == 2 * (NEW - 1)
    assert latency["p50_ms"] == pytest.approx(first["token_p50_ms"])
    with generate(llama(), tokens=[3, 17, 40], max_new_tokens=NEW, end_tokens=(), trace=False,
                  iterations=1, warmup=0, runner="native") as plain:  # fmt: skip
        saved = read_run_json(folder / "out" / "run.json")
        assert saved.generation is not None
        assert saved.generation.generated_tokens.tolist() == plain.tokens.tolist()
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "conditions.json", "outputs.npz", "prompt-1.outputs.npz", "prompt-1.run.etdp",
        "prompt-1.run.json", "run.etdp", "run.json",
    ]  # fmt: skip
    found = saved_generation(folder / "out" / "run.etdp")
    assert found is not None
    runs = read_etdump(folder / "out" / "run.etdp").num_runs
    assert len(found[1]) == NEW and runs == NEW + 1  # and loading


def test_a_gate_that_holds_and_one_that_does_not(tmp_path: Path) -> None:
    """Against a program, and against the graph of a record."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    record = artifacts("llama_generate").etrecord
    assert record is not None
    gate = {"max_kl": 0.05, "min_agreement": 0.9}
    found = {}
    for name, model, reference, limits in (
        ("same", llama(), llama(), gate),
        ("other", damaged_llama(tmp_path), llama(), gate),
        ("graph", llama(), record, {"max_kl": 1e-6}),
    ):
        files = {"model": model, "quality.reference": reference, "quality.tokens": text}
        generation = {**ONCE, "lengths": [3]}
        more = {"quality": limits, "traced_iterations": 0, "generation": generation}
        answer = answer_of(tmp_path / name, files, **more)
        assert (answer["state"], answer["error"]) == ("done", "")
        found[name] = answer["summary"]["quality"]
        assert answer["summary"]["generation"][0]["token_p50_ms"] > 0
        assert found[name]["tokens"] == len(TEXT.split(",")) - 1
    assert {name: one["fine"] for name, one in found.items()} == {
        "same": True, "other": False, "graph": True,
    }  # fmt: skip
    assert (found["same"]["mean_kl"], found["same"]["agreement"]) == (0.0, 1.0)
    assert found["other"]["mean_kl"] > 0.05
    assert found["graph"]["reference"] == record.name


def test_an_ab_job_of_two_language_models(tmp_path: Path) -> None:
    """Each time has its verdict; here both sides are the same program."""
    files = {"model": llama(), "baseline": llama()}
    generation = {"new_tokens": 12, "lengths": [5], "warm": 2, "warmup": 1}
    more = {"kind": "ab", "rounds": 4, "threads": 1, "min_effect": 0.5}
    job = tmp_path / "job"
    answer = answer_of(job, files, generation=generation, **more)
    assert (answer["state"], answer["error"]) == ("done", "")
    ab = answer["summary"]["ab"]
    assert list(ab["metrics"]) == ["token", "first token"]
    assert ab["rounds"] == 4 and ab["metric"] in ab["metrics"]
    assert ab["verdict"] in ("no difference", "cannot tell", "regressed", "improved")
    assert answer["summary"]["latency"]["iterations"] == 4 * 2 * 11
    raw = json.loads((job / "out" / "ab.json").read_text())
    tokens = raw["runs_by_metric"]["token"]
    assert [len(one["model_ns"]) for one in tokens] == [2 * 11] * 4
    assert [len(one["baseline_ns"]) for one in raw["runs_by_metric"]["first token"]] == [2] * 4
    for name in ("run.etdp", "baseline.run.etdp"):
        assert read_etdump(job / "out" / name).num_runs == 12 + 1
    assert saved_generation(job / "out" / "run.etdp") is not None


def test_methods_apart_with_weights_in_a_file(tmp_path: Path) -> None:
    """`prefill` and `decode`, which share a cache; all weights are in a .ptd."""
    made = artifacts("llama_shared_external")
    files = {"model": made.pte, "data": made.folder / "weights.ptd"}
    once = {"new_tokens": 6, "lengths": [8], "cold": 1, "warm": 2, "warmup": 0}
    answer = answer_of(tmp_path / "job", files, generation=once)
    assert (answer["state"], answer["error"]) == ("done", "")
    assert answer["summary"]["method"] == "prefill+decode"
    [row] = answer["summary"]["generation"]
    phases = [(one["phase"], one["calls"], one["tokens"]) for one in row["phases"]]
    assert phases == [("prefill", 1, 8), ("decode", 5, 5)]
    alone = answer_of(tmp_path / "alone", {"model": made.pte}, generation=once)
    assert (alone["state"], alone["error_slug"]) == ("user_error", "usage")
    assert "needs data from a .ptd file" in alone["error"]


def test_over_ssh(tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.mkdir()
    with device_of("ssh", server) as config:
        device = {"name": "b", "driver": "ssh", "options": dict(config.options), "attributes": {}}
        text = tmp_path / "text.txt"
        text.write_text("3,17,40,5")
        files = {"model": llama(), "quality.reference": llama(), "quality.tokens": text}
        more = {"generation": {**ONCE, "lengths": [4], "cold": 1}, "quality": {"max_kl": 0.1}}
        answer = answer_of(tmp_path / "job", files, device=device, **more)
    assert (answer["state"], answer["error"]) == ("done", "")
    assert answer["environment"]["device"]["driver"] == "ssh"
    assert answer["summary"]["generation"][0]["generated_tokens"] == 4
    assert answer["summary"]["quality"]["fine"] is True
    assert read_etdump(tmp_path / "job" / "out" / "run.etdp").num_runs == 4 + 1


# -- what goes wrong


@pytest.mark.parametrize(
    ("model", "spec", "text", "slug", "said"),
    [
        ("cnn", {}, None, "mismatch", "is not like a language model's"),
        ("llama", {"generation": {"lengths": [4, 300]}}, None, "mismatch",
         "the prompt 300 tokens of seed 0 has 300 tokens, and the program's context 128"),
        ("llama", {"prompts": "1,two"}, None, "usage", "'two' is not a token id"),
        ("llama", {"prompts": "1,70000"}, None, "mismatch", "70000"),
        ("llama", {"quality": {"max_kl": 1}}, "5", "usage", "less than two tokens"),
        ("llama", {"quality": {"max_kl": 1}}, "5,90000", "mismatch", "90000"),
    ],
)  # fmt: skip
def test_what_the_submitter_has_to_mend(
    tmp_path: Path, model: str, spec: dict[str, Any], text: str | None, slug: str, said: str
) -> None:
    files = {"model": llama() if model == "llama" else artifacts("cnn_portable").pte}
    more = dict(spec)
    if "prompts" in more:
        files["prompts"] = tmp_path / "prompts.txt"
        files["prompts"].write_text(more.pop("prompts"))
    if text is not None:
        files |= {"quality.reference": llama(), "quality.tokens": tmp_path / "text.txt"}
        files["quality.tokens"].write_text(text)
    answer = answer_of(tmp_path / "job", files, **more)
    assert (answer["state"], answer["error_slug"]) == ("user_error", slug)
    assert said in answer["error"]
    assert str(tmp_path) not in answer["error"]


def test_a_device_without_the_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "etscope_lab.devices.host.Host._missing", lambda self, kind: "it is not here"
    )
    answer = answer_of(tmp_path / "job", {"model": llama()})
    assert (answer["state"], answer["error_slug"]) == ("failed", "missing-dependency")
    assert "the native runner is not available" in answer["error"]


def test_what_was_measured_before_an_error_stays(tmp_path: Path) -> None:
    """The first prompt is measured; a token of the second one is not of the vocabulary."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("3,17,40\n3,99999\n")
    job = tmp_path / "job"
    answer = answer_of(job, {"model": llama(), "prompts": prompts})
    assert answer["state"] == "user_error" and "99999" in answer["error"]
    [row] = answer["summary"]["generation"]
    assert row["prompt"] == "prompts.txt, line 1" and row["token_p50_ms"] > 0
    assert {"run.json", "run.etdp"} <= {path.name for path in (job / "out").iterdir()}


@pytest.mark.parametrize("how", ["stopped", "timeout"])
def test_what_was_measured_before_the_job_was_ended_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Somebody stops the job after its first prompt, or its time is up."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("3,17\n" * 60)
    generation = {"new_tokens": 100, "cold": 1, "warm": 2, "warmup": 0}
    later = 0.0  # than it is, for who watches the job's time
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + later, sleep=time.sleep)
    monkeypatch.setattr(subprocesses, "time", clock)
    plain = {"kind": "generate", "model": str(llama()), "prompts": str(prompts), "runner": "native"}
    with Lab.open(tmp_path / "home") as lab:
        wanted = spec_of({**plain, "generation": generation, "timeout_seconds": 3600})
        job = lab.submit(wanted)
        order = Order(
            job.id, 1, how, job.spec.model_dump(mode="json"), DeviceConfig("host", "host"),
            lab.home.store_url,
        )  # fmt: skip
        heard = ""

        def tell(message: Mapping[str, Any]) -> None:
            nonlocal heard, later
            heard += message.get("text", "")
            if heard.count("recording times") > 1:  # of the second prompt
                if how == "stopped":
                    worker.stop(how)
                else:
                    later = 3600.0

        outcome = worker.work(order, tell)
        assert outcome.state is (State.CANCELLED if how == "stopped" else State.TIMEOUT)
        rows = outcome.summary["generation"]
        assert 0 < len(rows) < 60 and rows[0]["token_p50_ms"] > 0
        assert outcome.environment["device"]["driver"] == "host"
        names = {artifact.name for artifact in outcome.artifacts}
        assert {"run.json", "run.etdp", "log.txt"} <= names
        for number in range(len(rows)):
            [kept] = [a for a in outcome.artifacts if a.name == prompt_file(number, "run.json")]
            run = parse_run_json(lab.store.open(kept.sha256).read())
            assert run.generation is not None and len(run.generation.generated_tokens) == 100


# -- in the lab


def in_a_lab(lab: Lab, done: tuple[Path, dict[str, Any]], **more: Any) -> Job:
    """A done job of the lab with the files of the measured one."""
    folder, answer = done
    plain = json.loads((folder / "order.json").read_text())["spec"]
    set_files(plain, {"model": str(llama()), "prompts": str(folder.parent / "prompts.txt")})
    queued = lab.submit(spec_of({**plain, **more}), again=True)
    assert lab.database.claim(queued.id, device="host", engine="e", token=queued.id)
    assert lab.database.started(queued.id, queued.id, "worker")
    kept: list[Artifact] = [
        lab.store.put_file(path, path.name) for path in sorted((folder / "out").iterdir())
    ]
    outcome = Outcome(
        queued.id, queued.id, State.DONE, answer["summary"], answer["environment"], (), tuple(kept)
    )
    assert lab.database.finish(outcome)
    return lab.job(queued.id)


def test_histories_by_prompt_and_time(lab: Lab, done: tuple[Path, dict[str, Any]]) -> None:
    rows = done[1]["summary"]["generation"]
    for number in range(3):
        in_a_lab(lab, done, labels={"commit": str(number)})
    found = {(series.inputs, series.metric): series for series in lab.history()}
    assert len(found) == 2 * 3
    assert {len(series.points) for series in found.values()} == {3}
    digest = rows[0]["prompt_sha256"][:12]
    names = (f"prompt {digest} of 3 tokens, {NEW} new", f"9 tokens of seed 0, {NEW} new")
    for row, name in zip(rows, names, strict=True):
        point = found[name, "token"].points[0]
        assert (point.p50_ms, point.p90_ms) == (row["token_p50_ms"], row["token_p90_ms"])
        assert point.load_ms == row["load_ms"]
        assert point.first_ms == row["cold_first_token_p50_ms"]
        first = found[name, "first token"].points[0]
        assert first.p50_ms == row["first_token_p50_ms"]
        cold = found[name, "cold first token"].points[0]
        assert cold.p50_ms == row["cold_first_token_p50_ms"]


def test_two_jobs_compared(lab: Lab, done: tuple[Path, dict[str, Any]]) -> None:
    first, second = (in_a_lab(lab, done, labels={"n": str(n)}).id for n in range(2))
    found = compare(lab, first, second, store=lab.store)
    names = [one["name"] for one in found["metrics"]]
    assert names[:3] == [
        f"{time} of prompts.txt, line 1" for time in ("token", "first token", "cold first token")
    ]
    assert len(names) == 6
    assert found["metric"] == names[0]
    assert found["relative"] == pytest.approx(0.0)
    token_ns = np.sort(samples_of(read_run_json(done[0] / "out" / "run.json"))["token"])
    fifth = len(token_ns) // 5
    trimmed_ms = token_ns[fifth:-fifth].mean() / 1e6
    assert found["metrics"][0]["first_ms"] == pytest.approx(trimmed_ms)
    # The prefill and the decode steps are compared apart.
    assert found["operators"]
    other = lab.submit(spec_of({"model": str(llama())}), again=True)
    lab.database.claim(other.id, device="host", engine="e", token="t")
    samples = {"latencies": [{"traced": None, "method": "forward", "samples_ns": [1000] * 20}]}
    kept = lab.store.put_stream([json.dumps(samples).encode()], "run.json")
    assert lab.database.finish(Outcome(other.id, "t", State.DONE, {}, {}, (), (kept,)))
    with pytest.raises(MissingDataError, match="have no time in common"):
        compare(lab, first, other.id)


def test_the_dumps_of_all_prompts_are_collected(
    lab: Lab, done: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    job = in_a_lab(lab, done, name="llama")
    dataset = str(tmp_path / "ds")
    assert main(["lab", "collect", "--lab", str(lab.home.folder), "-o", dataset]) == 0
    columns = "prompt_tokens, generated_tokens, first_token_ns, decode_tokens_per_s, job"
    found = list(query(dataset, f"select {columns} from dumps order by prompt_tokens").rows())
    expected = [
        (
            row["prompt_tokens"], NEW, pytest.approx(row["first_token_p50_ms"] * 1e6),
            pytest.approx(row["decode_tokens_per_s"]), job.id,
        )
        for row in done[1]["summary"]["generation"]
    ]  # fmt: skip
    assert found == expected
    phases = query(dataset, "select phase, count(*) as n from events where kind = 'execute' "
                            "group by phase order by phase")  # fmt: skip
    assert list(phases.rows()) == [("decode", 2 * (NEW - 1)), ("prefill", 2)]


def test_the_page_of_a_job(lab: Lab, done: tuple[Path, dict[str, Any]]) -> None:
    job = in_a_lab(lab, done)
    failed = {"fine": False, "verdict": "the mean KL divergence is 3 nats", "mean_kl": 3.0}
    bad = in_a_lab(
        lab, (done[0], {**done[1], "summary": {**done[1]["summary"], "quality": failed}})
    )
    app = create_app(lab, Settings(hosts=("testserver",)))
    with TestClient(app, base_url="http://testserver") as client:
        page = client.get(f"/jobs/{job.id}").text
        for words in (
            "prompts.txt, line 1", "9 tokens of seed 0", "Phases of a generation", "decode",
            "From token to token", "The time of each token, 9 tokens of seed 0",
            '"x": "position"', "median of the generations",
        ):  # fmt: skip
            assert words in page, words
        assert "Finding." not in page
        page = client.get(f"/jobs/{bad.id}").text
        assert "The quality gate failed: the mean KL divergence is 3 nats" in page
        history = client.get("/history").text
        assert "cold first token" in history and "prompt " in history
        address = f"/compare?first={job.id}&second={bad.id}"
        assert "token of 9 tokens of seed 0, p50" in client.get(address).text
        verdict = client.get(address.replace("compare", "compare/verdict")).text
        assert "Times of the generations" in verdict
        api = client.get("/api/v1/history").json()
        assert {one["metric"] for one in api} == {"token", "first token", "cold first token"}
        assert client.get("/?kind=generate").text.count(job.id) >= 1


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a program to its rates and the verdict of a gate, with the exit code for CI."""
    monkeypatch.setenv("ETSCOPE_LAB", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("ETSCOPE_LAB_SERVER", raising=False)
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    options = [
        "--prompt-length", "5", "--prompt-length", "9", "-X", "new_tokens=6", "-X", "cold=1",
        "-X", "warm=1", "-X", "runner=native",
    ]  # fmt: skip
    other = damaged_llama(tmp_path)
    gate = {"reference": str(llama()), "tokens": str(text), "max_kl": 0.05}
    files = [tmp_path / "whole.json", tmp_path / "damaged.json"]
    for path, model in zip(files, (llama(), other), strict=True):
        path.write_text(json.dumps({"model": str(model), "kind": "generate", "quality": gate}))
    assert main(["lab", "submit", str(files[0]), *options]) == 0
    shown = capsys.readouterr().out
    for words in (
        "5 tokens of seed 0",
        "9 tokens of seed 0",
        "(tokens/s)",
        "KL divergence from the reference is 0",
    ):
        assert words in shown, words
    assert "forward · decode · " in shown and "forward · prefill · " in shown  # operators of each
    assert main(["lab", "submit", str(files[1]), *options, "--format", "json"]) == 1
    captured = capsys.readouterr()
    job = json.loads(captured.out)
    assert (job["state"], job["summary"]["quality"]["fine"]) == ("done", False)
    assert len(job["summary"]["generation"]) == 2
    assert main(["lab", "status", job["id"], "--wait"]) == 1
    assert "quality" in capsys.readouterr().out
    assert main(["lab", "list", "--kind", "generate", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["findings"] for row in rows] == [1, 0]
