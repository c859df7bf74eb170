"""What a user's attribute turns out to be: a model, what to feed it, its dynamic shapes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from etscope.errors import UsageError
from etscope.export._user_code import blaming, called

if TYPE_CHECKING:
    from etscope.formats.torch_files.tensor_files import TensorFile

_FORMS = (
    "a torch.nn.Module, (module, example_inputs), (module, example_inputs, dynamic_shapes), an "
    "ExportedProgram or a dict of those by method"
)


class Found(NamedTuple):
    """A model with its inputs and dynamic shapes, each None if it has none."""

    model: Any
    inputs: Any = None
    dynamic_shapes: Any = None


def found_model(value: Any, spec: str) -> Found:
    """The model that an attribute is, or gives when it is called."""
    if _is_model(value):
        return _with_own_inputs(value, spec)
    if not callable(value):
        if isinstance(value, (tuple, Mapping)) or _is_eager_model(value):
            return _given(value, spec)
        raise UsageError(
            f"{spec} is {_described(value)}",
            hint=f"name {_FORMS}, or a function that returns one",
        )
    if _is_eager_model(value) and not inspect.isclass(value):
        return _given(value, spec)
    return _given(called(value, spec), f"{spec}()")


def _given(value: Any, spec: str) -> Found:
    """What a factory returned."""
    if _is_model(value):
        return _with_own_inputs(value, spec)
    if isinstance(value, tuple) and len(value) in (2, 3) and _is_module(value[0]):
        return Found(*value)
    if _is_eager_model(value):
        return _of_eager_model(value, spec)
    raise UsageError(f"{spec} is {_described(value)}", hint=f"return {_FORMS}")


def _is_model(value: Any) -> bool:
    from torch.export import ExportedProgram

    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(one, ExportedProgram) for one in value.values())
    return _is_module(value) or isinstance(value, ExportedProgram)


def _is_module(value: Any) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def _is_eager_model(value: Any) -> bool:
    return hasattr(value, "get_eager_model") and hasattr(value, "get_example_inputs")


def _described(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {', '.join(type(one).__name__ for one in value[:6])}"
    return "None" if value is None else f"of type {type(value).__name__}"


def _of_eager_model(value: Any, spec: str) -> Found:
    """Of the interface that ExecuTorch's own example models have."""
    from etscope.bridge.lowering.inputs import Inputs

    with blaming(f"{spec}.get_eager_model() fails"):
        model = value.get_eager_model()
    if not _is_module(model):
        raise UsageError(f"{spec}.get_eager_model() is {_described(model)}, not a torch.nn.Module")
    with blaming(f"{spec}.get_example_inputs() fails"):
        inputs = value.get_example_inputs()
        by_name: Any = getattr(value, "get_example_kwarg_inputs", dict)()
    if by_name:
        inputs = Inputs(tuple(inputs), dict(by_name))
    with blaming(f"{spec}.get_dynamic_shapes() fails"):
        dynamic_shapes = getattr(value, "get_dynamic_shapes", lambda: None)()
    return Found(model, inputs, dynamic_shapes)


def _with_own_inputs(model: Any, spec: str) -> Found:
    """A module may have an attribute or a method for its example inputs."""
    if _is_module(model):
        for name in ("example_inputs", "get_example_inputs"):
            inputs = getattr(model, name, None)
            if callable(inputs):
                inputs = called(inputs, f"{spec}.{name}")
            if inputs is not None:
                return Found(model, inputs)
    return Found(model)


def inputs_of_file(model: Any, file: TensorFile) -> Any:
    """Example inputs of a file: by name where `forward` has parameters of those names, else in
    order."""
    if isinstance(file.content, (tuple, list, Mapping)):
        return file.content
    if _is_module(model) and len(file.values) > 1 and all(file.names):
        parameters = list(inspect.signature(model.forward).parameters)
        named = dict(zip(file.names, file.values, strict=True))
        if named.keys() <= set(parameters):
            order = [name for name in parameters if name in named]
            if order == parameters[: len(order)]:  # none left out before: all by position
                return tuple(named[name] for name in order)
            return named
    if not file.ordered:
        raise UsageError(
            f"{file.path} does not keep the order of its tensors, and their names "
            f"({', '.join(map(str, file.names))}) are not those of the model's parameters",
            hint="name them as the parameters of forward, or write an .npz file",
        )
    if not file.values:
        raise UsageError(f"{file.path} holds no tensors")
    return tuple(file.values)
