"""Quantized models as people export them: each name in `MODELS` is one MODEL on the command line.

They are of torchao's configs, of XNNPACKQuantizer's, and of tensor subclasses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils import _pytree as pytree
from torchao.prototype.quantization import quant_api as prototype
from torchao.prototype.quantization.gguf.api import GGUFWeightOnlyConfig
from torchao.quantization import (
    Float8DynamicActivationFloat8WeightConfig,
    Float8DynamicActivationInt4WeightConfig,
    Float8WeightOnlyConfig,
    FqnToConfig,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8StaticActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup, PerRow, PerTensor
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.qat import QATConfig

Made = tuple[nn.Module, tuple[Any, ...]]
Intx, Dynamic = IntxWeightOnlyConfig, Int8DynamicActivationIntxWeightConfig


class Layers(nn.Module):
    """Two linear layers, wide enough for groups of 128."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(128, 256)
        self.down = nn.Linear(256, 128)

    def forward(self, x: torch.Tensor) -> Any:
        return self.down(nn.functional.silu(self.up(x)))


class Words(nn.Module):
    """An embedding before a linear layer."""

    def __init__(self, padding: int | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 128, padding_idx=padding)
        self.head = nn.Linear(128, 64)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.head(self.table(tokens))


class Picture(nn.Module):
    """Convolutions with batch norm and a residual, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.stem(x)
        return self.head((x + self.conv(x)).mean((2, 3)))


def of_torchao(config: Callable[[], Any], *, half: bool = False) -> Made:
    """Linear layers, quantized."""
    kind = torch.bfloat16 if half else torch.float32
    model = Layers().eval().to(kind)
    quantize_(model, config())
    return model, (torch.randn(4, 128, dtype=kind),)


def of_words(config: Any, padding: int | None = None) -> Made:
    """A quantized embedding before a linear layer in float."""
    model = Words(padding).eval()
    quantize_(model, config, lambda module, name: isinstance(module, nn.Embedding))
    return model, (torch.randint(0, 100, (1, 6)),)


def calibrated(config: Any) -> Made:
    """A model that torchao prepares, calibrates and converts."""
    model, inputs = Layers().eval(), (torch.randn(4, 128),)
    quantize_(model, config(step="prepare"))
    model(*inputs)
    quantize_(model, config(step="convert"))
    return model, inputs


def trained() -> Made:
    """Quantization-aware training without a step of it."""
    model = Layers()
    base = Dynamic(weight_dtype=torch.int4)
    quantize_(model, QATConfig(base, step="prepare"))
    quantize_(model, QATConfig(base, step="convert"))
    return model.eval(), (torch.randn(4, 128),)


def of_quantizer(
    picture: bool = True, fold: bool = True, operators: Any = None, **options: Any
) -> Made:
    """A model that XNNPACKQuantizer quantizes in PyTorch, before etscope sees it."""
    model: nn.Module = (Picture() if picture else Layers()).eval()
    inputs = (torch.randn(1, 3, 12, 12) if picture else torch.randn(4, 128),)
    quantizer = XNNPACKQuantizer()
    config = get_symmetric_quantization_config(**options)
    if operators is None:
        quantizer.set_global(config)
    else:
        quantizer.set_module_type(operators, config)
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared, fold_quantize=fold), inputs


class Scaled(torch.Tensor):
    """A tensor of two: numbers, and the scale of each row."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, numbers.shape, dtype=scale.dtype, device=numbers.device
        )

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor) -> None:
        self.numbers, self.scale = numbers, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers", "scale"], None

    @staticmethod
    def __tensor_unflatten__(parts: Any, about: Any, size: Any, stride: Any) -> Scaled:
        return Scaled(parts["numbers"], parts["scale"])

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.ops.aten.detach.default:
            return Scaled(args[0].numbers, args[0].scale)
        plain = pytree.tree_map_only(
            Scaled, lambda one: one.numbers.to(one.scale.dtype) * one.scale, (args, kwargs or {})
        )
        return function(*plain[0], **plain[1])


class Named(nn.Parameter):
    """A parameter of a class of its own, as Hugging Face and others have them."""


def with_scaled() -> Made:
    model = Layers().eval()
    for layer in (model.up, model.down):
        scale = layer.weight.detach().abs().amax(1, keepdim=True) / 127
        numbers = (layer.weight.detach() / scale).round().to(torch.int8)
        layer.weight = nn.Parameter(Scaled(numbers, scale), requires_grad=False)
    return model, (torch.randn(4, 128),)


def with_named() -> Made:
    model = Layers().eval()
    model.up.weight = Named(model.up.weight.detach())
    return model, (torch.randn(4, 128),)


def with_input() -> Made:
    """An input that is a tensor subclass."""
    x = Scaled(torch.ones(4, 128, dtype=torch.int8), torch.full((4, 1), 0.5))
    return Layers().eval(), (x,)


def with_norm() -> Made:
    model = Layers().eval()
    parametrizations.weight_norm(model.up)
    return model, (torch.randn(4, 128),)


def with_sparse() -> Made:
    model = Layers().eval()
    model.up.weight = nn.Parameter(model.up.weight.detach().relu().to_sparse_csr())
    return model, (torch.randn(4, 128),)


