"""Programs on the debugger's server, without the debugger: the runner's calls and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from etscope.analysis.program.program import instructions, unfolded
from etscope.etdb.protocol.launch import Local
from etscope.etdb.protocol.messages import Stopped
from etscope.etdb.protocol.runner import Runner
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.pte import read_pte
from etscope.formats.program.scalar_type import ScalarType
from tests.support.artifacts import artifacts
from tests.support.etdb.runtimes import inputs_of, method_of
from tests.support.etdb.tensors import read_tensor
from tests.support.formats.handmade import method, pte_file
from tests.support.run.echo import CONSTANTS, typed

FALSE = pte.ScalarValue(pte.ValueKind.BOOL, False)
ONE = pte.ScalarValue(pte.ValueKind.INT, 1)


class Run:
    """A method that is loaded. outputs: of each instruction the tensors that it writes."""

    def __init__(self, runner: Runner, outputs: Sequence[Sequence[int]]) -> None:
        self.runner = runner
        self.outputs = outputs
        self.nowhere = np.zeros(len(outputs), bool)

    def at(self, *instructions: int) -> npt.NDArray[np.bool_]:
        flags = self.nowhere.copy()
        flags[list(instructions)] = True
        return flags

    def go(self, most: int = 0) -> Stopped:
        return self.runner.go(self.nowhere, (), most)

    def written_by(self, instruction: int | None) -> list[npt.NDArray[Any]]:
        """The tensors that an instruction writes, as they are now."""
        found = () if instruction is None else self.outputs[instruction]
        return [read_tensor(self.runner, value).copy() for value in found]


@contextmanager
def loaded(path: Path, name: str, inputs: Sequence[Any]) -> Iterator[Run]:
    program = read_pte(path)
    values = program.method(name).values
    outputs = [unfolded(values, record.outputs) for record in instructions(program, name).records]
    with Runner(Local().connect()) as runner:
        runner.load(path.read_bytes(), name, outputs)
        runner.set_inputs(inputs)
        runner.begin()
        yield Run(runner, outputs)


@contextmanager
def artifact_run(name: str) -> Iterator[Run]:
    """Its first method, at the beginning of a run of its first case."""
    artifact = artifacts(name)
    inputs = [_array(value) for value in inputs_of(name)]
    with loaded(artifact.pte, method_of(artifact), inputs) as run:
        yield run


def _array(value: Any) -> Any:
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        import torch

        return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy() if hasattr(value, "numpy") else value


def write_program(
    path: Path,
    values: Sequence[pte.Value],
    calls: Sequence[pte.Instruction],
    operators: Sequence[str],
    *,
    inputs: Sequence[int] = (0,),
    outputs: Sequence[int] = (0,),
) -> Path:
    made = method(values, calls, inputs=inputs, outputs=outputs, operators=operators)
    path.write_bytes(pte_file(made, segments=[bytes(16)], more=CONSTANTS))
    return path


def counting(path: Path, size: int) -> Path:
    """A program that adds its second input to its first for ever: instruction 0 adds, instruction 1
    jumps back."""
    tensors = [typed(ScalarType.FLOAT, size), typed(ScalarType.FLOAT, size)]
    calls = [pte.KernelCall(0, (0, 1, 3, 0, 0)), pte.JumpFalseCall(2, 0)]
    return write_program(path, [*tensors, FALSE, ONE], calls, ["aten::add.out"], inputs=(0, 1))
