"""`etscope inspect --roofline`: what it prints, its files, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from etscope.formats.calibration import write_calibration
from tests.support.artifacts import artifacts
from tests.support.calibrations import calibration
from tests.support.cli.fixtures import Run


@pytest.fixture
def peaks(tmp_path: Path) -> str:
    write_calibration(calibration(), tmp_path / "peaks.json")
    return str(tmp_path / "peaks.json")


@pytest.fixture
def drawn(run: Run) -> Run:
    """The command on a run with its record and its program."""
    files = artifacts("cnn_portable")
    return partial(
        run, "inspect", "--roofline", files.etdump, "-r", files.etrecord, "-p", files.pte
    )


def operators(said: tuple[int, str, str]) -> list[dict[str, Any]]:
    code, out, _ = said
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)["reports"][0]["sections"]["operators"]
    return found


def test_a_text_has_operators_places_and_ceilings(peaks: str, drawn: Run) -> None:
    code, out, _ = drawn("-X", f"peaks={peaks}", "-n", "3")
    assert code == 0
    for part in ("roofline", "FLOP/B", "GFLOP/s", "peak", "bound", "Where the time is", "Ceilings"):
        assert part in out
    assert "memory" in out and "compute" in out and "not shown (--limit)" in out


def test_json_and_csv_have_the_same_rows(peaks: str, drawn: Run) -> None:
    told = drawn("-X", f"peaks={peaks}", "-f", "json")
    document = json.loads(told[1])
    assert document["schema"] == "etscope.roofline/1"
    assert set(document["reports"][0]["sections"]) == {"operators", "places", "ceilings"}
    rows = list(csv.DictReader(io.StringIO(drawn("-X", f"peaks={peaks}", "-f", "csv")[1])))
    assert [row["event"] for row in rows] == [row["event"] for row in operators(told)]
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
    assert {row["bound"] for row in operators(told)} >= {"compute", "memory"}
    assert all("module" in row for row in operators(drawn("--by", "module", "-f", "json")))
    kept = operators(drawn("-s", "name:conv*", "-f", "json"))
    assert kept and all("conv" in row["event"] for row in kept)


def test_what_it_refuses(tmp_path: Path, run: Run, drawn: Run) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": "etscope.run/1"}')
    for (code, _, err), wanted, words in (
        (
            run("inspect", "--roofline", artifacts("cnn_portable").etdump),
            4,
            "the FLOPs and bytes of the operators are unknown",
        ),
        (drawn("-s", "name:nothing*"), 4, "nothing matches"),
        (drawn("--source-unit", "cycles"), 2, "counts cycles"),
        (drawn("--method", "backward"), 4, "backward"),
        (drawn("-X", f"peaks={broken}"), 3, "calibration"),
    ):
        assert code == wanted and words in err, err
