"""Errors planted into one step of what is made of a model: each is told by step and line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.pass_base import ExportPass
from executorch.exir.program import _program
from torch import nn
from torch.export import ExportedProgram

from etscope.bridge import programs
from etscope.cli import main
from etscope.diagnosis.stages import NumericStages
from etscope.errors import NumericGapError
from etscope.run import run
from etscope.search.numerics import model_stages as isolated_stages
from tests.support.artifacts import artifacts
from tests.support.export.planted_backend import lowered_by
from tests.support.numeric_runs import inputs_of, inspector
from tests.support.stages.planted import (
    AssumesPositive,
    OneBlock,
    line_of,
    made,
    with_wrong_weights,
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def model_stages(model: Any, **options: Any) -> NumericStages:
    return isolated_stages(model, isolate=False, **options)


def _told(found: NumericStages) -> tuple[str | None, int | None]:
    """The step, and the line of its first operator."""
    row = found.first_wrong
    return found.enters_in, None if row is None else row.lines[0].line


def test_a_sound_model_is_fine_in_all_stages() -> None:
    found = model_stages(made())
    assert found.is_fine, found.notes
    assert [stage.name for stage in found.stages] == ["exported", "edge", "device"]
    assert all(stage.compared == stage.of for stage in found.stages)
    linear = [row for row in found.rows if row.op == "linear.default"]
    assert len(linear) == 3
    for row in linear:
        assert row.errors["exported"].local == found.metric.perfect
        assert (row.errors["device"].local or 0) > 100
    assert "no operator is wrong in export, lowering, kernel" in found.verdict
    table = found.table()
    assert table.values["exported"][0] == found.metric.perfect
    assert not any(table.values["wrong_in"])


def test_a_constant_that_the_export_bakes_in_is_of_the_export() -> None:
    """It shows in one of three samples: the worst counts."""
    model, (inputs,) = made(AssumesPositive)
    found = model_stages((model, (inputs,)), samples=[(inputs,), (inputs + 1,), (-inputs,)])
    assert found.enters_in == "export"
    assert found.first_wrong is not None
    assert found.first_wrong.module == "head"
    assert found.doubts[0] == "of each operator the worst of 3 samples"
    assert any("made a constant of a value" in doubt for doubt in found.doubts)
    assert sum(row.op == "linear.default" for row in found.rows) == 3


def test_a_range_that_is_too_small_is_of_the_quantization() -> None:
    model, inputs = made()
    found = model_stages(
        (model, inputs), backend="xnnpack", quantize=True, calibration=[(inputs[0] * 0.01,)]
    )
    assert [*found.wrong] == ["quantization"]
    assert [stage.name for stage in found.stages] == ["exported", "quantized", "edge", "device"]
    limits = {row.op: row.errors["quantized"].limit for row in found.rows}
    quantized = {"linear.default", "relu.default", "add.Tensor"}
    assert {op: limits[op] for op in quantized} == pytest.approx(dict.fromkeys(quantized, 20))
    # As of a run: where quantization costs most, and why the device is apart from the graph.
    (costly,) = (note for note in found.notes if note.startswith("quantization costs most at "))
    worst = min(row.errors["quantized"].local for row in found.rows if "quantized" in row.errors)
    assert f"{worst:.4g} dB" in costly.partition(";")[0]
    kept = [row for row in found.rows if not row.wrong_in(found.stages)]
    fine = replace(found, rows=tuple(kept)).verdict
    assert fine.startswith("no operator is wrong in ") and "; quantization costs most at " in fine
    rows = (replace(found.device.rows[0], verdict="by design"),)
    differs = replace(found, device=replace(found.device, rows=rows, designs=("it rounds",)))
    assert "1 value differs from the graph's by design: it rounds" in differs.notes
    assert (limits["softmax.int"] or 0) > 90  # which is left in float


def test_a_wrong_decomposition_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = _program._default_decomposition_table

    def table() -> Any:
        found = real()
        found[torch.ops.aten.gelu.default] = lambda x, approximate="none": x * torch.sigmoid(x)
        return found

    for module in (_program, programs):
        monkeypatch.setattr(module, "_default_decomposition_table", table)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)).eval()
    found = model_stages((model, (torch.randn(2, 8),)))
    assert found.enters_in == "decomposition"
    assert found.first_wrong is not None
    assert found.first_wrong.op == "gelu.default"


class _HalfTheSum(ExportPass):
    """A pass of a user that scales one operand of each addition."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op is exir_ops.edge.aten.add.Tensor:
            kwargs = {**kwargs, "alpha": 0.5}
        return super().call_operator(op, args, kwargs, meta)


