"""The server process: a lab's engine and its application, from start to an orderly end."""

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
from fastapi import FastAPI

from etscope.errors import LabError, UsageError
from etscope.lab.server.app import create_app
from etscope.lab.server.settings import Settings
from etscope.reporting.serve import is_own_name

if TYPE_CHECKING:
    from etscope.lab.lab import Lab

_GRACE_SECONDS = 5  # for requests under way when the server ends
_LISTEN_BACKLOG = 512


def serve(
    lab: Lab,
    settings: Settings,
    *,
    port: int = 0,
    engine: Callable[[], object] | None = None,
    ready: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve until SIGINT or SIGTERM, then return: no new requests, the running ones answered.

    engine: starts what works on the jobs, once it is sure that the server can. `ready` gets the
    address when it is listened at; port 0 is any that is free. Whoever opened the lab closes it,
    and its engine with it.

    Raises `UsageError` for an address that cannot be listened at, `LabError` for one that others
    reach while the lab has no tokens.
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
    """Whether not only this machine gets to the server: by its address, or through a proxy."""
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
            f"cannot listen at {host}:{port} ({error})", hint="another port: --port 0 takes any"
        ) from error
    return listening


def server_of(lab: Lab, settings: Settings) -> uvicorn.Server:
    """What serves the lab; its streams end when it is about to."""
    app = create_app(lab, settings)
    server = _Server(_config(app, settings))
    app.state.ending = lambda: server.should_exit
    return server


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
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


class _Server(uvicorn.Server):
    """Ends by SIGINT and SIGTERM and then leaves signals as they were: uvicorn's own would raise
    them once more, after what was an orderly end."""

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
