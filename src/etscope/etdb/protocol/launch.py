"""How a connection to a runner comes about: started here, found at an address, or over ssh."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from etscope.errors import DeviceLost, MissingFileError, RuntimeFailure, UsageError

PROGRAM = "etdb-server"
TOKEN_VARIABLE = "ETDB_TOKEN"

_CONNECT_SECONDS = 20.0
_CHUNK = 1 << 20
_LOG_BYTES = 1 << 20  # of a server's log, the last ones
_GRACE_SECONDS = 2.0  # for a server to end by itself
# A machine that is gone says nothing: asked after 15 s without a word, lost 20 s later.
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 15, 5, 4


class Channel(Protocol):
    """Bytes to and from a server. place: where it is, for people."""

    @property
    def place(self) -> str: ...

    def send(self, data: bytes) -> None:
        """Raises OSError when the server is gone."""
        ...

    def receive(self, size: int) -> bytes:
        """Exactly so many bytes; what came of them stays when this is interrupted.

        Raises OSError (TimeoutError among them) or EOFError when no more come."""
        ...

    def wait_at_most(self, seconds: float | None) -> None:
        """How long `receive` waits for the next bytes; None: for ever."""
        ...

    def close(self) -> None:
        """Idempotent. A server that was started for the channel ends."""
        ...

    def log(self) -> str:
        """What a server that was started for the channel said on stderr, its end."""
        ...

    def ending(self) -> str | None:
        """How the server's process ended; None where nobody knows."""
        ...


class Launcher(Protocol):
    """A way to a runner. place: for people: "here", "board:2345", "ssh:pi". connected_program:
    whether the server may have been started with a program of its own."""

    @property
    def place(self) -> str: ...

    @property
    def connected_program(self) -> bool: ...

    @property
    def token(self) -> str: ...

    def connect(self) -> Channel:
        """A new connection. Raises `DeviceLost` when there is nobody, and what finding or building
        the server raises."""
        ...


class SocketChannel:
    """A connected socket, and the process at its other end if it is ours."""

    def __init__(
        self,
        connection: socket.socket,
        place: str,
        *,
        process: subprocess.Popen[bytes] | None = None,
        words: IO[bytes] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.place = place
        self._socket = connection
        self._process = process
        self._words = words
        self._after = after
        self._said = ""
        self._held = bytearray()  # received, and not asked for yet

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, size: int) -> bytes:
        held = self._held
        while len(held) < size:
            # At most what was asked for: a length that lies costs as much as was really sent.
            part = self._socket.recv(min(_CHUNK, size - len(held)))
            if not part:
                raise EOFError("the other end hung up")
            held += part
        data = bytes(held[:size])
        del held[:size]
        return data

    def wait_at_most(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._process is not None:
            _end(self._process)
        if self._words is not None:
            self._said = _tail(self._words)
            self._words.close()
            self._words = None
        if self._after is not None:
            self._after()

    def log(self) -> str:
        return self._said if self._words is None else _tail(self._words)

    def ending(self) -> str | None:
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return _ended(self._process.wait(_GRACE_SECONDS))
        return None


@dataclass(frozen=True, slots=True)
class Local:
    """A server in a process of its own on this machine; it ends with the channel, and with this
    process. server: its binary; None to find or build it."""

    server: Path | None = None
    program: Path | None = None
    data: Sequence[Path] = ()
    libraries: Sequence[Path] = ()

    token = ""

    @property
    def place(self) -> str:
        return "here"

    @property
    def connected_program(self) -> bool:
        return self.program is not None

    def connect(self) -> Channel:
        command = [str(self._binary())]
        if self.program is not None:
            command.append(str(_there(self.program, "program")))
        for path in self.data:
            command += ["--data", str(_there(path, "data file"))]
        for path in self.libraries:
            command += ["--library", str(_there(path, "library"))]
        ours, theirs = socket.socketpair()
        with theirs:
            command += ["--fd", str(theirs.fileno())]
            return _started(command, self.place, ours, pass_fds=(theirs.fileno(),))

    def _binary(self) -> Path:
        if self.server is not None:
            return _there(self.server, "server")
        from etscope.run.native import find_server

        return find_server()


@dataclass(frozen=True, slots=True)
class Remote:
    """A server that listens at an address. token: that of $ETDB_TOKEN if none is given."""

    host: str
    port: int
    token: str = field(default_factory=lambda: os.environ.get(TOKEN_VARIABLE, ""), repr=False)

    @property
    def place(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def connected_program(self) -> bool:
        return True

    def connect(self) -> Channel:
        try:
            connection = socket.create_connection((self.host, self.port), _CONNECT_SECONDS)
        except (OSError, UnicodeError) as error:
            raise DeviceLost(
                f"no etdb-server answers at {self.place}: {error}",
                hint=f"start it there: etdb-server --listen HOST:{self.port}",
            ) from error
        connection.settimeout(None)
        _notice_silence(connection)
        return SocketChannel(connection, self.place)


@dataclass(frozen=True, slots=True)
class SshServer:
    """A server that ssh starts on another machine, and that ends with the channel.

    options: of the lab's driver ssh (port, user, identity, known_hosts, config, folder). command:
    how it is started there. push: its binary or install folder here (`bin/etdb-server`, `lib/`),
    which is brought there once, in the place of `command`."""

    host: str
    command: str = "etdb-server"
    push: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)

    token = ""

    @property
    def place(self) -> str:
        return f"ssh:{self.host}"

    @property
    def connected_program(self) -> bool:
        return True

    def connect(self) -> Channel:
        from etscope.lab.devices.remote import install_files
        from etscope.lab.devices.ssh import Ssh

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


def remote_address(text: str) -> tuple[str, int]:
    """The host and port of "HOST:PORT" or "[IPv6]:PORT". Raises `UsageError`."""
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
    """The channel to a process at the other end of a socket pair."""
    words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
    ends = {"stdin": subprocess.DEVNULL, "stdout": words, "stderr": words, **ends}
    try:
        process = subprocess.Popen(
            command,
            preexec_fn=_end_with_parent(),
            start_new_session=True,  # a Ctrl-C here is not for it
            **ends,
        )
    except OSError as error:
        ours.close()
        words.close()
        raise RuntimeFailure(f"cannot start {command[0]}: {error.strerror}") from error
    return SocketChannel(ours, place, process=process, words=words, after=after)


def _end_with_parent() -> Any:
    # Linux takes the thread that starts a process for its parent: one that ends before the work
    # does would take the server along. There the end of the socket has to do.
    if threading.current_thread() is not threading.main_thread():
        return None
    from etscope.run.process import end_with_parent

    return end_with_parent


def _end(process: subprocess.Popen[bytes]) -> None:
    """The end of the socket is the sign to end."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
        return
    process.kill()
    process.wait()


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    name = next((s.name for s in signal.Signals if s.value == -code), f"signal {-code}")
    return f"it was ended by {name}"


def _tail(words: IO[bytes]) -> str:
    # The server writes at the file's own offset, which is shared: it is read without moving it.
    size = os.fstat(words.fileno()).st_size
    data = os.pread(words.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES))
    return data.decode(errors="replace")


def _there(path: Path, what: str) -> Path:
    found = path.expanduser()
    if not found.exists():
        raise MissingFileError(f"{what} not found: {path}")
    return found.absolute()


def _notice_silence(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        silence = _IDLE_SECONDS + _PROBES * _PROBE_SECONDS
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence * 1000)
