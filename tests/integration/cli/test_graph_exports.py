"""`etscope graph` with the formats of graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etscope.cli import main
from tests.support.artifacts import artifacts

Capture = pytest.CaptureFixture[str]


def graph(*arguments: str, dump: bool = True) -> int:
    """`etscope graph` on a record, with a run unless `dump` is false."""
    made = artifacts("transformer")
    run = ["--dump", str(made.etdump_timing), "--program", str(made.pte)] if dump else []
    return main(["graph", str(made.etrecord), *arguments, *run])


def test_all_graphs_unless_one_is_named(capsys: Capture) -> None:
    assert graph("--format", "graph-json") == 0
    found = json.loads(capsys.readouterr().out)
    keys = [one["key"] for one in found["graphs"]]
    assert keys == ["exported/forward", "edge/forward", "executed/forward"]
    assert graph("executed", "--format", "graph-json", "--unit", "us") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["key"] for one in found["graphs"]] == ["executed/forward"]
    assert found["time_unit"] == "us"


def test_the_suffix_tells_the_format(tmp_path: Path) -> None:
    for name in ("a.dot", "a.graph.json", "a.explorer.json", "a.nodedata.json"):
        assert graph("edge", "-o", str(tmp_path / name)) == 0
    assert (tmp_path / "a.dot").read_text().startswith('digraph "edge/forward"')
    explorer = json.loads((tmp_path / "a.explorer.json").read_text())
    overlay = json.loads((tmp_path / "a.nodedata.json").read_text())
    assert set(overlay["results"]) <= {node["id"] for node in explorer["graphs"][0]["nodes"]}


def test_an_overlay_by_name(capsys: Capture) -> None:
    values = {}
    for name in ("min", "max"):
        assert graph("edge", "-f", "node-data", "--columns", name) == 0
        values[name] = json.loads(capsys.readouterr().out)["results"]
    assert values["min"].keys() == values["max"].keys()
    assert all(values["min"][k]["value"] <= values["max"][k]["value"] for k in values["min"])


def test_delegates_stay_closed(capsys: Capture) -> None:
    assert graph("executed", "-f", "graph-json", "--no-into-delegates") == 0
    (found,) = json.loads(capsys.readouterr().out)["graphs"]
    assert not [node for node in found["nodes"] if node["call"]]
    known = {node["key"] for node in found["nodes"]}
    assert all(edge["source"] in known and edge["target"] in known for edge in found["edges"])


def test_errors_of_a_run_with_values(capsys: Capture) -> None:
    pytest.importorskip("executorch")
    made = artifacts("cnn_portable")
    files = ["-d", str(made.etdump), "-b", str(made.debug_buffer), "--inputs", str(made.inputs_pt)]
    options = ["-f", "node-data", "--columns", "local_error"]
    assert main(["graph", str(made.etrecord), "exported", *files, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "local error (sqnr)"
    assert all(result["value"] > 40 for result in found["results"].values())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["edge", "-f", "dot", "--tree"], 2, "for tables"),
        (["edge", "-f", "dot", "--columns", "avg"], 2, "node-data"),
        (["edge", "-f", "node-data", "--columns", "a,b"], 2, "one number"),
        (["-f", "dot"], 2, "one graph"),
        (["nothing", "-f", "dot"], 4, "no graph 'nothing'"),
        (["edge", "-f", "node-data"], 4, "no node"),
        (["edge", "-b", "x"], 2, "graph-json"),
    ],
)
def test_what_makes_no_sense_is_said(
    arguments: list[str], code: int, message: str, capsys: Capture
) -> None:
    assert graph(*arguments, dump=False) == code
    assert message in capsys.readouterr().err


def test_memory_of_a_program(capsys: Capture) -> None:
    made = artifacts("transformer")
    assert main(["info", "--memory", str(made.pte), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "memory_live" in json.dumps(found)
    assert main(["info", "--memory", str(made.etrecord)]) == 2
    assert "is neither a program" in capsys.readouterr().err
