"""A model in float in PyTorch, which programs made of it are compared with; and changes of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from etscope.backends.registry.export_options import ExportOptions
from etscope.bridge.lowering.export import flat_inputs, inputs_of, methods_of
from etscope.bridge.lowering.subprograms import Subject, fingerprint
from etscope.bridge.tensors import numpy_value
from etscope.errors import UsageError

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
        known = fingerprint(Subject(method.program, (flat,)))
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

    return _with_module(model, copy.deepcopy(module).float()), _changed(inputs, changed)


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
        raise UsageError("the model is exported already: only a torch.nn.Module can be changed so")
    return module


def _with_module(model: Any, module: torch.nn.Module) -> Any:
    return module if isinstance(model, torch.nn.Module) else replace(model, model=module)


def _changed(inputs: Any, function: Any) -> Any:
    given = inputs_of(inputs)
    if given is None:
        return None
    args, kwargs = pytree.tree_map(function, (given.args, given.kwargs))
    return replace(given, args=args, kwargs=kwargs)
