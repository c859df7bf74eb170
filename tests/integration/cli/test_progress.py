"""The sign of life: late, on terminals only, gone at the end."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import time
from etscope.cli.output import progress
progress._PATIENCE = {patience}
with progress.progress("writing run.csv", {detail}):
    {work}
print("done")
"""
SHOWN = b"writing run.csv"


def stderr_on_a_terminal(work: str, patience: float, detail: str = "str") -> str:
    """What a terminal on stderr gets while work is done. The work may wait for a line: it gets one
    as soon as something shows, or after a minute."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(work=work, patience=patience, detail=detail)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TERM": "xterm"},
    ) as child:
        os.close(theirs)
        assert child.stdin is not None and child.stdout is not None
        seen = b""
        while SHOWN not in seen and select.select([ours], [], [], 60)[0]:
            if not (chunk := _read(ours)):
                break
            seen += chunk
        child.stdin.close()
        while chunk := _read(ours):
            seen += chunk
        assert child.stdout.read() == b"done\n"
    os.close(ours)
    return seen.decode()


def _read(terminal: int) -> bytes:
    """The next bytes; none when the other end of the terminal was closed."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_what_is_at_work_follows() -> None:
    shown = stderr_on_a_terminal("sys.stdin.readline()", 0.1, "lambda: ': ConstPropPass, 9.0 s'")
    assert "writing run.csv: ConstPropPass, 9.0 s" in shown


def test_long_work_shows() -> None:
    assert SHOWN.decode() in stderr_on_a_terminal("sys.stdin.readline()", 1.0)


def test_short_work_does_not() -> None:
    assert stderr_on_a_terminal("pass", 60.0) == ""


def test_without_a_terminal_nothing_shows() -> None:
    script = SCRIPT.format(work="import rich.progress; time.sleep(0.3)", patience=0.0, detail="str")
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (child.stdout, child.stderr) == ("done\n", "")
