"""Connections to a runner: in a local process, at a network address, or over ssh."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from etscope.errors import DeviceLost, MissingFileError, RuntimeFailure, UsageError
from etscope.run.process import end_of, end_with_parent, require_posix, signal_name

PROGRAM = "etdb-server"
TOKEN_VARIABLE = "ETDB_TOKEN"

_CONNECT_SECONDS = 20.0  # the system alone would wait minutes for a machine that is off
_CHUNK = 1 << 20  # bytes a read: a length is not trusted before its bytes arrive
_LOG_BYTES = 1 << 20  # at the end of a server's log
_GRACE_SECONDS = 2.0  # for a server to exit by itself
# Detect a machine that is gone: probe after 15 s of silence, give up 20 s later.
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 15, 5, 4


class SocketChannel:
    """A connected socket, and the process at its other end if it was started here. place: its
    location, to display."""

    def __init__(
        self,
        connection: socket.socket,
        place: str,
        *,
        process: subprocess.Popen[bytes] | None = None,
        output: IO[bytes] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.place = place
        self._socket = connection
        self._process = process
        self._output = output
        self._after = after
        self._said = ""
        self._held = bytearray()  # received, but not returned yet

    def send(self, data: bytes) -> None:
        """Send all bytes. Raises OSError when the server is gone."""
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """Receive exactly `size` bytes. Bytes received before an interrupt are kept.

        Raises OSError (such as TimeoutError) or EOFError when no more arrive."""
        held = self._held
        while len(held) < size:
            # Grow with the bytes received: a false length costs no memory.
            part = self._socket.recv(min(_CHUNK, size - len(held)))
            if not part:
                raise EOFError("the other end hung up")
            held += part
        data = bytes(held[:size])
        del held[:size]
        return data

    def wait_at_most(self, seconds: float | None) -> None:
        """Set the timeout of `receive` for the next bytes; None: no timeout."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close, and end a server that was started for the channel. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._process is not None:
            # A server exits when its socket is closed.
            try:
                self._process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._output is not None:
            self._said = end_of(self._output, _LOG_BYTES)
            self._output.close()
            self._output = None
        if self._after is not None:
            self._after()

    def log(self) -> str:
        """End of the output of a server that was started for the channel."""
        return self._said if self._output is None else end_of(self._output, _LOG_BYTES)

    def ending(self) -> str | None:
        """Exit status of the server's process in words; None if unknown."""
        if self._process is None:
            return None
        try:
            code = self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        if code >= 0:
            return f"it ended with exit code {code}"
        return f"it was ended by {signal_name(-code)}"


@dataclass(frozen=True, slots=True)
class Local:
    """A server in a separate process on this machine; it ends with the channel and with this
    process. server: its binary; None to find or build it."""

    server: Path | None = None
    program: Path | None = None
    data: Sequence[Path] = ()
    libraries: Sequence[Path] = ()

    token = ""

    @property
    def place(self) -> str:
        return "here"

    def connect(self) -> SocketChannel:
        require_posix("etdb-server")
        command = [str(self._binary())]
        if self.program is not None:
            command.append(str(_existing(self.program, "program")))
        for path in self.data:
            command += ["--data", str(_existing(path, "data file"))]
        for path in self.libraries:
            command += ["--library", str(_existing(path, "library"))]
        ours, theirs = socket.socketpair()
        with theirs:
            command += ["--fd", str(theirs.fileno())]
            return _started(command, self.place, ours, pass_fds=(theirs.fileno(),))

    def _binary(self) -> Path:
        if self.server is not None:
            return _existing(self.server, "server")
        from etscope.run.native import find_server

        return find_server()


@dataclass(frozen=True, slots=True)
class Remote:
    """A server that listens at an address. token: $ETDB_TOKEN by default."""

    host: str
    port: int
    token: str = field(default_factory=lambda: os.environ.get(TOKEN_VARIABLE, ""), repr=False)

    @property
    def place(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self) -> SocketChannel:
        try:
            connection = socket.create_connection((self.host, self.port), _CONNECT_SECONDS)
        except (OSError, UnicodeError) as error:
            raise DeviceLost(
                f"no etdb-server answers at {self.place}: {error}",
                hint=f"start etdb-server on that machine: etdb-server --listen HOST:{self.port}",
            ) from error
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
            silence = _IDLE_SECONDS + _PROBES * _PROBE_SECONDS
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence * 1000)
        return SocketChannel(connection, self.place)


@dataclass(frozen=True, slots=True)
class SshServer:
    """A server that ssh starts on another machine; it ends when the connection closes.

    options: options of the lab's ssh driver (port, user, identity, known_hosts, config, folder).
    command: starts the server there. push: the local binary or install folder of the server
    (`bin/etdb-server`, `lib/`), which is copied there once and used instead of `command`.
    """

    host: str
    command: str = "etdb-server"
    push: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)

    token = ""

    @property
    def place(self) -> str:
        return f"ssh:{self.host}"

    def connect(self) -> SocketChannel:
        from etscope.run.remote import install_files
        from etscope.run.ssh import Ssh

        files = None if self.push is None else install_files(str(self.push), PROGRAM)
        device = Ssh(self.place, {**self.options, "host": self.host})
        try:
            command = self.command
            if files is not None:
                command = shlex.quote(device.pushed(files, PROGRAM))
            ours, theirs = socket.socketpair()
            with theirs:
                line = device.line(f"exec {command} --stdio")
                ends = {"stdin": theirs, "stdout": theirs}
                return _started(line, self.place, ours, after=device.close, **ends)
        except BaseException:
            device.close()
            raise


Launcher = Local | Remote | SshServer  # `connect` raises `DeviceLost` when no server answers


def remote_address(text: str) -> tuple[str, int]:
    """Parse "HOST:PORT" or "[IPv6]:PORT". Raises `UsageError`."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"not an address: {text!r}", hint="HOST:PORT, as in board.local:2345")
    return host, int(port)


def _started(
    command: list[str],
    place: str,
    ours: socket.socket,
    *,
    after: Callable[[], None] | None = None,
    **ends: Any,
) -> SocketChannel:
    """Start a process with the other end of a socket pair. Returns the channel to it."""
    # Linux regards the thread that starts a process as its parent, so a short-lived thread would
    # take the server along. There, the end of the socket has to do.
    in_main_thread = threading.current_thread() is threading.main_thread()
    output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
    ends = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, **ends}
    try:
        process = subprocess.Popen(
            command,
            preexec_fn=end_with_parent if in_main_thread else None,
            start_new_session=True,  # not interrupted by a Ctrl-C here
            **ends,
        )
    except OSError as error:
        ours.close()
        output.close()
        raise RuntimeFailure(f"cannot start {command[0]}: {error.strerror}") from error
    return SocketChannel(ours, place, process=process, output=output, after=after)


def _existing(path: Path, what: str) -> Path:
    found = path.expanduser()
    if not found.exists():
        raise MissingFileError(f"{what} not found: {path}")
    return found.absolute()
