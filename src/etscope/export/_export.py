"""The one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etscope.export._exported import Exported
from etscope.optional import require


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
