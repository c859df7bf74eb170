"""Programs that rules of `etscope explain` about times, work and the machine look at: of each a
program, its record, and runs of it with numbers of threads."""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig, to_edge
from torch import nn

from etscope.etrecord import generate_etrecord
from etscope.export import export
from etscope.run import run
from tests.support.artifact_recipes.workbench import Workbench

SIZE = 512


class Loop(nn.Module):
    """A recurrent cell in a loop of Python, which export writes out."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.zeros(1, 8)
        for step in range(12):
            hidden = self.cell(x[step], hidden)
        return hidden


def large() -> nn.Module:
    """Two large products."""
    return nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE))


def small() -> nn.Module:
    """Many small ones."""
    return nn.Sequential(*(nn.Linear(32, 32) for _ in range(24)))


# Name: model, rows of its input, backend, threads of its runs.
PROGRAMS: dict[str, tuple[Any, Any, str, tuple[int | None, ...]]] = {
    "portable": (large, torch.ones(32, SIZE), "portable", (None,)),
    "whole": (large, torch.ones(32, SIZE), "portable, with linear kept whole", (None,)),
    "delegated": (large, torch.ones(32, SIZE), "xnnpack", (1, 2, 8)),
    "small-1": (small, torch.ones(1, 32), "xnnpack", (2,)),
    "small-256": (small, torch.ones(256, 32), "xnnpack", (2,)),
    "loop": (Loop, torch.ones(12, 1, 8), "portable", (None,)),
}


def explained_threads(bench: Workbench) -> None:
    """The files of all programs, and a dump and a run.json of each run."""
    for name, (make, x, backend, threads) in PROGRAMS.items():
        model = make().eval()
        with torch.no_grad():
            for weight in model.parameters():  # constants pack to nothing
                weight.fill_(1 / weight.shape[-1])
        program, record = bench.folder / f"{name}.pte", bench.folder / f"{name}.etrecord"
        if "whole" in backend:
            config = EdgeCompileConfig(preserve_ops=[torch.ops.aten.linear.default])
            edge = to_edge(torch.export.export(model, (x,)), compile_config=config)
            before, made = deepcopy(edge), edge.to_executorch()
            program.write_bytes(made.buffer)
            generate_etrecord(record, before, made)
        else:
            exported = export(model, (x,), backend=backend)
            program.write_bytes(exported.program_bytes())
            exported.record.save(record)
        for number in threads:
            _least_disturbed(bench, program, x, number)


def _least_disturbed(bench: Workbench, program: Path, x: Any, threads: int | None) -> None:
    """Keep the run of six that other processes disturbed least."""
    least = float("inf")
    for _ in range(6):
        done = run(program, [x], iterations=10, threads=threads, isolate=False, runner="python")
        with done, TemporaryDirectory() as folder:
            done.save(folder)
            if (time := done.latency.p50_ns) < least:
                least = time
                for suffix in ("etdp", "json"):
                    kept = bench.folder / f"{program.stem}.{threads}.{suffix}"
                    shutil.copy(Path(folder, f"run.{suffix}"), kept)
