"""Run a program in a child process: with a time limit, a log, and a way to stop it.

A child must not outlive its worker. It starts with `main([FD, MODULE, ARGUMENT…])`, which calls
MODULE's `main(ARGUMENT…)`. FD is the reading end of a pipe. The worker holds the other end and
never writes to it: the pipe ends when the worker does, in whatever way. SIGTERM becomes
`SystemExit`, so that programs clean up.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO

from etscope.errors import LabError

GRACE = 5.0  # seconds: for cleaning up after SIGTERM
LOG_LIMIT = 16 << 20  # bytes of a log that are kept
_PIECE = 1 << 16
# Not `-m`, which puts the current folder first in sys.path: a torch.py in it must not run.
_CHILD = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; "
    "from etscope_lab.worker.subprocesses import main; main(sys.argv[1:])"
)
_LOG_SECONDS = 1.0  # between two calls of `hear` with new text of the log


@dataclass(frozen=True, slots=True)
class End:
    """The end of a child. code: its exit status, negative for a signal. reason: "" when it ended by
    itself, "timeout" or "stopped" when it was ended."""

    code: int
    reason: str = ""

    @property
    def was_killed(self) -> bool:
        """True when something else than its worker ended it. `main` exits at SIGTERM."""
        killed = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)
        return not self.reason and self.code in killed

    def __str__(self) -> str:
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        names = {number.value: number.name for number in signal.Signals}
        return f"died of {names.get(-self.code, f'signal {-self.code}')}"


class Stop:
    """A request, from another thread, to end a child."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.wanted = False
        self.ended = False

    def want(self) -> None:
        with self._condition:
            self.wanted = True
            self._condition.notify_all()

    def note_end(self) -> None:
        with self._condition:
            self.ended = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for a stop request, the end of the child, or the timeout."""
        with self._condition:
            self._condition.wait_for(lambda: self.wanted or self.ended, max(seconds, 0))

    def wait_end(self, seconds: float) -> None:
        """Wait for the end of the child, or the timeout."""
        with self._condition:
            self._condition.wait_for(lambda: self.ended, seconds)


def run_child(
    module: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    timeout: float,
    stop: Stop,
    hear: Callable[[str], None] = lambda text: None,
    keep: Sequence[int] = (),
) -> End:
    """Run a module's `main` in its own process and group, to its end or for `timeout` seconds.

    Its stdout and stderr go to `folder`/log.txt, up to `LOG_LIMIT`; `hear` is called with new text
    of them. Temporary files of the program are in `folder` too. When this process dies, so does
    the child, a little later; the files of `keep` are open in it until then. Raises `LabError` when
    no process can be started, or one cannot be killed, as it waits for a disk that is away.
    """
    child, pipe = _start_child(module, arguments, folder, keep)
    log = _Log(child, folder / "log.txt")

    def wait() -> None:
        child.wait()
        stop.note_end()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    try:
        end, reason = time.monotonic() + timeout, ""
        while not stop.ended and not reason:
            stop.wait(min(_LOG_SECONDS, end - time.monotonic()))
            hear(log.new())
            if not stop.ended:
                reason = "stopped" if stop.wanted else ""
                reason = reason or ("timeout" if time.monotonic() >= end else "")
        if reason:
            with suppress(OSError):
                os.kill(child.pid, signal.SIGTERM)
            stop.wait_end(GRACE)
        if not stop.ended:
            end_tree(child.pid, child.pid)
            stop.wait_end(GRACE)
            if not stop.ended:
                raise LabError(
                    f"the job's process {child.pid} cannot be killed: it hangs in the kernel"
                )
        waiter.join()
        return End(child.returncode, reason)
    finally:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)  # processes that it left behind
        os.close(pipe)
        log.close()
        hear(log.new())


class _Log:
    """The output of a child, written into a file as it comes."""

    def __init__(self, child: subprocess.Popen[bytes], path: Path) -> None:
        self._path = path
        self._unread = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, args=(child.stdout,), daemon=True)
        self._thread.start()

    def new(self) -> str:
        """Text that came since the last call."""
        with self._lock:
            text = self._unread.decode("utf-8", "replace")
            self._unread.clear()
        return text

    def close(self) -> None:
        self._thread.join(GRACE)  # not longer: a stray process may hold the pipe open

    def _keep(self, pipe: IO[bytes]) -> None:
        left = LOG_LIMIT
        with suppress(OSError), pipe:
            while piece := os.read(pipe.fileno(), _PIECE):
                if left <= 0:
                    continue  # read on, so that the child does not block
                piece = piece[:left]
                left -= len(piece)
                piece += b"" if left else b"\n... (the log was cut here)\n"
                with self._lock:
                    self._unread += piece
                with suppress(OSError), self._path.open("ab") as file:  # a full disk
                    file.write(piece)


def _start_child(
    module: str, arguments: Sequence[str], folder: Path, keep: Sequence[int]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process, with temporary files in the job's folder. The second value is the writing
    end of its pipe: closing it ends it."""
    import dask.config

    environment = dict(os.environ)
    # What Dask's nanny adds for the worker's own sake would change the times: one thread, say.
    if multiprocessing.parent_process() is not None:
        for key, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
            if environment.get(key) == str(value):
                del environment[key]
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    reading, writing = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(reading), module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(reading, *keep),
            start_new_session=True,
            env={**environment, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        )
    except OSError as error:
        os.close(writing)
        raise LabError(f"cannot start a process for the job: {error.strerror}") from error
    finally:
        os.close(reading)
    return child, writing


def main(arguments: list[str]) -> None:
    fd, module, *rest = arguments
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    def end_with_parent() -> None:
        while os.read(int(fd), 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        end_tree(os.getpid(), os.getpgrp())  # this process is of its group

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        sys.exit(import_module(module).main(*rest))
    except BaseException as end:
        if not (isinstance(end, SystemExit) and end.code == 0):
            end_descendants(os.getpid())
        raise


def end_tree(pid: int, group: int) -> None:
    """Kill a process, all that descends from it, and its group."""
    end_descendants(pid)
    with suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def end_descendants(pid: int) -> None:
    """Kill all descendants of a process, also runners in separate sessions."""
    import psutil  # type: ignore[import-untyped]  # of distributed

    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return
    for child in children:
        with suppress(OSError):
            os.kill(child.pid, signal.SIGKILL)
