"""Answers of real bisections, for the strategies: by seed the graph, and of each piece that one of
the strategies asks for, how it fares on the runtime."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from etscope.export import Source
from etscope.search.bisect import bisect
from etscope.search.bisect._bisect import STRATEGIES
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.bisect.planted import PLANTS, backend, generated

SEEDS = 12


def bisected(bench: Workbench) -> None:
    """`{seed}.json` for each seed."""
    for seed in range(SEEDS):
        plant = PLANTS[seed % len(PLANTS)]
        options: dict[str, Any] = {"isolate": False}
        with backend() as name, TemporaryDirectory() as folder, _unconfirmed():
            for strategy in STRATEGIES:
                source = Source("", "model", *generated(seed, plant()))
                found = bisect(source, folder, backend=name, strategy=strategy, **options)
                options["resume"] = True
            answers = json.loads(Path(folder, "state.json").read_text())["trials"]
        nodes = [
            [node.name, node.op, node.inputs, [frame.path for frame in node.modules]]
            for node in found.graph.nodes
        ]
        document = {"planted": plant.op, "nodes": nodes, "answers": answers}
        (bench.folder / f"{seed}.json").write_text(json.dumps(document, indent=1))


def _unconfirmed() -> Any:
    """Do not run the script of each reproduction in a process of its own."""
    return mock.patch("etscope.search.bisect._probe.confirm_failure")
