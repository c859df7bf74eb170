"""Exports for backends that compile on a PC: what is inside of each delegate, and where it is from.

Core ML's package comes with ExecuTorch on Linux for x86-64. Those of Arm and OpenVINO do not: their
tests are skipped where they are not installed.
"""

from __future__ import annotations

import importlib.util
import json
import linecache
import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.devtools.etrecord import parse_etrecord
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from etscope.backends import BACKENDS, chosen
from etscope.cli import main
from etscope.errors import EtscopeWarning, MissingDependencyError, RuntimeFailure, UsageError
from etscope.export import Exported, export
from etscope.formats.program.pte import read_pte
from etscope.run import run
from tests.support.artifact_recipes import cnn, transformer

Row = Mapping[str, Any]

IDS = {
    "xnnpack": "XnnpackBackend",
    "vulkan": "VulkanBackend",
    "webgpu": "VulkanBackend",
    "coreml": "CoreMLBackend",
    "native": "NativeBackend",
    "openvino": "OpenvinoBackend",
    "ethos-u": "EthosUBackend",
    "tosa": "TOSABackend",
}


def packages(*names: str) -> pytest.MarkDecorator:
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)}")


COREML = pytest.param("coreml", marks=packages("coremltools"))
RARE = [
    pytest.param(one, marks=[pytest.mark.nightly, *marks])
    for one, *marks in (("vulkan",), ("webgpu",), ("coreml", packages("coremltools")))
]
OPENVINO = pytest.param("openvino", marks=packages("openvino", "nncf"))
TOSA = pytest.param("tosa", marks=packages("tosa_serializer"))

# How names of operators begin (they depend on what a backend keeps from being decomposed), and a
# part of the line that such an operator is on.
CNN_LINES = {
    ("convolution.", "conv2d."): "self.conv(x)",
    ("_native_batch_norm_legit_no_training.", "batch_norm."): "self.bn(",
    ("relu.",): "self.act(",
    ("add.",): "x + self.second(",
    ("avg_pool2d.",): "self.pool(x)",
    ("_softmax.", "softmax."): "torch.softmax(",
    ("addmm.", "linear."): "self.fc(",
}
TRANSFORMER_LINES = {
    ("embedding.",): "self.tokens(tokens)",
    ("_softmax.", "softmax."): "torch.softmax(",
    ("gelu.",): "gelu(",
    ("native_layer_norm.", "layer_norm."): "self.norm",
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", EtscopeWarning)
        yield


def picture() -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)),)


def executed(folder: Path) -> list[Row]:
    """The nodes of the program as `etscope graph` lists them, those inside of delegates too."""
    file = folder / "executed.json"
    assert main(["graph", str(folder / "model.etrecord"), "executed", "-o", str(file)]) == 0
    rows: list[Row] = json.loads(file.read_text())["rows"]
    return rows


def in_delegates(rows: list[Row], identifier: str | None = None) -> list[Row]:
    """The operators inside of delegates, or those with this id."""
    ids = set(IDS.values()) if identifier is None else {identifier}
    return [
        row
        for row in rows
        if row["backend"] in ids and row["kind"] == "call_function" and row["op"] != row["backend"]
    ]


def line_of(row: Row) -> str:
    path, _, line = row["source_path"].rpartition(":")
    return linecache.getline(path, int(line))


def called(row: Row, ops: tuple[str, ...]) -> bool:
    return row["op"].startswith(tuple(f"aten.{op}" for op in ops))


def modules_of(rows: list[Row], *ops: str) -> list[str]:
    return sorted(row["module"] for row in rows if called(row, ops))


def names_of(model: nn.Module, kind: type[nn.Module]) -> list[str]:
    return sorted(name for name, module in model.named_modules() if isinstance(module, kind))


def check_lines(rows: list[Row], lines: Mapping[tuple[str, ...], str]) -> None:
    for ops, text in lines.items():
        found = [row for row in rows if called(row, ops)]
        assert found, ops
        for row in found:
            assert text in line_of(row), row


