"""Ports for programs that are told theirs before they listen."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_NAMES: list[socket.socket] = []  # which say that a port is this process's, as long as it lives


def free_port() -> int:
    """One of loopback that nobody has, and that nobody is given before the program listens: no
    connection and no listener on port 0, as it is below those that the system gives out, and no
    other process of tests."""
    below = 32_768
    with suppress(OSError):
        below = int(_EPHEMERAL.read_text().split()[0])
    # What tests make of a seed must not be the same port in two processes.
    for port in random.SystemRandom().sample(range(min(20_000, below // 2), below), 100):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0etscope-tests-port-{port}")  # no file: it is gone with the process
            with socket.socket() as free:
                free.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        _NAMES.append(name)
        return port
    raise OSError("no port is free")


@contextmanager
def nobody_listens() -> Iterator[int]:
    """A port of loopback that refuses connections, as it is held and not listened on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
