"""DOT, JSON and Model Explorer: golden files, real readers, and names that must stay text."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from etscope.analysis.graphs.views import GraphView
from etscope.analysis.profile.scale import Scale
from etscope.errors import MissingDataError, UsageError
from etscope.units import TimeScale
from etscope.views import GRAPH_VIEWS, save_graphs, write_graphs
from etscope.views.graphs import OVERLAYS
from tests.support.golden_files import check_golden
from tests.support.views.graph_shapes import HOSTILE, hostile, timed

US = Scale(TimeScale.NS, TimeScale.US)


def written(view: GraphView, format: str, **options: Any) -> str:
    out = io.StringIO()
    write_graphs([view], format, out, scale=US, **options)
    return out.getvalue()


@pytest.mark.parametrize("format", GRAPH_VIEWS)
def test_golden(format: str) -> None:
    text = written(timed(), format)
    if format in ("model-explorer", "node-data"):
        text = json.dumps(json.loads(text), indent=1) + "\n"
    check_golden(f"graphs/timed.{format}.txt", text)


@pytest.mark.parametrize("format", GRAPH_VIEWS)
def test_hostile_names_stay_text(format: str) -> None:
    text = written(hostile(), format)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)
    if format == "graph-json":
        nodes = json.loads(text)["graphs"][0]["nodes"]
        assert [node["name"] for node in nodes[: len(HOSTILE)]] == list(HOSTILE)
    elif format != "dot":
        assert json.loads(text)
    else:
        assert "<script" not in text
        assert len(max(text.splitlines(), key=len)) < 2000


def test_graphviz_draws_it(tmp_path: Any) -> None:
    dot = shutil.which("dot")
    if dot is None:
        pytest.skip("no Graphviz on this machine")
    for number, view in enumerate((timed(), hostile())):
        path = tmp_path / f"{number}.dot"
        save_graphs([view], path, scale=US)
        done = subprocess.run([dot, "-Tsvg", path], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        drawn = done.stdout.count('class="node"')
        assert drawn == sum(f"n{i} [" in path.read_text() for i in range(len(view.nodes)))
        assert done.stdout.count('class="cluster"') >= 3
    assert "<script" not in done.stdout
    assert "&lt;script&gt;" in done.stdout


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_of_model_explorer(overlay: str) -> None:
    if overlay == "live_bytes":  # of a program, and there is none
        with pytest.raises(MissingDataError, match="live_bytes"):
            written(timed(), "node-data", overlay=overlay)
        return
    found = json.loads(written(timed(), "node-data", overlay=overlay))
    expected = {
        "avg": 4.0005, "p50": 4.0005, "p90": pytest.approx(4.8009), "min": 3.0, "max": 5.001,
        "first": 3.0, "bytes": 8192, "total_error": 120.0, "local_error": 120.0,
        "flops": 32768, "moved_bytes": 11296, "intensity": 32768 / 11296,
    }  # fmt: skip
    assert found["results"]["conv"]["value"] == expected[overlay]
    assert found["gradient"][0]["stop"] == 0
    assert found["gradient"][-1]["stop"] == 1


def test_node_data_of_several_graphs_is_by_graph() -> None:
    out = io.StringIO()
    write_graphs([timed(), hostile()], "node-data", out, scale=US)
    assert set(json.loads(out.getvalue())) == {"edge/forward", 'edge/<b>"forward"'}


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="unknown overlay 'p95'"):
        written(timed(), "node-data", overlay="p95")
    with pytest.raises(UsageError, match="one graph"):
        write_graphs([timed(), hostile()], "dot", io.StringIO(), scale=US)
    with pytest.raises(UsageError, match="unknown graph format"):
        written(timed(), "svg")


def test_model_explorers_own_classes_take_it() -> None:
    builder = pytest.importorskip("model_explorer.graph_builder")
    data = pytest.importorskip("model_explorer.node_data_builder")
    for view in (timed(), hostile()):
        found = json.loads(written(view, "model-explorer"))
        graphs = [
            builder.Graph(**{**graph, "nodes": [_node(builder, node) for node in graph["nodes"]]})
            for graph in found.pop("graphs")
        ]
        builder.GraphCollection(**found, graphs=graphs)
        ids = {node.id for graph in graphs for node in graph.nodes}
        assert all(edge.sourceNodeId in ids for g in graphs for n in g.nodes
                   for edge in n.incomingEdges)  # fmt: skip
        overlay = json.loads(written(view, "node-data"))
        results = {k: data.NodeDataResult(**v) for k, v in overlay.pop("results").items()}
        gradient = [data.GradientItem(**item) for item in overlay.pop("gradient")]
        made = data.GraphNodeData(**overlay, results=results, gradient=gradient)
        assert set(made.results) <= ids
        assert json.loads(made.to_json_string())["results"]


def _node(builder: Any, node: dict[str, Any]) -> Any:
    edges = [builder.IncomingEdge(**edge) for edge in node["incomingEdges"]]
    values = [builder.MetadataItem(**item) for item in node["outputsMetadata"]]
    attributes = [builder.KeyValue(**item) for item in node["attrs"]]
    changed = {"incomingEdges": edges, "outputsMetadata": values, "attrs": attributes}
    return builder.GraphNode(**{**node, **changed})
