"""A runner of GitHub's workflows and composite actions, with a cache and events."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.artifacts import ROOT

ACTION = ROOT / ".github" / "actions" / "etscope"
EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


@dataclass
class Runner:
    """Runs the steps of the action, or of a workflow that uses it, in a work folder. The cache
    stays from job to job, as GitHub's: a key is written once, and the newest with one of the
    prefixes is restored. commands: a folder with programs that go before those of $PATH."""

    folder: Path
    commands: Path
    cache: dict[str, bytes] = field(default_factory=dict)
    said: str = ""
    summary: str = ""

    @classmethod
    def made(cls, folder: Path, **programs: str) -> Runner:
        """A runner in a new folder; programs: name -> the line of a shell that it is. `gh` says
        what it was asked."""
        work, commands = folder / "work", folder / "bin"
        work.mkdir()
        commands.mkdir()
        for name, line in {"gh": 'echo "gh $*"', **programs}.items():
            (commands / name).write_text(f"#!/bin/sh\n{line}\n")
            (commands / name).chmod(0o755)
        return cls(work, commands)

    def workflow(self, file: str, event: str, branch: str, sha: str) -> int:
        """Run all steps of a workflow of the folder; return as `job`. Checkout and Python are
        there."""
        (job,) = yaml.safe_load((self.folder / file).read_text())["jobs"].values()
        said = ""
        for step in job["steps"]:
            used = step.get("uses", "").partition("@")[0]
            if used in ("actions/checkout", "actions/setup-python"):
                continue
            if used:
                assert used == "etscope/etscope/.github/actions/etscope"
                code = self.job(event=event, branch=branch, sha=sha, **step["with"])
            else:
                self.said = ""
                code = self._ran(step)
            said += self.said
            self.said = said
            if code:
                return code
        return 0

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
        assert (
            step.get("shell", "bash") == "bash" and "${{" not in step["run"]
        )  # no text becomes a command
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
            timeout=900,
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
