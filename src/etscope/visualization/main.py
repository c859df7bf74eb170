"""Files of ExecuTorch in Model Explorer.

    model-explorer model.etrecord --extensions=etscope.visualization

Model Explorer imports the module ``main`` of each extension, and finds its adapters there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs, graph_builder

from etscope.analysis.graphs.views import graph_views
from etscope.analysis.profile.scale import Scale
from etscope.capture import open_capture
from etscope.formats.run_json import RUN_ETDP
from etscope.units import format_duration
from etscope.views.graphs import node_data, write_explorer


class ExecuTorchAdapter(Adapter):  # type: ignore[misc]  # untyped
    """The graphs of a program or a record; of a run's dump, each operator with its time."""

    metadata: ClassVar[Any] = AdapterMetadata(
        id="etscope",
        name="ExecuTorch files by etscope",
        description="Programs, ETRecords and runs, with lines of Python and times",
        source_repo="https://github.com/etscope/etscope",
        fileExts=["pte", "bpte", "etrecord", "etdp"],
    )

    def convert(self, model_path: str, settings: Mapping[str, Any]) -> ModelExplorerGraphs:
        """Return all graphs. A dump in the folder of a run comes with the run's other files.

        Raises the errors of `open_capture`.
        """
        path = Path(model_path)
        views = graph_views(open_capture(path.parent if path.name == RUN_ETDP else path))
        out, scale = io.StringIO(), Scale.of("ns")
        write_explorer(views, out, scale=scale)
        graphs = json.loads(out.getvalue())["graphs"]
        for graph, view in zip(graphs, views, strict=True):
            times = node_data(view, scale)["results"]
            for node in graph["nodes"]:
                if node["id"] in times:
                    time = format_duration(times[node["id"]]["value"], scale.unit)
                    node["attrs"].insert(0, {"key": "time", "value": f"{time} {scale.unit}"})
        return {"graphs": [_graph(graph) for graph in graphs]}


def _graph(graph: dict[str, Any]) -> Any:
    """Model Explorer takes its own classes, of which only the outer ones need be made."""
    nodes = [graph_builder.GraphNode(**node) for node in graph.pop("nodes")]
    return graph_builder.Graph(nodes=nodes, **graph)
