"""What the system tells of processes, and what a failed test should tell of its commands."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest


def cpu_seconds(pid: int) -> float:
    """What a process has computed: on a busy machine it waits, but computes no more. Raises
    `OSError` when it is gone."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def commands_of(error: pytest.ExceptionInfo[BaseException]) -> list[str]:
    """The commands that the functions had run in which an error came up: how each ended, and all
    that it said, of which an assertion shows the beginning."""
    found: list[object] = [error.value]
    for entry in error.traceback:
        found += entry.locals.values()  # also those that a rewritten assertion keeps
    ended = {
        id(one): one
        for one in found
        if isinstance(one, (subprocess.CompletedProcess, subprocess.CalledProcessError))
    }
    return [_told(one) for one in ended.values()]


def _told(ended: subprocess.CompletedProcess[object] | subprocess.CalledProcessError) -> str:
    words = ended.args if isinstance(ended, subprocess.CompletedProcess) else ended.cmd
    line = str(words) if isinstance(words, (str, Path)) else shlex.join(map(str, words))
    parts = [f"$ {line}", f"exit code {ended.returncode}"]
    for name, said in (("standard output", ended.stdout), ("standard error", ended.stderr)):
        if said:
            text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
            parts += [f"-- {name}", text]
    return "\n".join(parts)
