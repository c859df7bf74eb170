"""Values that QNN and Core ML log inside of their calls, of sound runs and of runs with a fault."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from etscope import Inspector
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.delegate_values import (
    Fault,
    Logged,
    LoweredModel,
    lower_to_coreml,
    lower_to_qnn,
    lower_to_vulkan,
)


class Convolutions(torch.nn.Module):
    """As many channels as rows and columns: shapes alone do not tell their order."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.b = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.c = torch.nn.Conv2d(8, 6, 3, stride=2)
        self.head = torch.nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.a(x))
        x = torch.sigmoid(self.c(x + self.b(x)))
        return self.head(x.mean((2, 3)))


class Attention(torch.nn.Module):
    """A norm of several values, and operands that are quantised anew for one reader."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(16, 16) for _ in range(3))
        self.norm = torch.nn.LayerNorm(16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        weights = torch.softmax(self.q(h) @ self.k(h).transpose(-1, -2) / 4.0, -1)
        x = x + weights @ self.v(h)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Sequences(torch.nn.Module):
    """Dimensions that QNN's passes add and remove, and a result that is int64."""

    def __init__(self) -> None:
        super().__init__()
        self.c, self.d = torch.nn.Conv1d(8, 8, 3, padding=1), torch.nn.Conv1d(8, 4, 3, padding=1)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.d(torch.relu(self.c(x)))
        return self.head(y).permute(0, 2, 1), y.argmax(1)


class Mobile(torch.nn.Module):
    """A batch norm that is folded, a pool, a concatenation and a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(16)
        self.depth = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.point = torch.nn.Conv2d(16, 24, 1)
        self.pool = torch.nn.AdaptiveAvgPool2d(1)
        self.head = torch.nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.hardswish(self.norm(self.stem(x)))
        x = torch.nn.functional.relu6(self.depth(x))
        x = torch.nn.functional.max_pool2d(self.point(x), 2, 2)
        x = torch.cat([x, x * 0.5], 1)[:, 8:32]
        return torch.softmax(self.head(torch.flatten(self.pool(x), 1)), -1)


IMAGE, SENTENCE, SERIES = (1, 3, 8, 8), (1, 6, 16), (1, 8, 8)
# The model, the shape of its input, and what quantises it for QNN.
LOWERED: dict[str, tuple[type[torch.nn.Module], tuple[int, ...], str | None]] = {
    "values_convolutions_qnn_8": (Convolutions, IMAGE, "use_8a8w"),
    "values_convolutions_qnn": (Convolutions, IMAGE, None),
    "values_attention_qnn_16": (Attention, SENTENCE, "use_16a8w"),
    "values_sequences_qnn_8": (Sequences, SERIES, "use_8a8w"),
    "values_mobile_qnn_8": (Mobile, (1, 3, 16, 16), "use_8a8w"),
    "values_convolutions_coreml": (Convolutions, IMAGE, None),
    "values_attention_coreml": (Attention, SENTENCE, None),
    "values_mobile_coreml": (Mobile, (1, 3, 16, 16), None),
    "values_sequences_coreml": (Sequences, SERIES, None),
    "values_kept_qnn_8": (Convolutions, IMAGE, "use_8a8w"),
    "values_vulkan": (Convolutions, IMAGE, None),
    "values_vulkan_halves": (Convolutions, IMAGE, None),
}


def by_half(args: Any, value: torch.Tensor) -> torch.Tensor:
    """As a fault: half as much again."""
    return value * 1.5


def rolled(args: Any, value: torch.Tensor) -> torch.Tensor:
    """As a fault: each number in the place of the one after it."""
    return value.reshape(-1).roll(1).reshape(value.shape)


def transposed(args: Any, value: torch.Tensor) -> torch.Tensor:
    """As a fault: a linear layer with its weight transposed."""
    return torch.nn.functional.linear(args[0], args[1].mT, *args[2:])


def renamed(logged: list[Logged]) -> list[Logged]:
    """Under names that the delegate's map does not have."""
    return [(f"{name}x", array) for name, array in logged]


def of_another_type(logged: list[Logged]) -> list[Logged]:
    """As of a type that the runtime has no name for."""
    return [(name, array.astype(np.float32).view(np.uint8)[..., ::4]) for name, array in logged]


def cut(logged: list[Logged]) -> list[Logged]:
    """Without the last number."""
    return [(name, array.reshape(-1)[:-1]) for name, array in logged]


