"""Programs on the debugger's server, without the debugger: the runner's calls and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.program.program import instructions, unfolded
from etscope.etdb.protocol.launch import Launcher, Local
from etscope.etdb.protocol.messages import Stopped
from etscope.etdb.protocol.runner import Runner
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.pte import read_pte
from etscope.formats.program.scalar_type import ScalarType
from etscope.run.inputs import method_inputs
from tests.support.artifacts import artifacts
from tests.support.etdb.runtimes import inputs_of, method_of
from tests.support.etdb.tensors import read_tensor
from tests.support.formats.handmade import method, pte_file
from tests.support.run.echo import CONSTANTS, typed

FALSE = pte.ScalarValue(pte.ValueKind.BOOL, False)
ONE = pte.ScalarValue(pte.ValueKind.INT, 1)


class Run:
    """A method that is loaded. outputs: of each instruction the tensors that it writes."""

    def __init__(
        self, runner: Runner, method: pte.Method, outputs: Sequence[Sequence[int]]
    ) -> None:
        self.runner = runner
        self.method = method
        self.outputs = outputs
        self.nowhere = np.zeros(len(outputs), bool)

    def at(self, *instructions: int) -> npt.NDArray[np.bool_]:
        flags = self.nowhere.copy()
        flags[list(instructions)] = True
        return flags

    def go(self, most: int = 0) -> Stopped:
        return self.runner.go(self.nowhere, (), most)

    def read(self, value: int) -> npt.NDArray[Any]:
        return read_tensor(self.runner, value)

    def written_by(self, instruction: int | None) -> list[npt.NDArray[Any]]:
        """The tensors that an instruction writes, as they are now."""
        found = () if instruction is None else self.outputs[instruction]
        return [self.read(value).copy() for value in found]

    def results(self) -> list[npt.NDArray[Any]]:
        """The outputs of the method, as they are now."""
        return [self.read(value) for value in self.method.outputs]


@contextmanager
def loaded(
    path: Path, inputs: Sequence[Any], name: str = "forward", launcher: Launcher | None = None
) -> Iterator[Run]:
    """The method, at the beginning of a run; on a server of this machine unless another is said."""
    program = read_pte(path)
    method = program.method(name)
    records = instructions(program, name).records
    outputs = [unfolded(method.values, record.outputs) for record in records]
    launcher = launcher or Local()
    with Runner(launcher.connect(), launcher.token) as runner:
        runner.load(path.read_bytes(), name, outputs)
        runner.set_inputs(inputs)
        runner.begin()
        yield Run(runner, method, outputs)


@contextmanager
def artifact_run(name: str, launcher: Launcher | None = None) -> Iterator[Run]:
    """Its first method, at the beginning of a run of its first case."""
    artifact = artifacts(name)
    method = method_of(artifact)
    inputs = method_inputs(read_pte(artifact.pte), method, tuple(inputs_of(name)), seed=0)
    with loaded(artifact.pte, inputs, method, launcher) as run:
        yield run


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
