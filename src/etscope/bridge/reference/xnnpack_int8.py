"""Compute int8 operators as XNNPACK does.

Static: between a dequantization of its inputs and the quantization of its result, XNNPACK has one
operator of integers. It adds up products exactly, multiplies the sum by the scales in float32, and
rounds to the nearest step (`xnn_init_qs8_conv_minmax_fp32_scalar_params`,
`xnn_init_qs8_mul_minmax_scalar_params` and `xnn_init_qs8_reduce_scalar_params` in
src/microparams-init.c); a sum of two tensors is computed
with multipliers of 21 bits, and its ties go up (`xnn_init_qs8_add_minmax_scalar_params`). Biases
are rounded to int32, in steps of the input's scale times the weight's
(`QuantParams.from_bias` of executorch.backends.xnnpack). A separate clamp after a layer becomes a
part of it: the first of two quantizations is left out (`optimize_common_subgraphs_merge_clamps` in
src/subgraph.c).

Each function for these takes the arguments of the graph's operator, which are dequantized numbers,
and returns the dequantized result after rounding, so that the quantization that follows changes
nothing.

Dynamic: XNNPACK chooses a scale for each row of a layer's input, or each image, also where the
graph has one for the whole (`QuantParams._from_dynamic_input_node` of executorch.backends.xnnpack;
`xnn_qd8_asymmetric_quantization_params` in src/xnnpack/quantization.h).

In float64, sums that are next to the middle between two steps go to the other side than in float32:
other processors round the product once instead of twice. See `bridge.reference.ties`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from etscope.bridge.reference.reference import GraphNode
from etscope.bridge.reference.ties import ULPS, Local, nearness, rounded_away

_QUANTIZED = torch.ops.quantized_decomposed
_MULTIPLIER_BITS = 20

# Computes a node from its operator and its arguments; in float64 if it is given what it is in
# float32, None there.
Compute = Callable[[Any, tuple[Any, ...], dict[str, Any], Local | None], Any]


@dataclass(frozen=True, slots=True)
class Steps:
    """The quantization steps of numbers: by tensor, or by channel along `axis`. zero: the
    zero point of a tensor."""

    scale: float | torch.Tensor
    axis: int = 0
    zero: int = 0

    @classmethod
    def of(cls, node: GraphNode) -> Steps | None:
        """The steps of the numbers that a node dequantizes; None for any other node."""
        if node.operator == _FROM_INTEGERS:
            return cls(float(node.args[1]))
        if node.operator == "quantized_decomposed.dequantize_per_channel.default":
            scales = node.args[1].weight
            return None if scales is None else cls(scales().float(), int(node.args[3]))
        return None

    def along(self, dimensions: int, axis: int | None = None) -> Any:
        """The scale in float64, to be multiplied with a tensor of so many dimensions."""
        if not isinstance(self.scale, torch.Tensor):
            return self.scale
        shape = [1] * dimensions
        shape[self.axis if axis is None else axis] = -1
        return self.scale.double().reshape(shape)

    def count(self, numbers: torch.Tensor) -> torch.Tensor:
        """The numbers in steps: whole ones in float64."""
        return torch.round(numbers.double() / self.along(numbers.dim()))


def static_of(node: GraphNode) -> Compute | None:
    """Return the function that computes a node as XNNPACK does, if it becomes an operator of
    integers."""
    if node.operator in (_TO_INTEGERS, _FROM_INTEGERS):
        quantize = node if node.operator == _TO_INTEGERS else node.args[0]
        if not _is_left_out(quantize):
            return None
        return lambda target, args, kwargs, local: args[0].clone()
    make = _OPERATORS.get(node.operator)
    result = None if make is None else _steps_of_result(node)
    if make is None or result is None:
        return None
    read = [Steps.of(used) for used in node.args if isinstance(used, GraphNode)]
    return make(node, read, result)


_LAYERS = frozenset({"aten.convolution.default", "aten.linear.default"})
_FUSED = frozenset({"aten.relu.default", "aten.hardtanh.default", "aten.clamp.default"})
_TO_INTEGERS = "quantized_decomposed.quantize_per_tensor.default"
_FROM_INTEGERS = "quantized_decomposed.dequantize_per_tensor.default"


def _steps_of_result(node: GraphNode) -> Steps | None:
    """Find the steps to which a node's result is rounded, after an activation that is fused."""
    at = node
    while True:
        users = list(at.users)
        operators = {user.operator for user in users}
        if operators == {_TO_INTEGERS}:
            is_merged = len(users) == 1 and node.operator in _LAYERS
            clamp = _clamp_after(users[0]) if is_merged else None
            if clamp is None:
                scales: set[Any] = {(user.args[1], user.args[2]) for user in users}
                scale, zero = scales.pop()
                return None if scales else Steps(float(scale), zero=int(zero))
            at = clamp
        elif len(users) == 1 and operators <= _FUSED:
            at = users[0]
        else:
            return None


