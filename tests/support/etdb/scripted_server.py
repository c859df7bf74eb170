"""A server that speaks docs/reference/etdb-protocol.md without a runtime: its program counts.

Instruction i of the program adds 1 to tensor i; after the last the program begins again, `passes`
times. Written from the page, without the client's own reading and writing.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from etscope.etdb.protocol.launch import SocketChannel
from tests.support.etdb.server import ERROR, blob, frame, text

NOWHERE = 0xFFFFFFFF
FLOAT = 6


class Refused(Exception):
    """An error of the protocol: code, message, log."""


@dataclass
class ScriptedServer:
    """The requests of one connection, answered one by one; `refuse` maps a kind to the error that
    it gets, `die_at` names a step that kills the process."""

    passes: int = 3
    token: str = ""
    version: int = 1
    program: bytes | None = None
    refuse: dict[int, tuple[int, str, str]] = field(default_factory=dict)
    die_at: int | None = None
    staging: bytearray = field(default_factory=bytearray)
    tensors: list[Any] = field(default_factory=list)
    order: tuple[int, ...] = (0, 1)
    step: int = 0
    inputs: bytes = b""
    loaded: bytes = b""
    sent: list[bytes] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    traced: bool = False
    interrupt: threading.Event = field(default_factory=threading.Event)

    def answer(self, kind: int, body: bytes) -> bytes:
        self.asked.append(kind)
        if kind in self.refuse:
            raise Refused(*self.refuse[kind])
        found: bytes = getattr(self, f"_{kind}")(body)
        return found

    @property
    def count(self) -> int:
        return len(self.tensors)

    def _1(self, body: bytes) -> bytes:
        if body[:8] != b"etscope\n":
            raise Refused(1, "not a greeting", "")
        (size,) = struct.unpack_from("<I", body, 10)
        if body[14 : 14 + size].decode() != self.token:
            raise Refused(3, "it is wrong", "")
        own = b"\0"
        if self.program is not None:
            own = struct.pack("<BQI", 1, len(self.program), zlib.crc32(self.program)) + text(
                "a.pte"
            )
        return struct.pack("<H", self.version) + text("1.5.1") + text("x86_64") + own

    def _2(self, body: bytes) -> bytes:
        offset, size = struct.unpack_from("<QQ", body)
        if offset == 0:
            self.staging.clear()
        if offset != len(self.staging) or len(body) != 16 + size:
            raise Refused(1, "not where the area ends", "")
        self.staging += body[16:]
        return b""

    def _3(self, body: bytes) -> bytes:
        self.loaded = bytes(self.staging) if body[0] == 1 else self.program or b""
        (size,) = struct.unpack_from("<I", body, 1)
        _, rows = struct.unpack_from("<iI", body, 5 + size)
        self.tensors = [np.zeros((2, 3), np.float32) for _ in range(rows)]
        return text("forward") + struct.pack("<QII", 5, rows, 1)

    def _4(self, body: bytes) -> bytes:
        self.inputs = body
        return b""

    def _5(self, body: bytes) -> bytes:
        self.traced = body[0] == 1
        self._rewind()
        return self._stopped(0, 0)

    def _rewind(self) -> None:
        self.step = 0
        for tensor in self.tensors:
            tensor[...] = 0

    def _6(self, body: bytes) -> bytes:
        most, size = struct.unpack_from("<QQ", body)
        stops = np.unpackbits(np.frombuffer(body[16 : 16 + size], np.uint8), bitorder="little")
        (tests,) = struct.unpack_from("<I", body, 16 + size)
        begun = self.step
        while self.step < self.passes * self.count:
            self._one()
            at = (self.step - 1) % self.count
            if self.interrupt.is_set():
                return self._stopped(5, begun)
            if tests and self.step == 5:
                return self._stopped(2, begun, struct.pack("<iIQ", tests - 1, at, 6))
            if stops[at]:
                return self._stopped(1, begun)
            if most and self.step - begun == most:
                return self._stopped(3, begun)
        return self._stopped(4, begun)

    def _7(self, body: bytes) -> bytes:
        (wanted,) = struct.unpack("<Q", body)
        begun = self.step
        if wanted < begun:
            self._rewind()
            begun = wanted
        while self.step < min(wanted, self.passes * self.count):
            self._one()
            if self.interrupt.is_set():
                return self._stopped(5, begun)
        return self._stopped(7 if self.step == wanted else 4, begun)

    def _one(self) -> None:
        self.tensors[self.step % self.count] += 1
        self.step += 1
        if self.step == self.die_at:
            raise ConnectionAbortedError

    def _8(self, body: bytes) -> bytes:
        (index,) = struct.unpack("<I", body)
        if index == 100:
            inner = struct.pack("<Bq", 1, -7) + struct.pack("<BB", 3, 1) + b"\0"
            return struct.pack("<BI", 6, 4) + inner + b"\4" + text("relu")
        return b"\7" + self._shape(index) + struct.pack("<Q", self._tensor(index).nbytes)

    def _9(self, body: bytes) -> bytes:
        found = self._tensor(struct.unpack("<I", body)[0])
        return struct.pack("<4Q4d", found.size, 0, 0, 0, found.min(), found.max(), found.mean(), 0)

    def _10(self, body: bytes) -> bytes:
        index, first, count = struct.unpack("<IQQ", body)
        stored = self._tensor(index).transpose(self.order).tobytes()
        return blob(stored[first : first + count])

    def _11(self, body: bytes) -> bytes:
        (index,) = struct.unpack_from("<I", body)
        found = self._tensor(index)
        if body[4] not in (5, 8) or body[5:].startswith(self._shape(index)) is False:
            raise Refused(7, "float32 [2, 3] is its shape and type", "")
        at = 5 + len(self._shape(index))
        if body[4] == 5:
            data = body[at + 8 :]
        else:
            (offset,) = struct.unpack_from("<Q", body, at)
            data = bytes(self.staging[offset : offset + found.nbytes])
        found[...] = np.frombuffer(data, found.dtype).reshape(found.shape)
        return b""

    def _12(self, body: bytes) -> bytes:
        return struct.pack("<QQI", 11, 30, 1) + struct.pack("<QIII", 4, 0, 1, NOWHERE)

    def _13(self, body: bytes) -> bytes:
        part, offset, count = struct.unpack("<BQQ", body)
        return blob((b"e" * 11, b"d" * 30)[part][offset : offset + count])

    def _tensor(self, index: int) -> Any:
        if index >= self.count:
            raise Refused(7, f"there is no value {index}", "")
        return self.tensors[index]

    def _shape(self, index: int) -> bytes:
        return struct.pack("<BB2I2B", FLOAT, 2, *self._tensor(index).shape, *self.order)

    def _stopped(self, why: int, begun: int, test: bytes = struct.pack("<iIQ", -1, 0, 0)) -> bytes:
        count, ranges = self.count, []
        at = begun
        while at < self.step:
            length = min(count - at % count, self.step - at)
            ranges.append(struct.pack("<III", 0, at % count, length))
            at += length
        where = (0, (self.step - 1) % count) if self.step else (NOWHERE, NOWHERE)
        return (
            struct.pack("<BQIIQQI", why, self.step, *where, 10, 100, len(ranges))
            + b"".join(ranges)
            + test
            + struct.pack("<I", 0)
            + text("")
        )

    # -- a connection

    def serve(self, connection: socket.socket) -> None:
        """Until the client hangs up or something ends it."""
        with connection:
            while head := _exactly(connection, 12):
                length, kind, _, number = struct.unpack("<IHHI", head)
                body = _exactly(connection, length) or b""
                if kind == 15:
                    return
                with contextlib.suppress(OSError):  # it may have hung up
                    for data in self.frames(kind, number, body):
                        connection.sendall(data)
                if kind == 6 and self.die_at is not None and self.step == self.die_at:
                    return

    def frames(self, kind: int, number: int, body: bytes) -> list[bytes]:
        """What is sent for a request."""
        try:
            answers = [frame(kind | 0x8000, self.answer(kind, body), number)]
        except Refused as refused:
            code, message, log = refused.args
            answers = [frame(ERROR, struct.pack("<H", code) + text(message) + text(log), number)]
        except ConnectionAbortedError:
            answers = self.last_words()
        self.sent += answers
        return answers

    def last_words(self) -> list[bytes]:
        where = struct.pack("<QII", self.step, 0, (self.step - 1) % self.count)
        died = frame(0x4001, text("the runtime aborted") + where + bytes([self.traced]), 0)
        if not self.traced:
            return [died]
        parts = [(0, b"etd"), (1, b"deb"), (0, b"ump"), (1, b"ug")]
        cores = [frame(0x4002, bytes([which]) + blob(data), 0) for which, data in parts]
        return [died, *cores, frame(0x4003, b"", 0)]


@contextlib.contextmanager
def serving(server: ScriptedServer) -> Iterator[SocketChannel]:
    """The server in a thread, and the channel to it."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=server.serve, args=(theirs,), daemon=True)
    thread.start()
    channel = SocketChannel(ours, "there")
    try:
        yield channel
    finally:
        channel.close()
        thread.join(120)
        assert not thread.is_alive(), "the scripted server does not end"


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        try:
            part = connection.recv(size - len(data))
        except OSError:
            return None
        if not part:
            return None
        data += part
    return data
