"""A debugger session of an agent: a process of etdb that takes one command after the other."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from etscope.agent.commands import CommandError, Commands

__all__ = ["Session"]

_SECONDS = 120
# Commands that read. `list` and `help` of others are missing on purpose: `list` opens the files
# that a record names, and others load or write files.
_READING = {
    "break", "tbreak", "watch", "delete", "enable", "disable",
    "run", "start", "continue", "step", "next", "finish", "until", "checkpoint", "restart",
    "reverse-continue", "reverse-step", "reverse-next", "reverse-finish",
    "bt", "frame", "up", "down", "print", "x", "display", "undisplay",
    "info", "top", "blame", "gap", "call", "help",
}  # fmt: skip
# These execute the program or the model, or change what it computes.
_RUNNING = {"target", "set", "kill"}


class Session:
    """etdb on one run."""

    def __init__(self, commands: Commands, run: Path) -> None:
        self._allowed = _READING | (_RUNNING if commands.may_run else set())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "etscope.etdb", "--json", str(run)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=commands.folders[0],
            env=commands.environment,
            encoding="utf-8",
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._told: list[str] = []
        self._one_at_a_time = threading.Lock()  # an answer does not name its command
        for stream, take in (
            (self._process.stdout, self._answers.put),
            (self._process.stderr, self._told.append),
        ):
            threading.Thread(target=self._read, args=(stream, take), daemon=True).start()

    def _read(self, stream: Any, take: Any) -> None:
        for line in stream:
            take(line)
        if stream is self._process.stdout:
            self._answers.put(None)

    def do(self, command: str) -> dict[str, Any]:
        """Run one command, and return etdb's answer: its texts and tables, and where it stands.

        Raises `CommandError` for a command that may not be used here, or if the session ended.
        """
        word = command.split(maxsplit=1)[0] if command.strip() else ""
        if word not in self._allowed or "\n" in command or "\r" in command:
            missing = " It needs a server with --allow-run." if word in _RUNNING else ""
            raise CommandError(
                f"{word!r} is not a command here.{missing} Commands: "
                f"{', '.join(sorted(self._allowed))}. Python source: call source."
            )
        with self._one_at_a_time:
            line = self._line_for(command)
        if line is None:
            self._process.wait()
            told = "".join(self._told).rpartition("error: ")[2].strip()
            raise CommandError(f"etdb ended: {told}\nCall open to see what the run has.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _line_for(self, command: str) -> str | None:
        """Return etdb's line for a command; None if it ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
            return self._answers.get(timeout=_SECONDS)
        except BrokenPipeError:
            return None
        except queue.Empty:
            self.close()
            raise CommandError(
                f"{command!r} did not end in {_SECONDS} s. Call debug to start again."
            ) from None

    @property
    def is_running(self) -> bool:
        """False if etdb ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(OSError):
            self._process.wait()
