"""Programs in Model Explorer: its own files and its own server."""

from __future__ import annotations

import importlib
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("model_explorer")
torch = pytest.importorskip("torch")
adapter = importlib.import_module("model_explorer.pytorch_exported_program_adapter_impl")

from etscope.errors import RecordError  # noqa: E402
from etscope.visualization import (  # noqa: E402
    SingletonModelExplorerServer,
    visualization_utils,
    visualize,
    visualize_graph,
    visualize_with_clusters,
)
from tests.support.ports import free_port  # noqa: E402


@pytest.fixture(scope="module")
def program() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    program = torch.export.export(model, (torch.ones(2, 4),))
    for index, node in enumerate(program.graph.nodes):
        node.meta["delegation_tag"] = f"tag/{index // 3}" if index else None
        node.meta["cluster"] = "a/b" if index == 4 else None
    return program


def test_clusters_are_upstreams(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Upstream 1.5 imports the adapter by a name that Model Explorer has spelt right since.
    name = "model_explorer.pytorch_exported_program_adater_impl"
    monkeypatch.setitem(sys.modules, name, adapter)
    theirs = pytest.importorskip("executorch.devtools.visualization.visualization_utils")

    visualize_with_clusters(program, json_file_name=str(tmp_path / "ours.json"))
    theirs.visualize_with_clusters(program, json_file_name=str(tmp_path / "theirs.json"))

    ours = json.loads((tmp_path / "ours.json").read_text())
    assert ours == json.loads((tmp_path / "theirs.json").read_text())
    boxes = {node["namespace"] for node in ours["graphs"][0]["nodes"]}
    assert "partition 1 (tag:1)/cluster (a:b)" in boxes


def test_one_server_takes_programs_and_graphs(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the server, which imports much, takes more than the minute that people have.
    monkeypatch.setattr(visualization_utils, "_START_SECONDS", 600.0)
    port = free_port()
    with SingletonModelExplorerServer(open_in_browser=False, port=port):
        address = f"http://localhost:{port}/check_health"
        with SingletonModelExplorerServer(open_in_browser=False) as inner:
            assert inner is not None
        with urllib.request.urlopen(address) as answer:
            assert answer.read() == b"model_explorer_ok"
    with pytest.raises(OSError):
        urllib.request.urlopen(address)


def test_what_is_shown(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server: what the page would get."""
    shown: list[Any] = []
    model_explorer = importlib.import_module("model_explorer")
    monkeypatch.setattr(
        model_explorer, "visualize_from_config", lambda **given: shown.append(given)
    )

    visualize(program, reuse_server=False)
    visualize_graph(program.graph_module, program, reuse_server=False, port=1)

    first, second = (
        [node.id for node in one["config"].graphs_list[0]["graphs"][0].nodes] for one in shown
    )
    assert first == second
    assert "linear" in first
    assert shown[1]["port"] == 1
    with pytest.raises(RecordError, match="a str is not a program"):
        visualize("model.pte")
