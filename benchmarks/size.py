"""`etscope info --size` of a large program: the tables are read, the weights are not."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.side import ROOT, Cost, process
from tests.support.formats.handmade import Number, method, pte_file, tensor

HEADER = struct.Struct("<4sIQQQ")
LAYERS = 32
# Of one layer of a language model: four projections and three matrices of the feed-forward block.
SHAPES = (*[(2048, 2048)] * 4, *[(2048, 5632)] * 3)


def sized() -> Cost:
    """CPU of the whole process, on a sparse file of 3 GB whose weights are equal in content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.pte"
        size = write_program(path)
        assert size > 2 << 30
        return _size(path, repeats=3, cpu=True)


def sized_cold() -> Cost:
    """Wall time of the whole process, on 3 GB of random weights of which nothing is in memory."""
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:  # /tmp may be memory
        path = Path(folder) / "large.pte"
        size = write_program(path)
        random = np.random.default_rng(0)
        with path.open("r+b") as file:
            file.seek(1 << 20)  # behind the tables
            while file.tell() < size:
                file.write(random.bytes(min(1 << 24, size - file.tell())))
            file.flush()
            os.fsync(file.fileno())
        return min((_evicted(path) for _ in range(3)), key=lambda cost: cost.seconds)


def _evicted(path: Path) -> Cost:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return _size(path, repeats=1, cpu=False)


def _size(path: Path, *, repeats: int, cpu: bool) -> Cost:
    output = path.with_suffix(".txt")
    command = ("-m", "etscope", "info", "--size", str(path), "-o", str(output))
    return process(*command, repeats=repeats, cpu=cpu)


def write_program(path: Path) -> int:
    """Write a program with float32 and float16 weights whose data is a hole; return its size."""
    shapes = SHAPES * LAYERS
    offsets, end = [0], 0
    for rows, columns in shapes:
        offsets.append(end)
        end += 2 * rows * columns
    weights = [
        tensor(rows, columns // 2, data_index=number)
        for number, (rows, columns) in enumerate(shapes, start=1)
    ]
    constants = {0: Number("I", 0), 1: Number("Q", offsets)}
    # The segment is a hole behind the tables, which the extended header locates.
    spans = [{0: Number("Q", 0), 1: Number("Q", end)}]
    made = method(weights)
    tables = len(pte_file(made, header=bytes(32), more={4: spans, 5: constants}))
    header = HEADER.pack(b"eh00", 32, tables, tables, end)
    data = pte_file(made, header=header, more={4: spans, 5: constants})
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + end)
    return len(data) + end
