"""etdb-server: greeting, malformed frames, limits, and requests at the wrong time."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.artifacts import artifacts
from tests.support.etdb import server as s

PTE = artifacts("cnn_portable").pte


@pytest.fixture(scope="module")
def running() -> Iterator[s.Server]:
    with s.serving(PTE, "--max-upload", 1 << 20) as one:
        yield one


# -- greeting


def test_a_greeting_tells_what_the_server_is(running: s.Server) -> None:
    with running.open() as wire:
        body = wire.ask(s.HELLO, s.hello())
    program = PTE.read_bytes()
    machine = os.uname().machine
    expected = struct.pack("<H", 1) + s.text("1.5.1") + s.text(machine)
    expected += struct.pack("<BQI", 1, len(program), zlib.crc32(program)) + s.text(PTE.name)
    assert body == expected


def test_a_server_without_a_program() -> None:
    with s.serving_one() as (wire, _):
        assert wire.ask(s.HELLO, s.hello())[-1:] == b"\0"
        error = wire.refused(s.LOAD, s.load())
        assert (error.code, error.message) == (s.STATE, "this server was started without a program")


def test_a_program_that_changed_is_told_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(b"first")
    with s.serving(path) as one:
        path.write_bytes(b"second, longer")
        with one.open() as wire:
            body = wire.ask(s.HELLO, s.hello())
        facts = struct.pack("<BQI", 1, 14, zlib.crc32(b"second, longer"))
        assert body.endswith(facts + s.text("model.pte"))


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        (s.HELLO, s.hello(version=2), s.VERSION),
        (s.HELLO, s.hello(version=0) + b"what a later version adds", s.VERSION),
        (s.HELLO, b"GET / HTTP/1.1\r\n\r\n", s.PROTOCOL),
        (s.HELLO, s.hello()[:-1], s.PROTOCOL),
        (s.HELLO, s.hello() + b"\0", s.PROTOCOL),
        (s.HELLO, b"", s.PROTOCOL),
        (s.HELLO, b"etscope\n\x01\x00" + s.text(b"\xff\xfe"), s.PROTOCOL),
        (s.HELLO, b"x" * 4097, s.PROTOCOL),
        *((kind, b"", s.PROTOCOL) for kind in (s.BYE, s.LOAD, s.GO, 0, 99, s.HELLO | s.ANSWER)),
    ],
)
def test_a_greeting_that_is_none(kind: int, body: bytes, code: int, running: s.Server) -> None:
    with running.open() as wire:
        assert wire.refused(kind, body).code == code
        assert wire.is_closed()


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (struct.pack("<IHHI", (64 << 20) + 1, s.GO, 0, 77), 77),  # too long
        (s.frame(s.BYE, zero=1), 1),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", None),
    ],
)
@pytest.mark.parametrize("greeted", [True, False])
def test_a_header_that_is_none(
    data: bytes, number: int | None, greeted: bool, running: s.Server
) -> None:
    with running.open() as wire:
        if greeted:
            wire.ask(s.HELLO, s.hello())
        wire.socket.sendall(data)
        kind, of, body = wire.receive()
        assert (kind, s.refusal(body).code) == (s.ERROR, s.PROTOCOL)
        assert number in (of, None)
        assert wire.is_closed()


def test_a_second_greeting_is_not_now(running: s.Server) -> None:
    with running.greeted() as wire:
        assert wire.refused(s.HELLO, s.hello()).code == s.STATE
        wire.ask(s.BYE)
        assert wire.is_closed()


# -- the token


def test_a_token_lets_in_those_who_know_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token that is long\nanother line\n")
    with s.serving("--token-file", tmp_path / "token") as one:
        for wrong in ("", "a", "a token that is lonG", "a token that is long\n", "a" * 4000):
            with one.open() as wire:
                assert wire.refused(s.HELLO, s.hello(wrong)).code == s.TOKEN
                assert wire.is_closed()  # one try a connection
        with one.greeted("a token that is long") as wire:
            wire.ask(s.BYE)


def test_the_token_of_the_environment() -> None:
    environment = {**os.environ, "ETDB_TOKEN": "abc"}
    with s.serving(env=environment) as one:
        with one.open() as wire:
            assert wire.refused(s.HELLO, s.hello("abd")).code == s.TOKEN
        with one.greeted("abc") as wire:
            wire.ask(s.BYE)
    with s.serving_one(env=environment) as (wire, _):  # a connection that it is handed needs none
        wire.ask(s.HELLO, s.hello())


# -- frames


HOSTILE = {
    "unknown": (16, b""),
    "zero": (0, b""),
    "an answer": (s.DESCRIBE | s.ANSWER, b""),
    "an event": (s.DIED, b""),
    "bytes behind": (s.DESCRIBE, bytes(5)),
    "bytes behind nothing": (s.BYE, b"\0"),
    "cut short": (s.READ, bytes(19)),
    "empty": (s.LOAD, b""),
    "a source that is none": (s.LOAD, s.load(source=2)),
    "a text longer than the body": (s.LOAD, b"\0" + struct.pack("<I", 4000)),
    "a text of 4 GiB": (s.LOAD, b"\0\xff\xff\xff\xff"),
    "no UTF-8": (s.LOAD, b"\0" + s.text(b"\xc3\x28") + bytes(8)),
    "threads below zero": (s.LOAD, b"\0" + s.text("") + struct.pack("<iI", -1, 0)),
    "a list of 4 billion": (s.LOAD, b"\0" + s.text("") + struct.pack("<iI", 0, 2**32 - 1)),
    "a row of 4 billion": (s.LOAD, b"\0" + s.text("") + struct.pack("<iII", 0, 1, 2**32 - 1)),
    "an upload cut short": (s.UPLOAD, struct.pack("<QQ", 0, 100) + bytes(99)),
    "an upload of 2**64": (s.UPLOAD, struct.pack("<QQ", 0, 2**64 - 1)),
    "flags": (s.BEGIN, b"\4"),
    "stops that are not there": (s.GO, struct.pack("<QQ", 0, 2**63)),
    "tests that are not there": (s.GO, struct.pack("<QQI", 0, 0, 2**31)),
    "a test of no kind": (s.GO, struct.pack("<QQIBd", 0, 0, 1, 5, 0.0) + s.blob(b"")),
    "a value of no kind": (s.WRITE, struct.pack("<IB", 0, 9)),
    "a value without data": (s.WRITE, struct.pack("<IBBB", 0, 7, 6, 0) + bytes(8)),
    "a flag that is two": (s.WRITE, struct.pack("<IBB", 0, 3, 2)),
    "17 dimensions": (s.WRITE, struct.pack("<IBBB", 0, 5, 6, 17) + bytes(17 * 5 + 8)),
    "an order that is none": (s.WRITE, struct.pack("<IBBBII", 0, 5, 6, 2, 1, 1) + bytes(10)),
    "a core of three": (s.FETCH, struct.pack("<BQQ", 2, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malformed_frame_ends_the_connection(name: str, running: s.Server) -> None:
    kind, body = HOSTILE[name]
    with running.greeted() as wire:
        assert wire.refused(kind, body).code == s.PROTOCOL
        assert wire.is_closed()


def test_requests_may_come_in_any_pieces(running: s.Server) -> None:
    requests = [(s.HELLO, s.hello(), 5), (s.INTERRUPT, b"", 6), (s.BYE, b"", 7)]
    data = b"".join(s.frame(*request) for request in requests)
    with running.open() as wire:
        for at in range(len(data)):
            wire.socket.sendall(data[at : at + 1])
        for kind, _, number in requests:
            assert wire.receive()[:2] == (kind | s.ANSWER, number)
        assert wire.is_closed()


# -- what cannot be done, after which the connection goes on


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (s.INPUTS, bytes(4)),
        (s.BEGIN, b"\0"),
        (s.GO, bytes(20)),
        (s.GOTO, bytes(8)),
        (s.DESCRIBE, bytes(4)),
        (s.STATISTICS, bytes(4)),
        (s.READ, bytes(20)),
        (s.WRITE, bytes(5)),
        (s.CORE, b""),
        (s.FETCH, bytes(17)),
        (s.LOAD, s.load(source=1)),
        (s.UPLOAD, struct.pack("<QQ", 1, 1) + b"x"),
    ],
)
def test_requests_at_the_wrong_time(kind: int, body: bytes, running: s.Server) -> None:
    with running.greeted() as wire:
        assert wire.refused(kind, body).code == s.STATE
        wire.ask(s.BYE)


def upload(wire: s.Wire, data: bytes, offset: int = 0) -> None:
    wire.ask(s.UPLOAD, struct.pack("<Q", offset) + s.blob(data))


def test_an_upload_has_a_limit(running: s.Server) -> None:
    with running.greeted() as wire:
        upload(wire, bytes(1 << 20))
        error = wire.refused(s.UPLOAD, struct.pack("<Q", 1 << 20) + s.blob(b"x"))
        assert error.code == s.LIMIT
        assert "--max-upload" in error.message
        assert wire.refused(s.UPLOAD, bytes(8) + s.blob(bytes((1 << 20) + 1))).code == s.LIMIT
        upload(wire, b"")  # begins anew
        upload(wire, bytes(1 << 20))


@pytest.mark.parametrize(
    "data",
    [
        *(b"no program", b"", b"\0\0\0\0ET12" + bytes(100), b"\0\0\0\0BP08" + bytes(100)),
        *(PTE.read_bytes()[:size] for size in (PTE.stat().st_size // 2, 200, 12)),
    ],
)
def test_an_upload_that_is_no_program(data: bytes, running: s.Server) -> None:
    with running.greeted() as wire:
        upload(wire, data)
        error = wire.refused(s.LOAD, s.load(source=1))
        assert error.code == (s.PROGRAM if data else s.STATE)
        assert "/proc" not in error.message
        wire.ask(s.BYE)


def test_a_method_and_threads_that_are_not_there(running: s.Server) -> None:
    with running.greeted() as wire:
        error = wire.refused(s.LOAD, s.load("backward"))
        assert error.code == s.PROGRAM
        assert "no method 'backward'; it has forward" in error.message
        body = b"\0" + s.text("") + struct.pack("<iI", 1 << 20, 0)
        assert wire.refused(s.LOAD, body).code == s.LIMIT
