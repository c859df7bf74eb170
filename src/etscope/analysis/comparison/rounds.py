"""The order of the sides of a comparison in rounds, drawn at random."""

from __future__ import annotations

import random

__all__ = ["drawn_orders"]


def drawn_orders(rounds: int, seed: int, sides: int = 2) -> tuple[tuple[int, ...], ...]:
    """Draw the order of the sides in each round. Each side goes first equally often, give or take
    one round.
    """
    draw = random.Random(seed)
    firsts = [number % sides for number in range(rounds - rounds % sides)]
    firsts += draw.sample(range(sides), rounds % sides)
    draw.shuffle(firsts)
    return tuple(
        (first, *draw.sample([side for side in range(sides) if side != first], sides - 1))
        for first in firsts
    )
