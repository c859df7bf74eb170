"""Model Explorer's own adapter for an `ExportedProgram`, and our node data for the same graph."""

from __future__ import annotations

import importlib
import io
import json
import shutil
from pathlib import Path

import pytest

from etscope import parse_etrecord
from etscope.analysis.graphs.views import graph_views
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.units import TimeScale
from etscope.views import write_graphs
from tests.support.artifacts import artifacts

adapter = pytest.importorskip("model_explorer.pytorch_exported_program_adapter_impl")
MS = Scale(TimeScale.NS, TimeScale.MS)


@pytest.mark.parametrize("name", ["cnn_portable", "transformer", "cond"])
def test_keys_are_the_adapters_ids(name: str) -> None:
    made = artifacts(name)
    assert made.etrecord is not None
    assert made.etdump_timing is not None
    trace = Trace(read_etdump(made.etdump_timing), read_etrecord(made.etrecord))
    (view,) = graph_views(trace, only=["exported/forward"])
    out = io.StringIO()
    write_graphs([view], "node-data", out, scale=MS)
    results = json.loads(out.getvalue())["results"]

    program = parse_etrecord(str(made.etrecord)).exported_program
    settings = {"const_element_count_limit": 4}
    (graph,) = adapter.PytorchExportedProgramAdapterImpl(program, settings).convert()["graphs"]
    ids = {node.id: node for node in graph.nodes}

    own = [node for node in view.nodes if node.call is None]
    assert {node.key for node in own} <= set(ids)
    # What the adapter has besides: torch's getitem nodes, which are named outputs here.
    assert {node.label for key, node in ids.items() if key not in view.by_key} <= {"getitem"}
    assert results
    assert set(results) <= set(ids)


def test_files_open_in_model_explorer(tmp_path: Path) -> None:
    """By the names of the extension's module and class, as its server finds them."""
    from model_explorer.extension_class_processor import ExtensionClassProcessor
    from model_explorer.utils import convert_adapter_response

    importlib.import_module("etscope.visualization.main")
    found = [one["cls"] for one in ExtensionClassProcessor.get_registry().values()]
    (kind,) = [one for one in found if one.metadata.id == "etscope"]
    made = artifacts("cnn_portable")
    assert made.etrecord is not None
    shutil.copyfile(made.etdump, tmp_path / "run.etdp")
    shutil.copyfile(made.etrecord, tmp_path / "model.etrecord")
    shutil.copyfile(made.pte, tmp_path / "model.pte")
    for name, timed in (("model.pte", False), ("model.etrecord", False), ("run.etdp", True)):
        assert name.rpartition(".")[2] in kind.metadata.fileExts
        graphs = convert_adapter_response(kind().convert(str(tmp_path / name), {}))["graphs"]
        nodes = [node for graph in graphs for node in graph["nodes"]]
        keys = {one["key"] for node in nodes for one in node["attrs"]}
        assert any("convolution" in node["label"] for node in nodes)
        assert ("time" in keys) is timed and ("source" in keys) is (name != "model.pte")
