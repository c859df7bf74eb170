"""One piece tried: cut out, lowered, run on the values that eager PyTorch has there, checked."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.bisect._check import LOWER, RUN, UNKNOWN, Answer, CommandCheck, MetricCheck
from etscope.errors import EtscopeError, ExportFailure, RuntimeFailure
from etscope.formats.torch_files.tensor_files import fits_npz, write_tensor_file
from etscope.model.pieces import Piece, Pieces

if TYPE_CHECKING:
    from etscope.bridge.programs.subprograms import Cut, Subject


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """What goes into a piece and should come out, of each sample, as numpy arrays."""

    inputs: list[list[Any]]
    expected: list[list[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """How pieces of one model are tried."""

    subject: Subject
    pieces: Pieces
    backend: str
    check: MetricCheck | CommandCheck
    isolate: bool = True
    timeout: float | None = None

    def __call__(self, piece: Piece) -> Answer:
        try:
            cut, values = self.cut(piece)
        except EtscopeError as error:
            return Answer(UNKNOWN, detail=error.message)
        try:
            program = self.lower(cut)
        except ExportFailure as error:
            return Answer(LOWER, detail=error.message)
        if isinstance(self.check, CommandCheck):
            with tempfile.TemporaryDirectory(prefix="etscope-") as folder:
                path = Path(folder, "program.pte")
                path.write_bytes(program)
                return self.check.answer(path, write_samples(Path(folder), values))
        try:
            outputs = self._run(program, values.inputs)
        except RuntimeFailure as error:
            return Answer(RUN, detail=error.message)
        except EtscopeError as error:  # inputs that the lowered piece does not take
            return Answer(UNKNOWN, detail=error.message)
        return self.check.answer(cut.outputs, values.expected, outputs)

    def cut(self, piece: Piece) -> tuple[Cut, Values]:
        """The piece as a program, and its values."""
        from etscope.bridge.programs import subprograms as bridge

        cut = bridge.cut(self.subject.program, self.pieces.names(piece))
        values = Values([], [])
        for sample in self.subject.samples:
            names = [*cut.inputs, *cut.outputs]
            found = bridge.capture(self.subject.program, sample, names)
            values.inputs.append(bridge.arrays(found, cut.inputs))
            values.expected.append(bridge.arrays(found, cut.outputs))
        return cut, values

    def lower(self, cut: Cut) -> bytes:
        """The piece's program. Raises `ExportFailure`."""
        from etscope.bridge.programs.subprograms import lower
        from etscope.etrecord import ETRecord

        return lower(cut.program, self.backend, ETRecord)

    def _run(self, program: bytes, inputs: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        from etscope.run import Call, run

        calls = [Call("forward", list(one), iterations=1, warmup=0) for one in inputs]
        with run(program, calls, trace=False, isolate=self.isolate, timeout=self.timeout) as done:
            return done.arrays


def write_samples(folder: Path, values: Values) -> list[tuple[Path, Path]]:
    """Write the values of each sample; the files of its inputs and of its expected outputs."""
    return [
        (
            _write(folder / f"inputs-{number}", inputs),
            _write(folder / f"expected-{number}", expected),
        )
        for number, (inputs, expected) in enumerate(
            zip(values.inputs, values.expected, strict=True)
        )
    ]


def _write(stem: Path, values: Sequence[Any]) -> Path:
    suffix = ".npz" if all(fits_npz(value.dtype) for value in values) else ".safetensors"
    path = stem.with_name(stem.name + suffix)
    write_tensor_file(path, values, [str(number) for number in range(len(values))])
    return path