def _clamp_after(quantize: GraphNode) -> GraphNode | None:
    """Find the clamp that alone reads what a node quantizes, and is quantized itself."""
    at = quantize
    for wanted in (frozenset({_FROM_INTEGERS}), _FUSED):
        users = list(at.users)
        if len(users) != 1 or users[0].operator not in wanted:
            return None
        at = users[0]
    return at if {user.operator for user in at.users} == {_TO_INTEGERS} else None


def _is_left_out(quantize: Any) -> bool:
    """True for the quantization between a layer of integers and a clamp."""
    if not isinstance(quantize, GraphNode) or quantize.operator != _TO_INTEGERS:
        return False
    source = quantize.args[0]
    if _clamp_after(quantize) is None or len(source.users) != 1:
        return False
    while source.operator in _FUSED:
        source = source.args[0]
    return source.operator in _LAYERS and static_of(source) is not None


def _rounded(steps: torch.Tensor, result: Steps, local: Local | None) -> torch.Tensor:
    """Steps of a result rounded to whole ones, ties to even."""
    if local is None or not isinstance(local.value, torch.Tensor):
        return torch.round(steps)
    return rounded_away(steps, result.count(local.value), ULPS * steps.abs())


def _scaled(sums: torch.Tensor, scale: Any) -> torch.Tensor:
    """Whole numbers times a scale, both in float32, as float64."""
    return (sums.float() * _as_float32(scale)).double()


def _as_float32(scale: Any) -> torch.Tensor:
    return torch.as_tensor(scale, dtype=torch.float32)


# -- operators

_Maker = Callable[[GraphNode, Sequence[Steps | None], Steps], Compute | None]
_OPERATORS: dict[str, _Maker] = {}


def _computes(*operators: str) -> Callable[[_Maker], _Maker]:
    """Return a decorator of the function that computes some operators."""

    def noted(make: _Maker) -> _Maker:
        _OPERATORS.update(dict.fromkeys(operators, make))
        return make

    return noted


@_computes("aten.convolution.default", "aten.linear.default")
def _linear(node: GraphNode, read: Sequence[Steps | None], result: Steps) -> Compute | None:
    """A convolution, or the product with a matrix."""
    if len(read) < 2 or read[0] is None or read[1] is None:
        return None
    inputs, weights = read[0], read[1]
    if isinstance(inputs.scale, torch.Tensor):
        return None
    source_scale = inputs.scale

    def compute(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
    ) -> Any:
        # A program that torch rebuilt has what has a default by keyword.
        rest = {name: value for name, value in kwargs.items() if name != "bias"}
        numbers, matrix, bias = *args[:2], args[2] if len(args) > 2 else kwargs.get("bias")
        dtype = torch.float32 if local is None else torch.float64
        whole = [one.to(dtype) for one in (inputs.count(numbers), weights.count(matrix))]
        if bias is not None:
            bias = _whole_bias(bias.float(), weights.scale, source_scale).to(dtype)
        sums = target(*whole, bias, *args[3:], **rest)
        channels = 1 if "convolution" in str(target) else sums.dim() - 1
        if numbers.dim() < 3 and "convolution" in str(target):
            channels = 0
        scale = _as_float32(inputs.scale) * _as_float32(weights.scale)
        shape = [1] * sums.dim()
        if isinstance(weights.scale, torch.Tensor):
            shape[channels] = -1
        scale = (scale / _as_float32(result.scale)).reshape(shape)
        return _dequantized(_rounded(_scaled(sums, scale), result, local), result, numbers)

    return compute


