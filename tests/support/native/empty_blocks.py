"""Dumps with blocks that hold no events, made by the program of ``empty_blocks.cpp``."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support.native.compiling import compiled

SOURCE = Path(__file__).with_suffix(".cpp")


def run_with_empty_blocks(pte: Path, etdump: Path, inputs: Sequence[np.ndarray]) -> None:
    """Two runs, an empty block after each."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(number) for number in range(len(inputs))]
        for file, array in zip(files, inputs, strict=True):
            file.write_bytes(array.tobytes())
        subprocess.run([compiled(SOURCE), pte, etdump, *files], check=True)


def write_one_empty_block(etdump: Path) -> None:
    """A dump that holds nothing else."""
    subprocess.run([compiled(SOURCE), "", etdump], check=True)
