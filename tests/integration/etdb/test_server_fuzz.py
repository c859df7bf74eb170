"""etdb-server under frames that are cut, stretched, spliced and full of extreme numbers."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator

import pytest

from tests.integration.etdb.test_server_runs import CNN, TABLE, floats, given, go, image
from tests.support.artifacts import artifacts
from tests.support.etdb import server as s
from tests.support.fuzz import fuzzed
from tests.support.waiting import until

BATCH = 40  # that are sent before answers are looked at
EXTREME = (0, 1, 2, 7, 255, 2**15, 2**16 - 1, 2**24, 2**26, 2**31 - 1, 2**31, 2**32 - 1, 2**63,
           2**64 - 1)  # fmt: skip

# Requests that are right, some of them large. Mutated ones keep their kind or get another's.
INPUTS = given(floats(image()))
SEEDS = [
    (s.HELLO, s.hello("a token")),
    (s.UPLOAD, bytes(8) + s.blob(b"bytes of a program")),
    (s.LOAD, s.load("forward", [[0], [1, 2], []])),
    (s.LOAD, s.load(source=1)),
    (s.INPUTS, INPUTS),
    (s.INPUTS, given(struct.pack("<BBB2I2BQ", 8, 6, 2, 1, 3, 0, 1, 0))),
    (s.BEGIN, b"\0"),
    (s.BEGIN, b"\1"),
    (s.GO, go(3, b"\xff\xff\xff", struct.pack("<IBd", 1, 3, 0.5) + s.blob(b"\xff\xff\xff"))),
    (s.GO, go()),
    (s.GOTO, struct.pack("<Q", 4)),
    (s.DESCRIBE, struct.pack("<I", 33)),
    (s.STATISTICS, struct.pack("<I", 49)),
    (s.READ, struct.pack("<IQQ", 55, 0, 64)),
    (s.WRITE, struct.pack("<IBq", 34, 1, -5)),
    (s.WRITE, struct.pack("<I", 32) + INPUTS[4:]),
    (s.CORE, b""),
    (s.FETCH, struct.pack("<BQQ", 0, 0, 64)),
    (s.INTERRUPT, b""),
]


# Requests that keep their form whatever their numbers are, after which a connection goes on.
NUMBERS = {s.DESCRIBE: "I", s.STATISTICS: "I", s.READ: "IQQ", s.GOTO: "Q", s.INTERRUPT: ""}


def renumbered(random: random.Random) -> tuple[int, bytes]:
    """A request of the right form with numbers that may be extreme."""
    kind = random.choice(list(NUMBERS))
    numbers = [
        random.choice(EXTREME) % (1 << 8 * struct.calcsize(one))
        if random.random() < 0.5
        else random.randrange(200)
        for one in NUMBERS[kind]
    ]
    return kind, struct.pack(f"<{NUMBERS[kind]}", *numbers)


def mutated(random: random.Random) -> tuple[int, bytes]:
    """A request of which at least something is wrong, most of the time."""
    if random.random() < 0.7:
        return renumbered(random)
    kind, body = random.choice(SEEDS)
    data = bytearray(body)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(min(len(data), 64) + 1)  # where counts and tags are
        match random.randrange(6):
            case 0:
                data[at:] = b""
            case 1:
                data[at:at] = random.randbytes(random.choice((1, 4, 8, 100)))
            case 2:
                data[at : at + 1] = bytes([random.choice((0, 1, 8, 255, random.randrange(256)))])
            case 3:
                width = random.choice("HIQ")
                size = struct.calcsize(width)
                number = random.choice(EXTREME) % (1 << 8 * size)
                data[at : at + size] = struct.pack(f"<{width}", number)
            case 4:
                data += random.choice(SEEDS)[1][:200]
            case 5:
                kind = random.choice((*range(18), s.DIED, s.ERROR, random.randrange(1 << 16)))
    return kind, bytes(data)


class Fuzzer:
    """Sends requests over connections that the server may end, and counts what it says."""

    def __init__(self, server: s.Server, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.sent = 0
        self.answers = 0
        self.connections = 0
        self.codes: dict[int, int] = {}

    def connection(self) -> None:
        """Until the server hangs up, or has seen a few hundred requests. A malformed request ends
        a connection, so most come after right ones only."""
        self.connections += 1
        with self.server.open() as wire:
            wire.ask(s.HELLO, s.hello())
            if self.random.random() < 0.4:
                wire.ask(s.LOAD, s.load(outputs=TABLE))
                wire.ask(s.INPUTS, INPUTS)
                wire.ask(s.BEGIN, b"\0")
            for _ in range(8):
                if not self.batch(wire):
                    return

    def batch(self, wire: s.Wire) -> bool:
        """Whether the connection is still there."""
        requests = [mutated(self.random) for _ in range(BATCH)]
        with contextlib.suppress(OSError):
            wire.socket.sendall(b"".join(s.frame(k, b, i) for i, (k, b) in enumerate(requests)))
        for number, (kind, _) in enumerate(requests):
            self.sent += 1
            try:
                got, of, body = wire.receive()
            except EOFError:
                raise AssertionError(f"{requests[number]} ended the connection") from None
            assert of == number
            self.answers += 1
            if got != s.ERROR:
                assert got == kind | s.ANSWER
                if kind == s.BYE:
                    return False
                continue
            code = s.refusal(body).code
            self.codes[code] = self.codes.get(code, 0) + 1
            if code in s.ENDING:
                assert wire.is_closed()
                return False
        return True


@pytest.fixture(scope="module")
def server() -> Iterator[s.Server]:
    with s.serving(CNN.pte, "--max-upload", 1 << 16) as one:
        yield one


@fuzzed(4000, nightly=200_000)
def test_mutated_requests_are_answered_and_the_server_lives(
    server: s.Server, seed: int, count: int
) -> None:
    fuzzer = Fuzzer(server, seed)
    while fuzzer.sent < count:
        fuzzer.connection()
    assert fuzzer.answers == fuzzer.sent
    wanted = {s.PROTOCOL, s.STATE, s.PROGRAM, s.INPUT, s.VALUE, s.LIMIT}
    assert wanted <= set(fuzzer.codes)
    assert fuzzer.codes[s.PROTOCOL] > count / 20
    assert server.process.poll() is None
    with server.greeted() as wire:
        wire.ask(s.BYE)
    until(lambda: not server.children())


@fuzzed(100, nightly=5000)
def test_noise_instead_of_frames(server: s.Server, seed: int, count: int) -> None:
    noise = random.Random(seed)
    for _ in range(count):
        with server.open() as wire:
            if noise.random() < 0.5:
                wire.ask(s.HELLO, s.hello())
            with contextlib.suppress(OSError):
                wire.socket.sendall(noise.randbytes(noise.randrange(1, 300)))
                wire.socket.shutdown(1)
                while wire.socket.recv(1 << 16):
                    pass
    assert server.process.poll() is None
    until(lambda: not server.children())


@fuzzed(60, nightly=2000)
def test_programs_that_are_mutated(server: s.Server, seed: int, count: int) -> None:
    """They may kill their own connection, and nothing else."""
    rng = random.Random(seed)
    program = artifacts("nan_output").pte.read_bytes()
    loaded = 0
    for _ in range(count):
        data = bytearray(program)
        for _ in range(rng.choice((1, 3, 10))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with server.greeted() as wire:
            try:
                wire.ask(s.UPLOAD, bytes(8) + s.blob(bytes(data)))
                wire.ask(s.LOAD, s.load(source=1, outputs=[[1], [2], [3]]))
                loaded += 1
                wire.ask(s.INPUTS, INPUTS)
                wire.ask(s.BEGIN, b"\1")
                wire.ask(s.GO, go())
                wire.ask(s.CORE)
            except s.Refused:
                wire.ask(s.BYE)
            except (EOFError, AssertionError):
                pass  # it died
    assert loaded > count / 10
    assert server.process.poll() is None
    until(lambda: not server.children())
