"""Quantize the weights of a model by torchao before it is exported, as ExecuTorch's recipes for
language models do.

"8da4w" and "8da8w" are the names of `executorch.examples.models.llama`: weights of linear layers in
4 or 8 bits, and their inputs in 8 bits with a range that each run finds for each token.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from etscope.errors import EtscopeWarning, UsageError
from etscope.support.optional import require
from etscope.units import listed

SCHEMES = ("8da4w", "8da8w")
_EMBEDDING_BITS = (4, 8)
_GROUP = 32  # XNNPACK's groups are multiples of it
_NAMES = 3  # of layers, in a message


class WeightQuantization(NamedTuple):
    """Options for quantizing weights.

    scheme: for linear layers; None keeps them in float. embedding_bits: for embeddings; None keeps
        them in float.
    group_size: with 4 bits, how many columns of a row share a scale; None means 32. With 8 bits
        each row has one scale.
    """

    scheme: str | None = None
    embedding_bits: int | None = None
    group_size: int | None = None

    def check(self) -> None:
        """Raise `UsageError` for an unknown scheme, or an impossible number of bits or group
        size.
        """
        if self.scheme is not None and self.scheme not in SCHEMES:
            raise UsageError(
                f"unknown quantization {self.scheme!r}",
                hint=f"give int8, {' or '.join(SCHEMES)}",
            )
        if self.embedding_bits not in (None, *_EMBEDDING_BITS):
            raise UsageError(
                f"embeddings cannot be quantized to {self.embedding_bits} bits", hint="give 4 or 8"
            )
        if self.group_size is None:
            return
        if self.scheme != "8da4w" and self.embedding_bits != 4:
            raise UsageError(
                "the group size is for weights of 4 bits; weights of 8 bits have one scale for "
                "each row",
                hint="leave it out",
            )
        if self.group_size < 1 or self.group_size % _GROUP:
            raise UsageError(
                f"a group size of {self.group_size}: XNNPACK takes multiples of {_GROUP}",
                hint=f"give {_GROUP}, 64 or 128",
            )


class _Layer(NamedTuple):
    name: str
    module: Any


def quantized_copy(roots: Any, quantization: WeightQuantization) -> Any:
    """Return a copy of the modules, in the same structure, with quantized weights.

    roots: a module, or any value with modules in it that `copy.deepcopy` can copy and `modules_of`
    can list. A module that occurs several times is quantized once; a weight that an embedding
    shares with a linear layer becomes two separate weights.

    Raises `UsageError` if no layer of a kind can be quantized, and warns of layers that stay in
    float.
    """
    require("torchao", wanted_by="quantizing weights")
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerAxis, PerGroup

    copied = copy.deepcopy(roots)
    group = quantization.group_size or _GROUP
    if quantization.embedding_bits is not None:
        bits = quantization.embedding_bits
        config = IntxWeightOnlyConfig(
            weight_dtype=getattr(torch, f"int{bits}"),
            granularity=PerGroup(group) if bits == 4 else PerAxis(0),
        )
        found = _layers(copied, nn.Embedding)
        for layer in found:
            # Matters to training only, and no pattern of ExecuTorch's quantized embeddings has it.
            layer.module.padding_idx = None
        _quantize(found, config, "embedding", group if bits == 4 else None)
    if quantization.scheme is not None:
        four = quantization.scheme == "8da4w"
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4 if four else torch.int8,
            weight_granularity=PerGroup(group) if four else PerAxis(0),
        )
        _quantize(_layers(copied, nn.Linear), config, "linear layer", group if four else None)
    return copied


def _quantize(layers: list[_Layer], config: Any, kind: str, group: int | None) -> None:
    from torchao.quantization import quantize_

    fitting = [one for one in layers if group is None or one.module.weight.shape[1] % group == 0]
    if not layers:
        raise UsageError(f"the model has no {kind} to quantize")
    if not fitting:
        widths = sorted({one.module.weight.shape[1] for one in layers})
        raise UsageError(
            f"a group size of {group} divides the width of no {kind}: they are "
            f"{', '.join(f'{width:,}' for width in widths)} wide",
            hint="give a smaller group size, a multiple of 32",
        )
    left = [one.name for one in layers if one not in fitting]
    if left:
        warnings.warn(
            f"{len(left):,} of {len(layers):,} {kind}s stay in float, as a group size of {group} "
            f"does not divide their width: {listed(left, _NAMES)}",
            EtscopeWarning,
            stacklevel=2,
        )
    for one in fitting:
        quantize_(one.module, config, filter_fn=lambda module, name: name == "")


def _layers(roots: Any, kind: type[nn.Module]) -> list[_Layer]:
    """List the layers of a kind of all roots, each once."""
    found: dict[int, _Layer] = {}
    for root in modules_of(roots):
        for name, module in root.named_modules():
            if isinstance(module, kind):
                found.setdefault(id(module), _Layer(name, module))
    return list(found.values())


def modules_of(roots: Any) -> Iterator[nn.Module]:
    """Yield the modules to quantize: a module itself, or the modules of a model's methods."""
    if isinstance(roots, nn.Module):
        yield roots
        return
    for method in roots.methods.values():
        yield method.module
