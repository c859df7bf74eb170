"""`export()`, and its result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.errors import UsageError
from etscope.formats.bytes.atomic_write import atomic_write, make_folder
from etscope.optional import require

if TYPE_CHECKING:
    from etscope.etrecord import ETRecord


PROGRAM, RECORD, BUNDLE = ".pte", ".etrecord", ".bpte"


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A program, its record, and the expected outputs for its example inputs.

    program: the `ExecutorchProgramManager`.
    record: the `ETRecord`, with the program's bytes in it.
    example_inputs, reference_outputs: by method, flat: the values in the order of the program's
        own lists.
    """

    program: Any
    record: ETRecord
    example_inputs: Mapping[str, tuple[Any, ...]]
    reference_outputs: Mapping[str, tuple[Any, ...]]

    def program_bytes(self) -> bytes:
        """Return the .pte file."""
        buffer = self.record.program_buffer()
        if buffer is None:
            raise UsageError("the record of this export has lost its program")
        return buffer

    def bundle(self) -> bytes:
        """Return the .bpte file: the program with a test case for each method.

        Raises `BundleError` for inputs or outputs that the format cannot hold.
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
        """Write name.pte, name.etrecord and, with `bundle`, name.bpte; return their paths. The
        folder is made if needed.

        They replace files of these names when all of them are complete; before that, nothing is
        touched.
        """
        if not name or name in (".", "..") or Path(name).name != name:
            raise UsageError(f"not a name for files: {name!r}", hint="give a name without a folder")
        suffixes = (PROGRAM, RECORD, BUNDLE) if bundle else (PROGRAM, RECORD)
        paths = tuple(make_folder(folder) / f"{name}{suffix}" for suffix in suffixes)
        with ExitStack() as files:
            opened = [files.enter_context(atomic_write(path)) for path in paths]
            opened[0].write(self.program_bytes())
            self.record.save(opened[1])
            if bundle:
                opened[2].write(self.bundle())
        return paths


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
    """Export a model to ExecuTorch, with its ETRecord and expected outputs.

    Args:
        model: a `torch.nn.Module`, which becomes the method "forward" (exported in evaluation
            mode), an `ExportedProgram`, or a dict of those by method.
        inputs: example inputs: a tuple or list of positional ones, a dict of those by keyword, or
            a single tensor. For a dict of programs, a dict of these by method. Exported programs
            hold example inputs, which are the default.
        backend: "portable" or "xnnpack".
        quantize: int8 weights (per channel) and activations, for "xnnpack". The expected outputs
            are then those of the quantised graph in PyTorch.
        dynamic_shapes: as for `torch.export.export`; for a module only.
        strict: how `torch.export` traces a module. Strictly, operators are attributed to the
            model's own lines; None falls back with a warning where that does not work.
        calibration: inputs that set the ranges of activations, each like `inputs`. By default the
            example inputs, which is enough to look at speed, not at accuracy.
        keep_float: selectors of nodes of the exported graph ("module:head", "op:conv2d and
            file:model.py:34") that stay in float when the rest is quantised. Nodes that can only
            be quantised together, as a convolution and the relu after it, stay together.
        taps: selectors of nodes of the exported program, after quantisation, whose values become
            outputs after the model's own. `record.taps` lists them.

    Raises `UsageError` for arguments that contradict each other, for a selector in `keep_float`
    that picks no node to be quantised and one in `taps` that picks only nodes that cannot be an
    output; `MissingDataError` for one in `taps` that picks no node at all; and `ExportFailure` for
    a model that cannot be run, exported, quantised or lowered.
    """
    require("torch", wanted_by="export")
    require("executorch.exir", wanted_by="export")
    from etscope.bridge.lowering.export import ExportOptions, export_model
    from etscope.etrecord import ETRecord

    options = ExportOptions(
        backend=backend,
        quantize=quantize,
        dynamic_shapes=dynamic_shapes,
        strict=strict,
        calibration=calibration,
        keep_float=keep_float,
        taps=taps,
    )
    return Exported(*export_model(model, inputs, options, ETRecord))
