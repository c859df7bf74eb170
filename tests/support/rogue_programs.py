"""Programs that are well-formed, and end badly or otherwise each time when they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etscope.formats.program import pte_schema as pte
from etscope.formats.program.scalar_type import ScalarType
from tests.support.formats.handmade import method, pte_file, tensor
from tests.support.run.echo import CONSTANTS, typed


def endless(folder: Path) -> Path:
    """A program that adds an input to itself, and jumps back to that. The runtime gives up after
    ten million instructions, which takes minutes."""
    never = pte.ScalarValue(pte.ValueKind.BOOL, False)
    one = pte.ScalarValue(pte.ValueKind.INT, 1)
    return _program(
        folder / "endless.pte",
        (never, one),
        (pte.KernelCall(0, (0, 0, 2, 0, 0)), pte.JumpFalseCall(1, 0)),
        size=1 << 16,
    )


def aborting(folder: Path) -> Path:
    """A program that gives a kernel a number for a tensor, which the runtime takes for a mistake
    of the programmer's: it aborts its process."""
    number = pte.ScalarValue(pte.ValueKind.INT, 7)
    call = pte.KernelCall(0, (1, 1, 1, 1, 1))
    return _program(folder / "aborting.pte", (number,), (call,), size=2)


def _program(
    path: Path, more: Sequence[pte.Value], instructions: Sequence[pte.Instruction], *, size: int
) -> Path:
    """A program of one operator, aten::add.out, and one input, which is its output too."""
    values = [typed(ScalarType.FLOAT, size), *more]
    made = method(values, instructions, inputs=[0], outputs=[0], operators=["aten::add.out"])
    path.write_bytes(pte_file(made, segments=[bytes(16)], more=CONSTANTS))
    return path


def random(folder: Path) -> Path:
    """A program that gives other numbers each time: it fills an output with noise, and doubles it.
    It has no input."""
    four = pte.ScalarValue(pte.ValueKind.INT, 4)
    size = pte.ListValue(pte.ValueKind.INT_LIST, (0,))
    one = pte.ScalarValue(pte.ValueKind.INT, 1)
    noise, doubled = tensor(4, at=(1, 0)), tensor(4, at=(1, 16))
    made = method(
        [four, size, one, noise, doubled],
        [pte.KernelCall(0, (1, 3, 3)), pte.KernelCall(1, (3, 3, 2, 4, 4))],
        inputs=[],
        outputs=[4],
        operators=["aten::rand.out", "aten::add.out"],
        buffer_sizes=[0, 32],
    )
    path = folder / "random.pte"
    path.write_bytes(pte_file(made, segments=[bytes(16)], more=CONSTANTS))
    return path
