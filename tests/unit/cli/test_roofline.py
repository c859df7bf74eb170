"""`etscope roofline`: what it prints, its files, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from etscope.cli import main
from etscope.formats.calibration import write_calibration
from tests.support.artifacts import artifacts
from tests.support.calibrations import calibration


@pytest.fixture
def peaks(tmp_path: Path) -> str:
    write_calibration(calibration(), tmp_path / "peaks.json")
    return str(tmp_path / "peaks.json")


def arguments(*more: str, record: bool = True, program: bool = True) -> list[str]:
    files = artifacts("cnn_portable")
    given = ["roofline", str(files.etdump)]
    given += ["-r", str(files.etrecord)] if record else []
    given += ["-p", str(files.pte)] if program else []
    return [*given, *more]


def test_a_text_has_operators_places_and_ceilings(
    peaks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments("--peaks", peaks, "-n", "3")) == 0
    out = capsys.readouterr().out
    for part in ("roofline", "FLOP/B", "GFLOP/s", "peak", "bound", "Where the time is", "Ceilings"):
        assert part in out
    assert "memory" in out and "compute" in out and "not shown (--limit)" in out


def test_json_and_csv_have_the_same_rows(peaks: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("--peaks", peaks, "-f", "json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "etscope.roofline/1"
    (report,) = told["reports"]
    assert set(report["sections"]) == {"operators", "places", "ceilings"}
    assert main(arguments("--peaks", peaks, "-f", "csv")) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    operators = report["sections"]["operators"]
    assert [row["event"] for row in rows] == [row["event"] for row in operators]
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
    assert {row["bound"] for row in operators} >= {"compute", "memory"}


def test_groups_and_selectors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments("--by", "module", "-f", "json")) == 0
    groups = json.loads(capsys.readouterr().out)["reports"][0]["sections"]["operators"]
    assert all("module" in row for row in groups)
    assert main(arguments("-s", "name:conv*", "-f", "json")) == 0
    kept = json.loads(capsys.readouterr().out)["reports"][0]["sections"]["operators"]
    assert kept and all("conv" in row["event"] for row in kept)
    assert main(arguments("-s", "name:nothing*")) == 4
    assert "nothing matches" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_beside_the_table(
    peaks: str, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"roofline.{suffix}"
    assert main(arguments("--peaks", peaks, "--plot", str(path))) == 0
    assert path.stat().st_size > 5_000
    assert str(path) in capsys.readouterr().err


def test_what_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(record=False, program=False)) == 4
    assert "the work of what ran is not known" in capsys.readouterr().err
    assert main(arguments("--source-unit", "cycles")) == 2
    assert "counts cycles" in capsys.readouterr().err
    assert main(arguments("--plot", str(tmp_path / "a.pdf"))) == 2
    assert "no picture format" in capsys.readouterr().err
    assert main(arguments("--method", "backward")) == 4
    assert "backward" in capsys.readouterr().err
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": "etscope.run/1"}')
    assert main(arguments("--peaks", str(broken))) == 3
    assert "calibration" in capsys.readouterr().err
