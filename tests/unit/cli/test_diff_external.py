"""`etscope diff` on .ptd files: by key, in all formats, with the exit codes of programs."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.formats.program.ptd import write_ptd
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run


@pytest.fixture
def run(run: Run) -> Run:
    return partial(run, "diff")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two .ptd files with a key for each status."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(64, 32)).astype(np.float32)
    moved = rng.normal(size=(8, 8)).astype(np.float32)
    nudged = matrix.copy()
    nudged[3, 4] += 1
    pairs: dict[str, tuple[Any, Any]] = {
        "fine.weight": (matrix, matrix),
        "fine.bias": (matrix[0], matrix[0]),
        "changed": (matrix, nudged),
        "retyped": (matrix[1], matrix[1].astype(np.float16)),
        "reshaped": (matrix[:2], matrix[:2].reshape(4, 16)),
        "old": (moved, None),
        "new": (None, moved),
        "gone": (matrix[2], None),
        "there": (None, matrix[4]),
        "opaque": (b"some data", b"other data"),
    }
    paths = tmp_path / "before.ptd", tmp_path / "after.ptd"
    for side, path in enumerate(paths):
        given = {name: pair[side] for name, pair in pairs.items() if pair[side] is not None}
        write_ptd(given, path)
    return paths


def test_weights_are_compared_by_key(files: tuple[Path, Path], run: Run) -> None:
    code, out, err = run(*files, "-f", "json")
    document = json.loads(out)
    (report,) = document["reports"]
    assert (code, err, document["schema"]) == (1, "", "etscope.external_diff/1")
    assert [report[key] for key in ("before", "after", "result")] == [
        "before.ptd", "after.ptd", "different",
    ]  # fmt: skip
    rows = {row["weight"]: row for row in report["sections"]["weights"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "changed": "changed", "retyped": "changed", "reshaped": "changed", "new": "moved",
        "gone": "removed", "there": "added", "opaque": "changed",
    }  # fmt: skip
    assert (rows["changed"]["differing"], rows["changed"]["largest"]) == (1, pytest.approx(1))
    retyped = rows["retyped"]
    assert (retyped["before"], retyped["after"]) == ("float32[32]", "float16[32]")
    assert (retyped["bytes_before"], retyped["bytes_after"]) == (128, 64)
    reshaped = rows["reshaped"]
    assert (reshaped["before"], reshaped["after"]) == ("float32[2, 32]", "float32[4, 16]")
    assert reshaped["differing"] == 0
    assert rows["new"]["was"] == "old"
    assert (rows["opaque"]["before"], rows["opaque"]["quantized"]) == ("bytes", None)
    file, *owners = report["sections"]["size"]
    for side, path in zip(("before", "after"), files, strict=True):
        assert file[side] == path.stat().st_size == sum(owner[side] for owner in owners)


def test_another_order_is_a_difference_that_is_explained(tmp_path: Path, run: Run) -> None:
    tensors = {"a": np.ones(3, np.float32), "b": np.zeros((2, 2), np.int8)}
    one, other, copy = (tmp_path / f"{name}.ptd" for name in ("one", "other", "copy"))
    write_ptd(tensors, one)
    write_ptd(dict(reversed(tensors.items())), other)
    code, out, _ = run(one, other)
    assert code == 1
    assert "All keys have the same data" in out and "Weights by content" not in out
    shutil.copy(one, copy)
    size = copy.stat().st_size
    assert run(one, copy) == (0, f"copy.ptd is identical to one.ptd: {size:,} bytes.\n", "")
    code, out, _ = run(one, other, one, "-f", "json")  # with the first, each
    results = [report["result"] for report in json.loads(out)["reports"]]
    assert (code, results) == (1, ["different", "identical"])
    matrix = np.arange(16, dtype=np.float32).reshape(4, 4)
    write_ptd({"a": matrix}, one)
    write_ptd({"a": matrix.T}, other)
    code, out, _ = run(one, other)
    assert code == 1
    assert "float32[4, 4] in order 1, 0" in out  # of dimensions


@pytest.mark.parametrize(("left", "said"), [(-40, "cut off"), (60, "the file has 60")])
def test_files_that_are_cut_off_are_named(
    files: tuple[Path, Path], left: int, said: str, tmp_path: Path, run: Run
) -> None:
    broken = tmp_path / "broken.ptd"
    broken.write_bytes(files[0].read_bytes()[:left])
    for given in ((files[0], broken), (broken, files[0])):
        code, out, err = run(*given)
        assert (code, out) == (3, "") and "broken.ptd" in err and said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--per-op",), "--per-op is for times, not for .ptd files"),
        (("-r", "record"), "--etrecord is for programs, not for .ptd files"),
        (("-f", "junit"), "--format junit is for times"),
    ],
)
def test_options_of_other_comparisons_are_refused(
    files: tuple[Path, Path], arguments: tuple[str, ...], said: str, run: Run
) -> None:
    record = artifacts("external_portable").etrecord
    given = [record if one == "record" else one for one in arguments]
    code, out, err = run(*files, *given)
    assert (code, out) == (2, "") and said in err
    code, out, err = run(files[0])
    assert (code, out) == (2, "") and "diff needs two .ptd files" in err
