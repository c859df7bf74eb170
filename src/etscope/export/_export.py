"""The one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etscope.errors import UsageError
from etscope.formats.bytes.atomic_write import atomic_write, make_folder
from etscope.optional import require

if TYPE_CHECKING:
    from etscope.etrecord import ETRecord


# What an export gives, and its files.


PROGRAM, RECORD, BUNDLE = ".pte", ".etrecord", ".bpte"


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A program, its record, and what it should answer to its example inputs.

    program: the `ExecutorchProgramManager`.
    record: the `ETRecord`, with the program's bytes in it.
    example_inputs, reference_outputs: of each method, flat: the values in the order of the
        program's own lists.
    """

    program: Any
    record: ETRecord
    example_inputs: Mapping[str, tuple[Any, ...]]
    reference_outputs: Mapping[str, tuple[Any, ...]]

    def program_bytes(self) -> bytes:
        """The .pte file."""
        buffer = self.record.program_buffer()
        if buffer is None:
            raise UsageError("the record of this export has lost its program")
        return buffer

    def bundle(self) -> bytes:
        """The .bpte file: the program with a test case for each method.

        Raises `BundleError` for inputs or outputs that the format has no place for.
        """
        from etscope.bundled_program import bundle_cases

        cases = {
            method: [(inputs, self.reference_outputs[method])]
            for method, inputs in self.example_inputs.items()
        }
        return bundle_cases(self.program_bytes(), cases)

    def save(
        self, folder: str | os.PathLike[str], name: str = "model", *, bundle: bool = True
    ) -> tuple[Path, ...]:
        """Write name.pte, name.etrecord and, with `bundle`, name.bpte. The folder is made.

        They replace files of these names when all of them are complete; before that, nothing is
        touched.
        """
        _check_name(name)
        writers: dict[str, Callable[[IO[bytes]], Any]] = {
            PROGRAM: partial(_write, self.program_bytes),
            RECORD: self.record.save,
        }
        if bundle:
            writers[BUNDLE] = partial(_write, self.bundle)
        place = make_folder(folder)
        paths = tuple(place / f"{name}{suffix}" for suffix in writers)
        with ExitStack() as files:
            opened = [files.enter_context(atomic_write(path)) for path in paths]
            for file, write in zip(opened, writers.values(), strict=True):
                write(file)
        return paths


def _write(content: Callable[[], bytes], file: IO[bytes]) -> None:
    file.write(content())


def _check_name(name: str) -> None:
    if not name or name in (".", "..") or Path(name).name != name:
        raise UsageError(f"not a name for files: {name!r}", hint="give a name without a folder")


def export(
    model: Any,
    inputs: Any = None,
    *,
    backend: str = "portable",
    quantize: bool = False,
    dynamic_shapes: Any = None,
    strict: bool | None = None,
    calibration: Sequence[Any] | None = None,
    keep_float: str | Sequence[str] = (),
    taps: str | Sequence[str] = (),
) -> Exported:
    """Export a model to ExecuTorch, with its ETRecord and what it should answer.

    Args:
        model: a `torch.nn.Module`, which becomes the method "forward" (exported in evaluation
            mode), an `ExportedProgram`, or a dict of those by method.
        inputs: example inputs: a tuple or list of positional ones, a dict of those by keyword, or
            a single tensor. For a dict of programs, a dict of that by method. Exported programs
            may do with the example inputs that they hold.
        backend: "portable" or "xnnpack".
        quantize: int8 weights (per channel) and activations, for "xnnpack". The outputs to expect
            are then those of the quantised graph in PyTorch.
        dynamic_shapes: as for `torch.export.export`; for a module only.
        strict: how `torch.export` traces a module. Strictly, operators are attributed to the
            model's own lines; None falls back with a warning where that does not work.
        calibration: inputs to set the ranges of activations by, each like `inputs`. Without them
            the example inputs are used, which is enough to look at speed, not at accuracy.
        keep_float: selectors of nodes of the exported graph ("module:head", "op:conv2d and
            file:model.py:34") that stay in float when the rest is quantised. Nodes that can only
            be quantised together, as a convolution and the relu after it, stay together.
        taps: selectors of nodes of the exported program, after quantisation, whose values become
            outputs after the model's own. `record.taps` tells which these are.

    Raises `UsageError` for arguments that do not make sense, for a selector in `keep_float` that
    picks nothing of what would be quantised and one in `taps` that picks nothing but what cannot
    be an output, `MissingDataError` for one in `taps` that picks nothing at all, and
    `ExportFailure` for a model that cannot be run, exported, quantised or lowered.
    """
    require("torch", wanted_by="export")
    require("executorch.exir", wanted_by="export")
    from etscope.bridge.lowering.export import export_model
    from etscope.etrecord import ETRecord

    parts = export_model(
        model,
        inputs,
        backend=backend,
        quantize=quantize,
        dynamic_shapes=dynamic_shapes,
        strict=strict,
        calibration=calibration,
        keep_float=keep_float,
        taps=taps,
        new_record=ETRecord,
    )
    return Exported(*parts)
