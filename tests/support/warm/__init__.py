"""A Python that has torch and ExecuTorch imported already, for tests that start many processes.

`warm_python()` is the path of a command that takes what `python` takes. It hands its arguments,
folder, environment and open files to a server that has done the slow imports, and a fork of that
server does the work. `sys.executable` of the fork is the command again: what it starts is warm.
Options of the interpreter, and changed variables that are read when a process starts, go to the
real Python. Tests of what is imported, and when, must use `sys.executable` itself.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.warm import command

ROOT = Path(__file__).resolve().parents[3]
# What processes that tests start import etscope, its lab and their helpers from.
_LAB = "packages/etscope-lab"
SOURCES = tuple(str(ROOT / place) for place in (".", "src", f"{_LAB}/src", f"{_LAB}/tests"))
READ_AT_START = ("PYTHON", "OMP_", "MKL_", "OPENBLAS_", "TORCH", "LC_", "LANG", "LD_")


@functools.cache
def warm_python() -> str:
    """The path of the command. The server starts once, and ends with this process; where there is
    no Linux, it is the Python that runs."""
    if sys.platform != "linux":
        return sys.executable
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    atexit.register(folder.cleanup)
    path = [*SOURCES, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    written = _command(Path(folder.name), environment)
    log = (written.parent / "log").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm.server", str(written.parent / "socket")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**environment, "OPENBLAS_NUM_THREADS": "1"},  # a fork has no threads of the server
    )
    atexit.register(server.communicate)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n", Path(log.name).read_text()
    return str(written)


def _command(folder: Path, environment: dict[str, str]) -> Path:
    """Write the command and its settings, and lay what pip has put beside Python beside it."""
    beside = Path(sys.executable).parent
    for tool in beside.iterdir():
        if not tool.name.startswith("python"):
            (folder / tool.name).symlink_to(tool)
    read = {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
    settings = {
        "python": sys.executable,
        "read_at_start": READ_AT_START,
        "path": ["", *read.pop("PYTHONPATH").split(os.pathsep)],
        "environment": {name: read[name] for name in read if name != "PYTHONUNBUFFERED"},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    written = folder / "python"
    written.write_text(f"#!{sys.executable} -SE\n{Path(command.__file__).read_text()}")
    written.chmod(0o755)
    return written
