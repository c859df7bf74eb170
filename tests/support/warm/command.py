"""The command: hands what it was given to the server, and ends as the fork ends.

It runs without the packages of Python's environment, from the folder that has its settings.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    place = Path(sys.argv[0]).absolute().parent
    settings = json.loads((place / "settings.json").read_text())
    given = sys.argv[1:]
    if not _can_be_warm(given, settings):
        os.execv(settings["python"], [settings["python"], *given])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        files = _open_files(server.fileno())
        server.connect(str(place / "socket"))
        request = {
            "arguments": given,
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "files": files,
            "python": str(place / "python"),
        }
        line = json.dumps(request).encode()
        # The fork may have said that it is up before the handlers are there, if they came after the
        # request; and a signal in the middle of the request would be taken for a part of it.
        signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        for number in FORWARDED:
            signal.signal(number, lambda number, frame: server.sendall(bytes([number])))
        socket.send_fds(server, [len(line).to_bytes(4, "big")], files)
        server.sendall(line)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        answer = server.recv(4)
    _end(int.from_bytes(answer, "big", signed=True) if answer else os.EX_SOFTWARE)


def _can_be_warm(given: list[str], settings: dict[str, object]) -> bool:
    """Whether a fork does the same: no option of the interpreter is given, and what was read when
    the server started has not changed since."""
    from_start = tuple(settings["read_at_start"])
    read = {name: value for name, value in os.environ.items() if name.startswith(from_start)}
    path = read.pop("PYTHONPATH", "").split(os.pathsep)
    read.pop("PYTHONUNBUFFERED", None)  # the server looks at it
    return (
        bool(given)
        and (given[0] in ("-m", "-c") or not given[0].startswith("-"))
        and read == settings["environment"]
        and set(path) <= set(settings["path"])
    )


def _open_files(but: int) -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            os.fstat(number)
        except OSError:  # it was the listing itself
            continue
        if number != but:
            found.append(number)
    return found


def _end(code: int) -> None:
    if code < 0:  # a signal ended the fork
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
