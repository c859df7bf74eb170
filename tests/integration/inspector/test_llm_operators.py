"""Records of a model with the operators of ExecuTorch's LLM exports, which write to a cache."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.warm import warm_python

pytest.importorskip("executorch.extension.llm.custom_ops")

MAKE = """
import sys, torch
from executorch.extension.llm.custom_ops import custom_ops
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch import nn

HEADS, WIDTH, LENGTH = 2, 8, 8

class Attention(nn.Module):  # as executorch.examples.models.llama exports it
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(HEADS * WIDTH, HEADS * WIDTH, bias=False) for _ in range(4)
        )
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, LENGTH, HEADS, WIDTH))

    def forward(self, x, position):
        start = position[0].item()
        torch._check(start >= 0)
        torch._check(start <= LENGTH - 3)
        parts = (self.wq, self.wk, self.wv)
        q, k, v = (part(x).view(1, -1, HEADS, WIDTH).transpose(1, 2) for part in parts)
        for new, cache in ((k, self.k_cache), (v, self.v_cache)):
            torch.ops.llama.update_cache(new.transpose(1, 2), cache, start)
        caches = (one.transpose(1, 2).transpose(1, 2) for one in (self.k_cache, self.v_cache))
        found = torch.ops.llama.custom_sdpa(q.transpose(1, 2), *caches, start, None, 0.0, True)
        return self.wo(found.view(1, -1, HEADS * WIDTH)) + x

torch.manual_seed(0)
inputs = (torch.randn(1, 3, HEADS * WIDTH), torch.tensor([0]))
with torch.no_grad():
    program = torch.export.export(Attention().eval(), inputs)
    edge = to_edge_transform_and_lower(
        program,
        partitioner=[XnnpackPartitioner()] if sys.argv[2] == "xnnpack" else [],
        compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
        generate_etrecord=True,
    )
made = edge.to_executorch()
made.save(f"{sys.argv[1]}/net.pte")
record = made.get_etrecord()
record.update_representative_inputs([list(inputs)])
record.save(f"{sys.argv[1]}/net.etrecord")
"""


def etscope(folder: Path, *arguments: str) -> str:
    """What the command prints, in a process that has not loaded the operators."""
    done = subprocess.run(
        [warm_python(), "-m", "etscope", *arguments], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
def test_numerics_evaluate_and_report(tmp_path: Path, backend: str) -> None:
    subprocess.run([warm_python(), "-c", MAKE, str(tmp_path), backend], check=True)
    record = ("-r", "net.etrecord")
    level = ("--debug-level", "intermediate_outputs")
    etscope(tmp_path, "run", "net.pte", "--etrecord", "net.etrecord", *level, "--save", "ran")
    values = ("ran/values.etdp", "-b", "ran/debug.bin")
    for graph in ("edge", "exported"):
        found = etscope(
            tmp_path, "numerics", *record, *values, "--graph", graph, "--format", "json"
        )
        document: dict[str, Any] = json.loads(found)
        rows = document["rows"] if "rows" in document else document["operators"]["rows"]
        assert {row["verdict"] for row in rows} == {"fine"}
        [attention] = [row for row in rows if "sdpa" in json.dumps(row["node"])]
        # Noise from reading float64 as float32 would allow anything.
        assert attention["limit"] > 80
    etscope(tmp_path, "report", *record, *values, "-o", "report.html")
    (tmp_path / "data").mkdir()
    for seed in range(2):
        x = np.random.default_rng(seed).normal(size=(1, 3, 16)).astype(np.float32)
        np.savez(tmp_path / f"data/{seed}.npz", arg0=x, arg1=np.array([0]))
    found = etscope(tmp_path, "evaluate", "net.pte", *record, "-d", "data")
    assert "no operator goes wrong in 2 samples" in found
