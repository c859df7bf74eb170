"""A program in a process of its own, watched: its time, its log, and who wants it stopped."""

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

# What a child process of a worker starts with: it must not outlive the worker.
#
# `main([FD, MODULE, ARGUMENT…])` calls MODULE's `main(ARGUMENT…)`. FD is the reading end of
# a pipe that the worker holds the other end of and never writes to: its end is the worker's end,
# however it came. SIGTERM becomes `SystemExit`, so that a program's cleaning up is done.


GRACE = 5.0  # seconds: for cleaning up after SIGTERM


def main(arguments: list[str]) -> None:
    fd, module, *rest = arguments
    signal.signal(signal.SIGTERM, _terminated)
    threading.Thread(target=_end_with_parent, args=(int(fd),), daemon=True).start()
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
    """Kill all that descends from a process: runners in sessions of their own too."""
    for child in _descendants(pid):
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)


def _terminated(number: int, _: object) -> None:
    sys.exit(128 + number)


def _end_with_parent(fd: int) -> None:
    while os.read(fd, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    end_tree(os.getpid(), os.getpgrp())  # this process is of its group


def _descendants(pid: int) -> list[int]:
    import psutil  # type: ignore[import-untyped]  # of distributed

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


LOG_LIMIT = 16 << 20  # bytes of a log that are kept
_PIECE = 1 << 16
# Not `-m`, which puts the current folder before the places that modules come from: a torch.py that
# lies there must not run.
_CHILD = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; "
    "from etscope.lab.worker.subprocesses import main; main(sys.argv[1:])"
)
_TELL = 1.0  # seconds between two looks at what is new in the log


@dataclass(frozen=True, slots=True)
class End:
    """How a child ended. code: its exit status, negative for a signal. reason: "" when it ended by
    itself, "timeout" or "stopped" when we ended it."""

    code: int
    reason: str = ""

    def __str__(self) -> str:
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        names = {number.value: number.name for number in signal.Signals}
        return f"died of {names.get(-self.code, f'signal {-self.code}')}"


class Stop:
    """A wish, from another thread, that a child be ended."""

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
        """Until somebody wants the end, it came, or the time is up."""
        with self._condition:
            self._condition.wait_for(lambda: self.wanted or self.ended, max(seconds, 0))

    def wait_end(self, seconds: float) -> None:
        """Until the end came, or the time is up."""
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
    """Run a module's `main` in a process and group of its own, to its end or for `timeout` seconds.

    What it writes to stdout and stderr is in `folder`/log.txt, up to `LOG_LIMIT`; `hear` gets it
    while it comes. Temporary files of the program are in `folder` too. When this process dies, so
    does the child, a little later; files of `keep` are open in it until then. Raises `LabError`
    when no process can be started.
    """
    ours, theirs = os.pipe()  # the child waits for the end of the pipe, see guard.py
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(ours), module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(ours, *keep),
            start_new_session=True,
            env=_environment(folder),
        )
    except OSError as error:
        os.close(theirs)
        raise LabError(f"cannot start a process for the job: {error.strerror}") from error
    finally:
        os.close(ours)
    log = _Log(child, folder / "log.txt")
    waiter = threading.Thread(target=_wait, args=(child, stop), daemon=True)
    waiter.start()
    try:
        reason = _watch(stop, timeout, lambda: hear(log.new()))
        if reason:
            with suppress(OSError):
                os.kill(child.pid, signal.SIGTERM)
            stop.wait_end(GRACE)
        if not stop.ended:
            end_tree(child.pid, child.pid)
        waiter.join()
        return End(child.returncode, reason)
    finally:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)  # what it left behind
        os.close(theirs)
        log.close()
        hear(log.new())


def _wait(child: subprocess.Popen[bytes], stop: Stop) -> None:
    child.wait()
    stop.note_end()


def _watch(stop: Stop, timeout: float, tell: Callable[[], None]) -> str:
    """Wait; why the child is to be ended, "" when it ended."""
    end = time.monotonic() + timeout
    while True:
        stop.wait(min(_TELL, end - time.monotonic()))
        tell()
        if stop.ended:
            return ""
        if stop.wanted:
            return "stopped"
        if time.monotonic() >= end:
            return "timeout"


class _Log:
    """What a child says, kept in a file while it comes."""

    def __init__(self, child: subprocess.Popen[bytes], path: Path) -> None:
        self._path = path
        self._told = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, args=(child.stdout,), daemon=True)
        self._thread.start()

    def new(self) -> str:
        """What came since the last call."""
        with self._lock:
            text = self._told.decode("utf-8", "replace")
            self._told.clear()
        return text

    def close(self) -> None:
        self._thread.join(GRACE)  # a stray process may hold the pipe open; its words are not ours

    def _keep(self, pipe: IO[bytes]) -> None:
        left = LOG_LIMIT
        with suppress(OSError), pipe:
            while piece := os.read(pipe.fileno(), _PIECE):
                if left <= 0:
                    continue  # read on: a child must not wait for us
                piece = piece[:left]
                left -= len(piece)
                piece += b"" if left else b"\n... (the log was cut here)\n"
                with self._lock:
                    self._told += piece
                with suppress(OSError), self._path.open("ab") as file:  # a full disk
                    file.write(piece)


def _environment(folder: Path) -> dict[str, str]:
    """Ours, with temporary files in the job's folder, and without what Dask's nanny adds."""
    import dask.config

    env = dict(os.environ)
    # What is set for the worker's own sake would change what is measured: one thread, for one.
    if multiprocessing.parent_process() is not None:
        for key, value in dask.config.get("distributed.nanny.pre-spawn-environ", {}).items():
            if env.get(key) == str(value):
                del env[key]
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**env, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
