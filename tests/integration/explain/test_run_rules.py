"""Rules that look at times, work and the machine, on recorded runs of real programs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run

Explained = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def explained(tmp_path: Path, run: Run) -> Explained:
    """The findings of rules by name, as `etscope explain --format json` has them."""
    made = artifacts("explained_threads")

    def call(model: str, threads: int | None, *rules: str) -> dict[str, dict[str, Any]]:
        for suffix in ("etdp", "json"):
            shutil.copy(made.extra(f"{model}.{threads}.{suffix}"), tmp_path / f"run.{suffix}")
        files = ("-r", made.extra(f"{model}.etrecord"), "-p", made.extra(f"{model}.pte"))
        only = [word for rule in rules for word in ("--rule", rule)]
        code, out, _ = run("explain", tmp_path / "run.etdp", *files, *only, "--format", "json")
        assert code == 0
        return {one["kind"]: one for one in json.loads(out).get("findings", [])}

    return call


def test_linear_layers_on_portable_kernels(explained: Explained) -> None:
    found = explained("portable", None)
    one = found["not-delegated"]
    assert one["quantity"]["share"] > 0.8
    assert {"addmm.out"} <= {site["name"] for site in one["explanation"]["sites"]}
    text = " ".join(one["explanation"]["evidence"])
    assert "GFLOP/s" in text and "have no optimized one" in text
    assert "portable-kernels" not in found
    assert not {"float-weights", "threads", "whole-caches", "small-operators"} & found.keys()
    # Of layers that are kept whole, as the finding says, none is left.
    text = " ".join(explained("whole", None)["not-delegated"]["explanation"]["evidence"])
    assert "GFLOP/s" not in text


def test_threads_of_large_products(explained: Explained) -> None:
    found = explained("delegated", 1, "threads", "float-weights")  # on two cores
    assert found["float-weights"]["quantity"]["share"] > 0.5
    assert found["threads"]["explanation"]["remedies"][0]["arguments"] == {"threads": 2}
    too_many = explained("delegated", 8, "threads")["threads"]
    assert too_many["severity"] == "cost"
    assert too_many["explanation"]["remedies"][0]["change"] == "threads"
    assert "threads" not in explained("delegated", 2, "threads")


def test_threads_of_small_products(explained: Explained) -> None:
    one = explained("small-1", 2, "threads")["threads"]  # 2 kFLOP a layer
    assert one["severity"] == "fact"
    assert "2 threads split 24 small matrix products" in one["sentence"]
    assert "computes 2.05 kFLOP" in one["explanation"]["evidence"][0]
    assert one["explanation"]["remedies"][0]["arguments"] == {"threads": 1}
    assert "threads" not in explained("small-256", 2, "threads")  # 524 kFLOP


def test_a_loop_that_export_writes_out(explained: Explained) -> None:
    one = explained("loop", None, "small-operators")["small-operators"]
    text = " ".join([*one["explanation"]["evidence"], one["explanation"]["remedies"][0]["text"]])
    assert "of this run that read and write at most 512 bytes" in text
    assert "explained_threads.py:" in text
    assert "a loop, which export unrolls" in text
    assert one["explanation"]["sureness"] == "likely"
