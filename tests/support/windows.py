"""Windows as far as Linux can show it: a process that runs commands of etscope under its rules.

    python -m tests.support.windows '{"commands": [["inspect", "run"], ["info", "model.pte"]]}'

writes a list of {"code", "stdout", "stderr"} as JSON. `"torch": true` has torch and executorch in
it, `"plain": true` changes nothing, to compare with. What differs from Linux:

- modules, functions, signals and constants that Python on Windows lacks are missing (the
  documentation of each module says "Availability: Unix");
- text files without an encoding, and redirected standard streams, are cp1252; a file that etscope
  opens without naming its encoding is an error; "\\n" is written as "\\r\\n";
- a file that is open or mapped in this process cannot be removed, renamed or replaced, and a rename
  never replaces;
- names may not contain the characters that Windows forbids.

What cannot be shown here, and is left to the workflow for Windows: paths with backslashes that
exist, drives, names in any case, and packages' own code for Windows.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline",
           "curses", "crypt", "posix", "_posixsubprocess")  # fmt: skip
FUNCTIONS = {
    os: r"fork.*|(get|set)(e|re|res|)[ug]id|[gs]etgroups|[gs]etp?gid|getpgrp|[gs]etsid|killpg|nice|"
    r"uname|wait[34]?|waitid|WNOHANG|mkfifo|mknod|p(read|write)v?|readv|writev|sendfile|l?chown|"
    r"fchown|fchmod|chroot|sync|f?statvfs|sysconf.*|f?pathconf.*|confstr.*|getloadavg|sched_.*|"
    r"openpty|ttyname|ctermid|tcgetpgrp|posix_.*|[gsl]etxattr|listxattr|memfd_create|eventfd.*|"
    r"pipe2|lockf|[gs]etpriority|register_at_fork|O_(NOFOLLOW|NONBLOCK|DIRECTORY|CLOEXEC|SYNC|"
    r"DSYNC|PATH|TMPFILE|NOCTTY)|[gs]et_blocking|fdatasync|initgroups|major|minor|makedev|EX_.*",
    signal: r"SIG(KILL|HUP|QUIT|ALRM|CHLD|USR[12]|PIPE|STOP|CONT|TSTP|WINCH|TT..|URG|IO|PROF|BUS)|"
    r"alarm|[gs]etitimer|pthread_.*|sig(wait.*|interrupt|timedwait|pending)|pause",
    socket: r"AF_(UNIX|NETLINK|PACKET)|SO_REUSEPORT|fromfd|send_fds|recv_fds",
    time: r"clock_[gs]ettime.*|CLOCK_.*|tzset|pthread_getcpuclockid",
}
# They choose by sys.platform when they are imported, or import what is missing.
EARLY = """
    asyncio concurrent.futures.process ctypes email.utils getpass gzip http.server lzma mimetypes
    multiprocessing.connection selectors sqlite3 ssl tempfile urllib.request uuid webbrowser
    xml.etree.ElementTree zipfile importlib.metadata click numpy rich.console rich.progress
    rich.table rich.syntax prompt_toolkit ml_dtypes pyarrow pyarrow.parquet pandas tabulate
    flatbuffers werkzeug.serving
