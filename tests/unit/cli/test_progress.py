"""The sign of life: late, on terminals only, gone at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import time
from etscope.cli._progress import progress
with progress("writing run.csv"):
    time.sleep({seconds})
print("done")
"""


def stderr_on_a_terminal(seconds: float) -> str:
    """What a terminal on stderr gets while work of `seconds` is done."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(seconds=seconds)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=Path(__file__).parents[3],
    ) as child:
        os.close(theirs)
        seen = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the terminal's other end was closed
                break
            if not chunk:
                break
            seen += chunk
        assert child.stdout is not None
        assert child.stdout.read() == b"done\n"
    os.close(ours)
    return seen.decode()


def test_long_work_shows() -> None:
    assert "writing run.csv" in stderr_on_a_terminal(2.5)


def test_short_work_does_not() -> None:
    assert stderr_on_a_terminal(0) == ""


def test_without_a_terminal_nothing_shows() -> None:
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(seconds=1.5)], capture_output=True, text=True
    )

    assert (child.stdout, child.stderr) == ("done\n", "")
