"""`etscope graph` with the formats of graphs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run


@pytest.fixture
def graph(run: Run) -> Run:
    """`etscope graph` on a record, with a run."""
    made = artifacts("transformer")
    files = ("--dump", made.etdump_timing, "--program", made.pte)
    return partial(run, "graph", made.etrecord, *files)


def document(said: tuple[int, str, str]) -> dict[str, Any]:
    code, out, _ = said
    assert code == 0
    return json.loads(out)  # type: ignore[no-any-return]


def test_all_graphs_unless_one_is_named(graph: Run) -> None:
    found = document(graph("--format", "graph-json"))
    keys = [one["key"] for one in found["graphs"]]
    assert keys == ["exported/forward", "edge/forward", "executed/forward"]
    found = document(graph("executed", "--format", "graph-json", "-X", "unit=us"))
    assert [one["key"] for one in found["graphs"]] == ["executed/forward"]
    assert found["time_unit"] == "us"


def test_the_suffix_tells_the_format(graph: Run, tmp_path: Path) -> None:
    for name in ("a.dot", "a.graph.json", "a.explorer.json", "a.nodedata.json"):
        assert graph("edge", "-o", tmp_path / name)[0] == 0
    assert (tmp_path / "a.dot").read_text().startswith('digraph "edge/forward"')
    explorer = json.loads((tmp_path / "a.explorer.json").read_text())
    overlay = json.loads((tmp_path / "a.nodedata.json").read_text())
    assert set(overlay["results"]) <= {node["id"] for node in explorer["graphs"][0]["nodes"]}


def test_an_overlay_by_name(graph: Run) -> None:
    least, most = (
        document(graph("edge", "-f", "node-data", "--columns", name))["results"]
        for name in ("min", "max")
    )
    assert least.keys() == most.keys()
    assert all(least[key]["value"] <= most[key]["value"] for key in least)


def test_delegates_stay_closed(graph: Run) -> None:
    (found,) = document(graph("executed", "-f", "graph-json", "-Xinto_delegates=false"))["graphs"]
    assert not [node for node in found["nodes"] if node["call"]]
    known = {node["key"] for node in found["nodes"]}
    assert all(edge["source"] in known and edge["target"] in known for edge in found["edges"])


def test_errors_of_a_run_with_values(run: Run) -> None:
    pytest.importorskip("executorch")
    made = artifacts("cnn_portable")
    files = ("--dump", made.etdump, "-b", made.debug_buffer, "--inputs", made.inputs_pt)
    options = ("-f", "node-data", "--columns", "local_error")
    found = document(run("graph", made.etrecord, "exported", *files, *options))
    assert found["name"] == "local error (sqnr)"
    assert all(result["value"] > 40 for result in found["results"].values())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("edge -f dot --tree", 2, "for tables"),
        ("edge -f dot --columns avg", 2, "node-data"),
        ("edge -f node-data --columns a,b", 2, "one number"),
        ("-f dot", 2, "one graph"),
        ("nothing -f dot", 4, "graph 'nothing'"),
        ("edge -f node-data", 4, "no node"),
        ("edge -b x", 2, "graph-json"),
    ],
)
def test_what_makes_no_sense_is_said(run: Run, words: str, code: int, message: str) -> None:
    found, _, err = run("graph", artifacts("transformer").etrecord, *words.split())
    assert (found, message in err) == (code, True), err


def test_memory_of_a_program(run: Run) -> None:
    made = artifacts("transformer")
    assert "memory_live" in str(document(run("info", "--memory", made.pte, "--format", "json")))
    code, _, err = run("info", "--memory", made.etrecord)
    assert code == 2 and "is neither a program" in err
