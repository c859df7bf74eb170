"""What a child process of a worker starts with: it must not outlive the worker.

`main([FD, MODULE, ARGUMENT…])` calls MODULE's `main(ARGUMENT…)`. FD is the reading end of
a pipe that the worker holds the other end of and never writes to: its end is the worker's end,
however it came. SIGTERM becomes `SystemExit`, so that a program's cleaning up is done.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module

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
