"""Damages real dumps in many ways and opens them, in a process of its own.

``python -m tests.attacks.mutated_etdumps SEED COUNT FILE...`` prints a JSON object; the files are
pairs of a dump and its debug buffer.
"""

from __future__ import annotations

import json
import random
import resource
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from etscope.errors import EtscopeError
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import ETDump, TensorRef, bytes_by_kind, read_etdump
from tests.attacks.mutations import attack, mutated


def resized(rng: random.Random, dumps: Sequence[bytes]) -> bytes:
    """A changed dump; half of those that changed length agree about it."""
    data = bytearray(mutated(rng, dumps))
    if rng.random() < 0.5 and len(data) >= 4:
        struct.pack_into("<I", data, 0, len(data) - 4)
    return bytes(data)


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


def main(seed: int, count: int, files: Sequence[str]) -> None:
    """Print the outcomes of `count` cases, and how much the memory has grown."""
    dumps = [Path(file).read_bytes() for file in files[::2]]
    debug = DebugBuffer.open(b"".join(Path(f).read_bytes()[: 1 << 14] for f in files[1::2]))
    for dump in dumps:
        touch(dump, debug)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = attack(
        seed, count, lambda rng: resized(rng, dumps), lambda data: touch(data, debug), share=1 / 10
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    json.dump({"outcomes": outcomes, "peak_mb": peak / 1024}, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