@pytest.mark.parametrize("backend", ["native", *RARE, OPENVINO, TOSA])
def test_a_cnn_has_its_modules_and_lines_inside_of_delegates(backend: str, tmp_path: Path) -> None:
    model = cnn.small_cnn()
    export(model, picture(), backend=backend).save(tmp_path, bundle=False)
    rows = in_delegates(executed(tmp_path), IDS[backend])
    assert modules_of(rows, "convolution.", "conv2d.") == names_of(model, nn.Conv2d)
    assert modules_of(rows, "relu.") == names_of(model, nn.ReLU)
    assert modules_of(rows, "add.") == ["stages.0", "stages.2"]
    assert modules_of(rows, "addmm.", "linear.") == ["head.fc"]
    check_lines(rows, CNN_LINES)


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["vulkan", "native", COREML, OPENVINO, TOSA, "xnnpack,vulkan"])
def test_a_transformer_has_its_modules_and_lines(backend: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformer.Transformer(depth=1).eval()
    export(model, (transformer.sentence(),), backend=backend).save(tmp_path, bundle=False)
    rows = executed(tmp_path)
    inside = in_delegates(rows)
    assert {row["backend"] for row in inside} == {IDS[name] for name in backend.split(",")}
    first = in_delegates(rows, IDS[backend.split(",")[0]])
    assert modules_of(first, "addmm.", "linear.") == names_of(model, nn.Linear)
    operators = [row for row in rows if row["kind"] == "call_function"]
    norms = modules_of(operators, "native_layer_norm.", "layer_norm.")
    assert norms == names_of(model, nn.LayerNorm)
    check_lines(operators, TRANSFORMER_LINES)
    assert [row["node"] for row in inside if not row["source"]] == []


def saved(exported: Exported, folder: Path) -> tuple[list[Row], str]:
    """The nodes of an export, and what `etscope info` says of its program."""
    exported.save(folder, bundle=False)
    file = folder / "info.json"
    assert main(["info", str(folder / "model.pte"), "-o", str(file)]) == 0
    return executed(folder), file.read_text()


def tiny() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), (torch.linspace(-2, 2, 16).view(2, 8),)


@cache
def tiny_on(backend: str) -> Exported:
    return export(*tiny(), backend=backend)


def test_options_reach_the_delegate(tmp_path: Path) -> None:
    options = {"vulkan.force_fp16": "true", "storage_type_override": "buffer"}
    rows, info = saved(export(*tiny(), backend="vulkan,xnnpack", backend_options=options), tmp_path)
    assert {row["backend"] for row in in_delegates(rows)} == {"VulkanBackend"}
    (delegate,) = read_pte((tmp_path / "model.pte").read_bytes()).methods[0].delegates
    specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs}
    assert specs["force_fp16"] == b"\x01"
    assert specs["storage_type_override"] == (0).to_bytes(4, "little")
    assert "force_fp16" in info


def test_xnnpack_with_a_delegate_for_each_operator(tmp_path: Path) -> None:
    model, inputs = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2)).eval(), tiny()[1]
    exported = export(model, inputs, backend="xnnpack", backend_options={"per_op": True})
    rows, _ = saved(exported, tmp_path)
    assert [row["op"] for row in rows if row["op"] == "XnnpackBackend"] == ["XnnpackBackend"] * 2


@pytest.mark.nightly
def test_int8_weights_for_vulkan(tmp_path: Path) -> None:
    rows, _ = saved(export(*tiny(), backend="vulkan", quantize=True), tmp_path)
    inside = {row["op"] for row in in_delegates(rows, "VulkanBackend")}
    assert any("dequantize_per_channel" in op for op in inside)
    assert all(row["backend"] in (None, "VulkanBackend") for row in rows)


def test_ranges_that_each_run_finds(tmp_path: Path) -> None:
    exported = export(*tiny(), backend="xnnpack", quantize=True, backend_options={"dynamic": "yes"})
    rows, _ = saved(exported, tmp_path)
    assert any("choose_qparams" in row["op"] for row in in_delegates(rows, "XnnpackBackend"))
    outputs = run(tmp_path / "model.pte", [*exported.example_inputs["forward"]]).outputs
    expected = exported.reference_outputs["forward"][0]
    np.testing.assert_allclose(np.asarray(outputs[0]), expected.numpy(), atol=0.05)