""".split()  # noqa: SIM905
TORCH = ("torch", "executorch.exir")
FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]|[ .]$')
OURS = str(Path(__file__).resolve().parents[2] / "src")


class _Missing(MetaPathFinder):
    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def emulate(early: Sequence[str] = EARLY) -> None:
    """Make this process look like one on Windows. Nothing takes it back."""
    for name in early:
        with suppress(ImportError):
            import_module(name)
    # Python's own code for Linux goes on with what it needs.
    for module in (subprocess, shutil, tempfile):
        for name, used in list(vars(module).items()):
            if used in (os, signal, time):
                setattr(module, name, types.SimpleNamespace(**vars(used)))
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    _guard_files()
    for module, names in FUNCTIONS.items():
        for name in [one for one in vars(module) if re.fullmatch(names, one)]:
            delattr(module, name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing(MODULES))
    sys.platform = "win32"
    platform.system = lambda: "Windows"


# -- files


def _held(path: Any) -> bool:
    """Whether this process has a file open or mapped; of a folder, any file in it."""
    real = os.path.realpath(path)
    inside = f"{real}{os.sep}"
    used = [line.split(maxsplit=5)[-1].strip() for line in _open("/proc/self/maps")]
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            used.append(os.readlink(f"/proc/self/fd/{number}"))
    return any(one == real or one.startswith(inside) for one in used)


_open = io.open


def _guard_files() -> None:
    def guarded(function: Callable[..., Any], *, replaces: bool) -> Callable[..., Any]:
        def checked(path: Any, *more: Any, **options: Any) -> Any:
            targets = more[:1] if function.__name__ in ("rename", "replace") else ()
            for one in (path, *targets):
                if os.path.exists(one) and _held(one):
                    raise PermissionError(13, "it is used by another process", os.fspath(one))
            for target in targets:
                _check_name(target)
                if not replaces and os.path.exists(target):
                    raise FileExistsError(17, "it exists", os.fspath(target))
            return function(path, *more, **options)

        return checked

    for name in ("unlink", "remove", "rename", "replace", "rmdir"):
        changed = guarded(getattr(os, name), replaces=name == "replace")
        for module in (os, shutil.os, tempfile._os):  # type: ignore[attr-defined]
            setattr(module, name, changed)
    make = os.mkdir

    def mkdir(path: Any, *more: Any, **options: Any) -> None:
        _check_name(path)
        make(path, *more, **options)

    os.mkdir = mkdir
    builtins.open = io.open = _opened  # type: ignore[assignment]


def _check_name(path: Any) -> None:
    if FORBIDDEN.search(os.path.basename(os.fspath(path))):
        raise OSError(22, "Invalid argument", os.fspath(path))


def _opened(
    file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None,
    errors: str | None = None, newline: str | None = None, **more: Any,
) -> Any:  # fmt: skip
    if not isinstance(file, int) and set(mode) & set("wax+") and not os.path.exists(file):
        _check_name(file)
    if "b" not in mode:
        if encoding in (None, "locale"):
            _check_caller(file)
            encoding = "cp1252"
        if newline is None and set(mode) & set("wax"):
            newline = "\r\n"
    return _open(file, mode, buffering, encoding, errors, newline, **more)


def _check_caller(file: Any) -> None:
    """Raise if etscope opened a file without an encoding, itself or by pathlib."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(("pathlib.py", "<frozen os>")):
        frame = frame.f_back
    if frame is not None and frame.f_code.co_filename.startswith(OURS):
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        raise AssertionError(f"{place} opens {file!r} without an encoding")


# -- commands


def _stream(errors: str = "strict") -> io.TextIOWrapper:
    how = ("cp1252", errors, "\r\n") if sys.platform == "win32" else ("utf-8", errors, "\n")
    return io.TextIOWrapper(io.BytesIO(), *how)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8")  # type: ignore[attr-defined, no-any-return]


def _ran(words: list[str]) -> dict[str, Any]:
    """Run a command of etscope, or of etdb, in this process."""
    from etscope.cli import main

    out, error = _stream(), _stream("backslashreplace")
    with redirect_stdout(out), redirect_stderr(error):
        if words[0] == "etdb":
            from etscope.etdb.__main__ import main as etdb

            try:
                code = etdb(words[1:])
            except SystemExit as stop:
                code = stop.code
        else:
            code = main(words)
    return {"code": code, "stdout": _text(out), "stderr": _text(error)}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if not given.get("torch"):
        sys.meta_path.insert(0, _Missing(("torch", "executorch", "torchao", "transformers")))
    if not given.get("plain"):
        emulate(EARLY if not given.get("torch") else (*EARLY, *TORCH))
    results = [_ran(words) for words in given["commands"]]
    sys.stdout.write(json.dumps(results))
