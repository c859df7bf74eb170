"""docs/how-to/lab-server.md, from nothing to an alarm and the commit: its commands and files, with
the addresses of this machine."""

from __future__ import annotations

import json
import os
import queue
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from etscope.run.native import find_runner
from lab_support import postgresql
from lab_support.devices import device_of
from tests.support.docs.pages import ROOT, blocks
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, until
from tests.support.warm import SOURCES, warm_python

pytest.importorskip("executorch")
PAGE = ROOT / "docs" / "how-to" / "lab-server.md"
FOLLOWED = "test_team_lab.py follows it"
MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Conv2d(8, 8, SIZE, padding=SIZE // 2)
        self.head = nn.Linear(8, 10)

    def forward(self, image):
        stem = torch.relu(self.stem(image))
        body = torch.relu(self.body(stem))
        return self.head(body.mean((2, 3)))


def make():
    torch.manual_seed(NIGHT)
    return Net(), (torch.randn(1, 3, 32, 32),)
"""
SOURCE = f"net.py:{1 + MODEL.splitlines().index('        body = torch.relu(self.body(stem))')}"
NIGHTS = 5  # before the slow commit
FAST, SLOW = 3, 15  # sizes of a kernel


class Team:
    """The machines of the page, as folders and processes of this one."""

    def __init__(self, folder: Path, server: postgresql.PostgreSql, ssh: dict[str, Any]) -> None:
        self.folder, self.clone, self.origin = folder, folder / "net", folder / "origin"
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self._stack = ExitStack()
        hook = self._stack.enter_context(webhook(self.heard))
        scheduler, port = f"127.0.0.1:{free_port()}", free_port()
        quiet = "driver: lab_support.quiet_devices:"
        self._here = {
            "createdb --host db.example": f"createdb --host {server.folder} --user etscope",
            "postgresql://etscope@db.example/etscope": server.url("etscope"),
            "s3://etscope-lab/store": str(folder / "store"),
            "scheduler.example:8786": scheduler,
            "driver: host": f"{quiet}QuietHost",
            "driver: ssh": f"{quiet}QuietSsh",
            "{host: board-1.example, push_runner: device/}": json.dumps(
                {**ssh, "push_runner": str(find_runner())}
            ),
            "/srv/net": str(self.clone),
            "https://hooks.example/lab": hook,
            "server: {": f"calibrate: false\nserver: {{port: {port}, ",
        }
        commands = folder / "bin"
        commands.mkdir()
        for name in ("etscope", "dask"):
            script = commands / name
            script.write_text(f'#!/bin/sh\nexec "{warm_python()}" -m {name} "$@"\n')
            script.chmod(0o755)
        self.environment = {
            **os.environ,
            "COLUMNS": "300",
            "ETSCOPE_LAB": str(folder / "lab"),
            "PYTHONPATH": os.pathsep.join(SOURCES),
            "PATH": f"{commands}:{os.environ['PATH']}",
        }
        self.environment.pop("ETSCOPE_LAB_SERVER", None)

    def close(self) -> None:
        self._stack.close()

    def text(self, code: str) -> str:
        for there, here in self._here.items():
            code = code.replace(there, here)
        return code

    def run(self, *lines: str) -> str:
        """Run lines of the page's shell; return what they print."""
        code = self.text("\n".join(lines))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), f"{code}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str) -> subprocess.Popen[str]:
        """Start a command of the page that runs until it is stopped."""
        log = (self.folder / f"{len(list(self.folder.glob('*.log')))}.log").open("w")
        started = subprocess.Popen(
            shlex.split(self.text(line)),
            env=self.environment, cwd=self.folder, stdout=log, stderr=log, text=True,
        )  # fmt: skip

        def stop() -> None:
            started.terminate()
            started.wait(PATIENCE)

        self._stack.callback(stop)
        return started

    def commit(self, message: str, night: int, size: int) -> str:
        """Commit the model to the origin; return the hash."""
        text = MODEL.replace("NIGHT", str(night)).replace("SIZE", str(size))
        (self.origin / "net.py").write_text(f"# {message}{text}")
        git(self.origin, "add", "-A")
        git(self.origin, "commit", "-qm", message)
        return git(self.origin, "rev-parse", "HEAD")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@contextmanager
