"""Records of a model with the operators of ExecuTorch's LLM exports, which write to a cache."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.artifacts import artifacts
from tests.support.warm import warm_python

pytest.importorskip("executorch.extension.llm.custom_ops")


def etscope(folder: Path, *arguments: str) -> str:
    """What the command prints, in a process that has not loaded the operators."""
    done = subprocess.run(
        [warm_python(), "-m", "etscope", *arguments], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "backend", ["portable", pytest.param("xnnpack", marks=pytest.mark.nightly)]
)
def test_numerics_evaluate_and_report(tmp_path: Path, backend: str) -> None:
    made = artifacts("llm_operators")
    program, path = (str(made.extra(f"{backend}.{kind}")) for kind in ("pte", "etrecord"))
    record = ("-r", path)
    level = ("--debug-level", "intermediate_outputs")
    etscope(tmp_path, "run", program, "--etrecord", path, *level, "--save", "ran")
    values = ("ran/values.etdp", "-b", "ran/debug.bin")
    for graph in ("edge", "exported"):
        found = etscope(
            tmp_path, "numerics", *record, *values, "-X", f"graph={graph}", "--format", "json"
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
    found = etscope(tmp_path, "evaluate", program, *record, "--dataset", "data")
    assert "no operator goes wrong in 2 samples" in found
