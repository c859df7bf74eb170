"""The order of the two sides of a comparison in rounds, drawn at random."""

from __future__ import annotations

import random


def drawn_order(rounds: int, seed: int) -> tuple[int, ...]:
    """Draw from the seed the side, 0 or 1, that goes first in each round: each side in half of
    them; of an odd number, one side once more."""
    draw = random.Random(seed)
    order = [number % 2 for number in range(rounds - rounds % 2)]
    order += [draw.choice((0, 1))] * (rounds % 2)
    draw.shuffle(order)
    return tuple(order)
