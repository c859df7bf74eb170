"""Try one piece: cut it out, lower it, run it on the values of eager PyTorch, check its outputs.

A piece that fails is written to a folder with a script that reproduces the failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.bisect import _repro_script
from etscope.bisect._check import UNKNOWN, Answer, CommandCheck, MetricCheck
from etscope.errors import EtscopeError, EtscopeWarning, ExportFailure, RuntimeFailure
from etscope.formats.bytes.atomic_write import make_folder
from etscope.formats.program.pte import read_pte
from etscope.formats.torch_files.tensor_files import fits_npz, write_tensor_file
from etscope.model.pieces import Piece, Pieces
from etscope.search import LOWER, RUN, Isolation, run_samples

if TYPE_CHECKING:
    from etscope.bridge.programs.subprograms import Cut, Subject


@dataclass(frozen=True, slots=True, eq=False)
class PieceValues:
    """Inputs and expected outputs of a piece for each sample, as numpy arrays."""

    inputs: list[list[Any]]
    expected: list[list[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Tries pieces of one model."""

    subject: Subject
    pieces: Pieces
    backend: str
    check: MetricCheck | CommandCheck
    isolation: Isolation

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
            outputs = run_samples(program, "forward", values.inputs, self.isolation)
        except RuntimeFailure as error:
            return Answer(RUN, detail=error.message)
        except EtscopeError as error:  # inputs that the lowered piece does not take
            return Answer(UNKNOWN, detail=error.message)
        return self.check.answer(cut.outputs, values.expected, outputs)

    def cut(self, piece: Piece) -> tuple[Cut, PieceValues]:
        """The piece as a program, and its values in eager PyTorch."""
        from etscope.bridge.programs import subprograms as bridge

        cut = bridge.cut(self.subject.program, self.pieces.names(piece))
        values = PieceValues([], [])
        for sample in self.subject.samples:
            found = bridge.capture(self.subject.program, sample, [*cut.inputs, *cut.outputs])
            values.inputs.append(bridge.arrays(found, cut.inputs))
            values.expected.append(bridge.arrays(found, cut.outputs))
        return cut, values

    def lower(self, cut: Cut) -> bytes:
        """The .pte file of a piece. Raises `ExportFailure`."""
        from etscope.bridge.programs.subprograms import lower
        from etscope.etrecord import ETRecord

        return lower(cut.program, self.backend, ETRecord)


def write_samples(folder: Path, values: PieceValues) -> list[tuple[Path, Path]]:
    """Write the values of each sample; return the files of its inputs and expected outputs."""

    def write(name: str, arrays: Sequence[Any]) -> Path:
        suffix = ".npz" if all(fits_npz(array.dtype) for array in arrays) else ".safetensors"
        path = folder / (name + suffix)
        write_tensor_file(path, arrays, [str(number) for number in range(len(arrays))])
        return path

    pairs = zip(values.inputs, values.expected, strict=True)
    return [
        (write(f"inputs-{number}", inputs), write(f"expected-{number}", expected))
        for number, (inputs, expected) in enumerate(pairs)
    ]


def write_repro(folder: Path, probe: Probe, piece: Piece, answer: Answer) -> Path:
    """Write a failing piece, its program, its values and a script; run the script once.

    Raises `RuntimeFailure` when the script does not fail.
    """
    from etscope.bridge.programs.subprograms import save_piece

    make_folder(folder)
    cut, values = probe.cut(piece)
    try:
        save_piece(cut.program, folder / "piece.pt2")
    except ExportFailure as error:
        if answer.kind == LOWER:  # without the piece there is nothing to lower again
            raise
        warnings.warn(f"no piece.pt2: {error.message}", EtscopeWarning, stacklevel=2)
    quantized_kernels = False
    if answer.kind != LOWER:
        program = probe.lower(cut)
        (folder / "program.pte").write_bytes(program)
        quantized_kernels = any(
            operator.name.startswith("quantized_decomposed::")
            for method in read_pte(program).methods
            for operator in method.operators
        )
    samples = write_samples(folder, values)
    settings: dict[str, Any] = {
        "kind": answer.kind,
        "backend": probe.backend,
        "nodes": probe.pieces.names(piece),
        "outputs": list(cut.outputs),
        "samples": [{"inputs": one.name, "expected": two.name} for one, two in samples],
        "quantized_kernels": quantized_kernels,
    }
    if isinstance(probe.check, CommandCheck):
        settings["command"] = probe.check.command
    else:
        settings["metric"] = probe.check.metric.name
        settings["better"] = probe.check.metric.better
        settings["tolerance"] = str(probe.check.tolerance)
    (folder / "repro.json").write_text(json.dumps(settings, indent=1) + "\n")
    script = folder / "repro.py"
    script.write_text(Path(_repro_script.__file__).read_text())
    confirm_failure(script)
    return script


def confirm_failure(script: Path) -> None:
    """Run the script in a fresh process; raise `RuntimeFailure` unless the piece fails there too,
    and not because of an error in the script."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(script.resolve())],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 1 and any(line.startswith("FAILS") for line in done.stdout.splitlines()):
        return
    last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
    raise RuntimeFailure(
        f"the piece fails here, but {script} does not (exit code {done.returncode})",
        log=last,
        hint="the failure may depend on more than the piece; its files are left to look at",
    )