def test_a_wrong_pass_is_of_the_lowering(tmp_path: Path) -> None:
    model, inputs = made()
    program = torch.export.export(model, inputs)
    edge = to_edge_transform_and_lower(
        program, transform_passes=[_HalfTheSum()], generate_etrecord=True
    )
    manager = edge.to_executorch()
    record = tmp_path / "model.etrecord"
    manager.get_etrecord().save(str(record))
    with run(
        manager.buffer,
        list(inputs),
        etrecord=str(record),
        debug_level="intermediate_outputs",
        isolate=False,
    ) as done:
        found = done.inspector().numeric_stages(inputs=inputs, model=model)
    assert _told(found) == ("lowering", line_of("return x + self.down(y)"))
    assert len(found.wrong["lowering"]) == 1
    assert [*found.wrong] == ["lowering"]


def test_a_wrong_kernel_is_narrowed_down_to_its_line() -> None:
    wrong = with_wrong_weights("blocks.0.down.weight")
    with lowered_by("xnnpack", wrong):
        found = model_stages(made(OneBlock), backend="xnnpack")
    assert found.enters_in == "kernel"
    narrowed = found.narrowed
    assert narrowed is not None
    assert [line.line for line in narrowed.lines] == [line_of("return x + self.down(y)")]
    assert (narrowed.module, narrowed.vanished) == ("blocks.0.down", False)
    assert (narrowed.exports, narrowed.runs) == (1, 1)
    assert "narrowed down: the delegate call" in found.notes[1]
    assert ", 1 export, 1 run)" in found.notes[1]


def test_a_fault_that_is_gone_with_many_taps_is_narrowed_down_by_few() -> None:
    def has_few_outputs(program: ExportedProgram) -> bool:
        return len(program.graph_signature.user_outputs) < 3

    wrong = with_wrong_weights("blocks.0.down.weight", has_few_outputs)
    with lowered_by("xnnpack", wrong):
        narrowed = model_stages(made(OneBlock), backend="xnnpack").narrowed
    assert narrowed is not None
    assert narrowed.vanished
    assert [line.line for line in narrowed.lines] == [line_of("return x + self.down(y)")]
    assert "the fault is gone" in narrowed.notes[1]


def test_stages_of_files_and_what_is_absent(capsys: pytest.CaptureFixture[str]) -> None:
    opened = inspector("cnn_xnnpack_int8")
    found = opened.numeric_stages(inputs=inputs_of("cnn_xnnpack_int8"))
    assert [stage.name for stage in found.stages] == ["edge", "device"]
    assert found.is_fine, found.notes
    assert "the eager model is not compared" in found.absent[0]
    assert "the record does not have the float model" in found.absent[1]
    with pytest.raises(NumericGapError, match="the model fails in PyTorch"):
        opened.numeric_stages(inputs=inputs_of("cnn_xnnpack_int8"), model=nn.Linear(3, 3))
    made = artifacts("cnn_xnnpack_int8")
    files = [made.etdump, made.etrecord, made.debug_buffer, "--inputs", made.inputs]
    assert main(["numerics", *map(str, files), "--stages", "--narrow"]) == 0
    assert "not narrowed down: no delegate call is wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.py:make", "--run", "0"], "a MODEL and --run exclude each other"),
        (["run.etdp", "--quantize"], "--quantize applies to an export, but RUN is a finished run"),
        (["run.etdp", "-X", "model=model.py:make"], "add --stages"),
        (["run.etdp", "--stages", "--coverage"], "--stages and --coverage exclude each other"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["numerics", *arguments]) == 2
    assert message in capsys.readouterr().err
