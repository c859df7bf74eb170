"""Programs with a planted fault outside of their kernels, each with a sound twin, by seed.

Each family draws its models at random. `off` is by the runtime: the largest difference from the
model over its largest number, infinite of a program that does not run; None where nothing ran. So
a test can ask both: is the fault real, and is it named?
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import torch
from executorch.exir.memory_planning import MemoryAlgoResult, MemoryPlanningAlgorithmSuite, greedy
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch import nn
from torch.export import export
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from etscope.analysis.matching.export import Export
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from tests.support.faults.upstream_exports import upstream_export


@dataclass(frozen=True)
class Planted:
    """A program. kind: of its fault, None of a sound one."""

    family: str
    kind: str | None
    export: Export
    off: float | None


class Model(nn.Module):
    """A function, with the modules and buffers that it uses."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def _made(
    family: str,
    kind: str | None,
    model: nn.Module,
    *runs: tuple[Any, ...],
    xnnpack: bool = False,
    record: bool = True,
    **config: Any,
) -> Planted:
    """Export a model with the inputs of its first run, and run it on the runtime."""
    data, made = upstream_export(
        export(model.eval(), runs[0]), xnnpack=xnnpack, record=record, **config
    )
    loaded = _load_for_executorch_from_buffer(data)
    off = 0.0
    for inputs in runs:
        with torch.no_grad():
            wanted = tree_leaves(model(*inputs))
        try:
            given = loaded.forward(inputs)
        except RuntimeError:
            off = float("inf")
            break
        for want, got in zip(wanted, given, strict=True):
            scale = max(float(want.double().abs().max()), 1e-6)
            off = max(off, float((want.double() - got.double()).abs().max()) / scale)
    return Planted(family, kind, made, off)


def branches(draw: random.Random, *, sound: bool) -> Planted:
    """Two `torch.cond`, the first result used after the second (pytorch/executorch#21490); half of
    them inside a branch of a third."""
    size, is_nested = draw.randint(1, 9), draw.random() < 0.5

    def both(flag: Any, one: Any, other: Any) -> Any:
        first = torch.cond(flag, lambda x: x * 7, lambda x: x - 1, (one,))
        first = first.clone() if sound else first
        second = torch.cond(flag, lambda x: x * 3 + 1, lambda x: (x + 5) * 2, (other,))
        return first + second, first * 1.0

    def neither(flag: Any, one: Any, other: Any) -> Any:
        return one - other, other * 2.0

    def forward(self: Model, outer: Any, *inputs: Any) -> Any:
        return torch.cond(outer, both, neither, inputs) if is_nested else both(*inputs)

    values = torch.rand(size) + 1, torch.rand(size) + 3
    flags = itertools.product((True, False), repeat=2)
    runs = [(torch.tensor(one), torch.tensor(other), *values) for one, other in flags]
    kind = None if sound else "overwritten-value"
    # Upstream's record does not hold control flow.
    return _made("branches", kind, Model(forward), *runs, record=False)


def plan(draw: random.Random, *, sound: bool) -> Planted:
    """A planner that gives two values the same bytes while both are needed."""
    width, depth = draw.choice((8, 12, 20)), draw.randint(2, 5)
    layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self: Model, x: Any) -> Any:
        kept = torch.tanh(x) * 2
        for layer in self.layers:
            x = torch.relu(layer(x)) + 0.5
        return x + kept

    def clashing(alignment: int, specs: Any, *rest: Any) -> MemoryAlgoResult:
        result = greedy(alignment, specs, *rest)
        live = sorted(
            (one for one in result.spec_dict if None not in one.lifetime),
            key=lambda one: (one.lifetime[1] - one.lifetime[0], one.lifetime[0]),
        )
        long = live[-1]  # `kept`, from its first to its last use
        inside = [
            one
            for one in live[:-1]
            if one.lifetime[0] > long.lifetime[0] and one.lifetime[0] < long.lifetime[1]
        ]
        target, other = result.spec_dict[draw.choice(inside)], result.spec_dict[long]
        target.mem_id, target.mem_offset = other.mem_id, other.mem_offset
        return result

    config = {}
    if not sound:
        config["memory_planning_pass"] = MemoryPlanningPass(
            memory_planning_algo=MemoryPlanningAlgorithmSuite([clashing])
        )
    kind = None if sound else "overwritten-value"
    return _made("plan", kind, Model(forward, layers=layers), (torch.randn(3, width),), **config)


def start(draw: random.Random, *, sound: bool) -> Planted:
    """A buffer that does not start with zeros."""
    size, value = draw.randint(2, 9), draw.choice((1.0, 0.25, -3.0))
    held = torch.full((size,), value)
    if draw.random() < 0.5:
        held = held + torch.rand(size)

    def forward(self: Model, x: Any) -> Any:
        self.held.mul_(0.5).add_(x)
        return self.held * 2.0

    config = {"passes": [InitializedMutableBufferPass(["held"])]} if sound else {}
    kind = None if sound else "undefined-state"
    return _made("start", kind, Model(forward, held=held), (torch.randn(size),), **config)


