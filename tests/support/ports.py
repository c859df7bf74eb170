"""Ports for programs that are told theirs before they listen."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """One of loopback that nobody has, and that no connection and no listener on port 0 is given by
    chance before the program listens: it is below those that the system gives out."""
    below = 32_768
    with suppress(OSError):
        below = int(_EPHEMERAL.read_text().split()[0])
    # What tests make of a seed must not be the same port in two processes.
    for port in random.SystemRandom().sample(range(min(20_000, below // 2), below), 100):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")
