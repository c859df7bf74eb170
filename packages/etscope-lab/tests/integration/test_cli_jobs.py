"""The commands that look at a lab: list, status, log, fetch, cancel, schema, token; of a folder and
of a server alike."""

from __future__ import annotations

import json
import os
import pty
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from etscope.cli import main
from etscope_lab.jobs.records import State
from etscope_lab.lab import Lab
from lab_support.jobs import run_through, spec_of_number
from lab_support.server import a_done_job, a_job, program, running
from tests.support.artifacts import artifacts
from tests.support.ports import nobody_listens

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=["home", "server"])
def run(
    request: pytest.FixtureRequest, lab: Lab, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Runs a command of `etscope lab` on the lab: its exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def runner(*place: str) -> Run:
        def call(*args: str) -> tuple[int, str, str]:
            code = main(["lab", *place, *args])
            out = capsys.readouterr()
            return code, out.out, out.err

        return call

    if request.param == "home":
        yield runner("--home", str(lab.home.folder))
    else:
        with running(lab) as url:
            yield runner("--server", url)


def test_lists_jobs(run: Run, lab: Lab) -> None:
    assert run("list")[0] == 0
    done = a_done_job(lab, {}, name="first", labels={"branch": "main"})
    queued = a_job(lab, name="second")
    code, out, _ = run("list", "--format", "json")
    rows = json.loads(out)["rows"]
    assert [(row["id"], row["state"]) for row in rows] == [
        (queued.id, "queued"), (done.id, "done"),
    ]  # fmt: skip
    assert (code, rows[1]["p50"], rows[1]["labels"]) == (0, 1.1, ["branch=main"])
    for options, found in (
        (["--state", "done"], [done.id]), (["--text", "second"], [queued.id]),
        (["--label", "branch=main"], [done.id]), (["--device", "host"], [done.id]),
        (["--kind", "ab"], []), (["--since", "2999-01-01"], []), (["-n", "1"], [queued.id]),
    ):  # fmt: skip
        _, out, _ = run("list", *options, "--format", "json")
        assert [row["id"] for row in json.loads(out)["rows"]] == found, options
    _, out, _ = run("list", "-n", "1")
    assert queued.id in out
    assert "1 more" in out
    assert run("list", "--label", "branch")[0] == 2


def test_records_of_the_benchmark_database(run: Run, lab: Lab) -> None:
    done = a_done_job(lab, {}, name="first", labels={"model": "net", "backend": "xnnpack"})
    broken = run_through(
        lab.database, spec_of_number(1), state=State.FAILED, error="it aborted", summary={}
    )
    a_job(lab, name="not ended")
    code, out, _ = run("list", "--format", "v3")
    failure, *times = json.loads(out)
    assert code == 0
    found = {one["metric"]["name"]: one["metric"]["benchmark_values"] for one in times}
    assert found["p50_inference_latency(ms)"] == [1.1]
    assert all(one["model"] == {"name": "net", "backend": "xnnpack"} for one in times)
    assert times[0]["runners"][0]["name"] == done.device
    extra = failure["benchmark"]["extra_info"]
    assert failure["metric"] == {
        "name": "FAILURE_REPORT", "benchmark_values": [0], "target_value": 0,
        "extra_info": {"method": ""},
    }  # fmt: skip
    assert (extra["job_conclusion"], json.loads(extra["benchmark_config"])["job"]) == (
        "FAILURE", broken.id,
    )  # fmt: skip
    assert json.loads(extra["job_report"]) == {"state": "failed", "error": "it aborted"}


def test_shows_a_job(run: Run, lab: Lab) -> None:
    done = a_done_job(lab, {"run.etdp": b"x"}, name="first")
    code, out, _ = run("status", done.id[:8])
    assert code == 0
    for text in ("first", "done", "1.1", "steps", "queued", "claimed", "running"):
        assert text in out, text
    _, out, _ = run("status", done.id, "--format", "json", "--wait")
    said = json.loads(out)
    assert said["schema"] == "etscope.lab.job/1"
    assert "run.etdp" in out
    assert run("status", "nothing")[0] == 4


def test_waits_for_a_job_and_tells_how_it_ended(run: Run, lab: Lab) -> None:
    job = a_job(lab)
    code, _, err = run("status", job.id, "--timeout", "0.2")
    assert (code, "etscope lab cancel stops it" in err) == (5, True)
    threading.Timer(0.3, lambda: lab.cancel(job.id)).start()
    assert run("status", job.id, "--wait")[0] == 4
    assert run("status", job.id)[0] == 0


def test_prints_logs_that_rule_no_terminal(run: Run, lab: Lab) -> None:
    job = a_done_job(lab, {"log.txt": "one\nzwölf\x1b[2J\n".encode()})
    for options in ([], ["--follow"]):
        assert run("log", job.id, *options)[:2] == (0, "one\nzwölf\\x1b[2J\n")
    assert run("log", "nothing")[0] == 4


def test_fetches_files(run: Run, lab: Lab, tmp_path: Path) -> None:
    dump = artifacts("two_methods").etdump.read_bytes()
    job = a_done_job(lab, {"run.etdp": dump, "log.txt": b"said"})
    code, out, _ = run("fetch", job.id, "-o", str(tmp_path / "all"))
    assert (code, [Path(line).name for line in out.splitlines()]) == (0, ["log.txt", "run.etdp"])
    assert (tmp_path / "all" / "run.etdp").read_bytes() == dump
    assert run("fetch", job.id, "run.etdp", "-o", str(tmp_path / "one"))[0] == 0
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["run.etdp"]
    assert run("fetch", job.id, "other", "-o", str(tmp_path / "x"))[0] == 4
    assert run("fetch", a_job(lab).id)[0] == 4


def test_cancels_jobs(run: Run, lab: Lab) -> None:
    first, second = a_job(lab), a_job(lab)
    assert run("cancel", first.id, second.id) == (
        0, f"{first.id} cancelled\n{second.id} cancelled\n", "",
    )  # fmt: skip
    assert run("cancel", first.id)[0] == 2
    assert run("cancel", "nothing")[0] == 4


def test_makes_lists_and_revokes_tokens(run: Run, lab: Lab, monkeypatch: Any) -> None:
    code, secret, err = run("token", "add", "ann", "--scope", "admin", "--expires", "2d")
    assert (code, "not shown again" in err) == (0, True)
    token = lab.database.check_token(secret.strip())
    assert token is not None
    assert token.expires_at is not None
    monkeypatch.setenv("ETSCOPE_LAB_TOKEN", secret.strip())
    [row] = json.loads(run("token", "list", "--format", "json")[1])["rows"]
    assert (row["name"], row["scopes"], row["valid"]) == ("ann", ["admin"], True)
    assert run("token", "add", "ann")[0] == 2
    for wrong in ("soon", "2001-01-01", "5m"):
        assert run("token", "add", "bob", "--expires", wrong)[0] == 2, wrong
    assert run("token", "revoke", "nobody")[0] == 4
    assert run("token", "revoke", "ann")[0] == 0
    assert lab.database.check_token(secret.strip()) is None


def test_nothing_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with nobody_listens() as port:
        for command in (["list"], ["cancel", "a"]):
            assert main(["lab", "--server", f"http://127.0.0.1:{port}", *command]) == 5, command
            assert "etscope lab serve starts one" in capsys.readouterr().err


def test_the_schema_takes_what_the_lab_takes(capsys: pytest.CaptureFixture[str]) -> None:
    from etscope.errors import UsageError
    from etscope_lab.jobs.spec import spec_of

    assert main(["lab", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    sha256 = "0" * 64
    for value, good in (
        ({"model": "a.pte"}, True),
        ({"model": f"sha256:{sha256}", "device": "arch=aarch64, driver=ssh"}, True),
        ({"model": {"path": "a"}, "iterations": 50.0, "labels": {"a": ""}}, True),
        ({"model": "a", "kind": "ab", "baseline": "b"}, True),
        ({"model": "a", "kind": "ab"}, False), ({"model": "a", "baseline": "b"}, False),
        ({"model": "a", "iterations": "50"}, False), ({"model": "a", "iterations": True}, False),
        ({"model": "a", "iterations": 0}, False), ({"model": "a", "iteration": 5}, False),
        ({"model": {"path": "a", "sha256": sha256}}, False), ({"model": {}}, False),
        ({"model": {"sha256": sha256, "name": "../x"}}, False),
        ({"model": "a", "device": "=x"}, False), ({"model": "a", "limits": {"max_cv": 0}}, False),
        ({"model": "a", "labels": {"a\nb": "c"}}, False), ({}, False),
    ):  # fmt: skip
        assert validator.is_valid(value) is good, value
        if good:
            spec_of(value)
        else:
            with pytest.raises(UsageError):
                spec_of(value)


def test_shows_the_progress_of_transfers_on_a_terminal(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.pte"
    model.write_bytes(program().read_bytes() + bytes(3 << 20))
    done = a_done_job(lab, {"run.etdp": b"x" * (3 << 20)})
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("etscope.cli.output.progress._PATIENCE", 0.0)
    master, slave = pty.openpty()

    def shows(expected: bytes) -> bool:
        text = b""
        while expected not in text and select.select([master], [], [], 10)[0]:
            text += os.read(master, 1 << 16)
        return expected in text

    with os.fdopen(slave, "w") as terminal, running(lab) as url, monkeypatch.context() as patched:
        patched.setattr("sys.stderr", terminal)
        assert main(["lab", "--server", url, "submit", str(model), "--async"]) == 0
        assert shows(b"sending model.pte")
        assert main(["lab", "--server", url, "fetch", done.id, "-o", str(tmp_path)]) == 0
        assert shows(b"fetching run.etdp")
    os.close(master)
