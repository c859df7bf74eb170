"""What partitioners took and refused, kept in the record, and shown by `graph --partition`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import parse_etrecord as parse_upstream
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import WhyNoPartitionReporter
from executorch.exir.dialects._ops import ops
from executorch.exir.graph_module import get_control_flow_submodules
from executorch.exir.pass_base import ExportPass
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupport

import etscope
from etscope.analysis.graphs.delegate_io import Borders
from etscope.analysis.graphs.partition import Partition, partition
from etscope.analysis.info.etrecord_info import slim_etrecord
from etscope.analysis.matching.export import Export
from etscope.cli import main
from etscope.export import Exported, export, keeping_partition
from etscope.formats.etrecord.reader import PARTITION, read_etrecord
from etscope.formats.program.pte import read_pte
from tests.support.artifacts import artifacts
from tests.support.export.partitioned import (
    Int8,
    Lowered,
    OracleCall,
    lowered,
    memory,
    text_block,
)

XNNPACK, VULKAN = "XnnpackBackend", "VulkanBackend"


class SineForSum(ExportPass):
    """A pass before the partitioners: its sine is not in the record's edge program."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op == ops.edge.aten.cumsum.default:
            op, args = ops.edge.aten.sin.default, args[:1]
        return super().call_operator(op, args, kwargs, meta)


