"""deploy/: what its files start is started, as far as this machine has the programs; backups are
brought back, also those of an earlier version."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from etscope.cli import main
from etscope_lab.client import Client
from etscope_lab.config import Home, LabConfig
from etscope_lab.jobs.records import State
from etscope_lab.jobs.spec import JobSpec
from etscope_lab.lab import Lab
from lab_support import postgresql
from lab_support.server import a_done_job
from lab_support.simulated_device import write_lab
from tests.support.artifacts import artifacts
from tests.support.ports import free_port

DEPLOY = Path(__file__).parents[4] / "deploy"
CORPUS = Path(__file__).parents[1] / "corpus"


def script(name: str, *arguments: object) -> None:
    programs = [str(Path(sys.executable).parent), str(postgresql._programs()), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(programs)}
    command = [str(DEPLOY / name), *map(str, arguments)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@contextmanager
def process(*command: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(command, text=True, **more)
    try:
        yield started
    finally:
        started.terminate()
        started.wait(60)


def test_a_team_is_initialised_with_a_configuration_that_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "--home", str(tmp_path), "init", "team"]) == 0
    config = Home.open(tmp_path).config
    assert config.database == "postgresql://etscope@db/etscope"
    assert (config.store, config.scheduler) == ("/store", "tcp://scheduler:8786")
    assert (config.server.host, config.server.require_tokens, config.log) == (
        "0.0.0.0", True, "json",
    )  # fmt: skip
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert {"db", "scheduler"} <= services.keys()


def test_the_services_of_compose_do_a_job_and_their_backup_is_brought_back(
    tmp_path: Path, postgresql_server: postgresql.PostgreSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    home, url, port = tmp_path / "lab", postgresql_server.new(), str(free_port())
    scheduler = f"127.0.0.1:{port}"
    write_lab(home, artifacts("cnn_xnnpack").folder, 1)
    devices = yaml.safe_load((home / "lab.yaml").read_text())
    (home / "lab.yaml").unlink()
    Home.init(home, team=True)
    file = home / "lab.yaml"
    config = {**yaml.safe_load(file.read_text()), **devices, "database": url}
    config |= {"store": str(tmp_path / "store"), "scheduler": f"tcp://{scheduler}"}
    config["server"] = {"port": 0, "require_tokens": True}
    file.write_text(json.dumps(config))

    def command(service: str) -> list[str]:
        found = services[service]
        parts = found.get("entrypoint") or ["etscope", *found["command"]]
        modules = {"etscope": "etscope", "dask": "dask"}
        parts = [sys.executable, "-m", modules[parts[0]], *parts[1:]]
        return [
            re.sub(r"(0\.0\.0\.0|scheduler):8786", scheduler, part).replace("host", "sim-0")
            if part == "host" or ":8786" in part
            else part
            for part in parts
        ]

    monkeypatch.setenv("ETSCOPE_LAB", str(home))
    secret = Lab.open(home).database.add_token("ann", ["submit"], project="vision")
    with ExitStack() as stack:
        for service in ("scheduler", "worker"):
            stack.enter_context(process(*command(service), stderr=subprocess.DEVNULL))
        server = stack.enter_context(
            process(*command("server"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        assert server.stdout is not None and server.stderr is not None
        address = server.stdout.readline().strip()
        spec = JobSpec(
            model=str(artifacts("cnn_xnnpack").pte),
            iterations=3,
            traced_iterations=0,
            device="sim-*",
        )
        with Client(address, secret) as client:
            done = client.wait(client.submit(spec).id, 120)
            assert (done.state, done.project, done.device) == (State.DONE, "vision", "sim-0")
            script("backup.sh", url, tmp_path / "store", tmp_path / "backup")
            lost = client.submit(spec, again=True)
            assert client.wait(lost.id, 120).state is State.DONE
        server.terminate()
        assert server.wait(60) == 0
        lines = [json.loads(line) for line in server.stderr if line.startswith("{")]
    assert {"time", "level", "logger", "job", "message"} <= lines[0].keys()
    assert done.id in {line["job"] for line in lines}
    shutil.rmtree(tmp_path / "store")
    script("restore.sh", url, tmp_path / "store", tmp_path / "backup")
    with Lab.open(home) as lab:
        assert [job.id for job in lab.jobs().jobs] == [done.id]
        assert {path.name for path in lab.fetch(done.id, tmp_path)} == set(done.artifacts)
        again = lab.submit(spec, again=True)  # numbers go on behind those that are there
        assert lab.job(again.id).state is State.QUEUED


def test_a_file_is_backed_up_while_it_is_written_and_brought_back(lab: Lab, tmp_path: Path) -> None:
    file, store, target = lab.home.folder / "lab.db", lab.home.store_url, tmp_path / "backup"
    kept = a_done_job(lab, {"run.json": b"{}"})
    script("backup.sh", file, store, target)
    for number in range(2):  # the second one only adds
        later = a_done_job(lab, {"run.json": b"%d" % number})
    script("backup.sh", file, store, target)
    a_done_job(lab, {"run.json": b"lost"})
    lab.close()
    shutil.rmtree(store)
    file.write_bytes(b"damaged")
    script("restore.sh", file, store, target)
    with Lab.open(lab.home) as again:
        assert {kept.id, later.id} <= {job.id for job in again.jobs().jobs}
        assert again.jobs().total == 3
        assert again.fetch(kept.id, tmp_path / "out")[0].read_bytes() == b"{}"


def test_a_backup_of_an_earlier_version_is_upgraded(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    (target / "store").mkdir(parents=True)
    with closing(sqlite3.connect(target / "lab.db")) as connection:
        connection.executescript((CORPUS / "version-5.sql").read_text())
        connection.execute("update lab_leases set until = '2026-01-01 00:00:00.000000'")
        connection.commit()
    home = tmp_path / "home"
    home.mkdir()
    script("restore.sh", home / "lab.db", home / "store", target)
    with Lab.open(home) as lab:
        assert lab.jobs().total == 16
    assert (home / "lab.db.version-5").exists()


def test_units_of_systemd_hold(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    units = [Path(shutil.copy(path, tmp_path)) for path in sorted((DEPLOY / "systemd").iterdir())]
    assert len(units) == 5
    for unit in units:  # the programs are elsewhere here
        text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", unit.read_text())
        unit.write_text(text)
        name = str(unit).replace("@.service", "@pixel-8.service")
        Path(name).write_text(text)
        ended = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", name],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        told = [line for line in ended.stderr.splitlines() if unit.stem.rstrip("@") in line]
        assert (ended.returncode, told) == (0, []), ended.stderr


def test_the_chart_makes_objects_and_a_configuration_that_hold() -> None:
    chart = DEPLOY / "helm" / "etscope-lab"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    used = set()

    def value(found: re.Match[str]) -> str:
        if found[1] == "Release.Name":
            return "lab"
        used.add(found[1].removeprefix("Values."))
        held = values[found[1].removeprefix("Values.")]
        return json.dumps(held) if found[2] else str(held)

    objects = {}
    for path in sorted((chart / "templates").iterdir()):
        text = re.sub(r"\{\{ \.([\w.]+)( \| toJson)? \}\}", value, path.read_text())
        assert "{{" not in text
        for one in yaml.safe_load_all(text):
            objects[one["kind"], one["metadata"]["name"]] = one
    assert used == values.keys()
    assert {kind for kind, _ in objects} == {
        "ConfigMap", "Deployment", "Service", "Ingress", "NetworkPolicy",
    }  # fmt: skip
    config = objects["ConfigMap", "lab-config"]["data"]["lab.yaml"]
    found = LabConfig.model_validate(yaml.safe_load(config))
    assert found.scheduler == "tcp://lab-scheduler:8786"
    assert ("Service", "lab-scheduler") in objects
    for (kind, name), one in objects.items():
        if kind == "Deployment":
            template = one["spec"]["template"]
            wanted = one["spec"]["selector"]["matchLabels"]
            assert template["metadata"]["labels"] == wanted
            [container] = template["spec"]["containers"]
            mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
            assert mounted == {one["name"] for one in template["spec"].get("volumes", ())}, name
