"""The server: imports what is slow, then forks for each request."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any

SLOW = (
    "torch",
    "torch.export",
    "executorch.extension.pybindings.portable_lib",
    "executorch.exir",
    "executorch.backends.xnnpack.partition.xnnpack_partitioner",
    "etscope.cli",
    "etscope.export",
    "etscope.inspector",
)
OF_A_LAB = ("etscope_lab.worker.measure", "etscope_lab.pages._artifact_builders")
FILES = 64  # that a process may have open


def serve(address: str) -> dict[str, Any] | None:
    """Fork for requests until standard input ends. Returns the request in a fork, and None in the
    server itself."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        selectors.DefaultSelector() as ready,
    ):
        listener.bind(address)
        listener.listen()
        ready.register(listener, selectors.EVENT_READ, None)
        ready.register(sys.stdin, selectors.EVENT_READ, None)
        print("ready", flush=True)
        while True:
            for key, _ in ready.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is listener:
                    request = _forked(listener, ready)
                    if request is not None:
                        return request
                elif isinstance(key.fileobj, int):
                    _ended(key, ready)
                else:
                    _signalled(key, ready)


def _forked(listener: socket.socket, ready: selectors.BaseSelector) -> dict[str, Any] | None:
    """Take a request and fork; the fork returns it."""
    client, _ = listener.accept()
    size, files, _, _ = socket.recv_fds(client, 4, FILES)
    left, text = int.from_bytes(size, "big"), b""
    while len(text) < left and (piece := client.recv(left - len(text))):
        text += piece
    whole = 0 < left == len(text)  # or the client was killed while it asked
    pid = os.fork() if whole else None
    if pid != 0:
        for file in files:
            os.close(file)
        if pid is None:
            client.close()
            return None
        ready.register(client, selectors.EVENT_READ, pid)
        ready.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, client))
        return None
    request: dict[str, Any] = json.loads(text)
    _take_files(files, request["files"], [client, *_closed(ready)])
    return request


def _closed(ready: selectors.BaseSelector) -> list[socket.socket | int]:
    """What the server waits for, but for its standard input, with the selector closed."""
    waited = [key.fileobj for key in ready.get_map().values() if key.fileobj is not sys.stdin]
    ready.close()
    return waited


def _take_files(files: list[int], numbers: list[int], unwanted: list[socket.socket | int]) -> None:
    """Give the files that came with a request the numbers that they had in the client."""
    for one in unwanted:
        os.close(one) if isinstance(one, int) else one.close()
    # First out of the way: a number may be that of another of the files.
    above = max(*files, *numbers) + 1
    for at, file in enumerate(files):
        os.dup2(file, above + at)
        os.close(file)
    for at, number in enumerate(numbers):
        os.dup2(above + at, number)
        os.close(above + at)


def _ended(key: selectors.SelectorKey, ready: selectors.BaseSelector) -> None:
    """Tell the client how its fork has ended."""
    pid, client = key.data
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    ready.unregister(key.fd)
    os.close(key.fd)
    if client in ready.get_map():
        ready.unregister(client)
    with contextlib.suppress(OSError):  # it is gone
        client.sendall(code.to_bytes(4, "big", signed=True))
    client.close()


def _signalled(key: selectors.SelectorKey, ready: selectors.BaseSelector) -> None:
    """Pass a client's signal on; a client that is gone was killed."""
    if key.fileobj.fileno() < 0:  # the fork has ended at the same time
        return
    numbers = key.fileobj.recv(1)
    os.kill(key.data, numbers[0] if numbers else signal.SIGKILL)
    if not numbers:
        ready.unregister(key.fileobj)


def become(request: dict[str, Any]) -> None:
    """Do in this fork what a new Python would do."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.executable = request["python"]
    _open_standard_files()
    first, *rest = request["arguments"]
    if first == "-m":
        sys.path[0], sys.argv = os.getcwd(), rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path[0], sys.argv = "", ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.path[0], sys.argv = str(Path(first).absolute().parent), [first, *rest]
        runpy.run_path(first, run_name="__main__")


def _open_standard_files() -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        new = open(  # noqa: SIM115 (they live as long as the process)
            number, old.mode, encoding=old.encoding, errors=old.errors, closefd=False
        )
        at_once = name == "stderr" or new.isatty() or "PYTHONUNBUFFERED" in os.environ
        new.reconfigure(line_buffering=at_once)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def main() -> None:
    for module in SLOW:
        importlib.import_module(module)
    for module in OF_A_LAB:
        with contextlib.suppress(ImportError):  # its extra is not installed
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads would be lost in a fork"
    request = serve(sys.argv[1])
    if request is not None:
        _end(_code_of(request))


def _code_of(request: dict[str, Any]) -> int:
    """Do what is asked; return the exit code."""
    try:
        become(request)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end(code: int) -> None:
    """End as Python does, but leave what is imported to the system: to free it takes longer than
    most forks live."""
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # Python's
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
