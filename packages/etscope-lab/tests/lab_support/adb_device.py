"""A scripted Android device for the real `adb` client and its server: no phone, no emulator.

It speaks the transport of adb (protocol.txt and SYNC.TXT in Android's packages/modules/adb) on a
loopback port: CNXN, `shell:` and `sync:` (STAT, SEND, RECV). Its shell is this machine's `sh`
behind a terminal, so a command is really executed here, and loses its terminal when its stream is
closed, as with adbd. Without the feature shell_v2 the client cannot see how a command ended; with
it, as phones since Android 7 have it, the shell has pipes, and packets on its stream. What it
cannot show: how a real device's kernel, SELinux or file systems refuse things.
"""

from __future__ import annotations

import os
import pty
import queue
import select
import shutil
import socket
import socketserver
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

_HEADER = struct.Struct("<6I")
_MAX = 4096
_TOKEN, _PUBLIC_KEY = 1, 3  # kinds of AUTH
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)  # of shell_v2
_NAMES = {
    int.from_bytes(name, "little"): name
    for name in (b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
}


class AdbDevice:
    """A device that listens. programs: scripts by name, which its shell finds before any other.
    features: that it says it has. is_trusted: False for one whose user has not yet allowed this
    computer. unplugged_at: bytes of a pushed file after which it goes away.
    """

    def __init__(
        self, folder: Path, programs: dict[str, str], features: str = "", *, is_trusted: bool = True
    ) -> None:
        self.features, self.is_trusted = features, is_trusted
        self.unplugged_at: int | None = None
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, text in programs.items():
            (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.bin / name).chmod(0o755)
        device, self.links = self, []

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                link = _Link(self.request, device)
                device.links.append(link)
                link.serve()

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.serial = f"127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def unplug(self) -> None:
        """Stop listening and end all connections, at once."""
        self.server.shutdown()
        self.server.server_close()
        for link in self.links:
            link.close()


def missing() -> str | None:
    """Why adb cannot be tested; None when it can."""
    return None if shutil.which("adb") else "adb is not installed"


@contextmanager
def plugged_in(
    folder: Path, features: str = "", *, is_trusted: bool = True, **programs: str
) -> Iterator[tuple[AdbDevice, dict[str, Any]]]:
    """A device, and an adb server of its own: options of the driver `adb` that reach it."""
    port = free_port()
    device = AdbDevice(folder, programs, features, is_trusted=is_trusted)
    options = {
        "serial": device.serial,
        "server_port": port,
        "folder": str(folder / "data"),
    }
    try:
        yield device, options
    finally:
        with suppress(OSError):
            device.unplug()
        subprocess.run(["adb", "-P", str(port), "kill-server"], capture_output=True, check=False)


class _Link:
    """One connection of an adb server."""

    def __init__(self, connection: socket.socket, device: AdbDevice) -> None:
        self.connection, self.device = connection, device
        self.streams: dict[int, _Stream] = {}
        self._lock = threading.Lock()
        self._next = 1

    def serve(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                name, first, second, data = self._receive()
                if name in (b"CNXN", b"AUTH") and not self.device.is_trusted:
                    if first != _PUBLIC_KEY:  # then the phone asks its user
                        self.send(b"AUTH", _TOKEN, 0, bytes(20))
                elif name == b"CNXN":
                    about = f"device::ro.product.name=scripted;features={self.device.features}"
                    self.send(b"CNXN", 0x01000000, _MAX, about.encode() + b"\0")
                elif name == b"OPEN":
                    self._open(first, data.rstrip(b"\0").decode())
                elif second in self.streams:
                    self.streams[second].hear(name, data)
        self.close()

    def send(self, name: bytes, first: int, second: int, data: bytes = b"") -> None:
        word = int.from_bytes(name, "little")
        head = _HEADER.pack(word, first, second, len(data), sum(data), word ^ 0xFFFFFFFF)
        with self._lock:
            self.connection.sendall(head + data)

    def close(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        for stream in list(self.streams.values()):
            stream.hear(b"CLSE", b"")

    def _receive(self) -> tuple[bytes, int, int, bytes]:
        word, first, second, length, _, _ = _HEADER.unpack(self._exactly(_HEADER.size))
        return _NAMES.get(word, b""), first, second, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.connection.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def _open(self, remote: int, service: str) -> None:
        kind, _, argument = service.partition(":")
        work = {"shell": _shell, "sync": _sync}.get(kind)
        if kind.startswith("shell,v2"):
            work = _shell_v2
        if work is None:
            self.send(b"CLSE", 0, remote)
            return
        stream = _Stream(self, self._next, remote)
        self.streams[self._next] = stream
        self._next += 1
        self.send(b"OKAY", stream.local, remote)
        threading.Thread(target=stream.run, args=(work, argument), daemon=True).start()


class _Stream:
    """A service at work: bytes there and back."""

    def __init__(self, link: _Link, local: int, remote: int) -> None:
        self.link, self.local, self.remote = link, local, remote
        self.came: queue.Queue[bytes | None] = queue.Queue()
        self.free = threading.Semaphore(1)
        self.closed = threading.Event()
        self.at_close: list[Any] = []
        self._rest = b""

    def hear(self, name: bytes, data: bytes) -> None:
        if name == b"WRTE":
            self.came.put(data)
            self.link.send(b"OKAY", self.local, self.remote)
        elif name == b"OKAY":
            self.free.release()
        elif name == b"CLSE":
            self.closed.set()
            self.came.put(None)
            self.free.release()
            for call in self.at_close:
                call()

    def run(self, work: Any, argument: str) -> None:
        with suppress(OSError, EOFError):
            work(self, argument)
        with suppress(OSError):
            self.link.send(b"CLSE", self.local, self.remote)
        self.link.streams.pop(self.local, None)

    def write(self, data: bytes) -> None:
        for begin in range(0, len(data), _MAX):
            self.free.acquire()
            if self.closed.is_set():
                raise EOFError
            self.link.send(b"WRTE", self.local, self.remote, data[begin : begin + _MAX])

    def read(self, count: int) -> bytes:
        while len(self._rest) < count:
            piece = self.came.get()
            if piece is None:
                raise EOFError
            self._rest += piece
        data, self._rest = self._rest[:count], self._rest[count:]
        return data


def _shell(stream: _Stream, command: str) -> None:
    master, slave = pty.openpty()
    closed, close = socket.socketpair()
    stream.at_close.append(close.close)
    if stream.closed.is_set():  # before anybody was told
        close.close()
    path = f"{stream.link.device.bin}:{os.environ['PATH']}"
    child = subprocess.Popen(
        ["sh", "-c", command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "PATH": path},
    )
    os.close(slave)
    try:
        while master in select.select([master, closed], [], [])[0]:
            stream.write(os.read(master, _MAX))  # EIO: all of the command have left the terminal
    finally:
        # The kernel sends SIGHUP, and whoever reads the terminal gets to its end.
        stream.at_close.clear()
        os.close(master)
        closed.close()
        close.close()
        threading.Thread(target=child.wait, daemon=True).start()


def _shell_v2(stream: _Stream, command: str) -> None:
    path = f"{stream.link.device.bin}:{os.environ['PATH']}"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    child = subprocess.Popen(
        ["sh", "-c", command], env={**os.environ, "PATH": path}, start_new_session=True, **pipes
    )
    assert child.stdin and child.stdout and child.stderr
    written = threading.Lock()

    def send(kind: int, data: bytes) -> None:
        with written:
            stream.write(struct.pack("<BI", kind, len(data)) + data)

    def hear() -> None:
        with suppress(EOFError, OSError):
            while True:
                kind, length = struct.unpack("<BI", stream.read(5))
                data = stream.read(length)
                if kind == _STDIN and child.stdin:
                    child.stdin.write(data)
                    child.stdin.flush()
                elif kind == _CLOSE_STDIN and child.stdin:
                    child.stdin.close()
        with suppress(OSError):
            if child.stdin:
                child.stdin.close()

    def pass_on(kind: int, pipe: Any) -> None:
        with suppress(EOFError, OSError):
            while piece := os.read(pipe.fileno(), _MAX - 64):
                send(kind, piece)

    threading.Thread(target=hear, daemon=True).start()
    out = [
        threading.Thread(target=pass_on, args=pair, daemon=True)
        for pair in ((_STDOUT, child.stdout), (_STDERR, child.stderr))
    ]
    for thread in out:
        thread.start()
    for thread in out:
        thread.join()
    code = child.wait()
    send(_EXIT, bytes([code if code >= 0 else 128 - code]))


def _sync(stream: _Stream, _: str) -> None:
    while True:
        name, length = struct.unpack("<4sI", stream.read(8))
        if name == b"QUIT":
            return
        path = stream.read(length).decode()
        {b"STAT": _stat, b"SEND": _send, b"RECV": _recv}[name](stream, path)


def _stat(stream: _Stream, path: str) -> None:
    try:
        found = os.stat(path)
        facts = (found.st_mode, found.st_size, int(found.st_mtime))
    except OSError:
        facts = (0, 0, 0)
    stream.write(struct.pack("<4s3I", b"STAT", *facts))


def _send(stream: _Stream, argument: str) -> None:
    path, _, mode = argument.rpartition(",")
    data = b""
    while True:
        name, length = struct.unpack("<4sI", stream.read(8))
        if name == b"DONE":
            break
        data += stream.read(length)
        most = stream.link.device.unplugged_at
        if most is not None and len(data) >= most:
            stream.link.device.unplug()
    try:
        Path(path).write_bytes(data)
        os.chmod(path, int(mode) & 0o777)
    except OSError as failure:
        error = str(failure.strerror).encode()
        stream.write(struct.pack("<4sI", b"FAIL", len(error)) + error)
        return
    stream.write(struct.pack("<4sI", b"OKAY", 0))


def _recv(stream: _Stream, path: str) -> None:
    try:
        data = Path(path).read_bytes()
    except OSError as failure:
        error = str(failure.strerror).encode()
        stream.write(struct.pack("<4sI", b"FAIL", len(error)) + error)
        return
    for begin in range(0, len(data), 64 << 10):
        piece = data[begin : begin + (64 << 10)]
        stream.write(struct.pack("<4sI", b"DATA", len(piece)) + piece)
    stream.write(struct.pack("<4sI", b"DONE", 0))
