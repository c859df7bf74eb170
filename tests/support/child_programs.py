"""Programs that a worker of the lab starts in the tests of how it watches them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(what: str, *arguments: str) -> int:
    return {"hang": hang, "talk": talk, "stubborn": stubborn}[what](*arguments)


def hang(pids: str) -> int:
    """With a child in a session of its own, which no signal to our group reaches."""
    code = "import time; time.sleep(600)"
    runner = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    Path(pids).write_text(f"{os.getpid()} {runner.pid}")
    time.sleep(600)
    return 0


def talk(characters: str) -> int:
    print("x" * int(characters))
    return 0


def stubborn() -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready")
    time.sleep(600)
    return 0
