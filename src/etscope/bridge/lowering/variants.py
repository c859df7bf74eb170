"""One model in many variants: quantized in parts, in another type or layout; and the model in float
in PyTorch, which its programs are compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from etscope.backends import chosen
from etscope.backends.registry.export_options import ExportOptions
from etscope.bridge.failures import innermost
from etscope.bridge.fx import op_name
from etscope.bridge.lowering.export import (
    Inputs,
    Method,
    check_export,
    copied_value,
    export_method,
    flat_inputs,
    inputs_of,
    methods_of,
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
    on, and the units that would be quantized."""

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

    Raises `MissingDataError` if nothing can be quantized, `UsageError` for a model that is already
    quantized, and what `etscope.export.export` raises.
    """
    backend, calibration = options.backend, options.calibration or ()
    check_export(ExportOptions(backend=backend, quantize=True))
    name, found = export_method(model, inputs, replace(options, calibration=None), method)
    quantized = [op_name(node) for node in found.program.graph.nodes]
    quantized = [one for one in quantized if one.startswith(("torchao.", "quantized_decomposed."))]
    if quantized:
        raise UsageError(
            f"the model is quantized already: it has {quantized[0]}",
            hint="give the model as it is before quantization",
        )
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
    """Return the .pte file with the named and the selected nodes in float and the rest in int8.

    Raises `ExportFailure` for a model that cannot be quantized or lowered.
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


# -- the methods of a model in float, and changes of the model

_IMAGE = 4  # dimensions of a tensor that has a channels-last layout


class FloatMethod(NamedTuple):
    """A method's flat inputs, its outputs in PyTorch as numpy values, and a hash of its graph, its
    weights and its inputs."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    fingerprint: str


def float_methods(model: Any, inputs: Any, options: ExportOptions) -> dict[str, FloatMethod]:
    """Export a model, without lowering it, and return its methods for PyTorch.

    options: only the options of the tracing count. Raises what `etscope.export.export` raises.
    """
    plain = ExportOptions(dynamic_shapes=options.dynamic_shapes, strict=options.strict)
    found = {}
    for name, method in methods_of(model, inputs, plain).items():
        flat = flat_inputs(method.program, method.inputs)
        outputs = tuple(numpy_value(value) for value in method.outputs)
        known = piece_fingerprint(Piece(method.program, (flat,)))
        found[name] = FloatMethod(flat, outputs, known)
    return found


def in_float32(model: Any, inputs: Any) -> tuple[Any, Any]:
    """Return copies of a module and its inputs with float32 for each other type of float.

    Raises `UsageError` for a model that is exported already, or has nothing else.
    """
    module = _module_of(model)
    kinds = {value.dtype for value in module.state_dict().values() if value.is_floating_point()}
    if kinds <= {torch.float32}:
        raise UsageError("the model is in float32 already")

    def changed(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.float() if is_float else value

    made = copy.deepcopy(module).float()
    if not isinstance(model, torch.nn.Module):
        made = replace(model, model=made)
    return made, _changed(inputs, changed)


def with_channels_last(model: Any, inputs: Any) -> Any:
    """Return a copy of a module's inputs with tensors of four dimensions in channels-last layout.
    Weights do not change: XNNPACK takes no others.

    Raises `UsageError` for a model that is exported already, or takes no such tensor.
    """
    given = inputs_of(inputs)
    _module_of(model)
    leaves: Sequence[Any] = [] if given is None else pytree.tree_leaves((given.args, given.kwargs))
    if not any(isinstance(one, torch.Tensor) and one.dim() == _IMAGE for one in leaves):
        raise UsageError("no input of the model has four dimensions")

    def changed(value: Any) -> Any:
        is_image = isinstance(value, torch.Tensor) and value.dim() == _IMAGE
        return value.contiguous(memory_format=torch.channels_last) if is_image else value

    return _changed(inputs, changed)


def _module_of(model: Any) -> torch.nn.Module:
    module = getattr(model, "model", model)  # of a `LanguageModel`
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            "the model is exported already: only a torch.nn.Module can be changed this way"
        )
    return module


def _changed(inputs: Any, function: Any) -> Any:
    given = inputs_of(inputs)
    if given is None:
        return None
    args, kwargs = pytree.tree_map(function, (given.args, given.kwargs))
    return replace(given, args=args, kwargs=kwargs)