def webhook(heard: queue.Queue[dict[str, Any]]) -> Iterator[str]:
    """The URL of a server that puts each message it gets into `heard`."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *words: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def team(tmp_path: Path, postgresql_server: postgresql.PostgreSql) -> Iterator[Team]:
    board = tmp_path / "board"
    board.mkdir()
    with device_of("ssh", board) as device:
        made = Team(tmp_path, postgresql_server, dict(device.options))
        try:
            yield made
        finally:
            made.close()


@pytest.mark.nightly  # minutes of CPU: seven exports, twelve jobs and four A/B jobs
def test_a_team_gets_from_nothing_to_the_guilty_commit(team: Team) -> None:
    followed = [block for block in blocks(PAGE) if block.note == ("no-run", FOLLOWED)]
    database, config, token, processes, look, sweep, fetch, first, alarms, bisect = followed

    # 1. and 2.: PostgreSQL, scheduler, server, workers, devices
    team.run(*database.commands)
    home = team.folder / "lab"
    (home / "lab.yaml").write_text(team.text(config.code))
    team.run(*token.commands)
    scheduler, serve, *workers = processes.commands
    team.start(scheduler)
    server = team.start(serve)
    for worker in workers:
        team.start(worker)
    until(lambda: team.run(*look.commands).count("available") == 2, every=0.2)

    # 3.: the sweep; each night has a commit
    team.origin.mkdir()
    git(team.origin, "init", "-qb", "main")
    commits = [team.commit("night 0", 0, FAST)]
    git(team.folder, "clone", "-q", str(team.origin), str(team.clone))
    ours = "rounds = 8\nlimits = {max_cv = 10}  # this machine does other things\n"
    (team.clone / "nightly.toml").write_text(sweep.code + ours)
    team.run(*first.commands)
    for night in range(1, NIGHTS):
        commits.append(team.commit(f"night {night}", night, FAST))
        submit = f"{first.commands[-1]} --async --label run=night-{night}"
        team.run(*fetch.commands, *first.commands[:-1], submit)
    # A night that the server submits by the schedule, as it was away: three commits are new.
    team.commit("a comment", NIGHTS - 1, FAST)
    guilty = team.commit("a larger kernel", NIGHTS, SLOW)
    commits.append(team.commit("another comment", NIGHTS, SLOW))
    team.run(*fetch.commands)
    server.terminate()
    assert server.wait(PATIENCE) == 0
    (home / "sweeps-done.json").write_text(
        json.dumps({str(team.clone / "nightly.toml"): "2026-01-01 02:00:00+00:00"})
    )
    team.start(serve)

    # 4.: an alarm of each device
    told = [team.heard.get(timeout=PATIENCE) for _ in workers]
    assert {one["alarm"]["series"]["device"] for one in told} == {"rack-1", "board-1"}
    for one in told:
        found = one["alarm"]["found"]
        assert found["commits"] == commits[-2:]
        assert (found["operator"]["module"], found["operator"]["source"]) == ("body", SOURCE)
        assert all(word in one["text"] for word in (SOURCE, "Convolution", "confirms it"))
        assert one["link"].endswith(f"/alarms#{one['alarm']['id']}")
    assert team.run(*alarms.commands).count(SOURCE) == 2
    # The commit of the three, by the device that answers sooner
    (alarm,) = [one["alarm"]["id"] for one in told if "on rack-1" in one["text"]]
    command = bisect.commands[-1].replace("4f1c", alarm)
    said = team.run(*bisect.commands[:-1], command)
    assert f"{guilty[:12]} (a larger kernel, Ann, " in said
    assert f"body, {SOURCE}" in said
