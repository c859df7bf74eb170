"""The work of rows and nodes, and rooflines, in the report's document."""

from __future__ import annotations

from pathlib import Path

import pytest

from etscope.analysis.work.columns import NAMES, SHOWN
from etscope.analysis.work.roofline import roofline
from etscope.formats.calibration import write_calibration
from etscope.units import TimeScale
from etscope.views.page.elements import CHOSEN
from tests.support.artifacts import artifacts
from tests.support.calibrations import calibration
from tests.support.views.page_contract import DOCUMENT_TS, Contract
from tests.support.views.page_reports import Json, document, document_of_files
from tests.unit.analysis.test_roofline import opened


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """A run on a machine that is calibrated."""
    return calibrated_run("cnn_xnnpack", tmp_path_factory.mktemp("peaks"))


def calibrated_run(name: str, folder: Path) -> Json:
    files, peaks = artifacts(name), folder / "peaks.json"
    write_calibration(calibration(), peaks)
    paths = (files.etdump, files.etrecord, files.pte)
    run: Json = document_of_files(*paths, peaks=peaks)["runs"][0]
    return run


def measures(run: Json, key: str) -> Json:
    (graph,) = (one for one in run["graphs"] if one["key"] == key)
    return {one["key"]: {**one, "graph": graph} for one in graph["measures"]}


def test_columns_of_the_work_are_the_readers_choice(run: Json) -> None:
    rows = run["methods"][0]["rows"]
    of_work = [column for column in rows["columns"] if column["name"] in NAMES]
    assert [column["name"] for column in of_work] == list(NAMES)
    assert {column["priority"] for column in of_work} == {CHOSEN}
    assert all(column["priority"] < CHOSEN for column in rows["columns"] if column not in of_work)
    assert sum(value is not None for value in rows["values"]["peak"]) > 5
    assert "compute" in rows["values"]["bound"]
    assert not [note for note in rows["notes"] if "FLOPs" in note or "calibrat" in note]


def test_events_have_the_work_of_their_rows(run: Json) -> None:
    method = run["methods"][0]
    events, rows = method["events"], method["rows"]
    assert {*SHOWN} <= {column["name"] for column in events["columns"]}
    for name in SHOWN:
        for value, row, average in zip(
            events["values"][name], method["eventRow"], events["values"]["avg"], strict=True
        ):
            is_of_row = row is not None and row < min(rows["breaks"]) and average is not None
            assert value == (rows["values"][name][row] if is_of_row else None)
    assert sum(value is not None for value in events["values"]["gflops"]) > 5
    assert "compute" in events["values"]["bound"]
    bare = document_of_files(artifacts("cnn_xnnpack").etdump)["runs"][0]["methods"][0]["events"]
    assert not {*SHOWN} & {column["name"] for column in bare["columns"]}


def test_nodes_and_boxes_have_their_work(tmp_path: Path) -> None:
    run = calibrated_run("transformer", tmp_path)
    for graph in ("edge/forward", "executed/forward"):
        check_work(measures(run, graph), is_edge=graph == "edge/forward")


def check_work(found: Json, *, is_edge: bool) -> None:
    flops, moved, intensity, peak = (
        found[key] for key in ("flops", "moved_bytes", "intensity", "peak")
    )
    nodes, groups = flops["graph"]["nodes"], flops["graph"]["groups"]
    assert not peak["largerIsWorse"]
    shares = [value for value in peak["nodes"] if value is not None]
    assert len(shares) > 20 and all(0 <= share < 20 for share in shares)
    for number, (work, size, ratio) in enumerate(
        zip(flops["nodes"], moved["nodes"], intensity["nodes"], strict=True)
    ):
        if work and size:
            assert ratio == pytest.approx(work / size), nodes[number]["name"]
    # A box has the FLOPs of the nodes in it, those inside of a call once.
    (block,) = (
        number
        for number, one in enumerate(groups)
        if one["kind"] == "module" and one["label"] == "blocks"
    )

    def is_inside(group: int | None) -> bool:
        while group is not None and group != block:
            group = groups[group]["parent"]
        return group is not None

    inside = [number for number, one in enumerate(nodes) if is_inside(one["group"])]
    calls = {number for number in inside if nodes[number]["kind"] == "call_function"}
    assert len(calls) > 50
    if is_edge:
        assert flops["groups"][block] == sum(flops["nodes"][number] or 0 for number in inside)


def test_without_a_calibration_no_node_has_a_share() -> None:
    found = measures(document("cnn_xnnpack")["runs"][0], "edge/forward")
    assert {"flops", "moved_bytes", "intensity"} <= set(found) and "peak" not in found


def test_rooflines_are_those_of_the_analysis(tmp_path: Path) -> None:
    run = calibrated_run("cnn_portable", tmp_path)
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


def test_rooflines_without_a_calibration_work_or_times() -> None:
    files = artifacts("cnn_portable")
    for paths, options, is_there in (
        ((files.etdump, files.etrecord, files.pte), {}, True),
        ((files.etdump,), {}, False),
        ((files.etrecord,), {}, False),
        ((files.etdump, files.etrecord), {"source_unit": "cycles"}, False),
    ):
        found = document_of_files(*paths, **options)["runs"][0]["roofline"]
        assert (found is not None) == is_there
        if is_there:
            assert found["ceilings"] is None and any(found["methods"][0]["flops"])
            assert any("etscope calibrate" in note for note in found["methods"][0]["notes"])
