"""The bytes of the debugger's protocol, and a client that is sent wrong ones."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from etscope.errors import EtscopeError, FormatError, UsageError
from etscope.etdb.protocol.messages import HEADER, Condition, NumberTest, Reader, Tag, Writer
from etscope.etdb.protocol.runner import Runner
from tests.support.etdb.scripted_server import ScriptedServer, serving
from tests.support.etdb.server import blob, frame, text
from tests.support.etdb.tensors import read_tensor
from tests.support.fuzz import fuzzed

_BOUND = 48 << 20  # bytes: nothing of these conversations is as large as a tenth


# -- fields


def test_numbers_texts_and_bits() -> None:
    flags = np.array([1, 0, 0, 0, 0, 0, 0, 0, 1, 1], bool)
    body = Writer().pack("BHIQ", 1, 2, 3, 4).text("é").bits(flags).lists([[7], [], [8, 9]]).body()
    assert body == (
        struct.pack("<BHIQ", 1, 2, 3, 4)
        + text("é")
        + blob(b"\x01\x03")
        + struct.pack("<I I I I I I I", 3, 1, 7, 0, 2, 8, 9)
    )
    test = NumberTest(Condition.BELOW, np.array([False, True]), -2.5)
    assert Writer().tests([test]).body() == struct.pack("<IBd", 1, 3, -2.5) + blob(b"\x02")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b"\0"),
        (-3, struct.pack("<Bq", 1, -3)),
        (np.int64(4), struct.pack("<Bq", 1, 4)),
        (0.5, struct.pack("<Bd", 2, 0.5)),
        (True, b"\3\1"),
        ("none", b"\4" + text("none")),
        ([1, None], struct.pack("<BIBqB", 6, 2, 1, 1, 0)),
        (np.array([1.0], np.float32), struct.pack("<BBBIBQf", 5, 6, 1, 1, 0, 4, 1.0)),
        (np.array(2, np.int64), struct.pack("<BBBQq", 5, 4, 0, 8, 2)),
        (np.array([1], ml_dtypes.bfloat16), struct.pack("<BBBIBQH", 5, 15, 1, 1, 0, 2, 0x3F80)),
    ],
)
def test_values(value: Any, expected: bytes) -> None:
    assert Writer().value(value).body() == expected


def test_a_tensor_keeps_its_order_in_memory_and_loses_its_gaps() -> None:
    array = np.arange(6, dtype=np.int8).reshape(1, 2, 1, 3).transpose(0, 3, 1, 2)
    body = Writer().value(array).body()
    assert body[3:] == struct.pack("<4I4BQ", 1, 3, 2, 1, 0, 2, 3, 1, 6) + bytes(range(6))
    view = np.arange(12, dtype=np.int8).reshape(3, 4)[:, ::2]
    assert Writer().value(view).body()[-6:] == bytes([0, 2, 4, 6, 8, 10])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1 << 63, "too large"),
        ([[1]], "nested list"),
        (object(), "cannot take object"),
        (np.zeros((1,) * 17, np.int8), "17 dimensions"),
        (np.zeros(1, "m8[s]"), "timedelta64"),
        ("a" * ((1 << 20) + 1), "a text of"),
    ],
)
def test_what_no_program_takes_is_not_sent(value: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Writer().value(value)


def _shape(kind: int, sizes: tuple[int, ...], order: tuple[int, ...], nbytes: int) -> bytes:
    dims = len(sizes)
    return struct.pack(f"<BBB{dims}I{dims}BQ", Tag.SHAPE, kind, dims, *sizes, *order, nbytes)


def test_a_description() -> None:
    facts = Reader(_shape(15, (2, 3), (1, 0), 12), "it").described().tensor
    assert facts is not None
    assert (facts.dtype, facts.shape) == (np.dtype(ml_dtypes.bfloat16), (2, 3))
    assert (facts.dim_order, facts.nbytes) == ((1, 0), 12)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "1 bytes are announced, 0 are there"),
        (b"\x09", "a value with the unknown tag 9"),
        (b"\x05", "a value with the unknown tag 5"),
        (_shape(6, (2, 3), (0, 0), 24), "not an order of 2 dimensions"),
        (_shape(6, (2, 3), (0, 1), 23), "in 23 bytes"),
        (_shape(99, (2,), (0,), 2), "unknown scalar type 99"),
        (_shape(0, (0, *(NOWHERE := (0xFFFFFFFF,) * 3)), (0, 1, 2, 3), 0), "in 0 bytes"),
        (struct.pack("<BI", 6, 0xFFFFFFFF), "a list of 4,294,967,295 is announced"),
        (struct.pack("<BIBI", 6, 1, 6, 0), "a value with the unknown tag 6"),
        (struct.pack("<BI", 4, 0xFFFFFFFF), "a text of"),
        (b"\3\2", "must be 0 or 1"),
    ],
)
def test_a_description_that_lies(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        Reader(data, "it").described()


def test_what_ran_is_counted_before_it_is_listed() -> None:
    fields = struct.pack("<BQIIQQ", 1, 9, 0, 0, 1, 1)
    ranges = struct.pack("<I", 2) + struct.pack("<III", 0, 1, 2) + struct.pack("<III", 1, 0, 9)
    rest = struct.pack("<iIQI", -1, 0, 0, 0) + text("")
    stopped = Reader(fields + ranges + rest, "it").stopped(3, most=2, tests=0)
    assert stopped.ran.tolist() == [1, 2]
    hostile = struct.pack("<I", 0xFFFFFFFF)
    for data, count, most, reason in (
        (ranges + rest, 3, 1, "2 instructions ran, 1 could at most"),
        (ranges + rest, 2, 2, "that do not exist"),
        (hostile, 3, 2, "are announced"),
    ):
        with pytest.raises(FormatError, match=reason):
            Reader(fields + data, "it").stopped(count, most=most, tests=0)


# -- a client that is sent anything


class _Recorded:
    """A channel whose server has already said all that it will say."""

    place = "there"

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self.largest = 0

    def send(self, data: bytes) -> None:
        pass

    def receive(self, size: int) -> bytes:
        self.largest = max(self.largest, size)
        if size > len(self._data) - self._at:
            raise EOFError
        self._at += size
        return self._data[self._at - size : self._at]

    def wait_at_most(self, seconds: float | None) -> None:
        pass

    def close(self) -> None:
        pass

    def log(self) -> str:
        return ""

    def ending(self) -> str | None:
        return None


def _converse(channel: Any) -> list[Any]:
    """Every call of a client, in an order that a server can answer."""
    with Runner(channel) as runner:
        said: list[Any] = [
            runner.info,
            runner.load(b"program", "forward", [[0], [1], [2], [3]]),
            runner.set_inputs([np.ones(3, np.float32), 2]),
            runner.begin(traced=True),
            runner.go(np.array([0, 1, 0, 0], bool)),
            runner.go_to(9),
            runner.go_to(3),
            runner.go(np.zeros(4, bool), [NumberTest(Condition.NAN, np.ones(4, bool))]),
            runner.describe(1),
            runner.describe(100),
            runner.statistics(0),
            read_tensor(runner, 1),
            runner.write(1, np.ones((2, 3), np.float32)),
            runner.core(),
        ]
        runner.go(np.zeros(4, bool))
        return said


@pytest.fixture(scope="module")
def conversation() -> list[bytes]:
    """All frames of a server that dies in the end."""
    server = ScriptedServer(die_at=12)
    with serving(server) as channel, pytest.raises(EtscopeError, match="killed its runner"):
        _converse(channel)
    return server.sent


def _mutated(frames: list[bytes], dice: random.Random) -> bytes:
    changed = list(frames)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(changed))
        data = bytearray(changed[at])
        match dice.randrange(8):
            case 0:  # any byte
                data[dice.randrange(len(data))] = dice.randrange(256)
            case 1:  # a field
                where, width = dice.randrange(len(data)), dice.choice((1, 2, 4, 8))
                data[where : where + width] = dice.choice((b"\xff", b"\0", b"\x7f")) * width
            case 2 if len(data) >= 12:  # a length that is kept true
                body = data[12:]
                cut = dice.randrange(len(body) + 1)
                body[cut : cut + dice.randrange(9)] = dice.randbytes(dice.randrange(9))
                data = bytearray(HEADER.pack(len(body), *HEADER.unpack(data[:12])[1:]) + body)
            case 3:  # cut off
                del data[dice.randrange(len(data)) :]
            case 4:  # twice
                data *= 2
            case 5:  # out of order
                other = dice.randrange(len(changed))
                changed[other], data = bytes(data), bytearray(changed[other])
            case 6 if len(data) >= 12:  # another kind
                struct.pack_into("<H", data, 4, dice.choice((0xFFFF, 0x4001, 0x4003, 0x8006)))
            case 7:  # refused
                number = int.from_bytes(data[8:12], "little")
                body = struct.pack("<H", dice.randrange(12)) + text("no") + text("why")
                data = bytearray(frame(0xFFFF, body, number))
        changed[at] = bytes(data) or b"\0"
    return b"".join(changed)


@fuzzed(1500, nightly=100_000)
def test_mutated_answers_are_told_as_what_they_are(
    conversation: list[bytes], seed: int, count: int
) -> None:
    with pytest.raises(EtscopeError, match="the runtime aborted"):
        _converse(_Recorded(b"".join(conversation)))  # as it is
    dice = random.Random(seed)
    kinds: Counter[str] = Counter()
    try:
        for turn in range(count):
            if turn == count * 9 // 10:
                tracemalloc.start()  # slow
            channel = _Recorded(_mutated(conversation, dice))
            try:
                _converse(channel)
                kinds["none"] += 1
            except EtscopeError as error:
                kinds[type(error).__name__] += 1
            assert channel.largest <= 64 << 20
        assert tracemalloc.get_traced_memory()[1] < _BOUND
    finally:
        tracemalloc.stop()
    # Each way out was taken: a fault found, a silence, last words, an error of the server's.
    assert {"FormatError", "DeviceLost", "RunnerDied", "RuntimeFailure"} <= kinds.keys(), kinds


def test_a_stranger_at_the_address() -> None:
    with pytest.raises(FormatError, match="not an answer of etdb-server"):
        Runner(_Recorded(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(FormatError, match="is it an etdb-server"):
        Runner(_Recorded(frame(0x8001, bytes(65 << 10))))
