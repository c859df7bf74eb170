"""Kinds of faults for `benchmarks.planted_faults`: each changes an exported program, which a device
then runs in place of the right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

aten = torch.ops.aten


@dataclass(frozen=True)
class Layer:
    """A layer's numbers, which may be changed in place. scale: of quantised weights, a tensor
    unless there is one for all."""

    node: Node
    weight: torch.Tensor
    scale: torch.Tensor | None
    bias: torch.Tensor | None

    @property
    def is_quantised(self) -> bool:
        return not self.weight.is_floating_point()


class Program:
    """An exported program that is about to be changed."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        signature = program.graph_signature
        self._targets = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }

    def stored(self, node: Any) -> torch.Tensor | None:
        """The numbers of a placeholder, or of what a node dequantises."""
        if not isinstance(node, Node):
            return None
        if node.target in (aten.t.default, aten.transpose.int):
            return self.stored(node.args[0])
        if "dequantize" in str(node.target):
            return self.stored(node.args[0])
        target = self._targets.get(node.name)
        for held in (self.program.state_dict, self.program.constants):
            if target in held:
                return held[target].data
        return None

    def layer(self, at: int) -> Layer:
        """The n-th layer with weights."""
        found = [
            node
            for node in self.program.graph.nodes
            if node.target in (aten.linear.default, aten.conv2d.default)
            and self.stored(node.args[1]) is not None
        ]
        node = found[at]
        weight, source = self.stored(node.args[1]), node.args[1]
        scale = None
        if "dequantize" in str(source.target):
            scale = self.stored(source.args[2 if "affine" in str(source.target) else 1])
        bias = self.stored(node.args[2]) if len(node.args) > 2 else None
        assert weight is not None
        return Layer(node, weight, scale, bias)

    def node(self, word: str, at: int = 0) -> Node:
        """The n-th node whose operator has this word."""
        return [node for node in self.program.graph.nodes if word in str(node.target)][at]

    def constant(self, name: str) -> torch.Tensor:
        """A parameter or buffer by its name."""
        for held in (self.program.state_dict, self.program.constants):
            if name in held:
                return held[name].data
        raise KeyError(name)


Change = Callable[[Program], None]


def _set(node: Node, at: int, value: Any) -> None:
    node.args = (*node.args[:at], value, *node.args[at + 1 :])


def _rounded(weight: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The numbers in the type of a weight."""
    if weight.is_floating_point():
        return numbers.to(weight.dtype)
    low, high = (-8, 7) if int(weight.abs().max()) <= 8 else (-127, 127)
    return numbers.round().clamp(low, high).to(weight.dtype)


# -- of a layer's weights: (layer, and numbers) -> change


def channel(at: int, row: int, factor: float) -> Change:
    """One channel of the weights x factor; of quantised ones, its scales."""

    def change(program: Program) -> None:
        layer = program.layer(at)
        if layer.scale is not None and layer.scale.dim():
            layer.scale[row] *= factor
        else:
            layer.weight[row] = _rounded(layer.weight, layer.weight[row].float() * factor)

    return change


def whole(at: int, factor: float) -> Change:
    def change(program: Program) -> None:
        layer = program.layer(at)
        if layer.scale is not None and layer.scale.dim():
            layer.scale.mul_(factor)
        else:
            layer.weight.copy_(_rounded(layer.weight, layer.weight.float() * factor))

    return change


def weights(at: int, change_of: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(program: Program) -> None:
        weight = program.layer(at).weight
        weight.copy_(_rounded(weight, change_of(weight.clone().float())))

    return change


def element(at: int, factor: float) -> Change:
    """The largest weight of the second channel x factor, or that number in place of it."""

    def change(program: Program) -> None:
        weight = program.layer(at).weight
        row = weight[1].reshape(-1)
        place = int(row.float().abs().argmax())
        found = row.float()[place] * factor
        row[place] = _rounded(weight, found) if factor == factor else factor
        weight[1] = row.reshape(weight[1].shape)

    return change


def scales(at: int, change_of: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(program: Program) -> None:
        scale = program.layer(at).scale
        assert scale is not None and scale.dim()
        scale.copy_(change_of(scale.clone()))

    return change


def bias(at: int, change_of: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(program: Program) -> None:
        found = program.layer(at).bias
        assert found is not None
        found.copy_(change_of(found.clone()))

    return change


def of_other(at: int, other: int) -> Change:
    """The weights of another layer of the same shape."""

    def change(program: Program) -> None:
        program.layer(at).weight.copy_(program.layer(other).weight.clone())

    return change


def constant(name: str, change_of: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(program: Program) -> None:
        held = program.constant(name)
        held.copy_(change_of(held.clone()))

    return change


# -- of nodes


def argument(word: str, at: int, position: int, value: Any) -> Change:
    """Another argument of a node."""
    return lambda program: _set(program.node(word, at), position, value)


def keyword(word: str, at: int, name: str, value: Any) -> Change:
    def change(program: Program) -> None:
        node = program.node(word, at)
        node.kwargs = {**node.kwargs, name: value}

    return change


def dilated(layer: int) -> Change:
    """A convolution of 3 by 3 with a dilation of 2, and padding for it."""

    def change(program: Program) -> None:
        node = program.layer(layer).node
        node.args = (*node.args[:3], [1, 1], [2, 2], [2, 2], *node.args[6:])

    return change


def operator(word: str, at: int, target: Any, *more: Any) -> Change:
    """Another operator in place of a node's."""

    def change(program: Program) -> None:
        node = program.node(word, at)
        node.target = target
        if more:
            node.args = (node.args[0], *more)
            node.kwargs = {}

    return change


def swapped_inputs(word: str, at: int) -> Change:
    def change(program: Program) -> None:
        node = program.node(word, at)
        if isinstance(node.args[0], (list, tuple)):
            node.args = (list(node.args[0])[::-1], *node.args[1:])
        else:
            node.args = (node.args[1], node.args[0], *node.args[2:])

    return change


def activation(layer: int, zero_point: int = 0, factor: float = 1.0, both: bool = False) -> Change:
    """The zero point or the scale by which a layer's int8 input is read; `both`: and written."""

    def change(program: Program) -> None:
        read: Any = program.layer(layer).node.args[0]
        while "dequantize_per_tensor" not in str(read.target):
            read = read.args[0]
        for node in (read, read.args[0]) if both else (read,):
            _set(node, 1, node.args[1] * factor)
            _set(node, 2, max(-128, min(127, node.args[2] + zero_point)))

    return change


def in_place(row: int, factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """One element or row x factor, or that number in place of it."""

    def change(numbers: torch.Tensor) -> torch.Tensor:
        numbers[row] = numbers[row] * factor
        return numbers

    return change


def floored(numbers: torch.Tensor) -> torch.Tensor:
    """Cut off what bfloat16 does not have, in place of rounding."""
    bits = numbers.float().view(torch.int32) & -65536
    return bits.view(torch.float32).to(numbers.dtype)


def rounded_down(step: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Cut off below a step, which gives errors of one sign."""
    return lambda numbers: torch.floor(numbers / step) * step


def exchanged(one: int, other: int, axis: int = 0) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(numbers: torch.Tensor) -> torch.Tensor:
        order = list(range(numbers.shape[axis]))
        order[one], order[other] = order[other], order[one]
        return numbers.index_select(axis, torch.tensor(order))

    return change


def halves_of_bytes(numbers: torch.Tensor) -> torch.Tensor:
    """The two 4-bit numbers of each byte in the other order."""
    pairs = numbers.reshape(*numbers.shape[:-1], -1, 2)
    return pairs.flip(-1).reshape(numbers.shape)
