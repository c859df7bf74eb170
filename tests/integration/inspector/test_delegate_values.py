"""Values that QNN and Core ML log inside of their calls, compared with the reference."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etscope import Inspector
from etscope.analysis.numerics.rows import WRONG, Numerics
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


MODELS: dict[str, tuple[type[torch.nn.Module], tuple[int, ...]]] = {
    "convolutions": (Convolutions, (1, 3, 8, 8)),
    "attention": (Attention, (1, 6, 16)),
    "sequences": (Sequences, (1, 8, 8)),
    "mobile": (Mobile, (1, 3, 16, 16)),
}
LOWERED = {
    "convolutions in QNN, 8 bits": ("convolutions", "use_8a8w"),
    "convolutions in QNN": ("convolutions", None),
    "attention in QNN, 16 bits": ("attention", "use_16a8w"),
    "sequences in QNN, 8 bits": ("sequences", "use_8a8w"),
    "mobile in QNN, 8 bits": ("mobile", "use_8a8w"),
    "convolutions in Core ML": ("convolutions", "Core ML"),
    "attention in Core ML": ("attention", "Core ML"),
    "mobile in Core ML": ("mobile", "Core ML"),
    "sequences in Core ML": ("sequences", "Core ML"),
}
_MADE: dict[str, LoweredModel] = {}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def lowered(name: str, keep: tuple[str, ...] = ()) -> LoweredModel:
    key = f"{name} without {keep}"
    if key not in _MADE:
        kind, target = LOWERED[name]
        torch.manual_seed(1)
        model, shape = MODELS[kind]
        inputs = (torch.randn(*shape),)
        if target == "Core ML":
            _MADE[key] = lower_to_coreml(model().eval(), inputs, keep=keep)
        else:
            _MADE[key] = lower_to_qnn(model().eval(), inputs, quantize=target, keep=keep)
    return _MADE[key]


def opened(folder: Path) -> Inspector:
    return Inspector(
        str(folder / "run.etdp"),
        etrecord=str(folder / "model.etrecord"),
        debug_buffer_path=str(folder / "debug.bin"),
    )


def diagnosed(model: LoweredModel, folder: Path, **run: Any) -> Numerics:
    model.save(folder)
    model.run(folder, **run)
    return opened(folder).diagnose_numerics()


def inner(found: Numerics) -> list[str]:
    """The nodes whose values were logged inside of calls."""
    return [row.pair.node for row in found.rows if row.pair.delegate_id is not None]


def lost(found: Numerics) -> dict[str, str]:
    """The reasons of values that were not compared, by their identifiers."""
    return {row.op: row.reason for row in found.coverage.outputs}


@pytest.mark.parametrize("name", LOWERED)
def test_sound_values_are_fine(name: str, tmp_path: Path) -> None:
    model = lowered(name)
    found = diagnosed(model, tmp_path)
    assert len(inner(found)) >= 6
    assert [row.pair.node for row in found.wrong] == []
    assert all(row.total is not None and row.total > 20 for row in found.rows)
    border = diagnosed(model, tmp_path, inner=False)
    assert border.rows and not border.wrong


def by_half(args: Any, value: torch.Tensor) -> torch.Tensor:
    return value * 1.5


def rolled(args: Any, value: torch.Tensor) -> torch.Tensor:
    return value.reshape(-1).roll(1).reshape(value.shape)


@pytest.mark.parametrize("name", LOWERED)
@pytest.mark.parametrize("fault", [by_half, rolled])
def test_a_fault_inside_is_named_at_its_node(name: str, fault: Fault, tmp_path: Path) -> None:
    model = lowered(name)
    nodes = list(dict.fromkeys(inner(diagnosed(model, tmp_path))))
    tried = [node for node in nodes if "argmax" not in node][:: max(len(nodes) // 3, 1)]
    assert len(tried) >= 3
    for node in tried:
        found = diagnosed(model, tmp_path, faults={node: fault})
        assert {row.pair.node for row in found.wrong} == {node}


@pytest.mark.parametrize("name", ["attention in QNN, 16 bits", "attention in Core ML"])
def test_a_transposed_weight_is_told(name: str, tmp_path: Path) -> None:
    def transposed(args: Any, value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(args[0], args[1].mT, *args[2:])

    found = diagnosed(lowered(name), tmp_path, faults={"aten_linear_default_1": transposed})
    assert {row.pair.node for row in found.wrong} == {"aten_linear_default_1"}
    assert found.first is not None and found.first.module in ("q", "k", "v")
    assert "transposed" in found.what_it_is


@pytest.mark.parametrize("name", ["convolutions in QNN", "attention in Core ML"])
def test_a_fault_is_named_at_the_border_without_inner_values(name: str, tmp_path: Path) -> None:
    model = lowered(name)
    node = inner(diagnosed(model, tmp_path))[1]
    found = diagnosed(model, tmp_path, faults={node: by_half}, inner=False)
    (row,) = found.rows
    assert row.verdict == WRONG and row.is_delegate
    assert node in row.nodes and len(row.lines) > 1


@pytest.mark.parametrize("in_halves", [False, True])
def test_vulkans_calls_are_compared_at_their_border(in_halves: bool, tmp_path: Path) -> None:
    torch.manual_seed(1)
    inputs = (torch.randn(1, 3, 8, 8),)
    model = lower_to_vulkan(Convolutions().eval(), inputs, in_halves=in_halves)
    found = diagnosed(model, tmp_path)
    assert [row.verdict for row in found.rows if row.is_delegate] == ["fine", "fine"]
    found = diagnosed(model, tmp_path, faults={"aten_relu_default": by_half})
    assert found.first is not None and found.first.is_delegate
    assert "aten_relu_default" in found.first.nodes


def test_several_calls_with_a_kernel_between_them(tmp_path: Path) -> None:
    model = lowered("convolutions in QNN, 8 bits", ("aten.mean.dim",))
    found = diagnosed(model, tmp_path)
    assert {row.pair.instruction for row in found.rows} == {0, 1, 2}
    assert len(inner(found)) >= 7 and not found.wrong
    found = diagnosed(model, tmp_path, faults={"aten_linear_default": by_half})
    assert {row.pair.node for row in found.wrong} == {"aten_linear_default"}


def test_the_graph_after_qnns_passes_is_the_reference(tmp_path: Path) -> None:
    """Its passes number debug handles anew: those of the edge program are other nodes."""
    model = lowered("convolutions in QNN, 8 bits")
    found = diagnosed(model, tmp_path)
    assert found.reference == "edge_after_transform/forward"
    handles = model.record._delegate_map["forward"][0]["delegate_map"]
    named = {row.event: row.pair.node for row in found.rows if row.pair.delegate_id is not None}
    assert set(named) <= set(handles)
    assert all(name == f"{node}@0" for name, node in named.items())


def test_the_gap_is_that_of_upstreams_comparator(tmp_path: Path) -> None:
    """Dequantised by `quant_attrs` and in the order of `axis_order`, which upstream has of the
    program in memory (backends/qualcomm/debugger/qcom_numerical_comparator_base.py)."""
    model = lowered("convolutions in QNN, 8 bits")
    model.save(tmp_path)
    model.run(tmp_path)
    logged = dict(model.logged)
    program = model.record.graph_map["edge_after_transform/forward"]
    gaps = opened(tmp_path).calculate_numeric_gap(
        "MSE", reference_graph="edge_after_transform", disable_debug_handle_valdiation=True
    )
    seen = 0
    for node in program.graph_module.graph.nodes:
        attrs, name = node.meta.get("quant_attrs"), f"{node.name}@0"
        rows = [row for _, row in gaps.iterrows() if row.runtime_ops == [name]]
        if not attrs or name not in logged or not rows:
            continue
        value = (torch.from_numpy(logged[name]).float() - attrs["zero_point"]) * attrs["scale"]
        if node.meta.get("axis_order") and value.dim() > 2:
            value = value.permute(0, value.dim() - 1, *range(1, value.dim() - 1))
        expected, mine = rows[0].aot_intermediate_output, rows[0].runtime_intermediate_output
        torch.testing.assert_close(mine, value)
        assert rows[0].aot_ops == [node.name]
        assert rows[0].gap[0] == pytest.approx(float((expected - value).square().mean()), rel=1e-4)
        seen += 1
    assert seen >= 7


# -- what cannot be brought to the reference


def renamed(logged: list[Logged]) -> list[Logged]:
    return [(f"{name}x", array) for name, array in logged]


def of_another_type(logged: list[Logged]) -> list[Logged]:
    """As of a type that the runtime has no name for."""
    return [(name, array.astype(np.float32).view(np.uint8)[..., ::4]) for name, array in logged]


def cut(logged: list[Logged]) -> list[Logged]:
    return [(name, array.reshape(-1)[:-1]) for name, array in logged]


@pytest.mark.parametrize("name", ["convolutions in QNN", "convolutions in Core ML"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (renamed, "the delegate's map does not have it"),
        (of_another_type, "logged as uint8"),
        (cut, "in the reference"),
    ],
)
def test_what_does_not_fit_is_left_out_with_a_reason(
    name: str, change: Callable[[list[Logged]], list[Logged]], reason: str, tmp_path: Path
) -> None:
    model = lowered(name)
    found = diagnosed(model, tmp_path, change=change)
    assert inner(found) == [] and not found.wrong
    assert len(found.rows) == 1  # the call's output
    told = lost(found)
    assert len(told) == len(model.logged)
    assert sum(reason in one for one in told.values()) >= 7


def test_the_map_of_another_program_is_no_wrong_number(tmp_path: Path) -> None:
    model = lowered("convolutions in QNN")
    other = lowered("sequences in QNN, 8 bits")
    model.save(tmp_path)
    strange = replace(model, record=model.record)
    table = model.record._delegate_map["forward"][0]
    kept = dict(table["delegate_map"])
    try:
        table["delegate_map"] = {
            name: other.record._delegate_map["forward"][0]["delegate_map"].get(name, (9999,))
            for name in kept
        }
        found = diagnosed(strange, tmp_path)
    finally:
        table["delegate_map"] = kept
    reasons = lost(found)
    assert any("no node of the reference has its debug handles" in one for one in reasons.values())


def test_codes_without_a_scale_are_not_compared(tmp_path: Path) -> None:
    """A record that lost the graph from before the passes does not say the scales."""
    model = lowered("convolutions in QNN, 8 bits")
    model.save(tmp_path)
    model.run(tmp_path)
    from etscope.analysis.matching.codes import codes_of_graph
    from etscope.analysis.profile.correlate import method_symbols
    from etscope.formats.etrecord.reader import read_etrecord

    symbols = method_symbols(read_etrecord(str(tmp_path / "model.etrecord")), "forward")
    assert symbols.graph is not None and symbols.before_passes is not None
    assert len(codes_of_graph(symbols.graph, symbols.before_passes).values) >= 8
    alone = codes_of_graph(symbols.graph, None).values
    assert not any("convolution" in value.path for value in alone)
