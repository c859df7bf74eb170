"""The part of the report's document on rooflines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.work.roofline import roofline
from etscope.formats.calibration import write_calibration
from etscope.reporting.report import ReportOptions, report_inputs, runs_of_files
from etscope.units import TimeScale
from etscope.views.page import document_of
from tests.support.artifacts import artifacts
from tests.support.calibrations import calibration
from tests.support.views.page_contract import DOCUMENT_TS, Contract
from tests.unit.analysis.test_roofline import opened


def document(*names: str, **options: Any) -> dict[str, Any]:
    files = artifacts("cnn_portable")
    given = {"dump": files.etdump, "record": files.etrecord, "program": files.pte}
    runs = runs_of_files([path for name in names if (path := given[name]) is not None])
    options = {"numerics": False, **options}
    return document_of(list(report_inputs(runs, ReportOptions(**options))))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    write_calibration(calibration(), tmp_path / "peaks.json")
    return tmp_path / "peaks.json"


def test_its_numbers_are_those_of_the_analysis(kept: Path) -> None:
    (run,) = document("dump", "record", "program", calibration=kept)["runs"]
    assert Contract(DOCUMENT_TS.read_text()).faults(run["roofline"], "RooflineDoc") == []
    points, names = run["roofline"]["methods"][0], run["methods"][0]["rows"]["values"]["event"]
    assert len({len(points[name]) for name in points if name not in ("notes", "partial")}) == 1
    assert all(0 <= row < len(names) for of_one in points["rows"] for row in of_one)
    _, profile, limits = opened("cnn_portable", calibration())
    wanted = roofline(profile, limits, TimeScale.NS).points
    assert len(points["ns"]) == len(wanted) > 5
    for at, point in enumerate(wanted):
        named = points["name"][at] or names[points["rows"][at][0]]
        assert named == point.name
        assert points["ns"][at] == pytest.approx(point.ns)
        if point.gflops is not None:
            assert points["flops"][at] / points["ns"][at] == pytest.approx(point.gflops)
            assert points["flops"][at] / points["bytes"][at] == pytest.approx(point.intensity)
    assert sum(points["share"]) == pytest.approx(1)
    assert dict(run["roofline"]["ceilings"]["memory"]) == {"L1": 50, "memory": 10}


def test_without_a_calibration_work_or_times() -> None:
    found = document("dump", "record", "program")["runs"][0]["roofline"]
    assert found["ceilings"] is None and any(found["methods"][0]["flops"])
    assert any("etscope calibrate" in note for note in found["methods"][0]["notes"])
    assert document("dump")["runs"][0]["roofline"] is None
    assert document("record")["runs"][0]["roofline"] is None
    assert document("dump", "record", source_unit="cycles")["runs"][0]["roofline"] is None
