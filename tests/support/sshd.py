"""A real OpenSSH server on loopback, with keys of its own, for the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

_SECONDS = 300


@dataclass
class Sshd:
    """A server that runs. options: of the driver `ssh` that reaches it."""

    process: subprocess.Popen[bytes]
    options: dict[str, Any]

    def stop(self) -> None:
        """End the server and all its connections, as if the machine were switched off."""
        for child in _children(self.process.pid):
            _kill(child)
        self.process.kill()
        self.process.wait()


def missing() -> str | None:
    """Why there is no server; None when there can be one."""
    absent = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    absent += [] if _server() else ["sshd"]
    return f"{', '.join(absent)} not installed" if absent else None


@contextmanager
def serving(folder: Path) -> Iterator[Sshd]:
    """A server whose files are in `folder`; only the user of the tests may log in."""
    for key in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "config").write_text(
        f"""Port {port}
ListenAddress 127.0.0.1
HostKey {folder / "host"}
AuthorizedKeysFile {folder / "user.pub"}
StrictModes no
UsePAM no
PidFile {folder / "pid"}
"""
    )
    public = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
    (folder / "client").write_text("")
    process = subprocess.Popen(
        [_server() or "sshd", "-D", "-f", str(folder / "config"), "-E", str(folder / "log")],
        stdin=subprocess.DEVNULL,
    )
    server = Sshd(
        process,
        {
            "host": "127.0.0.1",
            "port": port,
            "user": getpass.getuser(),
            "identity": str(folder / "user"),
            "known_hosts": str(folder / "known_hosts"),
            "config": str(folder / "client"),
            "folder": str(folder / "device"),
        },
    )
    try:
        _wait(port, process, folder / "log")
        yield server
    finally:
        server.stop()


def _server() -> str | None:
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return None if found is None else str(Path(found).resolve())


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        assert process.poll() is None, f"sshd ended with {process.poll()}:\n{log.read_text()}"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < end, f"sshd does not answer:\n{log.read_text()}"
            time.sleep(0.05)


def _children(pid: int) -> list[int]:
    """The server's own processes of connections; what they run is not of them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name.startswith("sshd") and int(rest.split()[1]) == pid:
            child = int(stat.parent.name)
            found += [*_children(child), child]
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, 9)
