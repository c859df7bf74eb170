"""Damage that fits any file, and the loop that does it. A mutation changes `data`; its last
argument are other good files.

Case `index` of a seed is always the same, so that a failure which names it can be looked at again.
"""

from __future__ import annotations

import random
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import numpy as np

from etscope.errors import EtscopeError

Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]

SECONDS = 20  # of CPU for one case; they take some milliseconds
INTERESTING = (0, 1, 2, 3, 4, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def truncate(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data)) :]


def cut_out(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 4, 8, 100))]


def flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    for _ in range(rng.choice((1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def number(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """An interesting number of 8 to 64 bits, at an aligned place."""
    width = rng.choice((1, 2, 4, 4, 8))
    if len(data) >= width:
        place = rng.randrange(len(data) // width) * width
        drawn = rng.choice((*INTERESTING, len(data), rng.randrange(1 << 16), (1 << 64) - 1))
        data[place : place + width] = (drawn % (1 << 8 * width)).to_bytes(width, "little")


def small_number(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Indices, kinds and counts a little off: bytes of at most 16 go up or down by one or two."""
    values = np.frombuffer(bytes(data[:60_000]), np.uint8)
    small = np.flatnonzero((values > 0) & (values <= 16)).tolist()
    for _ in range(min(len(small), rng.choice((1, 1, 4, 16)))):
        place = rng.choice(small)
        data[place] = (data[place] + rng.choice((-2, -1, 1, 2))) % 256


def reference(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """An offset that leads to some other place in the file."""
    words = len(data) // 4
    if words:
        here, there = rng.randrange(words), rng.randrange(words)
        struct.pack_into("<i", data, 4 * here, 4 * (there - here))


def same_reference(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A run of words that all lead to one place, as in a vector of one table."""
    words = len(data) // 4
    if words:
        first, there = rng.randrange(words), rng.randrange(words)
        for here in range(first, min(first + rng.randrange(50), words)):
            struct.pack_into("<i", data, 4 * here, 4 * (there - here))


def splice(rng: random.Random, data: bytearray, files: Sequence[bytes]) -> None:
    """Bytes of this or another file over those at some place."""
    other = rng.choice((bytes(data), *files))
    start, place = rng.randrange(len(other)), rng.randrange(len(data))
    piece = other[start : start + rng.choice((4, 8, 48, 500))]
    data[place : place + len(piece)] = piece


MUTATIONS: tuple[Mutation, ...] = (
    flip,
    truncate,
    cut_out,
    number,
    small_number,
    reference,
    same_reference,
    splice,
)


def mutated(
    rng: random.Random, files: Sequence[bytes], mutations: Sequence[Mutation] = MUTATIONS
) -> bytes:
    """One of the files after one to four changes."""
    data = bytearray(rng.choice(files))
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(mutations)(rng, data, files)
        data = data or bytearray(1)
    return bytes(data)


class TooSlow(BaseException):
    """A case used up its seconds."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise `TooSlow` when the block takes more than `SECONDS` of CPU."""

    def too_slow(signal_number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def attack(
    seed: int,
    count: int,
    make: Callable[[random.Random], bytes],
    touch: Callable[[bytes], str | None],
    share: float = 1 / 20,
) -> Counter[str]:
    """Touch `count` files. What `touch` says of one, or "opened", and "refused" are counted.

    Fails if anything but an error of etscope was raised, or if an outcome is rarer than `share`:
    then the mutations are too mild or too wild to find anything.
    """
    outcomes: Counter[str] = Counter(opened=0, refused=0)
    failures = []
    for index in range(count):
        data = make(random.Random(f"{seed}/{index}"))
        try:
            with limited():
                outcomes[touch(data) or "opened"] += 1
        except EtscopeError as error:
            outcomes["refused"] += 1
            if isinstance(error.__cause__, MemoryError):  # a limit of the reader's own is missing
                failures.append(f"MemoryError behind {error}")
        except (Exception, TooSlow) as error:
            failures.append(f"seed {seed}, case {index}: {type(error).__name__}: {error}")
    assert failures == []
    assert min(outcomes.values()) > share * count, outcomes
    return outcomes
