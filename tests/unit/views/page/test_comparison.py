"""What the page shows of two profiles is what `etscope diff` says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from etscope.analysis.comparison.changes import percent
from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.comparison.diff_table import diff_table, shown_changes
from etscope.analysis.comparison.program_report import program_diff_report
from etscope.analysis.comparison.programs import Side, diff_programs
from etscope.analysis.comparison.waterfall import GROUPINGS, headline, waterfall_table
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.trace import Trace
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.units import TimeScale
from etscope.views.output import dumps
from etscope.views.page import ReportRun, document_of
from etscope.views.page.comparison import compared_documents
from tests.support.artifacts import artifacts
from tests.support.timed_dumps import timed_dump
from tests.support.views.page_contract import DOCUMENT_TS, Contract
from tests.support.views.page_reports import Json, rows_of

MS = Scale(TimeScale.NS, TimeScale.MS)


def trace(name: str, folder: Path, seed: int, **options: object) -> Trace:
    files = artifacts(name)
    path = timed_dump(files.etdump_timing, folder / f"{seed}.etdp", seed=seed, **options)  # type: ignore[arg-type]
    return Trace(read_etdump(path), record=read_etrecord(files.etrecord))


def compared(*traces: Trace, scales: tuple[Scale, ...] = (MS,) * 5) -> Json:
    inputs = [
        ReportRun(f"run {n}", one, scale=scale)
        for n, (one, scale) in enumerate(zip(traces, scales, strict=False))
    ]
    found: Json = json.loads(dumps(document_of(inputs)))
    assert Contract(DOCUMENT_TS.read_text()).faults(found, "ReportDocument") == []
    return found


@pytest.mark.parametrize("names", [("cnn_xnnpack",) * 2, ("cnn_portable", "cnn_xnnpack")])
def test_rows_verdicts_and_words_are_those_of_diff(names: tuple[str, str], tmp_path: Path) -> None:
    before = trace(names[0], tmp_path, 1)
    after = trace(names[1], tmp_path, 2, slower={0: 1.2})
    diff = diff_profiles(before.profiles()[0], after.profiles()[0])

    report = compared(before, after)
    found, swapped = report["comparisons"]

    expected = diff_table(diff, MS)
    assert (found["a"], found["b"]) == ([0, 0], [1, 0])
    assert found["verdict"] == diff.verdict.value
    assert found["headline"] == list(headline(diff, MS))
    assert rows_of(found["table"]) == len(expected)
    values = found["table"]["values"]
    for name in ("event", "verdict", "status", "before", "after", "change", "interval", "module"):
        assert values[name] == list(expected.values[name]), name
    relatives = [None if one is None else percent(one) for one in values["relative"]]
    assert relatives == expected.values["relative"]
    sides = [report["runs"][n]["methods"][0]["rows"]["values"]["event"] for n in (0, 1)]
    changes = shown_changes(diff, "change")[0]
    assert len(changes) == len(expected) - 2
    for number, change in enumerate(changes):
        for letter, events, row in zip(
            "ab", sides, (change.pair.before, change.pair.after), strict=True
        ):
            place = values[f"row_{letter}"][number]
            assert (None if place is None else events[place]) == (row and row.name)
    assert values["row_a"][-2:] == [len(sides[0]) - 2, len(sides[0]) - 1]
    for by, sums in zip(GROUPINGS, found["sums"], strict=True):
        table = waterfall_table(diff, MS, by)
        for name in (by, "verdict", "status", "before", "after", "change"):
            assert sums["values"][name] == list(table.values[name]), (by, name)
    # TensorBoard's tab has only the documents of the runs.
    stored, _ = json.loads(dumps(compared_documents(report["runs"])))
    assert (stored["verdict"], stored["headline"]) == (found["verdict"], found["headline"])
    for name in ("event", "status", "verdict", "row_a", "row_b", "module"):
        assert stored["table"]["values"][name] == values[name], name
    changes_again = zip(stored["table"]["values"]["change"], values["change"], strict=True)
    assert all(one == pytest.approx(other) for one, other in changes_again)
    for one, other in zip(stored["sums"], found["sums"], strict=True):
        assert one["values"]["verdict"] == other["values"]["verdict"]

    reverse = diff_profiles(after.profiles()[0], before.profiles()[0])
    assert (swapped["a"], swapped["b"]) == ([1, 0], [0, 0])
    assert swapped["headline"] == list(headline(reverse, MS))
    assert swapped["table"]["values"]["verdict"] == list(diff_table(reverse, MS).values["verdict"])


def test_few_profiles_are_compared_each_with_each_many_with_the_first(tmp_path: Path) -> None:
    one = trace("cnn_portable", tmp_path, 1, runs=12)
    pairs = [
        [(found["a"][0], found["b"][0]) for found in compared(*[one] * count)["comparisons"]]
        for count in (1, 3, 5)
    ]
    forward = [[], [(0, 1), (0, 2), (1, 2)], [(0, 1), (0, 2), (0, 3), (0, 4)]]
    assert pairs == [found + [(b, a) for a, b in found] for found in forward]
    files = artifacts("two_methods")
    both = Trace(read_etdump(files.etdump), record=read_etrecord(files.etrecord))
    found, _ = compared(both)["comparisons"]  # the methods of one run, with each other
    assert (found["a"], found["b"]) == ([0, 0], [0, 1])
    again = compared(both, both)["comparisons"][:2]  # of two runs, each method with itself
    assert [(one["a"], one["b"]) for one in again] == [([0, 0], [1, 0]), ([0, 1], [1, 1])]


def test_other_models_and_other_units_are_said(tmp_path: Path) -> None:
    one, other = trace("cnn_portable", tmp_path, 1), trace("transformer_portable", tmp_path, 2)
    found, _ = compared(one, other)["comparisons"]
    assert found["headline"][0].startswith(
        "The dumps are from different models: none of the modules "
    )
    assert found["table"] is not None
    cycles = replace(MS, source=TimeScale.CYCLES, target=TimeScale.CYCLES)
    none, _ = compared(one, one, scales=(MS, cycles))["comparisons"]
    assert none["headline"] == ["Times in different units cannot be compared."]
    assert (none["verdict"], none["table"], none["sums"]) == (None, None, [])


def test_graphs_of_two_runs_have_the_change_of_each_node(tmp_path: Path) -> None:
    one = trace("cnn_portable", tmp_path, 1)
    other = trace("cnn_portable", tmp_path, 2, slower={7: 1.5})
    report = compared(one, other)
    found = 0
    for graphs in zip(*(run["graphs"] for run in report["runs"]), strict=True):
        by_key = [{m["key"]: m for m in graph["measures"]} for graph in graphs]
        if "avg" not in by_key[0]:
            continue
        for place in ("nodes", "groups"):
            columns = [measures["avg"][place] for measures in by_key]
            expected = [
                None if None in pair else pair[1] - pair[0] for pair in zip(*columns, strict=True)
            ]
            found += sum(value is not None for value in expected)
            for measures in by_key:
                assert measures["change"][place] == pytest.approx(expected)
    assert found > 20
    unlike = compared(one, trace("cnn_xnnpack", tmp_path, 3))["runs"]
    changes = [m for g in unlike[0]["graphs"] for m in g["measures"] if m["key"] == "change"]
    assert changes
    assert all(value is None for measure in changes for value in measure["nodes"])
    for runs in ((one,), (one, other, one)):
        graphs = [graph for run in compared(*runs)["runs"] for graph in run["graphs"]]
        assert graphs and all(m["key"] != "change" for graph in graphs for m in graph["measures"])


@pytest.mark.parametrize("with_records", [True, False])
def test_programs_are_compared_as_diff_does(with_records: bool) -> None:
    names = ("cnn_portable", "cnn_xnnpack")
    sides = []
    for name in names:
        files = artifacts(name)
        record = read_etrecord(files.etrecord) if with_records else None
        sides.append(Side(name, read_pte(files.pte), record))
    inputs = [ReportRun(one.name, one.export) for one in sides]
    found: Json = json.loads(dumps(document_of(inputs)))
    assert Contract(DOCUMENT_TS.read_text()).faults(found, "ReportDocument") == []
    (programs,) = found["programs"]
    told = program_diff_report(diff_programs(*sides))
    assert (programs["a"], programs["b"], programs["identical"]) == (0, 1, False)
    assert programs["summary"] == list(told.summary)
    for section, expected in zip(programs["sections"], told.sections, strict=True):
        assert section["name"] == expected.name
        assert rows_of(section["table"]) == len(expected.table)
    assert "executed/forward" in {graph["key"] for graph in programs["graphs"]}
    for pair in programs["graphs"]:
        for letter, run in zip("ab", found["runs"], strict=True):
            (graph,) = (one for one in run["graphs"] if one["key"] == pair["key"])
            indices = sorted(index for index in pair[letter] if index is not None)
            assert indices == list(range(len(graph["nodes"])))
        assert len({len(pair[name]) for name in ("a", "b", "status", "what")}) == 1


def test_runs_of_one_program_are_not_compared_by_it(tmp_path: Path) -> None:
    def ran(name: str, seed: int) -> Trace:
        return replace(trace(name, tmp_path, seed), program=read_pte(artifacts(name).pte))

    assert compared(ran("cnn_xnnpack", 1), ran("cnn_xnnpack", 2))["programs"] == []
    found = compared(ran("cnn_xnnpack", 3), ran("cnn_portable", 4))
    assert [(one["a"], one["b"]) for one in found["programs"]] == [(0, 1)]
