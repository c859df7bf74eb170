"""The bytes of the debugger's protocol, written and read by hand: nothing of etscope's client is in
here. The forms are those of docs/reference/etdb-protocol.md."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etscope.errors import MissingDependencyError
from etscope.run.native import find_server
from tests.support.artifacts import ArtifactUnavailable
from tests.support.waiting import until

(HELLO, UPLOAD, LOAD, INPUTS, BEGIN, GO, GOTO, DESCRIBE, STATISTICS, READ, WRITE, CORE, FETCH,
 INTERRUPT, BYE) = range(1, 16)  # fmt: skip
DIED, CORE_PART, CORE_END, ANSWER, ERROR = 0x4001, 0x4002, 0x4003, 0x8000, 0xFFFF
PROTOCOL, VERSION, TOKEN, STATE, PROGRAM, INPUT, VALUE, RUNTIME, LIMIT = range(1, 10)
ENDING = (PROTOCOL, VERSION, TOKEN)
SECONDS = 120


def server() -> Path:
    """The binary."""
    try:
        return find_server()
    except MissingDependencyError as error:
        raise ArtifactUnavailable(f"{error.message}; {error.hint}") from error


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def hello(token: str = "", version: int = 1) -> bytes:
    return b"etscope\n" + struct.pack("<H", version) + text(token)


def load(method: str = "", outputs: int | list[list[int]] = 0, source: int = 0) -> bytes:
    """Outputs: of each instruction, or of how many."""
    rows = [[]] * outputs if isinstance(outputs, int) else outputs
    body = struct.pack("<B", source) + text(method) + struct.pack("<iI", 0, len(rows))
    return body + b"".join(struct.pack(f"<I{len(row)}I", len(row), *row) for row in rows)


def tensor(code: int, shape: tuple[int, ...], data: bytes) -> bytes:
    order = bytes(range(len(shape)))
    facts = struct.pack(f"<BBB{len(shape)}I", 5, code, len(shape), *shape)
    return facts + order + blob(data)


def frame(kind: int, body: bytes = b"", number: int = 1, zero: int = 0) -> bytes:
    return struct.pack("<IHHI", len(body), kind, zero, number) + body


@dataclass
class Refused(Exception):
    code: int
    message: str
    log: str


@dataclass(frozen=True)
class Stood:
    """The first fields of *stopped*, and its end."""

    why: int
    step: int
    chain: int
    instruction: int
    ran: list[tuple[int, int, int]]
    error: str


def stopped(body: bytes) -> Stood:
    why, step, chain, instruction, _, _, count = struct.unpack_from("<BQIIQQI", body)
    at = struct.calcsize("<BQIIQQI")
    ran = [struct.unpack_from("<III", body, at + 12 * i) for i in range(count)]
    at += 12 * count
    _, _, _, differences = struct.unpack_from("<iIQI", body, at)
    at += 20 + 20 * differences
    (size,) = struct.unpack_from("<I", body, at)
    assert at + 4 + size == len(body)
    return Stood(why, step, chain, instruction, ran, body[at + 4 :].decode())  # type: ignore[arg-type]


class Wire:
    """A connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(SECONDS)
        self.number = 0

    def send(self, kind: int, body: bytes = b"") -> int:
        self.number += 1
        self.socket.sendall(frame(kind, body, self.number))
        return self.number

    def receive(self) -> tuple[int, int, bytes]:
        """Kind, number, body. EOFError when the server has hung up."""
        size, kind, zero, number = struct.unpack("<IHHI", self.exactly(12))
        assert zero == 0
        assert size <= 64 << 20
        return kind, number, self.exactly(size)

    def exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def answer(self, kind: int, number: int) -> bytes:
        """The body of the answer to that request; raises what is refused."""
        got, of, body = self.receive()
        assert of == number
        if got == ERROR:
            raise refusal(body)
        assert got == kind | ANSWER
        return body

    def ask(self, kind: int, body: bytes = b"") -> bytes:
        return self.answer(kind, self.send(kind, body))

    def refused(self, kind: int, body: bytes = b"") -> Refused:
        try:
            self.ask(kind, body)
        except Refused as error:
            return error
        raise AssertionError(f"the request of kind {kind} was done")

    def is_closed(self) -> bool:
        """Whether the server has hung up, without another word."""
        try:
            word = self.receive()
        except EOFError:
            return True
        raise AssertionError(f"the server goes on: {word}")


def refusal(body: bytes) -> Refused:
    (code,) = struct.unpack_from("<H", body)
    (size,) = struct.unpack_from("<I", body, 2)
    message = body[6 : 6 + size].decode()
    (rest,) = struct.unpack_from("<I", body, 6 + size)
    log = body[10 + size :].decode()
    assert len(log.encode()) == rest
    assert message
    return Refused(code, message, log)


def state_of(pid: int) -> str:
    """The letter of its state; "Z" of what has ended, also where its parent has asked for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def children(pid: int) -> list[int]:
    """The processes that the main thread of a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill(pid: int, how: int) -> None:
    """While the process waits for a request: in the middle of an answer it would say no more."""

    until(lambda: state_of(pid) == "S")
    os.kill(pid, how)


class Server:
    """A server that listens on this machine."""

    def __init__(self, *flags: object, **more: Any) -> None:
        line = [str(server()), "--listen", "127.0.0.1:0", *map(str, flags)]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, **more)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said.startswith("listening on 127.0.0.1:")
        self.port = int(said.rsplit(":", 1)[1])

    @contextlib.contextmanager
    def open(self) -> Iterator[Wire]:
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as connection:
            yield Wire(connection)

    @contextlib.contextmanager
    def greeted(self, token: str = "") -> Iterator[Wire]:
        with self.open() as wire:
            wire.ask(HELLO, hello(token))
            yield wire

    def children(self) -> list[int]:
        """Processes of connections."""
        return children(self.process.pid)

    def end(self, how: int = signal.SIGTERM) -> int:
        """Its exit code. Whatever happened, it is gone afterwards."""
        self.process.send_signal(how)
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


@contextlib.contextmanager
def serving(*flags: object, **more: Any) -> Iterator[Server]:
    one = Server(*flags, **more)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.end()


@contextlib.contextmanager
def serving_one(*flags: object, **more: Any) -> Iterator[tuple[Wire, subprocess.Popen[bytes]]]:
    """A server of one connection, a socket that it is handed."""
    mine, its = socket.socketpair()
    with mine, its:
        os.set_inheritable(its.fileno(), True)
        line = [str(server()), "--fd", str(its.fileno()), *map(str, flags)]
        process = subprocess.Popen(line, pass_fds=(its.fileno(),), **more)
        its.close()
        try:
            yield Wire(mine), process
        finally:
            mine.close()
            try:
                process.wait(SECONDS)
            finally:
                process.kill()
                process.wait()
                for stream in (process.stdout, process.stderr):
                    if stream is not None:
                        stream.close()
