"""`etscope lab serve` as a process: where it says it is, that the other commands find it, and that
a signal ends it in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from etscope.bundled_program import bundle_cases
from etscope.cli import main
from etscope_lab.client import Client
from etscope_lab.config import Home
from tests.support.artifacts import artifacts
from tests.support.warm import warm_python


@contextmanager
def serving(
    home: Path, *options: str, python: str = sys.executable, ignore: bool = False
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that a server prints, and its process."""
    # A shell that starts a job in the background lets it ignore SIGINT.
    before = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignore else None
    process = subprocess.Popen(
        [python, "-m", "etscope", "lab", "--home", str(home), "serve", "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("number", "ignore"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_starts_is_found_and_ends_in_order(
    tmp_path: Path, number: int, ignore: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [] if number == signal.SIGTERM else ["--no-engine"]
    with serving(tmp_path, *options, ignore=ignore) as (url, process):
        health = httpx.get(f"{url}api/v1/health", timeout=60).json()
        assert health["parts"]["database"] == {"status": "ok", "message": ""}
        assert Home.open(tmp_path).server_url == url
        assert main(["lab", "--home", str(tmp_path), "list", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == []
        assert main(["lab", "--home", str(tmp_path), "serve", "--port", "0"]) == 2
        assert "is served already" in capsys.readouterr().err
        with httpx.stream("GET", url, timeout=60):
            process.send_signal(number)
        assert process.wait(300) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert Home.open(tmp_path).server_url is None


def test_who_may_read_the_folder_needs_no_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["lab", "--home", str(tmp_path), "token", "add", "ann", "--scope", "read"]) == 0
    secret = capsys.readouterr().out.strip()
    with serving(tmp_path, "--no-engine", python=warm_python()) as (url, process):
        assert main(["lab", "--home", str(tmp_path), "list"]) == 0
        assert main(["lab", "--server", url, "list"]) == 5
        assert "needs a token" in capsys.readouterr().err
        assert main(["lab", "--server", url, "--token", secret, "list"]) == 0
        assert main(["lab", "--server", url, "--token", secret, "token", "list"]) == 5
        monkeypatch.setenv("ETSCOPE_LAB_TOKEN", secret)
        assert main(["lab", "--server", url, "status", "none"]) == 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


def test_addresses_and_options_that_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["lab", "--home", str(tmp_path), "serve", "--port", "0"]
    assert main([*command, "--host", "0.0.0.0"]) == 5
    assert "has no tokens" in capsys.readouterr().err
    assert main(["lab", "--home", str(tmp_path), "token", "add", "ann"]) == 0
    assert main([*command, "--host", "192.0.2.1", "--no-engine"]) == 2
    assert os.listdir(tmp_path)
    assert "cannot listen on 192.0.2.1" in capsys.readouterr().err


def test_a_job_by_way_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bundle expects what no model answers: a finding."""
    monkeypatch.setenv("ETSCOPE_LAB", str(tmp_path / "lab"))
    monkeypatch.setenv("COLUMNS", "120")
    bundle = tmp_path / "wrong.bpte"
    case = ([np.ones((1, 3, 16, 16), np.float32)], [-np.ones((1, 10), np.float32)])
    bundle.write_bytes(bundle_cases(artifacts("method_only").pte, {"forward": [case]}))
    submit = ["lab", "submit", str(bundle), "--iterations", "3", "-X", "traced_iterations=2"]
    with serving(tmp_path / "lab") as (url, process):
        assert main(submit) == 1
        shown = capsys.readouterr()
        assert f"{url}jobs/" in shown.out
        assert "outputs of 1 of 1 test cases are not as expected" in shown.err
        with Client(url) as client:
            [job] = client.jobs().jobs
            assert job.summary["verification"] == {"passed": 0, "failed": 1}
            assert client.fetch(job.id, tmp_path / "fetched", ["run.etdp"])
        assert main(["inspect", str(tmp_path / "fetched" / "run.etdp")]) == 0
        # The same again is not run again.
        capsys.readouterr()
        assert main([*submit, "--format", "json"]) == 1
        assert json.loads(capsys.readouterr().out)["id"] == job.id
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


def test_init_writes_an_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "--home", str(tmp_path / "lab"), "init"]) == 0
    written = Path(capsys.readouterr().out.strip())
    assert written == tmp_path / "lab" / "lab.yaml"
    assert "devices:" in written.read_text()
    assert [device.name for device in Home.open(tmp_path / "lab").config.devices] == ["host"]
    assert main(["lab", "--home", str(tmp_path / "lab"), "init"]) == 2
    assert "is there already" in capsys.readouterr().err
