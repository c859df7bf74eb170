"""Faults that many samples tell and one does not: false alarms of `evaluate` on sound models, and
faults too small for a single run.

    python benchmarks/many_samples.py [--samples 64] [MODEL ...]

Each model is exported twice: soundly, and with its weights changed as `FAULTS` says, which is what
runs on the device beside the record of the sound one. Printed: findings of single samples, what all
samples tell together, and the seconds of CPU a sample.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from etscope.evaluation import Evaluation, evaluate
from etscope.export import export

Made = tuple[nn.Module, Callable[[], tuple[Any, ...]]]


class Cnn(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.depth = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.BatchNorm2d(channels)
        self.point = nn.Conv2d(channels, 24, 1)
        self.head = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.depth(torch.relu(self.conv(x)))))
        x = torch.nn.functional.max_pool2d(torch.relu(self.point(x)), 2)
        return torch.softmax(self.head(x.mean((2, 3))), -1)


class Attention(nn.Module):
    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 64, batch_first=True, activation="gelu")
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.rest = Attention(depth=1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.rest(self.embed(tokens)) * 8, -1)


class Deep(nn.Module):
    """Layers of wide range, and of each kind of activation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(8))
        self.norm = nn.LayerNorm(24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kinds = (torch.tanh, torch.sigmoid, nn.functional.silu, nn.functional.gelu)
        for number, layer in enumerate(self.layers):
            x = x + kinds[number % 4](layer(x)) * 10.0 ** (number % 4 - 1)
        return self.norm(x + 100.0)


class Cancelling(nn.Module):
    """Differences of numbers that are nearly the same, the same weights in each run."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(32, 32), nn.Linear(32, 32)
        with torch.no_grad():
            self.other.weight.copy_(self.one.weight + 1e-4 * torch.randn(32, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.one(x)) - torch.relu(self.other(x))
        return torch.log_softmax(y * 1e3, -1) + torch.exp(-torch.square(y)).cumsum(-1)


class Places(nn.Module):
    """A table of positions is added."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.table = nn.Parameter(torch.randn(10, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x) + self.table)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0])


def image() -> tuple[Any, ...]:
    return (torch.randn(1, 3, 12, 12),)


def rows(width: int, dtype: torch.dtype = torch.float32) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(4, width).to(dtype),)


def sequence() -> tuple[Any, ...]:
    return (torch.randn(1, 10, 32),)


def positive() -> tuple[Any, ...]:
    """Inputs with a mean that is large beside their spread: what is rounded repeats."""
    return (torch.randn(4, 24).abs() * 0.05 + 3.0,)


FLOAT: dict[str, Any] = {"backend": "portable"}
XNN: dict[str, Any] = {"backend": "xnnpack"}
INT8: dict[str, Any] = {"backend": "xnnpack", "quantize": True}
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "cnn portable": (Cnn, image, FLOAT),
    "cnn xnnpack": (Cnn, image, XNN),
    "cnn int8": (Cnn, image, INT8),
    "wide cnn int8": (lambda: Cnn(32), image, INT8),
    "attention portable": (Attention, sequence, FLOAT),
    "attention xnnpack": (Attention, sequence, XNN),
    "attention int8": (Attention, sequence, INT8),
    "tokens portable": (Tokens, lambda: (torch.randint(0, 50, (1, 9)),), FLOAT),
    "tokens xnnpack": (Tokens, lambda: (torch.randint(0, 50, (1, 9)),), XNN),
    "deep portable": (Deep, rows(24), FLOAT),
    "deep xnnpack": (Deep, positive, XNN),
    "deep half": (lambda: Deep().half(), rows(24, torch.float16), FLOAT),
    "deep bfloat16": (lambda: Deep().bfloat16(), rows(24, torch.bfloat16), FLOAT),
    "deep half xnnpack": (lambda: Deep().half(), rows(24, torch.float16), XNN),
    "cancelling portable": (Cancelling, rows(32), FLOAT),
    "cancelling xnnpack": (Cancelling, rows(32), XNN),
    "places portable": (Places, sequence, FLOAT),
    "places xnnpack": (Places, sequence, XNN),
    "places int8": (Places, sequence, INT8),
    "recurrent xnnpack": (Recurrent, lambda: (torch.randn(1, 6, 8),), XNN),
}


def scaled_channel(factor: float, path: str) -> Callable[[nn.Module], None]:
    def fault(model: nn.Module) -> None:
        layer = model.get_submodule(path)
        layer.weight[3] *= factor
        if layer.bias is not None:
            layer.bias[3] *= factor

    return fault


def shifted(path: str, error: float) -> Callable[[nn.Module], None]:
    def fault(model: nn.Module) -> None:
        model.get_submodule(path).bias[3] += error

    return fault


def one_number(error: float) -> Callable[[nn.Module], None]:
    def fault(model: nn.Module) -> None:
        model.table[3, 5] += error

    return fault


FAULTS: tuple[tuple[str, str, Callable[[nn.Module], None]], ...] = (
    ("channel x 1.003", "cnn int8", scaled_channel(1.003, "point")),
    ("channel x 1.008", "cnn int8", scaled_channel(1.008, "point")),
    ("channel x 1.02", "cnn int8", scaled_channel(1.02, "point")),
    ("channel x 1.02", "wide cnn int8", scaled_channel(1.02, "point")),
    ("channel x 1.03", "cnn int8", scaled_channel(1.03, "conv")),
    ("bias + 0.0005", "cnn int8", shifted("point", 5e-4)),
    ("bias + 0.005", "cnn int8", shifted("point", 5e-3)),
    ("number + 0.0005", "places portable", one_number(5e-4)),
    ("number + 0.0002", "places portable", one_number(2e-4)),
    ("number + 0.0002", "places xnnpack", one_number(2e-4)),
    ("number + 0.005", "places int8", one_number(0.005)),
    ("number + 0.02", "places int8", one_number(0.02)),
    ("channel x 1.0001", "attention xnnpack", scaled_channel(1.0001, "head")),
)


def exported(name: str, fault: Callable[[nn.Module], None] | None = None) -> Any:
    make, example, options = MODELS[name]
    torch.manual_seed(0)
    model, inputs = make().eval(), example()
    calibration = [example() for _ in range(8)] if options.get("quantize") else None
    if fault is not None:
        with torch.no_grad():
            fault(model)
    return export(model, inputs, calibration=calibration, **options)


def samples_of(name: str, count: int, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    return [MODELS[name][1]() for _ in range(count)]


def told(found: Evaluation) -> str:
    return f"{len(found.findings)} alone, {len(found.deviating)} together: {found.verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    alone = together = 0
    for name in options.models or MODELS:
        sound = exported(name)
        data = samples_of(name, options.samples, options.seed)
        start = time.process_time()
        found = evaluate(sound.program, data, etrecord=sound.record, isolate=False)
        seconds = (time.process_time() - start) / options.samples
        alone += len(found.findings)
        together += len(found.deviating)
        print(f"{name:20} {seconds:6.3f} s  {told(found)}", flush=True)
        for note in found.notes[1:3]:
            print(f"{'':20} {note}", flush=True)
        for what, where, fault in FAULTS:
            if where == name:
                device = exported(name, fault)
                bad = evaluate(
                    device.program, data, etrecord=sound.record, isolate=False, verify=False
                )
                print(f"  {what:18} {'':9} {told(bad)}", flush=True)
    print(f"false alarms: {alone} samples alone, {together} operators in all samples together")
    return 1 if together else 0


if __name__ == "__main__":
    sys.exit(main())
