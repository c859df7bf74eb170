"""Small programs with unusual values: dtypes, memory formats, NaN, scalars, symbolic shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import Dim

from tests.support.artifact_recipes.workbench import Call, Workbench, exported, portable, seeded

DEBUG_BYTES = 200_000
RUNS = 3


class LowPrecision(nn.Module):
    """Half inside, bfloat16 in and out."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = (x * x).to(torch.float16)
        return torch.tanh(half).to(torch.float32), torch.sigmoid(y) + y


class ChannelsLast(nn.Module):
    """Contiguous in, channels-last inside and at both outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 5, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.first(x.to(memory_format=torch.channels_last)))
        return torch.sigmoid(self.second(hidden)), hidden


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(x)))


class NotANumber(nn.Module):
    """Square roots of negative numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(x) + torch.relu(x)


class Infinite(nn.Module):
    """Reciprocals of both zeros."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.reciprocal(x) + torch.relu(x)


class ManyOutputs(nn.Module):
    """Operators with several outputs, and an int that the program computes."""

    def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
        values, indices = torch.topk(x, 2)
        left, right = torch.split(x, 2, dim=1)
        positive = (x > 0).sum().item()
        return values, indices, left + right, x.max(dim=1).values, positive


class Scalars(nn.Module):
    """A tensor and three constants."""

    def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
        return x * x, 7, True, 2.5


class FreeBatch(nn.Module):
    """Any number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.relu(self.linear(x)).reshape(x.shape[0], 3, 2)
        return torch.softmax(pairs, dim=-1) + torch.ones(x.shape[0], 1, 2)


def bf16_fp16(bench: Workbench) -> None:
    """Half and bfloat16 tensors: profiled only.

    With a debug buffer the runtime logs "This ScalarType = 5 is not yet supported in ETDump",
    and for 15 the same, and runs on; the dump it then writes is malformed (its runs and events
    do not add up). That dump is ``malformed.etdp``, with ``malformed_debug.bin`` beside it.
    """
    x = torch.randn(2, 3, generator=seeded(1))
    y = torch.randn(2, 3, generator=seeded(2)).to(torch.bfloat16)
    model, call = LowPrecision(), Call((x, y), repeat=RUNS)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=0, timing=False)
    bench.run(
        call,
        debug_bytes=DEBUG_BYTES,
        etdump="malformed.etdp",
        debug_buffer="malformed_debug.bin",
    )


def channels_last(bench: Workbench) -> None:
    """Logged tensors whose strides are not those of their sizes."""
    torch.manual_seed(0)
    model = ChannelsLast().eval().to(memory_format=torch.channels_last)
    call = Call((torch.randn(1, 3, 4, 6, generator=seeded(1)),), repeat=RUNS)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def varying_inputs(bench: Workbench) -> None:
    """Four inputs, one run each: the same events with other tensors."""
    torch.manual_seed(0)
    model = Perceptron().eval()
    calls = [Call((torch.randn(2, 6, generator=seeded(seed)),)) for seed in range(1, 5)]
    bench.save(portable(exported(model, calls[0].inputs)))
    bench.profile(model, *calls, debug_bytes=DEBUG_BYTES)


def nan_output(bench: Workbench) -> None:
    """NaN in an intermediate tensor and in the output."""
    model, call = NotANumber(), Call((torch.tensor([[4.0, -1.0], [0.0, -9.0]]),), repeat=RUNS)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def inf_output(bench: Workbench) -> None:
    """Both infinities inside and in the output, and no NaN."""
    model, call = Infinite(), Call((torch.tensor([[2.0, 0.0], [-0.0, -4.0]]),), repeat=RUNS)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def int_outputs(bench: Workbench) -> None:
    """An int among the outputs, and operators that write several tensors or a list of them.

    The runtime logs a scalar output without the mark of an output. A float or a bool computed
    by the program (``x.sum().item()``) cannot be had: the ETRecord of it cannot be saved.
    """
    model, call = ManyOutputs(), Call((torch.randn(3, 4, generator=seeded(1)),), repeat=RUNS)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def scalar_outputs(bench: Workbench) -> None:
    """Constants among the outputs: an int, a bool and a float.

    Upstream saves the ETRecord but cannot read it back. (A None among the outputs is worse: with
    a debug buffer the runtime aborts, "This EValue type = 0 is not yet supported for logging".)
    """
    model, call = Scalars(), Call((torch.randn(3, 4, generator=seeded(1)),), repeat=RUNS)
    bench.save(portable(exported(model, call.inputs)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def dynamic_shape(bench: Workbench) -> None:
    """A symbolic batch of 1 to 8 rows, run with five."""
    torch.manual_seed(0)
    model, call = FreeBatch().eval(), Call((torch.randn(5, 4, generator=seeded(1)),), repeat=RUNS)
    free = {"x": {0: Dim("batch", min=1, max=8)}}
    bench.save(portable(exported(model, call.inputs, dynamic_shapes=free)))
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)
