"""Damage that fits any file. A mutation changes `data`; the last argument are other good files."""

from __future__ import annotations

import random
from collections.abc import Sequence


def truncate(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data)) :]


def cut_out(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 4, 8, 100))]
