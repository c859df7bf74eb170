"""Exports for backends that compile on a PC: what is inside of each delegate, and where it is from.

Core ML's package comes with ExecuTorch on Linux for x86-64. Those of Arm and OpenVINO do not: their
tests are skipped where they are not installed.
"""

from __future__ import annotations

import importlib.util
import json
import linecache
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.devtools.etrecord import parse_etrecord
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from etscope import Inspector
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
OPENVINO = pytest.param("openvino", marks=packages("openvino", "nncf"))
TOSA = pytest.param("tosa", marks=packages("tosa_serializer"))
ETHOS_U = pytest.param("ethos-u", marks=packages("tosa_serializer", "ethosu"))

# Parts of the names of operators, which depend on what a backend keeps from being decomposed, and of
# the line that such an operator is on.
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


@pytest.mark.parametrize("backend", ["vulkan", "webgpu", "native", COREML, OPENVINO, TOSA])
def test_a_cnn_has_its_modules_and_lines_inside_of_delegates(backend: str, tmp_path: Path) -> None:
    model = cnn.small_cnn()
    export(model, picture(), backend=backend).save(tmp_path, bundle=False)
    rows = in_delegates(executed(tmp_path), IDS[backend])
    assert modules_of(rows, "convolution.", "conv2d.") == names_of(model, nn.Conv2d)
    assert modules_of(rows, "relu.") == names_of(model, nn.ReLU)
    assert modules_of(rows, "add.") == ["stages.0", "stages.2"]
    assert modules_of(rows, "addmm.", "linear.") == ["head.fc"]
    check_lines(rows, CNN_LINES)


@pytest.mark.parametrize("backend", ["vulkan", "native", COREML, OPENVINO, TOSA, "xnnpack,vulkan"])
def test_a_transformer_has_its_modules_and_lines(backend: str, tmp_path: Path) -> None:
    model, inputs = transformer.small_transformer(), (transformer.sentence(),)
    export(model, inputs, backend=backend).save(tmp_path, bundle=False)
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