@pytest.fixture(scope="module")
def xnnpack(tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    folder = tmp_path_factory.mktemp("xnnpack")
    return lowered(folder, {"forward": text_block()}, ["xnnpack"], passes=[SineForSum()])


@pytest.fixture(scope="module")
def updating(tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    return lowered(tmp_path_factory.mktemp("updating"), {"update": memory()}, ["xnnpack"])


def recorded(name: str) -> Lowered:
    """What the artefact has, whose oracle is ExecuTorch's lowered graph, too."""
    made = artifacts("partitioned")
    calls = {
        method: [OracleCall(backend, frozenset(nodes), *size) for backend, nodes, *size in found]
        for method, found in json.loads(made.extra(f"{name}.calls.json").read_text()).items()
    }
    files = ("model.etrecord", "plain.etrecord", "model.pte")
    return Lowered(*(made.extra(f"{name}.{file}") for file in files), None, calls)


@pytest.fixture(scope="module")
def both() -> Lowered:
    return recorded("both")


@pytest.fixture(scope="module")
def int8() -> Exported:
    torch.manual_seed(0)
    return export(Int8().eval(), (torch.randn(1, 3, 8, 8),), backend="xnnpack", quantize=True)


def opened(made: Lowered, method: str = "forward") -> Partition:
    return partition(Export(record=read_etrecord(made.record)), method)


def answers(found: Partition) -> dict[str, list[tuple[str, str, str | None]]]:
    """Node -> who refused it, with the answer and the reason."""
    return {
        place.node.name: [(one.by, one.answer, one.reason) for one in said]
        for place in found.places
        if (said := found.refusals.get(id(place.node)))
    }


# -- what is kept


def test_reasons_of_xnnpack(xnnpack: Lowered) -> None:
    said = answers(opened(xnnpack))
    why = "unsqueeze_copy only supported on the trailing dimension"
    assert said["aten_unsqueeze_copy_default"] == [(XNNPACK, "told", why)]
    assert said["aten_add_tensor_1"] == [(XNNPACK, "told", "invalid dtype")]
    for name in ("embedding", "native_layer_norm", "topk"):
        assert said[f"aten_{name}_default"] == [(XNNPACK, "unknown", None)]
    assert said["aten_sigmoid_default"] == [(XNNPACK, "not asked", None)]  # in a branch
    assert "aten_linear_default" not in said


def test_reasons_of_vulkan_then_xnnpack(both: Lowered) -> None:
    found = opened(both)
    said = answers(found)
    assert said["aten_convolution_default"] == [(VULKAN, "told", "op args not supported")]
    assert said["aten_cumsum_default"] == [
        (VULKAN, "told", "no operator implementation"),
        (XNNPACK, "unknown", None),
    ]
    by_name = {place.node.name: found.call_of.get(id(place.node)) for place in found.places}
    taken = {name: call and call.backend for name, call in by_name.items()}
    assert taken["aten_convolution_default"] == XNNPACK
    assert taken["aten_embedding_default"] == VULKAN
    assert taken["aten_cumsum_default"] is None


class Summed(torch.nn.Module):
    """No backend takes it, so lowering is quick."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0)


def test_logs_and_the_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the levels are, the reasons are kept, nothing of them is logged or printed, and the
    levels stay."""
    loggers = [logging.getLogger(), logging.getLogger("executorch.backends.xnnpack")]
    before = [logger.level for logger in loggers]
    levels = [logging.INFO, logging.CRITICAL]
    try:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        summed = Summed(), (torch.ones(3),)
        made = lowered(tmp_path, {"forward": summed}, ["vulkan", "xnnpack"])
        assert [logger.level for logger in loggers] == levels
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
    assert answers(opened(made))["aten_cumsum_default"][0][1] == "told"
    told = "".join([*capfd.readouterr(), caplog.text])
    assert "WhyNoPartition" not in told
    assert "[Vulkan Partitioner]" not in told


def test_record_round_trip_and_upstream(both: Lowered, updating: Lowered, tmp_path: Path) -> None:
    assert read_etrecord(updating.record).partition == updating.kept.of(["update"])
    record = read_etrecord(both.record)
    assert record.partition is not None and record.partition.keys() == {"forward", "update"}
    upstream = parse_upstream(str(both.record))  # ignores the member
    assert set(upstream.edge_dialect_program) == {"forward", "update"}
    assert not upstream.graph_map
    again = tmp_path / "again.etrecord"
    etscope.parse_etrecord(str(both.record)).save(str(again))
    assert read_etrecord(again).partition == record.partition
    slim_etrecord(both.record, tmp_path / "slim.etrecord")
    slim = read_etrecord(tmp_path / "slim.etrecord")
    assert slim.partition == record.partition
    assert [call.module for call in partition(Export(record=slim), "forward").calls]


def test_damaged_member_is_a_format_error(updating: Lowered, tmp_path: Path) -> None:
    opened = etscope.parse_etrecord(str(updating.record))
    opened.partition = updating.kept.of(["update"])
    first = opened.partition["update"].partitionings[0].refusals[0]
    answer = first.answer
    object.__setattr__(first, "answer", "perhaps")
    path = tmp_path / "damaged.etrecord"
    try:
        opened.save(str(path))
    finally:
        object.__setattr__(first, "answer", answer)
    with pytest.raises(etscope.errors.FormatError, match=r"perhaps") as caught:
        _ = read_etrecord(path).partition
    assert PARTITION in str(caught.value)


# -- who took what, against ExecuTorch's own lowered graphs


@pytest.mark.parametrize("method", ["forward", "update"])
def test_calls_are_those_of_the_lowered_graph(both: Lowered, method: str) -> None:
    found = opened(both, method)
    borders = Borders(found)
    assert [call.backend for call in found.calls] == [c.backend for c in both.calls[method]]
    assert len(found.calls) > (3 if method == "forward" else 0)
    for call, wanted in zip(found.calls, both.calls[method], strict=True):
        assert {node.name for node in call.nodes} == wanted.nodes
        assert sum(one.bytes or 0 for one in borders.entering(call)) == wanted.bytes_in
        assert sum(one.bytes or 0 for one in borders.leaving(call)) == wanted.bytes_out
    instructions = [call.instruction for call in found.calls]
    delegates = read_etrecord(both.record).delegate_map
    assert delegates is not None
    assert instructions == sorted(delegates[method])
    assert found.lost == 0


def test_handles_alone_place_the_same_nodes(both: Lowered) -> None:
    record = read_etrecord(both.plain)
    assert record.partition is None
    for program in (None, read_pte(both.program)):
        found = partition(Export(program, record), "forward")
        assert found.partitionings is None
        for call, wanted in zip(found.calls, both.calls["forward"], strict=True):
            assert call.backend == wanted.backend
            assert {node.name for node in call.nodes} == wanted.nodes


def test_passes_before_the_partitioners_lose_no_node_in_silence(xnnpack: Lowered) -> None:
    found = opened(xnnpack)
    assert found.lost == 1  # the sine
    assert len(found.calls) == len(xnnpack.calls["forward"])


# -- borders


def test_state_crosses_only_if_the_delegate_does_not_own_it(
    both: Lowered, updating: Lowered
) -> None:
    for made, crosses in ((both, False), (updating, True)):  # Vulkan is the first of both
        found = opened(made, "update")
        borders = Borders(found)
        assert ("state" in {one.kind for one in borders.crossings}) == crosses
        for call, wanted in zip(found.calls, made.calls["update"], strict=True):
            assert sum(one.bytes or 0 for one in borders.entering(call)) == wanted.bytes_in
            assert sum(one.bytes or 0 for one in borders.leaving(call)) == wanted.bytes_out


class IntoBranches(Partitioner):
    """Takes each relu, sigmoid and tanh by itself, in branches too, as Arm's looks into them."""

    def __init__(self) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec(XNNPACK, [])

    def partition(self, exported_program: Any) -> PartitionResult:
        tags: dict[str, DelegationSpec] = {}
        modules = [exported_program.graph_module]
        modules += [module for _, module, _ in get_control_flow_submodules(modules[0])]
        for module in modules:
            for node in module.graph.nodes:
                is_call = node.op == "call_function"
                if is_call and any(name in node.name for name in ("relu", "sigmoid", "tanh")):
                    node.meta["delegation_tag"] = tag = f"tag{len(tags)}"
                    tags[tag] = self.delegation_spec
        return PartitionResult(exported_program, tags)


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        return torch.cond(
            x.sum() > 0,
            lambda a: torch.sigmoid(a) * a,
            lambda a: torch.tanh(torch.cumsum(a, 0)),
            (x,),
        )


def test_delegates_in_branches(tmp_path: Path) -> None:
    made = lowered(tmp_path, {"forward": (Branching(), (torch.randn(4),))}, [IntoBranches()])
    record = read_etrecord(made.record)
    found = partition(Export(read_pte(made.program), record), "forward")
    first, second, third = found.calls
    branches = [call.module and call.module.partition("/")[0] for call in found.calls]
    assert branches[0] == "lowered_module_0"
    assert len(set(branches)) == 3
    instructions = [call.instruction or 0 for call in found.calls]
    assert instructions == sorted(set(instructions))
    crossed = {(one.label, one.source, one.target) for one in Borders(found).crossings}
    assert crossed == {
        ("x", None, first),
        ("aten_relu_default", first, second),  # the condition hands it to its branches
        ("aten_relu_default", first, None),
        ("aten_sigmoid_default", second, None),
        ("aten_cumsum_default", None, third),
        ("aten_tanh_default", third, None),
    }
    silent = {name for name, said in answers(found).items() if said[0][1] == "silent"}
    assert silent == {"aten_sum_dim_int_list", "aten_gt_scalar", "cond"}
    # Without the program, the maps have no instructions of branches.
    numbers = [
        call.instruction is None for call in partition(Export(record=record), "forward").calls
    ]
    assert numbers == [False, True, True]


def test_pairs_at_borders_of_an_int8_model(int8: Exported, tmp_path: Path) -> None:
    _, record, _ = int8.save(tmp_path)
    found = partition(Export(record=read_etrecord(record)), "forward")
    borders = Borders(found)
    assert [one.kind for one in borders.nodes] == ["dequantize", "quantize", "dequantize"]
    assert all(len(one.partners) == 1 for one in borders.nodes)
    assert [len(call.added) for call in found.calls] == [2, 2]  # channels last, and back
    names = {one.name for one in borders.crossings}
    assert not any("weight" in name or "scale" in name for name in names)


def test_permute_of_the_runtime_between_delegates() -> None:
    found = opened(recorded("turned"))
    first, second = found.calls
    (one,) = Borders(found).nodes
    assert (one.place.node.name, one.kind, one.call) == (
        "aten_permute_copy_default",
        "layout",
        None,
    )
    assert (one.givers, one.readers) == ((first,), (second,))
    assert answers(found)["aten_permute_copy_default"] == [(VULKAN, "told", "op is in blocklist")]


def test_conversions_of_the_runtime(int8: Exported, tmp_path: Path) -> None:
    """Of a quantized model for a backend that computes in float, nearly all stays outside."""
    import executorch.kernels.quantized  # noqa: F401  the runtime's operators

    with torch.no_grad():
        model = int8.record.exported_program.module()
    floats = XnnpackPartitioner(config_precisions=ConfigPrecisionType.FP32)
    again = lowered(tmp_path, {"forward": (model, (torch.randn(1, 3, 8, 8),))}, [floats])
    found = opened(again)
    borders = Borders(found)
    assert found.calls
    assert {one.kind for one in borders.nodes} >= {"quantize"}
    for one in borders.nodes:
        assert one.call is None
        assert one.givers or one.readers
    refused = {refusal.reason for said in found.refusals.values() for refusal in said}
    assert "not enabled precision types" in refused


def test_program_without_delegates(portable: Exported, tmp_path: Path) -> None:
    _, record, _ = portable.save(tmp_path)
    found = partition(Export(record=read_etrecord(record)), "forward")
    assert (found.calls, found.partitionings, Borders(found).crossings) == ((), (), ())


# -- other ways of partitioners to tell


class Support(OperatorSupport):
    """torch's own: a dict of what it supports. A product is refused all the same."""

    def __init__(self) -> None:
        names = ("add.Tensor", "relu.default")
        known: dict[str, Any] = {
            f"executorch.exir.dialects.edge._ops.aten.{name}": None
            for name in (*names, "mul.Tensor")
        }
        super().__init__(known)

    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        if "cumsum" in node.name:
            print("Op not supported: ", node.target.__name__)  # as OpenVINO's
        return "mul" not in node.name and super().is_node_supported(submodules, node)


class Reporting(Partitioner):
    """Tells nothing, or as Arm's: by a reporter."""

    def __init__(self, reports: bool) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec("NoBackend", [])
        self.reports = reports

    def partition(self, exported_program: Any) -> PartitionResult:
        module, support = exported_program.graph_module, Support()
        if self.reports:
            reporter = WhyNoPartitionReporter()
            for node in module.graph.nodes:
                reporter.report_reject(node, f"{node.name} is\n  not for us")
                reporter.report_reject(node, f"{node.name} is\n  not for us")
        CapabilityBasedPartitioner(module, support).propose_partitions()
        return PartitionResult(exported_program, {})


def refused_by(partitioner: Partitioner) -> dict[str, tuple[str, str | None]]:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cumsum(torch.sin(torch.relu(x + x)), 0) * x

    program = torch.export.export(Model(), (torch.randn(3),))
    with keeping_partition() as kept:
        to_edge_transform_and_lower(program, partitioner=[partitioner])
    (one,) = kept.of(["forward"])["forward"].partitionings
    assert (one.partitioner, one.backend) == ("Reporting", "NoBackend")
    return {refusal.node.op: (refusal.answer, refusal.reason) for refusal in one.refusals}


def test_other_ways_to_tell(capfd: pytest.CaptureFixture[str]) -> None:
    assert refused_by(Reporting(reports=False)) == {
        "aten.add.Tensor": ("unplaced", None),
        "aten.relu.default": ("unplaced", None),
        "aten.sin.default": ("unknown", None),
        "aten.mul.Tensor": ("refused", None),
        "aten.cumsum.default": ("told", "Op not supported: aten.cumsum.default"),
    }
    assert "Op not supported" not in capfd.readouterr().out
    found = refused_by(Reporting(reports=True))
    assert found["aten.sin.default"] == ("told", "aten_sin_default is not for us")


def test_core_ml(tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.asinh(torch.relu(x)) + 1

    program = torch.export.export(Model(), (torch.randn(3),))
    with keeping_partition() as kept:
        to_edge_transform_and_lower(program, partitioner=[CoreMLPartitioner()])
    (one,) = kept.of(["forward"])["forward"].partitionings
    (refusal,) = one.refusals
    assert (one.backend, refusal.node.op) == ("CoreMLBackend", "aten.asinh.default")
    assert refusal.reason is not None
    assert "not supported by CoreML" in refusal.reason


# -- the command


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    def run(*arguments: object, code: int = 0) -> str:
        assert main([str(argument) for argument in arguments]) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    yield run


def test_command_as_json(both: Lowered, out: Any) -> None:
    document = json.loads(out("graph", both.record, "--partition", "--format", "json"))
    assert document["schema"] == "etscope.partition/1"
    reports = {report["graph"]: report["sections"] for report in document["reports"]}
    assert reports.keys() == {"edge/forward", "edge/update"}
    sections = reports["edge/forward"]
    nodes = {row["node"]: row for row in sections["nodes"]}
    assert nodes["aten_cumsum_default"]["refused_by"] == [VULKAN, XNNPACK]
    assert nodes["aten_cumsum_default"]["why"] == ["no operator implementation", "unknown operator"]
    assert nodes["aten_cumsum_default"]["backend"] == "runtime"
    assert nodes["aten_addmm_default"]["backend"] == VULKAN
    assert nodes["aten_convolution_default"]["module"] == "conv"
    assert nodes["aten_convolution_default"]["source_path"].rpartition(":")[0].endswith(".py")
    counted = {row["backend"]: row["nodes"] for row in sections["backends"]}
    assert sum(counted.values()) == len(sections["nodes"]) == sections["partition"]["nodes"]
    size = sum(row["bytes"] for row in sections["crossings"])
    assert size == sections["partition"]["crossing_bytes"] > 0


def test_command_as_text_and_csv(both: Lowered, out: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = out("graph", both.record, "forward", "--partition")
    assert text.startswith("edge/forward: of ")
    assert "no operator implementation" in text
    flat = out("graph", both.record, "forward", "--partition", "--format", "csv")
    assert "edge/forward,refused,0,why," in flat
    text = out("graph", both.plain, "forward", "--partition")
    assert "does not store who refused" in text
    assert "XnnpackBackend #" in text


def test_command_selects_nodes_and_refuses_what_it_cannot_show(both: Lowered, out: Any) -> None:
    asked = ("graph", both.record, "forward", "--partition", "--format", "json", "--select")
    found = json.loads(out(*asked, "delegate:XnnpackBackend"))["reports"][0]["sections"]
    assert {row["backend"] for row in found["nodes"]} == {XNNPACK}
    assert {row["op"] for row in found["refused"]} == {"aten.convolution.default"}
    assert "nothing matches" in out(*asked, "op:no_such_op", code=4)
    refused = out("graph", both.record, "--partition", "--tree", code=2)
    assert "--partition does not go with" in refused
    assert "name the ETRecord" in out("graph", both.program, "--partition", code=2)
    assert "no graph 'fast'" in out("graph", both.record, "fast", "--partition", code=4)
