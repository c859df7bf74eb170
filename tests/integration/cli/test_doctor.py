"""`etscope doctor` tells what is there from what is missing, with the line that installs it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etscope.cli import main
from etscope.cli.verbs import doctor


def parts(capsys: pytest.CaptureFixture[str], exit_code: int) -> dict[str, dict[str, Any]]:
    assert main(["doctor", "--format", "json"]) == exit_code
    return {row["part"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


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
