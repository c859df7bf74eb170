"""A small convolutional network, lowered in several ways."""

from __future__ import annotations

import copy
from typing import Any

import torch
from executorch.devtools import generate_etrecord
from torch import nn

from tests.support.artifact_recipes.workbench import (
    Call,
    Workbench,
    exported,
    portable,
    seeded,
    xnnpack,
)

RUNS = 5
DEBUG_BYTES = 4_000_000


class ConvBlock(nn.Module):
    """Convolution, batch norm, relu."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.bn(self.conv(x)))


class ResidualBlock(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = ConvBlock(width, width)
        self.second = ConvBlock(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.first(x))


class Head(nn.Module):
    """From a picture to class probabilities."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(4)
        self.fc = nn.Linear(width * 4, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.fc(torch.flatten(self.pool(x), 1))
        return torch.softmax(logits, dim=-1)


class SmallCnn(nn.Module):
    """A stem, two residual stages, a head: modules three levels deep."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBlock(3, 8)
        self.stages = nn.Sequential(ResidualBlock(8), ConvBlock(8, 16, stride=2), ResidualBlock(16))
        self.head = Head(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)))


def small_cnn() -> SmallCnn:
    """The network with seeded weights and batch norm statistics that are not the identity."""
    torch.manual_seed(0)
    model = SmallCnn().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 2.0)
    return model


def picture(seed: int = 1) -> torch.Tensor:
    """One 16 x 16 picture."""
    return torch.randn(1, 3, 16, 16, generator=seeded(seed))


def cnn_portable(bench: Workbench) -> None:
    """Portable kernels only; five runs of one input."""
    model, call = small_cnn(), Call((picture(),), repeat=RUNS)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def cnn_xnnpack(bench: Workbench) -> None:
    """Lowered to XNNPACK; the record holds the edge program from before the partitioning."""
    model, call = small_cnn(), Call((picture(),), repeat=RUNS)
    bench.save(xnnpack(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def cnn_xnnpack_lowered(bench: Workbench) -> None:
    """The record is made after ``to_backend``: it holds the delegate calls with their modules."""
    model, call = small_cnn(), Call((picture(),), repeat=RUNS)
    lowered = xnnpack(exported(model, call.inputs))
    snapshot = copy.deepcopy(lowered)
    program = lowered.to_executorch()
    bench.pte.write_bytes(program.buffer)
    generate_etrecord(str(bench.folder / "etrecord.bin"), snapshot, program)
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def cnn_xnnpack_int8(bench: Workbench) -> None:
    """Quantised after training (PT2E); the reference is the converted module in PyTorch."""
    call = Call((picture(),), repeat=RUNS)
    model = quantised(call.inputs)
    bench.save(xnnpack(torch.export.export(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def quantised(inputs: tuple[Any, ...]) -> nn.Module:
    """The network with int8 weights and activations, calibrated on eight pictures."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xq
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = xq.XNNPACKQuantizer().set_global(xq.get_symmetric_quantization_config())
    prepared = prepare_pt2e(exported(small_cnn(), inputs).module(), quantizer)
    for seed in range(8):
        prepared(picture(seed))
    return convert_pt2e(prepared)
