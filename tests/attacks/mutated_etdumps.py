"""Damages real dumps in many ways and opens them, in a process of its own.

``python -m tests.attacks.mutated_etdumps SEED COUNT FILE...`` prints a JSON object; the files are
pairs of a dump and its debug buffer. Case i of a seed is always the same, so a failure that names
it can be looked at again: ``mutated(seed, i, dumps)``.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import struct
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from etscope.errors import EtscopeError
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import ETDump, TensorRef, bytes_by_kind, read_etdump
from tests.attacks.mutations import cut_out, truncate

SECONDS = 20  # of CPU for one case; they take some milliseconds
_INTERESTING = (0, 1, 2, 3, 4, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutated(seed: int, index: int, dumps: Sequence[bytes]) -> bytes:
    """Case `index`: one of the dumps after one or a few changes."""
    rng = random.Random(f"{seed}/{index}")
    data = bytearray(rng.choice(dumps))
    for _ in range(rng.choice((1, 1, 1, 3))):
        rng.choice(_MUTATIONS)(rng, data, dumps)
        data = data or bytearray(1)
    if rng.random() < 0.5 and len(data) >= 4:  # half of those that changed length agree about it
        struct.pack_into("<I", data, 0, len(data) - 4)
    return bytes(data)


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    for _ in range(rng.choice((1, 1, 2, 16))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _number(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """An interesting number of 16 or 32 bits, at an aligned place."""
    for _ in range(rng.choice((1, 1, 1, 4))):
        width = rng.choice((2, 4))
        if len(data) >= width:
            place = rng.randrange(len(data) // width) * width
            number = rng.choice((*_INTERESTING, len(data), rng.randrange(1 << 16)))
            data[place : place + width] = (number % (1 << 8 * width)).to_bytes(width, "little")


def _reference(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A reference that leads to some other place in the file."""
    for _ in range(rng.choice((1, 1, 1, 4))):
        words = len(data) // 4
        if words:
            here, there = rng.randrange(words), rng.randrange(words)
            struct.pack_into("<i", data, 4 * here, 4 * (there - here))


def _same_reference(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A run of words that all lead to the same place, as in a vector of one table."""
    words = len(data) // 4
    if words:
        first, there = rng.randrange(words), rng.randrange(words)
        for here in range(first, min(first + rng.randrange(1, 9), words)):
            struct.pack_into("<i", data, 4 * here, 4 * (there - here))


def _splice(rng: random.Random, data: bytearray, dumps: Sequence[bytes]) -> None:
    """Bytes of the same or another dump over those at some place."""
    other = rng.choice((bytes(data), *dumps))
    length = rng.choice((1, 4, 8, 48))
    start, place = rng.randrange(len(other)), rng.randrange(len(data))
    piece = other[start : start + length]
    data[place : place + len(piece)] = piece


_MUTATIONS: tuple[Callable[[random.Random, bytearray, Sequence[bytes]], None], ...] = (
    _flip,
    truncate,
    cut_out,
    _number,
    _reference,
    _same_reference,
    _splice,
)


def touch(data: bytes, debug: DebugBuffer) -> None:
    """Read all that a dump holds. Errors of a single value do not stop the rest."""
    dump = read_etdump(data)
    for field in fields(ETDump):
        column = getattr(dump, field.name)
        if isinstance(column, np.ndarray):
            column.sum()
    assert all(isinstance(text, str) for text in dump.strings)
    assert all(isinstance(dump.run_name_of(run), str) for run in range(dump.num_runs))
    assert len(dump.run_allocators) == dump.num_runs
    assert dump.run_first_event[-1] == dump.num_events
    with suppress(EtscopeError):
        assert sum(bytes_by_kind(dump).values()) == dump.size
    for event in range(dump.num_events):
        assert len(dump.metadata(event)) == max(dump.metadata_length[event], 0)
        with suppress(EtscopeError):
            _touch_value(dump.value(event), debug)


def _touch_value(value: Any, debug: DebugBuffer) -> None:
    for ref in value if isinstance(value, tuple) else (value,):
        if isinstance(ref, TensorRef):
            debug.tensor(ref).tobytes()


class TooSlow(BaseException):
    """A case used up its seconds."""


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def attack(seed: int, count: int, files: Sequence[str]) -> dict[str, Any]:
    """Outcomes of `count` cases: what was opened, refused, and what went wrong."""
    dumps = [Path(file).read_bytes() for file in files[::2]]
    debug = DebugBuffer.open(b"".join(Path(f).read_bytes()[: 1 << 14] for f in files[1::2]))
    for dump in dumps:
        touch(dump, debug)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGPROF, _too_slow)
    outcomes: Counter[str] = Counter()
    failures = []
    for index in range(count):
        data = mutated(seed, index, dumps)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            touch(data, debug)
            outcomes["opened"] += 1
        except EtscopeError as error:
            outcomes["refused"] += 1
            if isinstance(error.__cause__, MemoryError):  # a limit of the reader's own is missing
                failures.append([index, f"MemoryError behind {error}"])
        except (Exception, TooSlow) as error:
            failures.append([index, f"{type(error).__name__}: {error}"])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"outcomes": outcomes, "failures": failures, "peak_mb": peak / 1024}


if __name__ == "__main__":
    json.dump(attack(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]), sys.stdout)
