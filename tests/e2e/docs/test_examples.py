"""The demo runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import anyio.from_thread
import pytest

from tests.contract.source_tree import ROOT
from tests.support.actions import Runner
from tests.support.docs.pages import blocks
from tests.support.warm import warm_python

pytest.importorskip("executorch")


@pytest.mark.nightly
def test_the_demo(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [warm_python(), "-m", "etscope", "run", "--demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "140"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wrote, kept = done.stderr.splitlines()
    assert wrote == "wrote keyword_spotter.py: the model of the demo"
    assert kept.endswith("; next: etscope explain, etscope report, etscope inspect")
    assert (tmp_path / "keyword_spotter.py").read_text() == (
        ROOT / "examples" / "keyword_spotter.py"
    ).read_text()
    assert "keyword_spotter.py:" in done.stdout
    assert "Method::execute" in done.stdout
    assert len(done.stdout.splitlines()) <= 60


REPOSITORY = ROOT / "examples" / "repository"
NOT_ON_THE_PAGE = {".gitignore", "README.md"}  # and the baselines, which pytest writes


def test_the_page_has_the_files_of_the_repository() -> None:
    shown = {
        block.note[1]: block.code
        for block in blocks(ROOT / "docs/how-to/repository.md")
        if block.note is not None and block.note[0] == "file"
    }
    files = [path for path in REPOSITORY.rglob("*") if path.is_file()]
    texts = {path.relative_to(REPOSITORY).as_posix(): path.read_text() for path in files}
    assert len(shown) == 5
    assert {
        name: text
        for name, text in texts.items()
        if name not in NOT_ON_THE_PAGE and not name.startswith(("etscope-baselines/", "__"))
    } == shown


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """A runner in a fresh clone of the repository. What its steps install is there."""
    python = warm_python()
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.delenv("ETSCOPE_RUNS", raising=False)
    made = Runner.made(
        tmp_path,
        etscope=f'exec "{python}" -m etscope "$@"',
        pytest=f'exec "{python}" -m pytest -p no:cacheprovider "$@"',
        pip=f'PIP_NO_INDEX=1 exec "{sys.executable}" -m pip "$@"',
    )
    shutil.copytree(REPOSITORY, made.folder, dirs_exist_ok=True)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=made.folder, check=True)
    return made


@pytest.mark.nightly  # installs etscope three times and runs three sessions of pytest
def test_a_repository_with_one_model(runner: Runner) -> None:
    workflow = ".github/workflows/model.yml"
    assert runner.workflow(workflow, "push", "main", "a1") == 0, runner.said
    assert "1 passed" in runner.said
    assert list(runner.cache) == ["etscope-model-main-a1"]
    # The cell and the server of the agent see the run.
    cell = subprocess.run(
        [warm_python(), "explore.py"], cwd=runner.folder, capture_output=True, text=True, check=True
    )
    assert "Method::execute" in cell.stdout, cell.stdout
    assert mcp_answer(runner, "open", run="ran")["files"]
    # The same model again: nothing but the time of a busy machine can be worse.
    runner.workflow(workflow, "pull_request", "main", "b1")
    outcomes = dict(re.findall(r"^\| ([a-zA-Z ]+) \|.* (\S+ \S+) \|$", runner.summary, re.M))
    assert outcomes["program bytes"] == outcomes["delegated share"] == "✅ ok", runner.summary
    assert {name for name in outcomes if outcomes[name] == "❌ worse"} <= {"time"}, runner.summary
    # A wider model ends at the test, before the check.
    model = runner.folder / "classifier.py"
    model.write_text(
        model.read_text().replace("32, 3, stride", "64, 3, stride").replace("(32, 10", "(64, 10")
    )
    assert runner.workflow(workflow, "pull_request", "main", "b2") == 1
    assert "program bytes:" in runner.said and "gh pr comment" not in runner.said


def mcp_answer(runner: Runner, tool: str, **arguments: str) -> dict[str, object]:
    """What a tool of the repository's configured server answers to the SDK's client."""
    mcp = pytest.importorskip("mcp")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    config = json.loads((runner.folder / ".mcp.json").read_text())["mcpServers"]["etscope"]
    started = StdioServerParameters(
        command=str(runner.commands / config["command"]),
        args=config["args"],
        env=dict(os.environ),
        cwd=runner.folder,
    )

    async def asked() -> str:
        async with mcp.Client(stdio_client(started)) as client:
            return str((await client.call_tool(tool, arguments)).content[0].text)

    with anyio.from_thread.start_blocking_portal() as portal:
        answer: dict[str, object] = json.loads(portal.call(asked))["data"]
    return answer
