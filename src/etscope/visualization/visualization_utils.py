"""Model Explorer for programs: upstream's `executorch.devtools.visualization.visualization_utils`.

Model Explorer (the package ai-edge-model-explorer) is imported when a function needs it; without it
that is a `MissingDependencyError`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from etscope.errors import MissingDependencyError, RecordError, RuntimeFailure
from etscope.support.optional import require

__all__ = [
    "ModelExplorerServer",
    "SingletonModelExplorerServer",
    "visualize",
    "visualize_graph",
    "visualize_model_explorer",
    "visualize_with_clusters",
]

_TITLE = "Executorch"  # of the collection, as upstream has it
_PORTS = range(8080, 8100)  # where Model Explorer looks for a running server
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0


class ModelExplorerServer:
    """A context that runs Model Explorer's server.

    port: None for the first free one from 8080 on, where `visualize` looks for servers.

    Raises `MissingDependencyError` without the package, `RuntimeFailure` when the server does not
    answer within a minute.
    """

    def __init__(self, open_in_browser: bool = True, port: int | None = None) -> None:
        # First next to this Python: its scripts need not be on the PATH.
        places = (sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath))
        command = shutil.which("model-explorer", path=os.pathsep.join(places))
        if command is None:
            raise MissingDependencyError(
                "the command model-explorer is not installed",
                hint="pip install 'etscope[model-explorer]'",
            )
        self.port = next(filter(_is_free, _PORTS)) if port is None else port
        words = [command, "--port", str(self.port)]
        if not open_in_browser:
            words.append("--no_open_in_browser")
        self.server = subprocess.Popen(words)

    def __enter__(self) -> ModelExplorerServer:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self.server.poll() is None:
            if not _is_free(self.port):
                return self
            time.sleep(0.1)
        ended = self.server.poll()
        self.__exit__()
        raise RuntimeFailure(
            f"Model Explorer's server does not answer on port {self.port}"
            if ended is None
            else f"Model Explorer's server ended with exit code {ended}, on port {self.port}"
        )

    def __exit__(self, *_: object) -> None:
        self.server.terminate()
        try:
            self.server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("localhost", port)) != 0


class SingletonModelExplorerServer:
    """A context that runs one server, however many of these contexts are nested."""

    _shared: ClassVar[ModelExplorerServer | None] = None
    num_open: ClassVar[int] = 0

    def __init__(self, open_in_browser: bool = True, port: int | None = None) -> None:
        self._options = (open_in_browser, port)

    def __enter__(self) -> SingletonModelExplorerServer:
        cls = SingletonModelExplorerServer
        if cls._shared is None:
            cls._shared = ModelExplorerServer(*self._options).__enter__()
        cls.num_open += 1
        return self

    def __exit__(self, *_: object) -> None:
        cls = SingletonModelExplorerServer
        cls.num_open -= 1
        if cls.num_open == 0 and cls._shared is not None:
            cls._shared.__exit__()
            cls._shared = None


def visualize(
    visualizable: Any,
    reuse_server: bool = True,
    no_open_in_browser: bool = False,
    **kwargs: Any,
) -> None:
    """Show a program in Model Explorer.

    visualizable: an `ExportedProgram`, an edge or an ExecuTorch program manager. reuse_server: show
    it in the page of a server that already runs. kwargs: further arguments of
    `visualize_model_explorer`; its `config` replaces the program. With a reused server, this
    function returns when the page has the graph; otherwise it starts a server and returns when that
    server ends.

    Raises `RecordError` for anything but a program.
    """
    explorer = require("model_explorer", wanted_by="visualize")
    config = kwargs.pop("config", None)
    if config is None:
        config = explorer.config()
        config.add_model_from_pytorch(
            _TITLE,
            exported_program=_exported_program(visualizable),
            settings=explorer.consts.DEFAULT_SETTINGS,
        )
    if reuse_server:
        config.set_reuse_server()
    visualize_model_explorer(config=config, no_open_in_browser=no_open_in_browser, **kwargs)


def visualize_model_explorer(**kwargs: Any) -> None:
    """Call `model_explorer.visualize_from_config` with these arguments."""
    require("model_explorer", wanted_by="visualize").visualize_from_config(**kwargs)


def visualize_graph(
    graph_module: Any,
    exported_program: Any,
    reuse_server: bool = True,
    no_open_in_browser: bool = False,
    **kwargs: Any,
) -> None:
    """Show a `torch.fx.GraphModule`, such as a pass returns, as the graph of a program: with the
    program's inputs and constants. Operators may be any."""
    from etscope.bridge.programs import with_graph

    program = with_graph(_exported_program(exported_program), graph_module)
    visualize(program, reuse_server, no_open_in_browser, **kwargs)


def visualize_with_clusters(
    exported_program: Any,
    json_file_name: str | None = None,
    no_open_in_browser: bool = False,
    reuse_server: bool = False,
    get_node_partition_name: Callable[[Any], str | None] = lambda node: node.meta.get(
        "delegation_tag"
    ),
    get_node_qdq_cluster_name: Callable[[Any], str | None] = lambda node: node.meta.get("cluster"),
    **kwargs: Any,
) -> None:
    """Show a program with boxes around its partitions and the clusters of quantized nodes in them.

    json_file_name: write a file for Model Explorer to open, and start no server. The two functions
    give a node's partition and cluster, or None. kwargs: further arguments of
    `visualize_model_explorer`.
    """
    explorer = require("model_explorer", wanted_by="visualize_with_clusters")
    adapter = require(
        "model_explorer.pytorch_exported_program_adapter_impl", wanted_by="visualize_with_clusters"
    )
    graphs = adapter.PytorchExportedProgramAdapterImpl(
        exported_program, explorer.consts.DEFAULT_SETTINGS
    ).convert()
    partitions: dict[str, int] = {}  # by their names, in the order of the nodes
    boxes = {}
    for node in exported_program.graph.nodes:
        box = []
        partition, cluster = get_node_partition_name(node), get_node_qdq_cluster_name(node)
        if partition is not None:
            number = partitions.setdefault(partition, len(partitions))
            box.append(f"partition {number} ({partition.replace('/', ':')})")
        if cluster is not None:
            box.append(f"cluster ({cluster.replace('/', ':')})")
        boxes[node.name] = "/".join(box)
    for shown in graphs["graphs"][0].nodes:
        shown.namespace = boxes.get(shown.id, "")
    if json_file_name is not None:
        # The file that Model Explorer's page opens: the graphs, and each with its level.
        plain = [{**asdict(graph), "collectionLabel": _TITLE} for graph in graphs["graphs"]]
        levels = [{"graph": one, "level": level} for level, one in enumerate(plain)]
        collection = {"label": _TITLE, "graphs": plain, "graphsWithLevel": levels}
        Path(json_file_name).write_text(json.dumps(collection), encoding="utf-8")
        return
    config = explorer.config()
    config.graphs_list.append(graphs)
    config.model_sources.append({"url": f"graphs://{_TITLE}/{len(config.graphs_list) - 1}"})
    if reuse_server:
        config.set_reuse_server()
    visualize_model_explorer(config=config, no_open_in_browser=no_open_in_browser, **kwargs)


def _exported_program(visualizable: Any) -> Any:
    if hasattr(visualizable, "graph_module") and hasattr(visualizable, "graph_signature"):
        return visualizable
    if hasattr(visualizable, "exported_program"):
        return visualizable.exported_program()
    raise RecordError(
        f"a {type(visualizable).__name__} is not a program",
        hint="give an ExportedProgram, an edge or an ExecuTorch program manager",
    )
