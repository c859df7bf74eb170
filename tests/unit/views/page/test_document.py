"""The report's document: of the form of web/src/document.ts, with the Inspector's numbers."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path

import pytest

from etscope import Inspector
from etscope.analysis.memory.plan import memory_plan
from etscope.analysis.profile.scale import Scale
from etscope.analysis.tables.profile_table import profile_table
from etscope.analysis.work.columns import WORK_COLUMNS
from etscope.capture.files import RunFiles, run_of_files
from etscope.formats.program.pte import read_pte
from etscope.model.statistics import summarize
from etscope.units import TimeScale
from etscope.views.output import finite
from etscope.views.page import ReportRun, document_of, escaped_json
from etscope.views.page import method as method_page
from tests.support import etdump_by_hand as by_hand
from tests.support.artifacts import artifacts
from tests.support.views.page_contract import DOCUMENT_TS, Contract
from tests.support.views.page_reports import (
    document,
    document_of_files,
    rows_of,
    wrong_indices,
)

NAMES = (
    "cnn_portable",
    "cnn_xnnpack",
    "transformer",
    "two_methods",
    "cond",
    "while_loop",
    "forward_and_extra",
    "deconvolution",
    "dynamic_shape",
    "llama_xnnpack",
    "many_delegates",
)
MS = Scale(TimeScale.NS, TimeScale.MS)


@pytest.fixture(scope="module")
def contract() -> Contract:
    return Contract(DOCUMENT_TS.read_text())


# -- its form


def test_the_contract_is_read_whole(contract: Contract) -> None:
    assert {"ReportDocument", "Run", "Method", "GraphDoc", "Timeline", "Cell"} <= set(
        contract.types
    )
    wrong = {**document("cnn_portable"), "runs": [{}], "more": 1}
    faults = contract.faults(wrong, "ReportDocument")
    assert any("unknown member 'more'" in fault for fault in faults)
    assert any("runs[0]: no member 'id'" in fault for fault in faults)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_of_the_form_that_the_page_reads(contract: Contract, name: str) -> None:
    found = document(name)
    assert contract.faults(found, "ReportDocument") == []
    assert list(wrong_indices(found["runs"][0])) == []
    for method in found["runs"][0]["methods"]:
        averages, modules = method["rows"]["values"]["avg"], method["modules"]
        named = method["links"]["module"]
        for number, module in enumerate(modules):
            wanted = None if module["path"] == "(no module)" else number
            assert [named[row] for row in module["rows"]] == [wanted] * len(module["rows"])
            below = sum(m["total"] for m in modules if m["parent"] == number)
            assert math.isclose(module["total"], module["self"] + below, rel_tol=1e-9)
            own = sum(averages[row] for row in module["rows"])
            assert math.isclose(own, module["self"], rel_tol=1e-9)


@pytest.mark.parametrize("kind", ["etrecord", "pte", "etdump"])
def test_each_file_alone_is_a_report(contract: Contract, kind: str) -> None:
    files = artifacts("cnn_xnnpack")
    found = document_of_files(getattr(files, kind))
    (run,) = found["runs"]
    assert contract.faults(found, "ReportDocument") == []
    assert list(wrong_indices(run)) == []
    assert bool(run["methods"]) == (kind == "etdump")
    assert bool(run["graphs"]) == (kind != "etdump")
    assert run["numericsNote"]
    plan = memory_plan(read_pte(files.pte), "forward") if kind == "pte" else None
    shown = [(one["peak"], one["live"], rows_of(one["values"])) for one in run["memory"]]
    wanted = [] if plan is None else [(plan.peak_bytes, list(plan.live_bytes), len(plan.values))]
    assert shown == wanted


def test_a_bundled_program_is_a_report(contract: Contract) -> None:
    files = artifacts("bundled")
    found = document_of_files(files.etdump, files.bpte)
    assert contract.faults(found, "ReportDocument") == []
    facts = {file["role"]: file for file in found["runs"][0]["files"]}
    assert facts.keys() == {"dump", "program"}
    assert facts["dump"]["sha256"] == hashlib.sha256(files.etdump.read_bytes()).hexdigest()
    assert facts["program"]["bytes"] == files.bpte.stat().st_size


# -- its numbers


@pytest.mark.parametrize("name", ["cnn_xnnpack", "two_methods", "while_loop"])
def test_rows_are_those_of_the_profile(name: str) -> None:
    files = artifacts(name)
    dump = files.etdump_timing or files.etdump
    trace = run_of_files([dump], RunFiles.given(record=files.etrecord, program=files.pte)).open()
    run = document(name)["runs"][0]
    assert [method["name"] for method in run["methods"]] == [p.method for p in trace.profiles()]
    for method, profile in zip(run["methods"], trace.profiles(), strict=True):
        expected = profile_table(profile, MS, sort="run")
        assert method["rows"]["values"]["avg"] == list(expected.values["avg"])
        assert method["rows"]["values"]["event"] == list(expected.values["event"])
        assert method["totals"] == MS(profile.total).tolist()
        for samples, average in zip(method["samples"], expected.values["avg"], strict=True):
            assert math.isclose(sum(s or 0 for s in samples) / method["runs"], average)


@pytest.mark.parametrize("name", ["cnn_xnnpack", "transformer"])
def test_events_are_those_of_to_dataframe(name: str) -> None:
    """Of the runs that count; `to_dataframe` has all."""
    files = artifacts(name)
    dump = files.etdump_timing or files.etdump
    frame = Inspector(dump, etrecord=files.etrecord).to_dataframe(include_units=False)
    method = document(name)["runs"][0]["methods"][0]
    events, counted = method["events"]["values"], method["runIndex"]
    every = sorted([*counted, *(method["excluded"] or {"runIndex": []})["runIndex"]])
    kept = [run in counted for run in every]
    raws = [
        [time for time, keep in zip(raw, kept, strict=True) if keep]
        if len(raw) == len(kept)
        else raw
        for raw in frame["raw"]
    ]
    assert events["event_name"] == frame["event_name"].tolist()
    more = ("inputs", "outputs", *(column.name for column in WORK_COLUMNS))
    assert list(frame.columns) == [name for name in events if name not in more]
    for statistic in ("p10", "p50", "p90", "avg", "min", "max"):
        expected = [
            float(summarize(raw, (statistic,))[statistic])
            if raw and not math.isnan(value)
            else None
            for raw, value in zip(raws, frame[statistic], strict=True)
        ]
        assert events[statistic] == pytest.approx(expected)
    assert events["raw"] == raws
    assert events["is_delegated_op"] == frame["is_delegated_op"].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_events_are_of_the_nodes_that_their_rows_ran(name: str) -> None:
    for method in document(name)["runs"][0]["methods"]:
        events, rows = method["events"]["values"], method["rows"]["values"]
        of_rows = [(event, row) for event, row in enumerate(method["eventRow"]) if row is not None]
        kernels = [
            (event, row)
            for event, row in of_rows
            if rows["kind"][row] == "kernel" and rows["op_types"][row]
        ]
        assert kernels or "kernel" not in rows["kind"]
        for event, row in kernels:
            assert events["op_types"][event] == rows["op_types"][row]
            assert rows["module"][row] is None or events["module_hierarchy"][event]
        inside = [(event, row) for event, row in of_rows if events["is_delegated_op"][event]]
        if name in ("cnn_xnnpack", "transformer"):
            assert any(events["outputs"][event] for event, _ in inside)
            kernels += inside
        for event, row in kernels:
            assert events["inputs"][event] == rows["inputs"][row]
            assert events["outputs"][event] == rows["outputs"][row]


@pytest.mark.parametrize("name", ["cnn_xnnpack", "cnn_xnnpack_int8"])
def test_nodes_of_a_delegate_are_found_in_each_graph(name: str) -> None:
    graphs = {graph["key"]: graph for graph in document(name)["runs"][0]["graphs"]}
    edge = graphs["edge/forward"]
    convolutions = [
        number for number, node in enumerate(edge["nodes"]) if "convolution" in node["op"]
    ]
    assert len(convolutions) > 1
    assert "edgeNodes" not in edge
    for key in ("exported/forward", "executed/forward"):
        for number in convolutions:
            (same,) = (
                node
                for node, behind in zip(graphs[key]["nodes"], graphs[key]["edgeNodes"], strict=True)
                if number in behind
            )
            assert "conv" in same["op"]
            assert same["line"] == edge["nodes"][number]["line"]


def test_the_timeline_holds_the_runs_side_by_side() -> None:
    run = document("cnn_xnnpack")["runs"][0]
    timeline, method = run["timeline"], run["methods"][0]
    total_row = rows_of(method["rows"]) - 1
    spans = [
        (start, duration, level)
        for start, duration, level, row in zip(
            timeline["start"], timeline["duration"], timeline["level"], timeline["row"], strict=True
        )
        if row == [0, total_row]
    ]
    assert len(spans) > 3
    excluded = method["excluded"] or {"totals": [], "runIndex": []}
    assert sorted(one for _, one, _ in spans) == sorted(method["totals"] + excluded["totals"])
    names = [track["name"] for track in timeline["tracks"]]
    assert [f"run {n}" in name for name in names for n in excluded["runIndex"] if "excl" in name]
    assert {level for _, _, level in spans} == {0}
    parents = {track["parent"] for track in timeline["tracks"]} - {None}
    assert all(timeline["tracks"][parent]["parent"] is None for parent in parents)
    named = {timeline["names"][name] for name in timeline["name"]}
    assert "XnnpackBackend" in named and not named & {"OPERATOR_CALL", "DELEGATE_CALL"}


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ([5, 3, 9, 4], ["0 (first)", "1", "2 (slowest)", "3 (median)"]),
        (
            [9, 3, 5, 4],
            ["0 (first, slowest, excluded)", "1", "2 (slowest after the first)", "3 (median)"],
        ),
        ([4, 9, 1], ["0 (first, median)", "1 (slowest)", "2"]),
        ([7, 2], ["0 (first, slowest)", "1 (median, slowest after the first)"]),
        ([7], ["0 (the only one)"]),
    ],
)
def test_the_slowest_run_is_named_so(times: list[int], shown: list[str], tmp_path: Path) -> None:
    dump = tmp_path / "runs.etdp"
    runs = [
        by_hand.run("Execute", [by_hand.profile("Method::execute", chain=-1, start=0, end=time)])
        for time in times
    ]
    dump.write_bytes(by_hand.etdump(*runs))
    tracks = document_of_files(dump)["runs"][0]["timeline"]["tracks"]
    named = [track["name"] for track in tracks if track["parent"] is None]
    assert named == [f"method · run {one}" for one in shown]


# -- large and hostile files


def many_runs(count: int, kernels: int) -> bytes:
    """A dump of `count` runs of `kernels` instructions."""

    def one(run: int) -> by_hand.Table:
        start = run * 1_000_000
        events = [by_hand.profile("Method::execute", chain=-1, start=start, end=start + 900_000)]
        for number in range(kernels):
            begin = start + 1000 * number
            place = {"chain": 0, "instruction": number}
            events.append(
                by_hand.profile("OPERATOR_CALL", start=begin, end=begin + 900 + run % 7, **place)
            )
        return by_hand.run("Execute", events)

    return by_hand.etdump(*(one(run) for run in range(count)))


def test_many_runs_stay_small(
    tmp_path: Path, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method_page, "MOST_SAMPLES", 12_000)
    dump = tmp_path / "many.etdp"
    dump.write_bytes(many_runs(600, 24))
    found = document_of_files(dump)
    run = found["runs"][0]
    (method,) = run["methods"]
    assert contract.faults(found, "ReportDocument") == []
    assert list(wrong_indices(run)) == []
    assert method["runs"] == len(method["totals"]) == 600
    assert "longest rows" in method["samplesNote"]
    assert method["samples"][-1] == method["totals"]
    assert sum(samples is not None for samples in method["samples"]) == 20
    named = [track["name"] for track in run["timeline"]["tracks"] if track["parent"] is None]
    assert len(named) == 500
    assert {"first", "median", "slowest"} <= set(re.findall(r"\w+", " ".join(named)))
    assert len(run["timeline"]["start"]) <= 20_500
    assert "100 later runs are left out" in run["timeline"]["note"]
    assert len(escaped_json(found)) < 8 << 20
    assert math.isclose(method["rows"]["values"]["p50"][0], 903e-6)


HOSTILE = (
    "</script><script>document.title='hacked'</script>",
    "<!-- <script>",
    "a\u2028b\u2029c\x00\x07\x1b[31m",
    "abc\u202egnp.exe",
    "x" * 100_000,
    "&lt;b&gt; ]]> ${1} `",
)


def hostile_dump() -> bytes:
    events = [by_hand.profile("Method::execute", chain=-1, start=0, end=1000)]
    for number, name in enumerate(HOSTILE):
        place = {"chain": 0, "instruction": number, "start": number, "end": number + 1}
        events.append(by_hand.profile(name, **place))
        events.append(by_hand.profile("inner", delegate_str=name, **place))
    return by_hand.etdump(by_hand.run("Execute", events))


def test_hostile_names_are_text(contract: Contract) -> None:
    trace = Inspector(etdump_data=hostile_dump()).trace
    text = escaped_json(document_of([ReportRun(HOSTILE[0], trace)]))
    assert contract.faults(json.loads(text), "ReportDocument") == []
    assert text.isascii() and not set("<>&") & set(text)
    names = json.loads(text)["runs"][0]["methods"][0]["events"]["values"]["event_name"]
    assert set(HOSTILE) <= set(names)
    lone = {"name": "\ud800 and \udfff"}
    assert json.loads(escaped_json(lone)) == lone
    assert finite([1.5, math.nan, math.inf, -math.inf, [math.inf, 2.0], None, "Infinity"]) == [
        1.5, None, "Infinity", "-Infinity", ["Infinity", 2.0], None, "Infinity",
    ]  # fmt: skip


def test_two_runs_are_told_apart() -> None:
    files = artifacts("cnn_xnnpack")
    found = document_of_files(files.etdump, files.etdump_timing, files.etrecord)
    assert [run["id"] for run in found["runs"]] == ["run0", "run1"]
    assert len({run["name"] for run in found["runs"]}) == 2
    assert all(run["graphs"] for run in found["runs"])


def test_a_dump_without_executions_says_so(tmp_path: Path, contract: Contract) -> None:
    dump = tmp_path / "loading.etdp"
    loading = by_hand.profile("Program::load_method", chain=-1, start=5, end=9)
    dump.write_bytes(by_hand.etdump(by_hand.run("Default", [loading])))
    found = document_of_files(dump)
    (run,) = found["runs"]
    assert contract.faults(found, "ReportDocument") == []
    assert run["methods"] == []
    assert any("does not have a Method::execute" in note for note in run["notes"])
    assert run["timeline"]["names"] == ["Program::load_method"]
