"""The composite Action: its steps run as a runner of GitHub runs them, with a cache and events."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.artifacts import ROOT, artifacts
from tests.support.timed_dumps import timed_dump

ACTION = ROOT / ".github" / "actions" / "etscope"
EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


@dataclass
class Runner:
    """Runs the steps of the action in a work folder. The cache stays from job to job, as GitHub's:
    a key is written once, and the newest with one of the prefixes is restored."""

    folder: Path
    commands: Path
    cache: dict[str, bytes] = field(default_factory=dict)
    said: str = ""

    def job(self, new: str, event: str, branch: str, sha: str, **inputs: str) -> int:
        """Run the action in a fresh folder; return 0, or the exit code of the step that failed."""
        action = yaml.safe_load((ACTION / "action.yml").read_text())
        defaults = {name: one.get("default", "") for name, one in action["inputs"].items()}
        pull = event == "pull_request"
        self.context: dict[str, Any] = {
            "inputs": {**defaults, "new": new, **inputs},
            "github": {
                "event_name": event,
                "sha": sha,
                "base_ref": branch if pull else "",
                "ref_name": "7/merge" if pull else branch,
                "token": "secret",
                "event": {"number": 7},
            },
            "steps": {},
        }
        shutil.rmtree(self.folder / ".etscope", ignore_errors=True)
        self.said, self.summary = "", ""
        assert action["runs"]["using"] == "composite"
        for step in action["runs"]["steps"]:
            if "if" in step and not self._value(step["if"]):
                continue
            code = self._used(step) if "uses" in step else self._ran(step)
            if code:
                return code
        self.outputs = {name: self._text(one["value"]) for name, one in action["outputs"].items()}
        return 0

    def _used(self, step: Mapping[str, Any]) -> int:
        given = {name: self._text(value) for name, value in step["with"].items()}
        path = self.folder / given["path"]
        match step["uses"].rpartition("@")[0]:
            case "actions/cache/restore":
                keys = [given["key"], *given["restore-keys"].split()]
                found = [
                    key for start in keys for key in reversed(self.cache) if key.startswith(start)
                ]
                if found:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(self.cache[found[0]])
            case "actions/cache/save":
                self.cache.setdefault(given["key"], path.read_bytes())
            case other:
                raise AssertionError(other)
        return 0

    def _ran(self, step: Mapping[str, Any]) -> int:
        assert step["shell"] == "bash" and "${{" not in step["run"]  # no text becomes a command
        files = {name: self.folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env={
                **os.environ,
                **{name: str(file) for name, file in files.items()},
                "PATH": f"{self.commands}{os.pathsep}{os.environ['PATH']}",
                "GITHUB_ACTION_PATH": str(ACTION),
                **{name: self._text(value) for name, value in step.get("env", {}).items()},
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        self.said += done.stdout + done.stderr
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        if "id" in step:
            lines = files["GITHUB_OUTPUT"].read_text().splitlines()
            outputs = dict(line.split("=", 1) for line in lines)
            self.context["steps"][step["id"]] = {"outputs": outputs}
        return done.returncode

    def _text(self, text: str) -> str:
        return EXPRESSION.sub(lambda match: str(self._value(match[1])), str(text))

    def _value(self, expression: str) -> Any:
        """The value of an expression of names, ==, && and ||."""
        for alternative in expression.split("||"):
            value: Any = True
            for term in alternative.split("&&"):
                one, equals, other = term.partition("==")
                value = self._name(one)
                value = value == self._name(other) if equals else value
                if not value:
                    break
            if value:
                return value
        return value

    def _name(self, text: str) -> Any:
        text = text.strip()
        if text.startswith("'"):
            return text.strip("'")
        found: Any = self.context
        for part in text.split("."):
            found = found.get(part, "")
        return found


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner with `etscope` in its path, and a `gh` that keeps its arguments."""
    commands, folder = tmp_path / "bin", tmp_path / "work"
    folder.mkdir()
    commands.mkdir()
    for name, line in (
        ("etscope", f'PYTHONPATH="{ROOT}/src" exec "{sys.executable}" -m etscope "$@"'),
        ("gh", 'echo "gh $*"'),
    ):
        (commands / name).write_text(f"#!/bin/sh\n{line}\n")
        (commands / name).chmod(0o755)
    made = artifacts("cnn_portable")
    assert made.etdump_timing is not None
    for number, (name, factor) in enumerate((("main", 1.0), ("same", 1.0), ("slower", 1.2))):
        (folder / name).mkdir()
        timed_dump(
            made.etdump_timing,
            folder / name / "model.etdp",
            runs=100,
            seed=number,
            slower=dict.fromkeys(range(24), factor),
        )
        shutil.copy(made.pte, folder / name / "model.pte")
        shutil.copy(str(made.etrecord), folder / name / "model.etrecord")
    return Runner(folder, commands)


def test_the_steps(runner: Runner) -> None:
    # A pull request before any push has nothing to compare with.
    assert runner.job("main", "pull_request", "main", "a0") == 0
    assert "::notice" in runner.said and not runner.cache
    # A push makes the baseline of its branch; another branch has its own.
    assert runner.job("main", "push", "main", "a1") == 0
    assert list(runner.cache) == ["etscope-model-main-a1"]
    assert runner.job("slower", "push", "next", "a2") == 0
    assert runner.outputs["exit-code"] == "0" and "::notice" in runner.said
    # Pull requests are compared with the branch that they go to.
    assert runner.job("same", "pull_request", "main", "b1") == 0
    assert "### ✅ etscope check: ok" in runner.summary
    folder = runner.folder / ".etscope" / "check" / "model"
    for name in ("markdown", "sarif", "junit"):
        assert (runner.folder / runner.outputs[name]).parent == folder
        assert (runner.folder / runner.outputs[name]).is_file()
    assert runner.job("slower", "pull_request", "main", "b2", comment="true") == 1
    assert "### ❌ etscope check: worse: time" in runner.summary
    line = r"::error file=\S+cnn\.py,line=\d+,title=etscope check::time: worse"
    assert re.search(line, runner.said) and "gh pr comment 7 --edit-last" in runner.said
    assert runner.job("slower", "pull_request", "main", "b3", arguments="--max-time 40%") == 0
    # A push that is worse is accepted: it is the next baseline.
    assert runner.job("slower", "push", "main", "a3") == 0
    assert runner.outputs["exit-code"] == "1"
    assert runner.job("slower", "pull_request", "main", "b5") == 0
    # A file that is not there fails at once.
    assert runner.job("nothing", "push", "main", "a4") == 2
    assert "etscope-model-main-a4" not in runner.cache
    assert "::error title=etscope check::etscope check failed with exit code 2" in runner.said