@pytest.mark.parametrize(
    "backend",
    ["vulkan", pytest.param("native", marks=pytest.mark.nightly), RARE[-1], OPENVINO, TOSA],
)
def test_a_record_of_upstream_shows_the_same_nodes(backend: str, tmp_path: Path) -> None:
    model, inputs = tiny()
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    edge = to_edge_transform_and_lower(
        torch.export.export(model, inputs, strict=True),
        partitioner=chosen(backend)[0].partitioners(False),
        generate_etrecord=True,
    )
    program = edge.to_executorch()
    program.get_etrecord().save(str(theirs / "model.etrecord"))
    (theirs / "model.pte").write_bytes(program.buffer)
    assert parse_etrecord(str(theirs / "model.etrecord")).graph_map is not None

    file = theirs / "executed.json"
    record, pte = str(theirs / "model.etrecord"), str(theirs / "model.pte")
    assert main(["graph", record, "executed", "-p", pte, "-o", str(file)]) == 0
    assert main(["info", record, "-o", str(theirs / "info.json")]) == 0
    rows, _ = saved(tiny_on(backend), ours)
    columns = ("node", "op", "backend", "module", "source", "handle")
    shown = [[row[column] for column in columns] for row in json.loads(file.read_text())["rows"]]
    assert shown == [[row[column] for column in columns] for row in rows]
    (delegate,) = read_pte((theirs / "model.pte").read_bytes()).methods[0].delegates
    assert delegate.backend_id == IDS[backend]
    assert f'"{delegate.backend_id}"' in (theirs / "info.json").read_text()


@packages("tosa_serializer", "ethosu")
def test_an_ethos_u_takes_the_quantized_model_only(tmp_path: Path) -> None:
    with pytest.warns(EtscopeWarning, match="took no operator.*takes int8 only"):
        export(*tiny(), backend="ethos-u")
    model, inputs = transformer.Transformer(depth=1).eval(), (transformer.sentence(),)
    options = {"target": "ethos-u85-256"}
    exported = export(model, inputs, backend="ethos-u", quantize=True, backend_options=options)
    rows, info = saved(exported, tmp_path)
    inside = in_delegates(rows, "EthosUBackend")
    assert modules_of(inside, "linear.", "addmm.") == names_of(model, nn.Linear)
    assert "ethos-u85-256" in info


@packages("tosa_serializer")
def test_tosa_in_int8(tmp_path: Path) -> None:
    rows, info = saved(export(cnn.small_cnn(), picture(), backend="tosa", quantize=True), tmp_path)
    inside = in_delegates(rows, "TOSABackend")
    assert modules_of(inside, "conv2d.", "convolution.") == names_of(cnn.small_cnn(), nn.Conv2d)
    assert "TOSA-1.0+FP+INT" in info


@pytest.mark.nightly
@packages("coremltools")
def test_core_ml_in_int8(tmp_path: Path) -> None:
    options = {"compute_unit": "cpu_and_ne"}
    exported = export(*tiny(), backend="coreml", quantize=True, backend_options=options)
    rows, info = saved(exported, tmp_path)
    assert any("quantize_per_tensor" in row["op"] for row in in_delegates(rows, "CoreMLBackend"))
    assert "compute_units=cpu_and_ne" in info


@packages("openvino", "nncf")
@pytest.mark.parametrize("options", [{}, {"quantize": True}])
def test_openvino_runs(options: dict[str, Any], tmp_path: Path) -> None:
    model = cnn.small_cnn()
    exported = export(model, picture(), backend="openvino", **options)
    exported.save(tmp_path, bundle=False)
    done = run(
        tmp_path / "model.pte",
        [*exported.example_inputs["forward"]],
        etrecord=str(tmp_path / "model.etrecord"),
    )
    (expected,) = exported.reference_outputs["forward"]
    np.testing.assert_allclose(np.asarray(done.outputs[0]), expected.numpy(), atol=0.05)
    (event,) = [
        event
        for block in done.inspector().event_blocks
        for event in block.events
        if event.delegate_backend_name == "OpenvinoBackend" and event.name == "DELEGATE_CALL"
    ]
    assert event.perf_data is not None
    assert event.perf_data.avg > 0
    assert "head.fc" in str(event.module_hierarchy)


def test_a_backend_that_is_not_here_says_so(tmp_path: Path) -> None:
    tiny_on("vulkan").save(tmp_path, bundle=False)
    with pytest.raises(RuntimeFailure, match="VulkanBackend, which this runtime does not have"):
        run(tmp_path / "model.pte", [*tiny()[1]])


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingDependencyError, match="'openvino'") as caught:
        export(*tiny(), backend="openvino")
    assert caught.value.hint == "pip install 'etscope[openvino]'"


def test_float_parts_of_a_backend_that_cannot() -> None:
    with pytest.raises(UsageError, match="kept in float for coreml"):
        export(*tiny(), backend="coreml", quantize=True, keep_float="op:linear")
    assert BACKENDS["xnnpack"].keeps_float
