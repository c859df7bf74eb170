"""The lab's folder and its lab.yaml."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from etscope.errors import FormatError, LabError, MissingDependencyError, UsageError
from etscope_lab.config import EXAMPLE, Home, LabConfig
from etscope_lab.database import Database
from etscope_lab.jobs.records import DeviceConfig


def _home(folder: Path, text: str) -> Home:
    (folder / "lab.yaml").write_text(text)
    return Home.open(folder)


def test_a_new_folder_is_a_lab_of_this_machine(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "some" / "lab")
    assert home.folder == tmp_path / "some" / "lab" and home.folder.is_dir()
    assert home.folder.stat().st_mode & 0o777 == 0o700
    assert home.config.devices == (DeviceConfig("host", "host"),)
    assert home.config.scheduler is None and home.config.server.host == "127.0.0.1"
    assert home.database_url == f"sqlite:///{home.folder}/lab.db"
    assert home.store_url == f"{home.folder}/store"
    assert list(home.folder.iterdir()) == []  # nothing is written to look at it


def test_which_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ETSCOPE_LAB", raising=False)
    assert Home.open().folder == tmp_path / ".etscope" / "lab"
    monkeypatch.setenv("ETSCOPE_LAB", "~/other")
    assert Home.open().folder == tmp_path / "other"
    assert Home.open(tmp_path / "given").folder == tmp_path / "given"


def test_a_folder_that_cannot_be_and_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LabError, match="cannot be read"):
        Home.open(tmp_path)
    with pytest.raises(LabError, match="cannot be made"):
        Home.open(tmp_path / "lab.yaml" / "lab")


def test_all_keys(tmp_path: Path) -> None:
    home = _home(
        tmp_path,
        """
database: postgresql://me@db/lab
store: s3://bucket/lab
scheduler: tcp://10.0.0.1:8786
devices:
  - {name: host, driver: host}
  - name: board-1
    driver: my.package:Board
    options: {port: 22, keys: [a, b]}
    attributes: {cores: 8, gpu: true, clock: 1.8, soc: rk3588}
server: {host: 0.0.0.0, port: 80, hosts: [lab.local], trusted_proxies: [10.0.0.2],
         require_tokens: true, max_upload_bytes: 1000}
""",
    )
    assert home.database_url == "postgresql://me@db/lab" and home.store_url == "s3://bucket/lab"
    assert home.config.scheduler == "tcp://10.0.0.1:8786"
    board = home.config.devices[1]
    assert board.options == {"port": 22, "keys": ["a", "b"]}
    assert board.attributes == {"cores": "8", "gpu": "true", "clock": "1.8", "soc": "rk3588"}
    server = home.config.server
    assert (server.host, server.port, server.hosts) == ("0.0.0.0", 80, ("lab.local",))
    assert server.require_tokens and server.max_upload_bytes == 1000


@pytest.mark.parametrize(
    ("database", "file"),
    [
        ("sqlite:///jobs.db", "jobs.db"),
        ("sqlite:///in/here.db?timeout=3", "in/here.db"),
        ("sqlite:////elsewhere/x.db", "/elsewhere/x.db"),
    ],
)
def test_relative_paths_begin_in_the_folder(tmp_path: Path, database: str, file: str) -> None:
    home = _home(tmp_path, f"database: {database}\nstore: files\n")
    assert home.database_url.partition("?")[0] == f"sqlite:///{tmp_path / file}"
    assert home.store_url == str(tmp_path / "files")


def test_a_folder_of_any_name(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "my lab+ä")
    Database(home.database_url).close()
    assert (home.folder / "lab.db").exists()


def test_the_example_says_what_is_the_default(tmp_path: Path) -> None:
    home = Home.init(tmp_path)
    assert (tmp_path / "lab.yaml").read_text() == EXAMPLE
    assert home.config == Home.open(tmp_path / "empty").config
    with pytest.raises(UsageError, match="there already"):
        Home.init(tmp_path)


def test_the_keys_that_the_example_shows(tmp_path: Path) -> None:
    keys = {*LabConfig.model_fields, "devices"} - {"entries"}
    names = "|".join(keys)
    text = re.sub(rf"(?m)^# (?=( *- |({names}): | {{2,}}\w+:|({names}):$))", "", EXAMPLE)
    home = _home(tmp_path, text)
    assert set(yaml.safe_load(text)) == keys
    assert home.database_url == Home.open(tmp_path / "empty").database_url.replace("/empty", "")
    assert home.store_url == str(tmp_path / "store")
    shown = home.config.server.model_dump(exclude={"oidc"})
    assert shown == Home.open(tmp_path / "empty").config.server.model_dump(exclude={"oidc"})
    assert [device.driver for device in home.config.devices] == ["host", "ssh", "adb"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("devises: []", "devises: unknown field"),
        ("server: {port: web}", r"server\.port: .*integer"),
        ("server: {port: 70000, prot: 1}", r"server\.port: .*65535; server\.prot: unknown"),
        ("devices: [{driver: host}]", r"devices\.0\.name: field required"),
        ("devices: [{name: a/b, driver: host}]", r"devices\.0\.name: .*pattern"),
        ("devices: [{name: a, driver: x}, {name: a, driver: y}]", "two are named 'a'"),
        ("devices: [{name: a, driver: x, attributes: {b: [1]}}]", r"attributes\.b: .*text"),
        ("database: ''", "database: .*empty"),
        ("database: 5", "database: .*text"),
        ("store: 1\nstore: 2", "duplicate key 'store'"),
        ("- host", "a list, not keys"),
        ("devices: [", "not YAML"),
        ("x: !!python/object/apply:os.system [true]", "not YAML"),
        ("\x00", "not YAML"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said) as caught:
        _home(tmp_path, text)
    assert str(tmp_path / "lab.yaml") in str(caught.value)


def test_the_server_of_a_folder(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    assert home.server_url is None
    with home.announce("http://127.0.0.1:1/") as first:
        assert first and Home.open(tmp_path).server_url == "http://127.0.0.1:1/"
        with home.announce("http://127.0.0.1:2/") as second:
            assert not second and home.server_url == "http://127.0.0.1:1/"
        assert home.server_url == "http://127.0.0.1:1/"
    assert home.server_url is None


def test_a_killed_server_is_none(tmp_path: Path) -> None:
    """Even when its process id is another's by now."""
    code = f"""
import sys
from etscope_lab.config import Home
with Home.open({str(tmp_path)!r}).announce("http://127.0.0.1:9/"):
    print("there", flush=True)
    sys.stdin.read()
"""
    home = Home.open(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "there\n"
        assert home.server_url == "http://127.0.0.1:9/"
        child.kill()
        child.wait()
    assert home.server_url is None
    said = (tmp_path / "server.json").read_text()
    (tmp_path / "server.json").write_text(said.replace(str(child.pid), str(os.getpid())))
    assert home.server_url is None


def test_a_system_without_file_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Windows: a command ends with a code of its own."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.delitem(sys.modules, "etscope_lab.config")
    with pytest.raises(MissingDependencyError, match="needs Linux or macOS"):
        importlib.import_module("etscope_lab.config")
