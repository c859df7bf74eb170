"""The warm Python does what Python does, but for the time that imports take."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE, until
from tests.support.warm import warm_python

pytest.importorskip("executorch")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are of Linux alone")


def done(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm_python(), *arguments], capture_output=True, text=True, check=False, **options
    )


def test_what_is_given_arrives(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "assert 'torch' in sys.modules, 'it is not warm'\n"
        "print(os.getcwd(), sys.argv, sys.path[0], os.environ['GIVEN'], sys.stdin.read())\n"
        "print('told', file=sys.stderr)\n"
    )
    (tmp_path / "script.py").write_text(code)
    (tmp_path / "module.py").write_text(code)
    there = {"cwd": tmp_path, "env": {**os.environ, "GIVEN": "a variable"}, "input": "a text"}
    for arguments, named, first in (
        (["-c", code, "x"], "-c", ""),
        (["script.py", "x"], "script.py", f"{tmp_path}"),
        (["-m", "module", "x"], f"{tmp_path / 'module.py'}", f"{tmp_path}"),
    ):
        found = done(*arguments, **there)
        expected = f"{tmp_path} {[named, 'x']} {first} a variable a text\n"
        assert (found.returncode, found.stdout, found.stderr) == (0, expected, "told\n")


def test_what_a_fork_starts_is_warm() -> None:
    code = "import sys; print('torch' in sys.modules)"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    assert done("-c", starts).stdout == "True\n"


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("raise SystemExit(3)", 3),
        ("raise SystemExit", 0),
        ("raise SystemExit('why')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os._exit(7)", 7),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_it_ends_as_the_fork_ends(code: str, ends: int) -> None:
    assert done("-c", code).returncode == ends


def test_errors_are_printed_and_exit_functions_called() -> None:
    found = done("-c", "import atexit; atexit.register(print, 'over'); 1 / 0")
    assert found.stdout == "over\n"
    assert found.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_signals() -> None:
    code = (
        "import os, signal, time\n"
        # Whoever runs the tests in the background has SIGINT ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    raise SystemExit(9)\n"
    )
    for sent, ends in (
        (signal.SIGINT, 9),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGKILL, -signal.SIGKILL),
    ):
        with subprocess.Popen([warm_python(), "-c", code], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            fork = int(child.stdout.readline())
            child.send_signal(sent)
            assert child.wait(PATIENCE) == ends
        until(lambda fork=fork: not Path(f"/proc/{fork}").exists())  # killed when the command was


@pytest.mark.parametrize("changed", [{"PYTHONPATH": "/elsewhere"}, {"OMP_NUM_THREADS": "3"}])
def test_what_is_read_at_the_start_starts_a_new_process(changed: dict[str, str]) -> None:
    code = "import sys; print('torch' in sys.modules, sys.executable)"
    found = done("-c", code, env={**os.environ, **changed})
    assert found.stdout == f"False {sys.executable}\n"
    assert done("-I", "-c", code).stdout == f"False {sys.executable}\n"