def shared(draw: random.Random, *, sound: bool) -> Planted:
    """Two methods over one buffer, which the first may only read."""
    size, reads_only = draw.randint(2, 9), draw.random() < 0.5
    model = Model(lambda self, x: x, held=torch.zeros(size))

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            if reads_only:
                return self.model.held + x
            self.model.held.add_(x)
            return self.model.held * 1.0

    class Writes(Reads):
        def forward(self, x: Any) -> Any:
            self.model.held.copy_(x)
            return x * 1.0

    x = (torch.randn(size),)
    methods = {"forward": export(Reads(), x), "set_state": export(Writes(), x)}
    planning = MemoryPlanningPass(share_mutable_buffers=sound)
    _, made = upstream_export(methods, memory_planning_pass=planning)
    # The runtime of the Python package gives each method a memory of its own, whatever the plan.
    kind = None if sound else "unshared-state"
    return Planted("shared", kind, made, None)


def layout(draw: random.Random, *, sound: bool) -> Planted:
    """An image with the channels last whose strides are ambiguous."""
    channels, height, width = draw.choice(((1, draw.randint(3, 9), draw.randint(3, 9)), (3, 1, 1)))
    xnnpack = channels != 1 or draw.random() < 0.5  # portable kernels take an image of one pixel
    x = torch.randn(1, channels, height, width).to(memory_format=torch.channels_last)
    x = x.clone(memory_format=torch.contiguous_format) if sound else x
    kernel = 1 if height == 1 else draw.choice((1, 3))
    model = nn.Sequential(nn.Conv2d(channels, draw.randint(2, 6), kernel, padding=kernel // 2))
    return _made("layout", None if sound else "other-layout", model, (x,), xnnpack=xnnpack)


def storage(draw: random.Random, *, sound: bool) -> Planted:
    """Weights that are quantized without their inputs, in XNNPACK; half of them in one layer."""
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    width = draw.choice((32, 64, 96))
    model = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)).eval()
    configs = (
        Int8WeightOnlyConfig(),
        IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
        IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    )
    layer = draw.choice(("0", None))
    if not sound:
        quantize_(
            model,
            draw.choice(configs),
            lambda part, name: isinstance(part, nn.Linear) and layer in (name, None),
        )
    kind = None if sound else "lost-operator"
    x = torch.randn(draw.choice((1, 2)), width)
    return _made("storage", kind, model, (x,), xnnpack=True)


def resize(draw: random.Random, *, sound: bool) -> Planted:
    """A bilinear resize by a factor that is not the ratio of the sizes, in XNNPACK."""
    factor = draw.choice((2, 3)) if sound else draw.choice((1.3, 1.7, 2.4, 0.6))
    height, width = draw.choice((11, 13, 17)), draw.choice((9, 14, 19))

    def forward(self: Model, x: Any) -> Any:
        return self.conv(functional.interpolate(x, scale_factor=factor, mode="bilinear"))

    model = Model(forward, conv=nn.Conv2d(3, 4, 3))
    kind = None if sound else "different-operator"
    return _made("resize", kind, model, (torch.randn(1, 3, height, width),), xnnpack=True)


def weights(draw: random.Random, *, sound: bool) -> Planted:
    """A program with the record of the same model, trained further."""
    width = draw.choice((4, 8, 16))
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))
    x, xnnpack = (torch.randn(1, width),), draw.random() < 0.5
    before = _exported(model, x, xnnpack)
    if not sound:
        with torch.no_grad():
            draw.choice(list(model.parameters())).mul_(1.01)
    after = _exported(model, x, xnnpack)
    found = Export(after.program, before.record)
    return Planted("weights", None if sound else "other-weights", found, None)


def _exported(model: nn.Module, inputs: tuple[Any, ...], xnnpack: bool) -> Export:
    """Export with etscope: its record holds the program."""
    from etscope.export import export as etscope_export

    made = etscope_export(model.eval(), inputs, backend="xnnpack" if xnnpack else "portable")
    file = BytesIO()
    made.record.save(file)
    return Export(read_pte(made.program_bytes()), read_etrecord(file.getvalue()))


FAMILIES = (branches, plan, start, shared, layout, storage, resize, weights)


def planted_programs(seeds: range) -> Iterator[tuple[Planted, Planted]]:
    """Yield a program with a fault and a sound one for each seed; families take turns."""
    for seed in seeds:
        family = FAMILIES[seed % len(FAMILIES)]
        pair = []
        for sound in (False, True):
            torch.manual_seed(seed)
            pair.append(family(random.Random(seed), sound=sound))
        yield pair[0], pair[1]
