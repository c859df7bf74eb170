"""The stream that an editor speaks on: standard input and output, or a socket of this machine."""

from __future__ import annotations

import os
import socket
import sys

from etscope.errors import UsageError
from etscope.etdb.dap.adapter import Adapter
from etscope.etdb.dap.framing import Channel


def serve(port: int | None) -> int:
    """Serve one editor, until it disconnects. port: of 127.0.0.1; None for standard input and
    output. 0 is any free one, which standard error says."""
    if port is None:
        _serve_stdio()
    else:
        _serve_socket(port)
    return 0


def _serve_stdio() -> None:
    # Streams of their own: a thread may wait for the first when Python ends and closes `sys.stdin`.
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get among the messages
    Adapter(Channel(source, sink)).serve()


def _serve_socket(port: int) -> None:
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on port {port}: {error}") from error
    with listener:
        print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        connection, _ = listener.accept()
    with connection, connection.makefile("rb") as source, connection.makefile("wb") as sink:
        Adapter(Channel(source, sink)).serve()
