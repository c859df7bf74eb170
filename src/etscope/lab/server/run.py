"""The server process: runs a lab's application, and its engine, until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import uvicorn

from etscope.errors import LabError, UsageError
from etscope.lab.server.app import create_app
from etscope.lab.server.settings import Settings
from etscope.reporting.serve import is_own_name

if TYPE_CHECKING:
    from etscope.lab.lab import Lab

_GRACE_SECONDS = 5  # for running requests when the server stops
_LISTEN_BACKLOG = 512


def serve(
    lab: Lab,
    settings: Settings,
    *,
    port: int = 0,
    engine: Callable[[], object] | None = None,
    ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM, answer the running requests, and return.

    engine: starts the lab's engine, after the server is known to be able to start. `ready` is
    called with the address when the server listens; port 0 is any free port. The caller closes the
    lab, and its engine with it.

    Raises `UsageError` for an address that cannot be listened on, `LabError` for one that other
    machines can reach while the lab has no tokens.
    """
    if is_reached_by_others(settings):
        settings = replace(settings, require_tokens=True)
        if not lab.database.tokens():
            raise LabError(
                f"others can reach {settings.host}, and this lab has no tokens",
                hint="etscope lab token add NAME --scope admin makes one",
            )
    listening = listen(settings.host, port)
    with listening:
        server = server_of(lab, settings)
        if engine is not None:
            engine()
        ready(address_of(listening, settings.host))
        asyncio.run(server.serve(sockets=[listening]))


def is_reached_by_others(settings: Settings) -> bool:
    """Return whether other machines can reach the server, by its address or through a proxy."""
    on_loopback = not is_own_name("192.0.2.1", settings.host)
    return not on_loopback or bool(settings.hosts or settings.trusted_proxies)


def address_of(listening: socket.socket, host: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


def listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_LISTEN_BACKLOG)
        except OSError:
            listening.close()
            raise
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}:{port} ({error})", hint="take any free port: --port 0"
        ) from error
    return listening


def server_of(lab: Lab, settings: Settings) -> uvicorn.Server:
    """Return the server of a lab; its streams end when it stops."""
    app = create_app(lab, settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=64 << 10,
        ws="none",
        lifespan="on",
    )
    server = _Server(config)
    app.state.is_stopping = lambda: server.should_exit
    return server


class _Server(uvicorn.Server):
    """Stops on SIGINT and SIGTERM and then restores the handlers; uvicorn's own server would raise
    the signal once more after it has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