def _whole_bias(bias: torch.Tensor, weight: float | torch.Tensor, inputs: float) -> torch.Tensor:
    least, most = -(2**31), 2**31 - 1
    if isinstance(weight, torch.Tensor):
        zeros = torch.zeros(weight.numel(), dtype=torch.int64)
        found: torch.Tensor = _QUANTIZED.quantize_per_channel.default(
            bias, weight * inputs, zeros, 0, least, most, torch.int32
        )
        return found
    scale = weight * inputs
    return _QUANTIZED.quantize_per_tensor.default(bias, scale, 0, least, most, torch.int32)


def _dequantized(steps: torch.Tensor, result: Steps, like: torch.Tensor) -> torch.Tensor:
    return (steps * result.scale).to(like.dtype)


@_computes("aten.add.Tensor")
def _add(node: GraphNode, read: Sequence[Steps | None], result: Steps) -> Compute | None:
    pair = _two(read)
    if pair is None or node.kwargs.get("alpha", 1) != 1:
        return None
    ratios = [np.float32(one) / np.float32(result.scale) for one in pair]
    shift = _MULTIPLIER_BITS - (math.frexp(float(max(ratios)))[1] - 1)
    multipliers = [round(math.ldexp(float(ratio), shift)) for ratio in ratios]

    def compute(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
    ) -> Any:
        one, other = (
            Steps(scale).count(numbers) for scale, numbers in zip(pair, args[:2], strict=True)
        )
        sums = (one * multipliers[0] + other * multipliers[1]) / 2.0**shift
        steps = torch.floor(sums + 0.5) if local is None else _rounded(sums, result, local)
        return _dequantized(steps, result, args[0])

    return compute


@_computes("aten.mul.Tensor")
def _mul(node: GraphNode, read: Sequence[Steps | None], result: Steps) -> Compute | None:
    pair = _two(read)
    if pair is None:
        return None
    scale = np.float32(pair[0]) * np.float32(pair[1]) / np.float32(result.scale)

    def compute(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
    ) -> Any:
        one, other = (
            Steps(step).count(numbers) for step, numbers in zip(pair, args[:2], strict=True)
        )
        steps = _rounded(_scaled(one * other, scale), result, local)
        return _dequantized(steps, result, args[0])

    return compute


def _two(read: Sequence[Steps | None]) -> tuple[float, float] | None:
    if len(read) != 2 or read[0] is None or read[1] is None:
        return None
    one, other = read[0].scale, read[1].scale
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return None
    return one, other


@_computes("aten.mean.dim")
def _mean(node: GraphNode, read: Sequence[Steps | None], result: Steps) -> Compute | None:
    if len(read) != 1 or read[0] is None or isinstance(read[0].scale, torch.Tensor):
        return None
    source = read[0]

    def compute(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
    ) -> Any:
        counts = source.count(args[0])
        means = target(counts, *args[1:], **kwargs)
        elements = counts.numel() / max(means.numel(), 1)
        share = np.float32(source.scale) / np.float32(result.scale) * np.float32(1 / elements)
        steps = _scaled(torch.round(means * elements), share)
        if local is None:
            # Ties are common in means of few elements; they go to the even number that is stored.
            rounded = torch.round(steps + result.zero) - result.zero
        else:
            rounded = _rounded(steps, result, local)
        return _dequantized(rounded, result, args[0])

    return compute