def by_name() -> Made:
    """Another config for each layer."""
    model = Layers().eval()
    config = OrderedDict({"up": Intx(), "down": Dynamic(weight_dtype=torch.int4)})
    quantize_(model, FqnToConfig(config), filter_fn=None)
    return model, (torch.randn(4, 128),)


INTX = {f"int{bits}": getattr(torch, f"int{bits}") for bits in range(1, 9)}
TORCHAO: dict[str, Callable[[], Any]] = {
    "float8_dynamic": Float8DynamicActivationFloat8WeightConfig,
    "float8_rows": partial(Float8DynamicActivationFloat8WeightConfig, granularity=PerRow()),
    "float8_int4": Float8DynamicActivationInt4WeightConfig,
    "float8_weights": Float8WeightOnlyConfig,
    "int4_weights": Int4WeightOnlyConfig,
    "int4_tiles": partial(Int4WeightOnlyConfig, int4_packing_format="tile_packed_to_4d"),
    "int8_dynamic": Int8DynamicActivationInt8WeightConfig,
    "int8_dynamic_tensor": partial(Int8DynamicActivationInt8WeightConfig, granularity=PerTensor()),
    "int8_dynamic_asymmetric": partial(
        Int8DynamicActivationInt8WeightConfig, act_mapping_type=MappingType.ASYMMETRIC
    ),
    "int8_decode": partial(Int8DynamicActivationInt8WeightConfig, weight_only_decode=True),
    "int8_weights": Int8WeightOnlyConfig,
    "int8_weights_tensor": partial(Int8WeightOnlyConfig, granularity=PerTensor()),
    "int8_weights_group": partial(Int8WeightOnlyConfig, granularity=PerGroup(32)),
    "int8_static": partial(
        Int8StaticActivationInt8WeightConfig,
        act_quant_scale=torch.tensor([[0.03]]),
        granularity=PerTensor(),
    ),
    "uint4_weights": partial(prototype.UIntxWeightOnlyConfig, group_size=64),
    "uintx_dynamic": prototype.Int8DynamicActivationUIntxWeightConfig,
    "gguf_weights": partial(GGUFWeightOnlyConfig, dtype=torch.uint4, n_blocks_per_superblock=1),
    "intx_asymmetric": partial(Intx, torch.int4, PerGroup(32), mapping_type=MappingType.ASYMMETRIC),
    "8da_symmetric": partial(Dynamic, act_mapping_type=MappingType.SYMMETRIC),
    "8da_half_scales": partial(
        Dynamic, torch.int4, PerGroup(32), weight_scale_dtype=torch.bfloat16
    ),
    **{f"{name}_axis": partial(Intx, kind, PerAxis(0)) for name, kind in INTX.items()},
    **{f"{name}_group": partial(Intx, kind, PerGroup(32)) for name, kind in INTX.items()},
    **{f"8da_{name}_axis": partial(Dynamic, kind, PerAxis(0)) for name, kind in INTX.items()},
    **{f"8da_{name}_group": partial(Dynamic, kind, PerGroup(32)) for name, kind in INTX.items()},
}
MODELS: dict[str, Callable[[], Made]] = {
    **{name: partial(of_torchao, config) for name, config in TORCHAO.items()},
    "half_int8_weights": partial(of_torchao, Int8WeightOnlyConfig, half=True),
    "half_int4_weights": partial(of_torchao, Int4WeightOnlyConfig, half=True),
    "half_float8_rows": partial(of_torchao, TORCHAO["float8_rows"], half=True),
    "half_float8_weights": partial(of_torchao, Float8WeightOnlyConfig, half=True),
    "float8_static": partial(calibrated, prototype.Float8StaticActivationFloat8WeightConfig),
    "half_int4_tiles": partial(of_torchao, TORCHAO["int4_tiles"], half=True),
    "by_name": by_name,
    "qat": trained,
    "words_8": partial(of_words, Intx(torch.int8, PerAxis(0))),
    "words_4": partial(of_words, Intx(torch.int4, PerGroup(32))),
    "words_2": partial(of_words, Intx(torch.int2, PerGroup(32))),
    "words_padded": partial(of_words, Intx(torch.int8, PerAxis(0)), padding=0),
    "xnn_tensor": of_quantizer,
    "xnn_channel": partial(of_quantizer, is_per_channel=True),
    "xnn_dynamic": partial(of_quantizer, picture=False, is_dynamic=True),
    "xnn_dynamic_channel": partial(
        of_quantizer, picture=False, is_dynamic=True, is_per_channel=True
    ),
    "xnn_dynamic_conv": partial(of_quantizer, is_dynamic=True, is_per_channel=True),
    "xnn_int4": partial(
        of_quantizer, picture=False, is_dynamic=True, is_per_channel=True,
        weight_qmin=-8, weight_qmax=7,
    ),
    "xnn_unfolded": partial(of_quantizer, is_per_channel=True, fold=False),
    "xnn_dynamic_unfolded": partial(
        of_quantizer, picture=False, is_dynamic=True, is_per_channel=True, fold=False
    ),
    "xnn_linear_only": partial(of_quantizer, operators=nn.Linear),
    "subclass_weight": with_scaled,
    "subclass_parameter": with_named,
    "subclass_input": with_input,
    "parametrized": with_norm,
    "sparse_weight": with_sparse,
    "float_picture": lambda: (Picture().eval(), (torch.randn(1, 3, 12, 12),)),
}  # fmt: skip
globals().update(MODELS)
