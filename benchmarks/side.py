"""One side of a comparison: code that runs in a process of its own and is measured there."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Run by the child. `clear_refs` 5 sets the kernel's high-water mark of resident memory back to
# what is resident now, so that the peak is that of the measured code and not that of imports.
MEASURE = """
import contextlib, gc, io, json, sys, time
setup, prepare, code, repeats, warm_up, clock = json.loads(sys.argv[1])
clock = getattr(time, clock)

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024

space = {}
seconds, peak = [], 0
with contextlib.redirect_stdout(io.StringIO()):
    exec(setup, space)
    for _ in range(warm_up):
        exec(prepare, space)
        exec(code, space)
        space.pop("result", None)
    for _ in range(repeats):
        exec(prepare, space)
        gc.collect()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = memory("VmRSS")
        begin = clock()
        exec(code, space)
        seconds.append(clock() - begin)
        peak = max(peak, memory("VmHWM") - before)
        space.pop("result", None)
print(json.dumps([min(seconds), peak]))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Time and memory of one side. `peak`: resident bytes above those before the measured call."""

    seconds: float
    peak: int | None = None


def measured(
    setup: str, code: str, *, repeats: int, prepare: str = "", warm_up: int = 0, cpu: bool = False
) -> Cost:
    """The least of `repeats` runs of `code` after `setup` (imports), and the highest peak.

    warm_up: runs before them that do not count. cpu: count the seconds of all threads, not those
    that passed.
    `prepare` runs before each, outside the clock. `code` leaves what should be freed between runs
    in a variable named `result`.
    """
    clock = "process_time" if cpu else "perf_counter"
    child = _python("-c", MEASURE, json.dumps([setup, prepare, code, repeats, warm_up, clock]))
    seconds, peak = json.loads(child.stdout.splitlines()[-1])
    return Cost(seconds, peak)


def told(setup: str, code: str, *, repeats: int) -> Cost:
    """As `measured`, for code that measures itself and leaves what it found in `seconds`."""
    loop = f"found = []\nfor _ in range({repeats}):\n    {code}\n    found.append(seconds)\n"
    child = _python("-c", f"{setup}\n{loop}print(min(found))")
    return Cost(float(child.stdout.splitlines()[-1]))


def process(*arguments: str, repeats: int, cpu: bool = False) -> Cost:
    """The least wall time, or CPU time, of `python *arguments` as a whole process."""
    return Cost(min(_one_process(arguments, cpu) for _ in range(repeats)))


def _one_process(arguments: Sequence[str], cpu: bool) -> float:
    begin, spent = time.perf_counter(), _cpu_of_children()
    _python(*arguments)
    return _cpu_of_children() - spent if cpu else time.perf_counter() - begin


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg"},
    )
    if done.returncode:
        raise RuntimeError(f"python {' '.join(arguments)[:200]}\n{done.stderr[-3000:]}")
    return done
