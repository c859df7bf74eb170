"""What `etscope export --profile` tells of an export."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir.passes.scalar_to_tensor_pass import ScalarToTensorPass
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase

from etscope.cli import main
from etscope.errors import ExportFailure
from etscope.export import export, profiling
from etscope.support.resident import Resident
from etscope.support.stages import Stages, stage, stage_at_work
from tests.support.artifacts import ROOT
from tests.support.export.factories import Tiny, pair

FACTORIES = str(ROOT / "tests/support/export/factories.py")
INPUTS = (torch.ones(1, 8),)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def rows_of(table: Any) -> dict[str, dict[str, Any]]:
    """The rows of a table by stage; of stages with one name, the last."""
    return {row[0]: dict(zip(table.names, row, strict=True)) for row in table.rows()}


def changed_by(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Let a pass of every export do something else, too."""
    call = ScalarToTensorPass.call

    def changed(self: Any, module: GraphModule) -> Any:
        change(module)
        return call(self, module)

    monkeypatch.setattr(ScalarToTensorPass, "call", changed)


def test_stages_passes_and_delegate_calls_have_rows() -> None:
    model, inputs = pair()
    with profiling() as profile:
        export(model, inputs, backend="xnnpack", quantize=True)
    rows = rows_of(profile.table())
    for name in (
        "outputs in PyTorch",
        "prepare_pt2e",
        "calibration",
        "convert_pt2e",
        "torch.export",
        "run_decompositions",
        "RemoveMixedTypeOperators",
        "partition by XnnpackPartitioner",
        "XnnpackBackend.preprocess 0",
        "FuseActivationPass",
        "SpecPropPass",
        "MemoryPlanningPass",
        "emit_program",
        "serialize_for_executorch",
    ):
        assert rows[name]["time"] > 0
        assert rows[name]["calls"] >= 1
    assert rows["FuseActivationPass"]["inside"].endswith(
        "delegate calls to XnnpackBackend > XnnpackBackend.preprocess 0"
    )
    whole = rows["export"]
    assert whole["share"] == 1
    assert sum(row["own_time"] for row in rows.values()) <= whole["time"] * 1.0001
    assert all(row["peak"] <= whole["peak"] for row in rows.values())
    assert stage_at_work() == ""
    assert PassBase.__call__.__module__ == "torch.fx.passes.infra.pass_base"  # as before


def test_what_takes_time_memory_and_nodes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(module: GraphModule) -> None:
        time.sleep(0.2)
        torch.ones(96 * MIB, dtype=torch.uint8).add_(1)
        output = module.graph.output_node()
        with module.graph.inserting_before(output):
            for _ in range(70):
                module.graph.call_function(torch.ops.aten.sym_size.int, (output.args[0][0], 0))

    changed_by(monkeypatch, grow)
    with profiling() as profile:
        export(Tiny().eval(), INPUTS, backend="portable")
    table = profile.table()
    row = rows_of(table)["ScalarToTensorPass"]
    assert 200 <= row["time"] < rows_of(table)["export"]["time"]
    assert row["added_nodes"] == 70
    assert "ScalarToTensorPass adds the most nodes: 70." in table.notes
    if profile.stages.resident.source is not None:
        assert row["peak"] > 96 * MIB
        assert row["raised"] > 48 * MIB
        assert any(
            n.startswith("ScalarToTensorPass raises the peak most: by ") for n in table.notes
        )
    short = profile.table(short=True)
    assert "ScalarToTensorPass" in short.values["stage"]
    assert len(short) < len(table)


def test_memory_that_is_freed_is_not_of_later_stages() -> None:
    stages = Stages("whole")
    if stages.resident.source is None or "mark" not in stages.resident.source:
        pytest.skip("the kernel has no high-water mark that can be set back")
    with stages.stage("large"):
        torch.ones(128 * MIB, dtype=torch.uint8)
    with stages.stage("small"):
        pass
    stages.end()
    large, small = stages.whole.inside["large"], stages.whole.inside["small"]
    assert large.peak - small.peak > 100 * MIB
    assert large.raised > 100 * MIB
    assert small.raised == 0
    assert stages.whole.peak == large.peak


def test_without_a_mark_the_peak_so_far_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise PermissionError

    monkeypatch.setattr(Resident, "_set_back", staticmethod(fail))
    stages = Stages("whole")
    assert "so far" in (stages.resident.source or "")
    with stages.stage("large"):
        pass
    stages.end()
    assert stages.whole.inside["large"].peak > 0


def test_a_stage_that_ends_with_an_error_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: GraphModule) -> None:
        raise ValueError("no")

    changed_by(monkeypatch, fail)
    with pytest.raises(ExportFailure), profiling() as profile:
        export(Tiny().eval(), INPUTS, backend="portable")
    assert profile.stopped is not None
    assert profile.stopped.startswith(
        "to_edge_transform_and_lower > edge dialect > ScalarToTensorPass, "
    )
    assert rows_of(profile.table())["ScalarToTensorPass"]["calls"] == 1


def test_a_caught_error_is_not_the_end() -> None:
    stages = Stages("whole")
    with pytest.raises(ValueError), stages.stage("tried"):
        raise ValueError
    with stages.stage("instead"):
        pass
    assert stages.stopped is None
    assert Stages.described(stages.at_work).startswith("whole, ")
    with stage("of no work that is profiled"):
        pass
    assert list(stages.whole.inside) == ["tried", "instead"]


def test_the_command(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["export", f"{FACTORIES}:pair", "--profile", "-o", "made"]) == 0
    out = capfd.readouterr().out
    assert "made/model.pte" in out
    assert "├ torch.export" in out
    assert "shorter stages are not shown." in out
    kept = json.loads((tmp_path / "made/model.profile.json").read_text("utf-8"))
    assert kept["schema"] == "etscope.table/1"

    assert main(["export", f"{FACTORIES}:pair", "--profile", "-o", "made", "-f", "json"]) == 0
    rows = json.loads(capfd.readouterr().out)["rows"]
    assert [row["stage"] for row in rows] == [row["stage"] for row in kept["rows"]]
    assert {"load the model", "save the ETRecord"} <= {row["stage"] for row in rows}


def test_ctrl_c_names_the_pass(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    def interrupt(module: GraphModule) -> None:
        seen.append(stage_at_work())
        raise KeyboardInterrupt

    changed_by(monkeypatch, interrupt)
    assert main(["export", f"{FACTORIES}:pair", "--profile", "-o", "made"]) == 130
    captured = capfd.readouterr()
    place = "to_edge_transform_and_lower > edge dialect > ScalarToTensorPass, "
    assert f"stopped in {place}" in captured.err
    assert "├ torch.export" in captured.out
    assert seen and seen[0].startswith(": ScalarToTensorPass, ")  # the progress bar shows it
    assert not (tmp_path / "made").exists()
