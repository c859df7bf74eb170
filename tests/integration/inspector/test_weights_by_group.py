"""Weights of 4 bits with a scale for each group: what XNNPACK rounds by design is not an error, and
another scale is one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from torch import nn  # noqa: E402

from etscope import Inspector  # noqa: E402
from etscope.analysis.numerics.rows import Numerics  # noqa: E402
from etscope.errors import EtscopeWarning, FormatError  # noqa: E402
from etscope.export import Exported, export  # noqa: E402
from etscope.run import run  # noqa: E402

INPUTS = (torch.randn(6, 64, generator=torch.Generator().manual_seed(1)),)


class Gated(nn.Module):
    """The feed-forward part of a language model, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 128, bias=False)
        self.down = nn.Linear(128, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x + self.down(nn.functional.silu(self.up(self.norm(x))))
        return x


def exported(*, swapped: bool = False, group: int = 32, unwrapped: bool = True) -> Exported:
    """The model with weights of 4 bits and a scale for each `group` of them; `swapped`: two of the
    scales of `down` have changed places; `unwrapped`: the weights are plain tensors, not torchao's
    own."""
    torch.manual_seed(0)
    model = with_4_bits(Gated().eval(), group)
    if unwrapped:
        model = plain(model)
    if swapped:
        (scales,) = (
            value
            for name, value in model.down.named_parameters()
            if value.is_floating_point() and value.shape == (64, 4)
        )
        with torch.no_grad():
            scales[5] = scales[5].flip(0)
    return export(model, INPUTS, backend="xnnpack")


def with_4_bits(model: Any, group: int) -> Any:
    """The model, whose layers get weights of 4 bits and quantise their inputs as they run."""
    from torchao.quantization import quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig

    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(group)
    )
    quantize_(model, config)
    return model


def plain(model: Any) -> Any:
    """The model with plain tensors as weights."""
    from torchao.utils import unwrap_tensor_subclass

    return unwrap_tensor_subclass(model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of the sound model, and runs of it and of the other one; and of a model some of
    whose groups are whole rows."""
    place = tmp_path_factory.mktemp("weights_by_group")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made_of = {"sound": {}, "swapped": {"swapped": True}, "rows": {"group": 64}}
        for name, options in made_of.items():
            made = exported(**options)
            made.save(place, name)
            with run(
                made.program,
                INPUTS,
                debug_level="intermediate_outputs",
                separate=False,
                isolate=False,
                runner="python",
            ) as done:
                done.save(place / name)
    return place


def numerics(folder: Path, ran: str, of: str = "sound") -> Numerics:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inspector = Inspector(
            etdump_path=folder / ran / "run.etdp",
            debug_buffer_path=folder / ran / "debug.bin",
            etrecord=folder / f"{of}.etrecord",
        )
        return inspector.diagnose_numerics(inputs=INPUTS)


@pytest.mark.parametrize("name", ["sound", "rows"])
def test_scales_that_the_backend_rounds_are_no_error(folder: Path, name: str) -> None:
    found = numerics(folder, name, of=name)
    assert found.is_fine
    delegates = [row for row in found.rows if row.is_delegate]
    assert delegates
    for row in delegates:
        assert row.verdict == "by design"
        assert row.total is not None
        assert row.local is not None
        assert row.total < 70 < 100 < row.local, "decibels: the scales are rounded to 8 bits"
    assert any("bfloat16" in note for note in found.notes)


def test_a_scale_that_is_another_is_one(folder: Path) -> None:
    found = numerics(folder, "swapped")
    assert found.first is not None
    assert found.first is next(row for row in found.rows if row.is_delegate)
    assert found.first.local is not None
    assert found.first.local < 60
    (part,) = {row.verdict for row in found.rows if row.is_delegate}
    assert part == "wrong"


def test_zero_points_between_two_steps_are_no_error() -> None:
    """Rows whose largest and least numbers differ by some last places: XNNPACK's zero point is the
    step on either side."""
    torch.manual_seed(0)
    rows = torch.rand(400, 64) * 2 - 1
    largest = torch.rand(400) + 1
    rows[:, 3] = -largest
    rows[:, 9] = largest * (1 + (torch.arange(400) % 21 - 10) * 2.0**-23)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = export(plain(with_4_bits(nn.Linear(64, 32).eval(), 32)), (rows,), backend="xnnpack")
        with run(made.program, (rows,), debug_level="intermediate_outputs", separate=False) as done:
            inspector = done.inspector(etrecord=made.record)
            found = inspector.diagnose_numerics(inputs=(rows,))
    assert found.is_fine
    assert [row.verdict for row in found.rows] == ["fine"]


def test_weights_of_a_tensor_subclass_are_compared_in_the_edge_program(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = exported(unwrapped=False)
        made.save(tmp_path, "model")
        with run(made.program, INPUTS, debug_level="intermediate_outputs", separate=False) as done:
            done.save(tmp_path / "ran")
    inspector = Inspector(
        etdump_path=tmp_path / "ran" / "run.etdp",
        debug_buffer_path=tmp_path / "ran" / "debug.bin",
        etrecord=tmp_path / "model.etrecord",
    )
    with pytest.warns(EtscopeWarning, match="with the edge program and not the exported one"):
        gap = inspector.calculate_numeric_gap("MSE")
    assert len(gap) > 5
    with pytest.raises(FormatError, match="of a subclass of torch's tensors"):
        inspector.diagnose_numerics(reference_graph="exported_program", inputs=INPUTS)