# -- dynamic

# The operators that choose scales while the program runs, and the position of the scales among the
# arguments of those that quantize and dequantize by them.
_CHOOSE = frozenset(
    {
        "quantized_decomposed.choose_qparams.tensor",
        "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
        "torchao.choose_qparams_affine.default",
    }
)
_QUANTIZE = {
    "quantized_decomposed.quantize_per_tensor.tensor": 1,
    "quantized_decomposed.quantize_per_token.default": 1,
    "torchao.quantize_affine.default": 2,
}
_DEQUANTIZE = {
    "quantized_decomposed.dequantize_per_tensor.tensor": 1,
    "quantized_decomposed.dequantize_per_token.default": 1,
    "torchao.dequantize_affine.default": 2,
}
_LEAST, _MOST = -128.0, 127.0


def dynamic_of(node: GraphNode) -> Compute | None:
    """Return the function that computes a node with scales by row, if it chooses or uses them; None
    for any other node. The scales go from node to node in float64, in place of the graph's own
    ones.
    """
    if node.operator in _CHOOSE:
        return _choose(3 if _feeds_a_convolution(node) else 1)
    for positions, make in ((_QUANTIZE, _quantize_rows), (_DEQUANTIZE, _dequantize_rows)):
        at = positions.get(node.operator)
        scales = None if at is None else node.args[at]
        if at is not None and isinstance(scales, GraphNode) and scales.operator in _CHOOSE:
            return make(at)
    return None


def _feeds_a_convolution(node: GraphNode) -> bool:
    """True if a convolution reads what is quantized by these parameters."""
    waiting = list(node.users)
    while waiting:
        user = waiting.pop()
        if user.operator == "aten.convolution.default":
            return True
        if user.operator in _QUANTIZE or user.operator in _DEQUANTIZE:
            waiting += user.users
    return False


def _choose(dimensions: int) -> Compute:
    """Choose a scale for all that lies in the last `dimensions`."""

    def ranges(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Steps in 1, and the zero point before it is rounded."""
        numbers = numbers.float()
        axes = list(range(numbers.dim() - min(dimensions, numbers.dim()), numbers.dim()))
        least = numbers.amin(axes, keepdim=True).clamp(max=0.0)
        most = numbers.amax(axes, keepdim=True).clamp(min=0.0)
        width = most - least
        per_step = torch.where(width == 0, 1.0, (_MOST - _LEAST) / width)
        low, high = least * per_step, most * per_step
        zero = torch.where((_LEAST + low) + (_MOST + high) > 0, _LEAST - low, _MOST - high)
        return per_step, zero.clamp(_LEAST, _MOST)

    def choose(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
    ) -> Any:
        per_step, zero = ranges(args[0])
        if local is None or not local.args:
            rounded = torch.round(zero)
        else:
            other = ranges(local.args[0])[1]
            near = nearness(zero, other) + ULPS * (_MOST - _LEAST)  # which it was subtracted from
            rounded = rounded_away(zero, torch.round(other), near).clamp(_LEAST, _MOST)
        return 1.0 / per_step.double(), rounded.to(torch.int64)

    return choose


def _quantize_rows(at: int) -> Compute:
    def steps_of(args: tuple[Any, ...]) -> torch.Tensor:
        steps: torch.Tensor = args[0].float() * (1.0 / args[at]).float()
        return steps.double()

    def quantize(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
    ) -> Any:
        steps = steps_of(args)
        if local is None or not local.args:
            steps = torch.round(steps)
        else:
            other = steps_of(local.args)
            steps = rounded_away(steps, torch.round(other), nearness(steps, other))
        return (steps + args[at + 1]).clamp(_LEAST, _MOST).to(torch.int8)

    return quantize


def _dequantize_rows(at: int) -> Compute:
    def dequantize(
        target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local | None
    ) -> Any:
        scale, zero = args[at : at + 2]
        return (args[0].long() - zero).float() * scale.float()

    return dequantize
