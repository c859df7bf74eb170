"""Calls of an operator with one thing changed: activation, operation, option, number, rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from etscope.bridge.reference.changed import RecordedCall

_ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "no activation": lambda x: x.clone(),
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu by tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu by sigmoid(1.702 x)": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": torch.nn.functional.hardswish,
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "relu6": torch.nn.functional.relu6,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "elu": torch.nn.functional.elu,
    "softplus": torch.nn.functional.softplus,
    "mish": torch.nn.functional.mish,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
    "square": torch.square,
}
_UNARY = frozenset(_ACTIVATIONS) | {"hardtanh", "clamp", "erf", "neg"}
_OPERATIONS: Mapping[str, Callable[[Any, Any], torch.Tensor]] = {
    "a + b": torch.add,
    "a - b": torch.sub,
    "b - a": lambda a, b: torch.sub(b, a),
    "a * b": torch.mul,
    "a / b": torch.div,
    "b / a": lambda a, b: torch.div(b, a),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
_BINARY = {"add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b"}
_BINARY |= {"maximum": "maximum", "minimum": "minimum"}
_LOGICAL: Mapping[str, Callable[[Any, Any], torch.Tensor]] = {
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}
_WINDOWED = frozenset({"convolution", "avg_pool2d", "max_pool2d_with_indices"})
# Functions of a value over a dimension, instead of each other.
_SOFTMAX = frozenset({"softmax", "log_softmax"})
_QUANTIZING = "quantize_per"
_WHOLE_STEP = 0.49999  # of a step to the next integer, without those that are there


@dataclass(frozen=True, slots=True)
class Change:
    """A call that is made otherwise. first: a small number is tried early."""

    kind: str
    text: str
    call: Callable[[], Any]
    parameters: Mapping[str, Any]
    choices: int = 1
    first: int = 1


def changes_of(call: RecordedCall, name: str) -> Iterator[Change]:
    """Yield what may be otherwise in a call without regard to where its arguments come from.

    name: of the operator, its `stem`.
    """
    yield from _activations(call, name)
    yield from _operations(call, name)
    yield from _options(call)
    yield from _numbers(call)
    yield from _quantizing(call, name)
    yield from _windows(call, name)


def _activations(call: RecordedCall, name: str) -> Iterator[Change]:
    if name in _UNARY and call.args and isinstance(call.args[0], torch.Tensor):
        tensor = call.args[0]
        for other, function in _ACTIVATIONS.items():
            own = name if call.given.get("approximate") != "tanh" else f"{name} by tanh"
            if other != own:
                text = f"{other} in place of {own}"
                yield Change(
                    "activation", text, partial(function, tensor),
                    {"activation": other, "instead_of": own}, len(_ACTIVATIONS), 0,
                )  # fmt: skip
    if name in _SOFTMAX and call.args:
        other, function = (
            ("log_softmax", torch.log_softmax) if name == "softmax" else ("softmax", torch.softmax)
        )
        yield Change(
            "activation", f"{other} in place of {name}",
            lambda: function(call.args[0], call.given["dim"]),
            {"activation": other, "instead_of": name},
        )  # fmt: skip


def other_tensors(
    value: torch.Tensor, is_weight: bool
) -> Iterator[tuple[str, str, torch.Tensor, int]]:
    """Yield (kind, words, tensor, order) for a tensor of arguments."""
    axes = [axis for axis, size in enumerate(value.shape) if size > 1]
    for one in range(len(axes)):
        for other in range(one + 1, len(axes)):
            pair = axes[one], axes[other]
            if value.shape[pair[0]] == value.shape[pair[1]]:
                words = "transposed" if value.dim() == 2 else f"transposed in dimensions {pair}"
                yield "transposed argument", words, value.transpose(*pair).contiguous(), 0
    if value.dim() == 4 and len(axes) == 4 and is_weight:
        yield "reversed argument", "turned around in both directions", value.flip(2, 3), 0
    if value.is_floating_point():
        for dtype in (torch.float16, torch.bfloat16):
            if value.dtype == torch.float32:
                name = str(dtype).removeprefix("torch.")
                yield "rounded argument", f"rounded to {name}", value.to(dtype).to(value.dtype), 1
    if value.dtype in (torch.int32, torch.int64):
        for step in (1, -1):
            yield "shifted argument", f"{'plus' if step > 0 else 'minus'} one", value + step, 1
    if value.dtype == torch.bool:
        yield "inverted argument", "inverted", ~value, 0
        yield "left out", "true everywhere", torch.ones_like(value), 0
        yield "left out", "false everywhere", torch.zeros_like(value), 0
    if not is_weight and value.dim() != 1:
        return
    for axis in axes:
        where = f" in dimension {axis}" if value.dim() > 1 else ""
        size = value.shape[axis]
        yield "rolled argument", f"rolled by one{where}", value.roll(1, axis), 2
        yield "rolled argument", f"rolled by one backwards{where}", value.roll(-1, axis), 2
        yield "reversed argument", f"reversed{where}", value.flip(axis), 2
        if size % 2 == 0 and size > 2:
            paired = value.unflatten(axis, (size // 2, 2)).flip(axis + 1).flatten(axis, axis + 1)
            yield "permuted argument", f"with neighbours swapped{where}", paired, 2
            yield "rolled argument", f"with halves swapped{where}", value.roll(size // 2, axis), 2


def _operations(call: RecordedCall, name: str) -> Iterator[Change]:
    """Another operation of the same two operands."""
    own, operations = _BINARY.get(name), _OPERATIONS
    if name in _LOGICAL:
        own, operations = name, _LOGICAL
    values = [call.given.get(name) for name in ("self", "other")]
    if own is None or not all(isinstance(one, torch.Tensor) for one in values):
        return
    first, second = values
    for text, function in operations.items():
        if text != own:
            yield Change(
                "operands", f"{text} in place of {own}",
                partial(function, first, second),
                {"operation": text, "instead_of": own}, len(operations),
            )  # fmt: skip


def _options(call: RecordedCall) -> Iterator[Change]:
    """An option that is on or off, or a value to choose."""
    schema = getattr(call.target, "_schema", None)
    for one in () if schema is None else schema.arguments:
        value = call.given.get(one.name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and str(one.type).startswith("Optional"):
            text, without = f"without its {one.name}", call.changed(**{one.name: None})
            yield Change("left out", text, without, {"argument": one.name})
    for name, value in call.given.items():
        if isinstance(value, bool):
            text = f"{name} {'off' if value else 'on'}"
            yield Change("option", text, call.changed(**{name: not value}), {name: not value})
    tensor = next((one for one in call.args if isinstance(one, torch.Tensor)), None)
    if "is_causal" in call.names or tensor is None:
        return
    for name in ("dim", "dims", "axis"):
        value = call.given.get(name)
        single = isinstance(value, (list, tuple)) and len(value) == 1
        own = value[0] if single and value is not None else value
        if not isinstance(own, int) or isinstance(own, bool):
            continue
        for axis in range(tensor.dim()):
            if axis != own % max(tensor.dim(), 1):
                changed = call.changed(**{name: [axis] if single else axis})
                text = f"over dimension {axis} in place of {own % tensor.dim()}"
                parameters = {"dimension": axis, "instead_of": own}
                yield Change("dimension", text, changed, parameters, tensor.dim(), 0)


def _numbers(call: RecordedCall) -> Iterator[Change]:
    """A whole number that is one more or less, and sizes of windows."""
    given = call.given
    for name, value in given.items():
        if isinstance(value, bool) or name in ("dim", "dims", "axis", "size", "normalized_shape"):
            continue
        if isinstance(value, int) and name not in ("alpha", "beta"):
            for other in (value - 1, value + 1):
                text = f"its {name} {other} in place of {value}"
                yield Change(
                    "number",
                    text,
                    call.changed(**{name: other}),
                    {name: other, "instead_of": value},
                )
    start, end = given.get("start"), given.get("end")
    if isinstance(start, int) and isinstance(end, int):
        for step in (1, -1):
            text = f"from {start + step} in place of {start}"
            call_at = call.changed(start=start + step, end=end + step)
            yield Change("number", text, call_at, {"start": start + step, "instead_of": start})
    stride, padding = given.get("stride"), given.get("padding")
    dilation = given.get("dilation")
    for name, value in (("stride", stride), ("padding", padding), ("dilation", dilation)):
        if isinstance(value, (list, tuple)) and all(isinstance(one, int) for one in value):
            for step in (-1, 1):
                sizes = [one + step for one in value]
                text = f"its {name} {sizes} in place of {list(value)}"
                changed = {name: sizes}
                yield Change("number", text, call.changed(**changed), changed)
                if name == "dilation" and isinstance(padding, (list, tuple)):
                    both = {name: sizes, "padding": [one + step for one in padding]}
                    yield Change("number", text, call.changed(**both), both)


def _quantizing(call: RecordedCall, name: str) -> Iterator[Change]:
    """Steps that are cut off and not rounded."""
    if not name.startswith(_QUANTIZING):
        return
    tensor, scale = call.args[0], call.args[1]
    if isinstance(scale, torch.Tensor):
        axis = call.given.get("axis")
        if scale.numel() > 1 and not isinstance(axis, int):
            return
        if isinstance(axis, int):
            scale = scale.reshape([-1 if one == axis else 1 for one in range(tensor.dim())])
    half = _WHOLE_STEP * scale
    argument = call.names[0] or "input"
    for text, other in (
        ("rounded down", tensor - half),
        ("cut off towards zero", tensor - half * tensor.sign()),
        ("rounded up", tensor + half),
    ):
        yield Change(
            "rounding", f"{text} in place of rounded to the nearest",
            call.changed(**{argument: other.to(tensor.dtype)}), {"rounding": text}, 3, 0,
        )  # fmt: skip


def _windows(call: RecordedCall, name: str) -> Iterator[Change]:
    """Windows that begin one element too early or too late."""
    tensor = call.args[0] if call.args else None
    if name not in _WINDOWED or not isinstance(tensor, torch.Tensor):
        return
    for axis in range(2, tensor.dim()):
        for step in (1, -1):
            other = tensor.roll(step, axis)
            other.narrow(axis, 0 if step > 0 else other.shape[axis] - 1, 1).zero_()
            text = f"its input shifted by one in dimension {axis}"
            yield Change(
                "shifted argument", text, call.changed(**{call.names[0]: other}), {"axis": axis}
            )
