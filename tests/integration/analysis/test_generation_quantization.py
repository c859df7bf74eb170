"""What quantization costs at a call of a language model, with a cache from the calls before it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from etscope.cli import main
from etscope.run import generate
from tests.support.artifacts import artifacts


def test_the_cache_of_earlier_calls_is_no_own_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the calls before left in the cache is off already: operators that only write to it are
    not to blame for that, and the linear layers are, which were quantized."""
    made = artifacts("llama_generate_8da4w")
    with generate(
        made.pte,
        tokens=[3, 17],
        force_tokens=[204, 33],
        etrecord=made.etrecord,
        debug_level="intermediate_outputs",
        iterations=1,
        warmup=0,
    ) as run:
        run.save(tmp_path / "ran")
    capsys.readouterr()
    line = ["numerics", str(tmp_path / "ran"), "-r", str(made.etrecord), "--calls", "1"]
    main([*line, "--quantization", "--format", "json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    costly = [row for row in rows if isinstance(row["own"], float) and row["own"] < 60]
    assert costly
    assert {row["op"] for row in costly} <= {"linear", "embedding"}
    assert all(row["alone"] is None or row["op"] in ("linear", "embedding") for row in rows)
