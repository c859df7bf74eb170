"""A runner in a process of its own: started, waited for, and its end told."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from etscope.errors import RuntimeFailure
from etscope.run.failure_log import DEBUG_BUFFER_FULL, explained, relevant

LOG = "log.txt"


class DebugBufferFull(Exception):
    """The runtime had more to log than its debug buffer holds."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


def run_process(
    command: Sequence[str | os.PathLike[str]],
    folder: Path,
    timeout: float | None,
) -> int:
    """Run a runner to its end; its exit code. What it says on stderr goes to a file in `folder`.

    Raises `RuntimeFailure` when it was ended by a signal, or after `timeout` seconds, and
    `DebugBufferFull` when that was the reason.
    """
    log_path = folder / LOG
    with log_path.open("wb") as log:
        try:
            child = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise RuntimeFailure(
                f"cannot start {os.fspath(command[0])}: {error.strerror}"
            ) from error
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise timed_out(timeout, read_log(folder)) from error
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    return orderly(code, read_log(folder))


def orderly(code: int, log: str) -> int:
    """The exit code of a process that ended by itself; raises when a signal ended it (`code` is
    its number, negative)."""
    if code < 0:
        raise _killed(-code, log)
    return code


def timed_out(timeout: float | None, log: str) -> RuntimeFailure:
    """The error of a run that was stopped after `timeout` seconds."""
    return RuntimeFailure(
        f"the run did not end within {timeout or 0:g} s and was stopped",
        log=relevant(log),
        hint="allow more time, or run fewer iterations",
    )


def read_log(folder: Path) -> str:
    """All that the runner said."""
    path = folder / LOG
    return path.read_text(errors="replace") if path.exists() else ""


def failure(what: str, log: str) -> RuntimeFailure:
    """The error of a runtime that failed in an orderly way; `what` is its own last word."""
    found = explained(log)
    if found is None:
        return RuntimeFailure(what, log=relevant(log))
    return RuntimeFailure(found[0], log=relevant(log), hint=found[1])


def _killed(number: int, log: str) -> Exception:
    if DEBUG_BUFFER_FULL in log:
        return DebugBufferFull(relevant(log))
    name = next((s.name for s in signal.Signals if s.value == number), f"signal {number}")
    found = explained(log)
    if found is not None:
        return RuntimeFailure(found[0], log=relevant(log), hint=found[1])
    hints = {
        "SIGKILL": "the system may have run out of memory",
        "SIGSEGV": "the runtime, a kernel or a backend is broken, or the program is",
    }
    return RuntimeFailure(
        f"the runtime's process died of {name}", log=relevant(log), hint=hints.get(name)
    )
