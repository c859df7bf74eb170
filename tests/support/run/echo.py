"""Programs that give back what they are given, or what they hold: made by hand, of any type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etscope.formats.program import pte_schema as pte
from etscope.formats.program.scalar_type import ScalarType
from tests.support.formats.handmade import Number, method, pte_file, tensor

# Where a program's constants are; the runtime demands it even of a program without any.
CONSTANTS = {5: {0: Number("I", 0), 1: Number("Q", [0])}}

NOTHING = pte.ScalarValue(pte.ValueKind.NULL, None)


def echo_program(
    path: Path,
    inputs: Sequence[pte.Value],
    held: Sequence[pte.Value] = (),
    *,
    name: str = "forward",
) -> Path:
    """A program whose outputs are its inputs, then the values that it holds."""
    values = [*inputs, *held]
    made = method(values, inputs=range(len(inputs)), outputs=range(len(values)), name=name)
    path.write_bytes(pte_file(made, segments=[bytes(16)], more=CONSTANTS))
    return path


def typed(scalar_type: ScalarType, *sizes: int, dim_order: tuple[int, ...] = ()) -> pte.TensorValue:
    """A tensor of a type, without memory of its own."""
    order = dim_order or tuple(range(len(sizes)))
    return tensor(*sizes, scalar_type=scalar_type, dim_order=order)
