"""Intermediate values as further outputs of an export, on the runtime and in the tools."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from etscope.errors import EtscopeWarning, FormatError, MissingDataError, UsageError
from etscope.etrecord import parse_etrecord
from etscope.export import Exported, export
from etscope.formats.etrecord.reader import TAPS, read_etrecord
from etscope.run import run
from tests.support.etrecord_files import members_of, old_record, zip_bytes


class Net(nn.Module):
    """Two convolutions, of which the first is written to by a relu, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu_(self.first(x))
        y = torch.sigmoid(y + self.second(y))  # the line of add
        y = nn.functional.dropout(y, 0.5, self.training)
        result: torch.Tensor = self.head(y.mean((2, 3)))
        return result


class Several(nn.Module):
    """Nodes with several values; a value that is an output anyway."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, _ = torch.topk(x, 2)
        low, high = torch.split(x * 2, 1, dim=-2)
        return values + 1, low + high


class Branches(nn.Module):
    """A branch with an operator that is nowhere else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def up(y: torch.Tensor) -> torch.Tensor:
            return y.exp() + 1

        def down(y: torch.Tensor) -> torch.Tensor:
            return y - 1

        found: torch.Tensor = torch.cond(x.sum() > 0, up, down, [x]) + 2
        return found


class Counting(nn.Module):
    """State that is written to twice."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        y = self.total * 2
        self.total.mul_(0.5)
        return y + 1


IMAGE = (torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8),)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="executorch")
        yield


def exported(model: nn.Module, inputs: Any, **options: Any) -> Exported:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return export(model.eval(), inputs, **options)


def ran(what: Exported, method: str = "forward") -> Any:
    return run(
        what.record,
        list(what.example_inputs[method]),
        method=method,
        debug_level="intermediate_outputs",
        isolate=False,
        separate=False,
        iterations=1,
        warmup=0,
    )


@pytest.mark.parametrize(
    ("backend", "quantize"),
    [
        ("xnnpack", False),
        pytest.param("portable", False, marks=pytest.mark.nightly),
        pytest.param("xnnpack", True, marks=pytest.mark.nightly),
    ],
)
def test_taps_are_outputs_with_the_values_of_pytorch(backend: str, quantize: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EtscopeWarning)
        what = exported(Net(), IMAGE, backend=backend, quantize=quantize, taps="op:*")
    taps = what.record.taps["forward"]
    expected = what.reference_outputs["forward"]
    assert taps.own_outputs == 1
    assert max(tap.output for tap in taps.taps) == len(expected) - 1
    with ran(what) as done:
        assert len(done.outputs) == 1
        assert list(done.taps) == [tap.name for tap in taps.taps]
        for tap in taps.taps:
            actual = done.taps[tap.name].numpy()
            step = np.ptp(actual) / 100 if quantize else 1e-5  # int8 has 256 steps
            np.testing.assert_allclose(actual, expected[tap.output].numpy(), atol=step)
        assert {"second", "head", ""} <= {tap.module for tap in taps.taps}
        assert all(tap.handle is not None for tap in taps.taps)


@pytest.fixture(scope="module")
def tapped() -> Exported:
    return exported(Net(), IMAGE, taps=["op:conv2d", "add"])


def test_a_value_that_is_written_to_is_tapped_as_it_was(tapped: Exported) -> None:
    tap, second, add = tapped.record.taps["forward"].taps
    assert (tap.module, second.module, add.name) == ("first", "second", "add")
    model = Net()
    model.load_state_dict(tapped.record.exported_program.state_dict)
    before = model.first(*IMAGE).detach().numpy()
    assert (before < 0).any()
    with ran(tapped) as done:
        np.testing.assert_allclose(done.taps[tap.name].numpy(), before, atol=1e-5)


def test_taps_narrow_down_a_delegate() -> None:
    tapped = exported(Net(), IMAGE, backend="xnnpack", taps=["op:conv2d", "add"])
    with ran(tapped) as done:
        found = done.numerics()
        assert found.is_fine, found.verdict
        inside = {row.op: row for row in found.rows if row.pair.instruction == 0}
        assert inside["aten.add.Tensor"].nodes == ("aten_relu_default", "aten_add_tensor")
        assert "the line of add" in inside["aten.add.Tensor"].lines[-1].text
        assert [row.nodes[-1] for row in found.rows if row.op == "aten.convolution.default"] == [
            "aten_convolution_default",
            "aten_convolution_default_1",
        ]


def test_taps_of_a_quantized_delegate_are_compared() -> None:
    with pytest.warns(EtscopeWarning, match="conv2d has no separate value in int8: .* relu_"):
        what = exported(Net(), IMAGE, backend="xnnpack", quantize=True, taps=["op:conv2d", "add"])
    taps = what.record.taps["forward"].taps
    assert [tap.op.partition(".default")[0] for tap in taps] == [
        "aten.relu",
        "aten.conv2d",
        "aten.add.Tensor",
    ]
    assert all(tap.value.startswith("dequantize") for tap in taps)
    with ran(what) as done:
        found = done.numerics()
        assert found.is_fine, found.verdict
        assert not found.coverage.outputs  # not compared


def test_the_record_is_upstreams_and_keeps_the_taps(tapped: Exported, tmp_path: Path) -> None:
    from executorch.devtools import parse_etrecord as upstreams

    what = tapped
    what.record.save(tmp_path / "record")
    assert TAPS in members_of(tmp_path / "record")
    assert upstreams(str(tmp_path / "record"))._reference_outputs is not None
    assert read_etrecord(tmp_path / "record").taps == what.record.taps
    again = parse_etrecord(tmp_path / "record")
    again.save(tmp_path / "again")
    assert read_etrecord(tmp_path / "again").taps == what.record.taps
    tap = what.record.taps["forward"].taps[-1]
    assert tap.source is not None
    line = int(tap.source.rpartition(":")[2])
    assert "the line of add" in Path(__file__).read_text().splitlines()[line - 1]


def test_a_bundle_expects_the_taps(tapped: Exported, tmp_path: Path) -> None:
    paths = tapped.save(tmp_path)
    with run(str(paths[2]), isolate=False, trace=False, etrecord=str(paths[1])) as done:
        assert done.verify().passed
        assert len(done.outputs) == 1
        assert len(done.verify().cases[0].checks) == 4
    with run(str(paths[2]), isolate=False, trace=False) as done:  # nothing tells what is a tap
        assert len(done.outputs) == 4
        assert done.taps == {}


def test_nodes_with_several_values_and_outputs_that_are_outputs_anyway() -> None:
    what = exported(Several(), (torch.randn(3, 2, 5),), taps="op:*")
    taps = {tap.name: tap.output for tap in what.record.taps["forward"].taps}
    assert {"topk[0]", "topk[1]", "split[0]", "split[1]", "mul"} <= set(taps)
    assert (taps["add"], taps["add_1"]) == (0, 1)
    assert len(what.reference_outputs["forward"]) == 2 + len(taps) - 2
    with ran(what) as done:
        torch.testing.assert_close(done.taps["add_1"], done.outputs[1])


@pytest.mark.parametrize(
    "backend", ["portable", pytest.param("xnnpack", marks=pytest.mark.nightly)]
)
def test_state_is_tapped_between_writes(backend: str) -> None:
    inputs = (torch.tensor([1.0, 2.0, 3.0, 4.0]),)
    what = exported(Counting(), inputs, backend=backend, taps="op:*")
    with ran(what) as done:
        torch.testing.assert_close(done.taps["add"], inputs[0])
        torch.testing.assert_close(done.taps["mul_1"], inputs[0] / 2)
        torch.testing.assert_close(done.outputs[0], inputs[0] * 2 + 1)


def test_dynamic_shapes_and_several_methods() -> None:
    size = torch.export.Dim("batch", min=1, max=6)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    what = exported(
        model, (torch.randn(3, 4),), dynamic_shapes=({0: size},), backend="xnnpack", taps="linear"
    )
    with run(what.record, [torch.ones(5, 4)], isolate=False, trace=False) as done:
        torch.testing.assert_close(done.taps["linear"], model[0](torch.ones(5, 4)).detach())
    programs = {
        name: torch.export.export(nn.Sequential(layer), (torch.ones(1, 4),), strict=True)
        for name, layer in (("encode", nn.GELU()), ("decode", nn.Sequential(nn.ReLU(), nn.Tanh())))
    }
    several = export(programs, taps="relu")
    assert list(several.record.taps) == ["decode"]
    with ran(several, "decode") as done:
        assert list(done.taps) == ["relu"]
    with ran(several, "encode") as done:
        assert (len(done.outputs), done.taps) == (1, {})


def test_what_cannot_be_tapped_is_said() -> None:
    with pytest.raises(MissingDataError, match="picks no node") as near:
        exported(Net(), IMAGE, taps="op:conv3d")
    assert "aten.conv2d.default" in str(near.value.hint)
    with pytest.raises(UsageError, match="column 4"):
        exported(Net(), IMAGE, taps="op:")
    inputs = (torch.ones(3),)
    with pytest.raises(UsageError, match=r"inside of control flow \(exp\)"):
        exported(Branches(), inputs, taps="op:exp")
    with pytest.warns(EtscopeWarning, match="inside of control flow"):
        what = exported(Branches(), inputs, taps="op:add")
    assert len(what.record.taps["forward"].taps) == 1


def test_a_damaged_list_of_taps_is_refused() -> None:
    damaged = {TAPS: b'{"version": 1, "methods": {"forward": {"taps": [{"node": 1}]}}}'}
    record = read_etrecord(zip_bytes({**members_of(old_record("1.4.1")), **damaged}))
    with pytest.raises(FormatError, match="taps_constants"):
        _ = record.taps


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from etscope.cli import main
    from tests.support.export import factories

    model = f"{factories.__file__}:pair"
    folder = str(tmp_path / "out")
    assert main(["export", model, "-X", "taps=op:linear", "-X", "taps=relu", "-o", folder]) == 0
    taps = read_etrecord(tmp_path / "out" / "model.etrecord").taps["forward"]
    assert [(tap.name, tap.output) for tap in taps.taps] == [("linear", 1), ("relu", 0)]
    capfd.readouterr()
    assert main(["export", model, "-X", "taps=linaer", "-o", folder]) == 4
    assert "near it are: linear" in capfd.readouterr().err


def test_layers_that_quantize_their_inputs_are_tapped_as_a_whole() -> None:
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_
    from torchao.utils import unwrap_tensor_subclass

    model, example = nn.Sequential(nn.Linear(64, 32), nn.ReLU()).eval(), (torch.randn(4, 64),)
    group = PerGroup(32)
    config = Int8DynamicActivationIntxWeightConfig(torch.int4, weight_granularity=group)
    quantize_(model, config)
    for made in (model, unwrap_tensor_subclass(model)):
        program = torch.export.export(made, example)
        tapped = export(program, example, backend="xnnpack", taps="op:*")
        assert [tap.op for tap in tapped.record.taps["forward"].taps] == [
            "aten.linear.default",
            "aten.relu.default",
        ]
    with pytest.raises(UsageError, match="only nodes without a separate value"):
        export(program, example, backend="xnnpack", taps="op:*quantize_affine*")
