"""One model quantised in many ways: its programs, and the outputs of the float model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from etscope.backends import chosen
from etscope.backends.registry.export_options import ExportOptions
from etscope.bridge.failures import innermost
from etscope.bridge.lowering.export import (
    Inputs,
    Method,
    check_export,
    copied_value,
    export_method,
    flat_inputs,
    inputs_of,
    quantized,
)
from etscope.bridge.lowering.keep_float import KeepFloat, Unit, quantizable
from etscope.bridge.lowering.subprograms import Subject as Piece
from etscope.bridge.lowering.subprograms import fingerprint as piece_fingerprint
from etscope.bridge.lowering.subprograms import lower
from etscope.bridge.tensors import numpy_value
from etscope.errors import MissingDataError, UsageError
from etscope.model.selector import Selector

NewRecord = Callable[[], Any]


class Subject(NamedTuple):
    """A method in float, its calibration inputs (None: its example inputs), the samples to run it
    on, and the units that would be quantised."""

    name: str
    method: Method
    backend: str
    calibration: tuple[Inputs, ...] | None
    dynamic_shapes: Any
    samples: tuple[Inputs, ...]
    units: tuple[Unit, ...]

    @property
    def keeps_state(self) -> bool:
        """True if the model changes buffers from call to call."""
        return bool(self.method.program.graph_signature.buffers_to_mutate)


def subject_of(
    model: Any, inputs: Any, samples: Sequence[Any], options: ExportOptions, method: str | None
) -> Subject:
    """Export a model in float. samples: inputs to run it on. options.calibration: the inputs that
    will set int8 ranges.

    Raises `MissingDataError` if nothing can be quantized, and what `etscope.export.export` raises.
    """
    backend, calibration = options.backend, options.calibration or ()
    check_export(ExportOptions(backend=backend, quantize=True))
    name, found = export_method(model, inputs, replace(options, calibration=None), method)
    module: Any = found.program.module()
    units = tuple(quantizable(module, chosen(backend)[0].quantizer()))
    if not any(not unit.moves for unit in units):
        raise MissingDataError(f"the quantizer for {backend} finds nothing to quantize in {name!r}")
    rounds = tuple(one for one in map(inputs_of, calibration) if one is not None)
    tried = tuple(one for one in map(inputs_of, samples) if one is not None)
    shapes = options.dynamic_shapes
    return Subject(name, found, backend, rounds or None, shapes, tried or (found.inputs,), units)


def flat_samples(subject: Subject) -> list[list[Any]]:
    """Return the values of each sample, in the order of the program's inputs."""
    program = subject.method.program
    return [list(flat_inputs(program, sample)) for sample in subject.samples]


def expected(subject: Subject) -> list[list[Any]]:
    """Return the outputs of the float model in PyTorch for each sample, as numpy arrays.

    Raises `UsageError` for a sample that the model does not take.
    """
    found = []
    for number, sample in enumerate(subject.samples):
        args, kwargs = pytree.tree_map(copied_value, (sample.args, sample.kwargs))
        try:
            with torch.no_grad():  # a new module each time: its state is as at first
                outputs = subject.method.program.module()(*args, **kwargs)
        except Exception as error:
            raise UsageError(
                f"sample {number} cannot be fed to the model: {innermost(error)}",
                hint="samples must have the shapes and types of the example inputs",
            ) from error
        found.append([np.asarray(numpy_value(value)) for value in pytree.tree_leaves(outputs)])
    return found


def float_program(subject: Subject, new_record: NewRecord) -> bytes:
    """Return the .pte file of the float model. Raises `ExportFailure`."""
    program = subject.method.program
    return lower(program, subject.backend, new_record, subject.name)


def int8_program(
    subject: Subject,
    new_record: NewRecord,
    *,
    keep: Collection[str] = (),
    selectors: Sequence[Selector] = (),
) -> bytes:
    """Return the .pte file with the named nodes, and those that selectors pick, in float and the
    rest in int8.

    Raises `ExportFailure` for a model that cannot be quantised or lowered.
    """
    quantizer = KeepFloat(chosen(subject.backend)[0].quantizer(), selectors, frozenset(keep))
    made = quantized(subject.method, quantizer, subject.calibration, subject.dynamic_shapes)
    quantizer.check()
    return lower(made.program, subject.backend, new_record, subject.name)


def fingerprint(subject: Subject) -> str:
    """Return a hash of the graph, the weights, the samples and the calibration."""
    program = subject.method.program
    given = [*subject.samples, *(subject.calibration or ())]
    flat = [tuple(flat_inputs(program, one)) for one in given]
    return f"{len(subject.samples)}-{piece_fingerprint(Piece(program, tuple(flat)))}"