def make(bench: Workbench, name: str) -> None:
    """Keep a sound run, one that logged no inner values, and runs with faults: "faults" notes the
    node of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = lowered(name)
        bench.notes.update(seed=1, file="delegate_values.py", faults={})
        model.save(bench.folder)
        keep(bench, model, "border", inner=False)
        keep(bench, model, "sound")
        bench.notes["logged"] = [name for name, _ in model.logged]
        if name == "values_convolutions_qnn_8":
            keep_as_upstream_has_them(bench, model)
        if name.startswith("values_vulkan"):
            faulty(bench, model, "aten_relu_default", by_half)
            return
        if name == "values_kept_qnn_8":
            faulty(bench, model, "aten_linear_default", by_half)
            return
        nodes = compared(bench)
        floats = [node for node in nodes if "argmax" not in node][:: max(len(nodes) // 3, 1)]
        for number, node in enumerate(floats):
            faulty(bench, model, node, (by_half, rolled)[number % 2])
        if name in ("values_attention_qnn_16", "values_attention_coreml"):
            keep(bench, model, "transposed", faults={"aten_linear_default_1": transposed})
        if name in ("values_convolutions_qnn", "values_attention_coreml"):
            keep(bench, model, "border-fault", faults={nodes[1]: by_half}, inner=False)
            bench.notes["border"] = nodes[1]
        if name in ("values_convolutions_qnn", "values_convolutions_coreml"):
            for change in (renamed, of_another_type, cut):
                keep(bench, model, change.__name__, change=change)
        if name == "values_convolutions_qnn":
            with_map_of_other(model, lowered("values_sequences_qnn_8"))
            model.record.save(str(bench.folder / "strange.etrecord"))


def lowered(name: str) -> LoweredModel:
    """Lower a model."""
    kind, shape, quantize = LOWERED[name]
    torch.manual_seed(1)
    model, inputs = kind().eval(), (torch.randn(*shape),)
    if "coreml" in name:
        return lower_to_coreml(model, inputs)
    if "vulkan" in name:
        return lower_to_vulkan(model, inputs, in_halves="halves" in name)
    keep_out = ("aten.mean.dim",) if "kept" in name else ()
    return lower_to_qnn(model, inputs, quantize=quantize, keep=keep_out)


def keep(bench: Workbench, model: LoweredModel, run: str, **options: Any) -> None:
    """Run a model and keep the dump and the values."""
    model.run(bench.folder, **options)
    for file, suffix in (("run.etdp", "etdp"), ("debug.bin", "bin")):
        (bench.folder / file).rename(bench.folder / f"{run}.{suffix}")


def faulty(bench: Workbench, model: LoweredModel, node: str, fault: Fault) -> None:
    """Keep a run with a fault."""
    run = f"{fault.__name__}-{node}"
    keep(bench, model, run, faults={node: fault})
    bench.notes["faults"][run] = node


def compared(bench: Workbench) -> list[str]:
    """The nodes that have values of the delegate's own."""
    inspector = Inspector(
        bench.folder / "sound.etdp",
        etrecord=bench.folder / "model.etrecord",
        debug_buffer_path=bench.folder / "sound.bin",
    )
    rows = inspector.diagnose_numerics().rows
    return list(dict.fromkeys(row.pair.node for row in rows if row.pair.delegate_id is not None))


def keep_as_upstream_has_them(bench: Workbench, model: LoweredModel) -> None:
    """Keep what the codes stand for by `quant_attrs`, in the order of `axis_order`: which upstream
    has of the program in memory (backends/qualcomm/debugger/qcom_numerical_comparator_base.py)."""
    logged: Mapping[str, Any] = dict(model.logged)
    bench.notes["map"] = list(model.record._delegate_map["forward"][0]["delegate_map"])
    values = {}
    for node in model.record.graph_map["edge_after_transform/forward"].graph_module.graph.nodes:
        attrs, name = node.meta.get("quant_attrs"), f"{node.name}@0"
        if attrs and name in logged:
            value = (torch.from_numpy(logged[name]).float() - attrs["zero_point"]) * attrs["scale"]
            if node.meta.get("axis_order") and value.dim() > 2:
                value = value.permute(0, value.dim() - 1, *range(1, value.dim() - 1))
            values[node.name] = value.numpy()
    np.savez(bench.folder / "upstream.npz", **values)


def with_map_of_other(model: LoweredModel, other: LoweredModel) -> None:
    """Give the names of the map the debug handles of another program."""
    table, strange = (one.record._delegate_map["forward"][0] for one in (model, other))
    table["delegate_map"] = {
        name: strange["delegate_map"].get(name, (9999,)) for name in table["delegate_map"]
    }
