"""`etscope doctor` tells what is there from what is missing, with the line that installs it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from etscope.cli import main
from etscope.cli.verbs import doctor
from tests.support.schemas import validate


def parts(capsys: pytest.CaptureFixture[str], exit_code: int) -> dict[str, dict[str, Any]]:
    assert main(["doctor", "--format", "json"]) == exit_code
    document = json.loads(capsys.readouterr().out)
    assert validate(document) == "table"
    return {row["part"]: row for row in document["rows"]}


def test_what_is_here_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("executorch.runtime")
    found = parts(capsys, 0)
    assert "XnnpackBackend" in found["runtime"]["version"]
    assert all(row["fix"] for row in found.values() if row["state"] != "ok")
    assert found["extra plot"]["version"].startswith("matplotlib ")
    assert not any(row["fix"] for row in found.values() if row["state"] == "ok")


def test_an_installation_without_anything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_is_there", lambda module: False)
    monkeypatch.setattr(doctor, "_version", lambda distribution: None)
    found = parts(capsys, 5)
    assert found["torch"]["fix"] == found["executorch"]["fix"] == "pip install 'etscope[torch]'"
    assert found["backend ethos-u"]["fix"] == "pip install 'etscope[ethos-u]'"
    assert found["extra llm"]["fix"] == "pip install 'etscope[llm]'"
    assert "runtime" not in found


def test_versions_that_are_too_old_and_a_runtime_that_does_not_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"torch": "2.8.1+cpu", "executorch": "1.5.1"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    monkeypatch.setattr(doctor, "_is_there", lambda module: True)
    monkeypatch.setattr(doctor, "_RUNTIME", "raise ImportError('undefined symbol: x')")
    found = parts(capsys, 5)
    assert (found["torch"]["state"], found["executorch"]["state"]) == ("too old", "ok")
    assert found["runtime"]["version"] == "ImportError: undefined symbol: x"
    assert "do not fit" in found["runtime"]["fix"]


def test_the_oldest_versions_are_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["torch>=9.9; extra == 'all'", "torch>=2.9; extra == 'torch'", "executorch>=1.2"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: wanted)
    assert (doctor._oldest("torch"), doctor._oldest("executorch")) == ((2, 9), ())


def test_completion_is_told_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for shell in ("bash", "zsh", "fish"):
        monkeypatch.setenv("SHELL", f"/bin/{shell}")
        (found,) = doctor._completion()
        assert found.state == "missing" and f"--completion {shell}" in (found.fix or "")
        (tmp_path / doctor._SHELLS[shell]).parent.mkdir(parents=True, exist_ok=True)
        path = shutil.which(shell)
        if path is not None:  # the line itself, with a command of that name
            tools = tmp_path / "bin"
            tools.mkdir(exist_ok=True)
            (tools / "etscope").write_text("#!/bin/sh\necho :\n")
            (tools / "etscope").chmod(0o755)
            environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(tmp_path)}
            subprocess.run([path, "-c", found.fix], env=environment, check=True)
            (again,) = doctor._completion()
            assert (again.state, again.fix) == ("ok", None)
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert list(doctor._completion()) == []
