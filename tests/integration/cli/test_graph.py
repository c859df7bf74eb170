"""`etscope graph`, as a person or a script calls it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from etscope.analysis.graphs.node_costs import node_times
from etscope.analysis.graphs.node_info import SCHEMA, find_node, node_info
from etscope.analysis.graphs.node_table import NodeTables, default_columns
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.compatibility import instruction_labels
from etscope.formats.program.pte import read_pte
from etscope.units import TimeScale
from etscope.views import write_table
from etscope.views.tables.report import write_reports
from tests.support.analysis.graphs import linked, lowered, profile, row
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.golden_files import check_golden


@pytest.mark.parametrize("width", [80, 140])
def test_golden(width: int) -> None:
    found = linked(lowered(), {0: 1, 1: [2, 2]}, delegates={1: "SomeBackend"})
    scale = Scale(TimeScale.NS, TimeScale.US)
    times = node_times(
        found,
        profile(
            row("kernel", "convolution.out", 0, 5_000, 7_000),
            row("delegate", "SomeBackend", 1, 20_000, 24_000),
            total=[30_000, 32_000],
        ),
    )
    out = io.StringIO()
    nodes = NodeTables(found, times=times, scale=scale).nodes()
    write_table(nodes.select(default_columns(nodes)), "table", out, width=width, color=False)
    out.write("\n")
    write_table(
        NodeTables(found, times=times, scale=scale).modules(),
        "table",
        out,
        width=width,
        color=False,
    )
    out.write("\n")
    for name in ("conv", "delegate"):
        report = node_info(found, find_node(found, name), times, scale)
        write_reports([report], SCHEMA, "table", out, width=width, color=False)
        out.write("\n")
    check_golden(f"graph/lowered_{width}.txt", out.getvalue())


Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def rows(run: Run) -> Rows:
    """The rows of the JSON of a graph, of the record of an artefact by its name."""

    def called(name: str, *words: object) -> list[dict[str, Any]]:
        code, out, _ = run("graph", artifacts(name).etrecord, *words, "-f", "json")
        assert code == 0
        found: list[dict[str, Any]] = json.loads(out)["rows"]
        return found

    return called


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("form", [[], ["--tree"]])
def test_it_fits_the_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int, form: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    files = artifacts("cnn_xnnpack_lowered")

    code, out, err = run("graph", files.etrecord, "edge", "--dump", files.etdump, *form)

    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width


def test_the_graphs_are_listed(rows: Rows) -> None:
    found = rows("forward_and_extra")
    assert {graph["graph"]: (graph["name"], graph["dialect"]) for graph in found} == {
        "exported": ("exported_program", "TRAINING"),
        "edge/forward": ("edge_dialect_exported_program/forward", "EDGE"),
        "edge/extra": ("edge_dialect_exported_program/extra", "EDGE"),
    }


def test_the_nodes_of_a_graph(rows: Rows) -> None:
    found = rows("cnn_portable", "edge")
    convolutions = [node for node in found if node["op"] == "aten.convolution.default"]
    assert len(convolutions) == 6
    assert convolutions[0]["outputs"] == ["float32[1, 8, 16, 16]"]
    assert convolutions[0]["module"] == "stem.conv"
    assert convolutions[0]["source_path"].rpartition(":")[0].endswith("cnn.py")
    assert not any(node["node"].startswith("p_") for node in found)


def test_nodes_are_selected_by_numbers(rows: Rows) -> None:
    words = ("cnn_portable", "edge", "--dump", artifacts("cnn_portable").etdump)
    everything = rows(*words)
    for name, most in (("flops", 1e5), ("bytes", 1e4), ("share", 0.05)):
        wanted = [row["node"] for row in everything if (row[name] or 0) > most]
        assert 0 < len(wanted) < len(everything)
        assert [row["node"] for row in rows(*words, "-s", f"{name}>{most}")] == wanted
    tree = rows(*words, "--tree", "-s", "flops>1e5")
    assert tree[0]["module"] == "(root)"
    assert tree[0]["nodes"] == sum((row["flops"] or 0) > 1e5 for row in everything)


def test_times_of_nodes(run: Run, rows: Rows) -> None:
    files = artifacts("cnn_portable")
    words = ("--dump", files.etdump, "--sort", "-avg", "-X", "unit=us", "-f", "json")
    document = json.loads(run("graph", files.etrecord, *words)[1])
    average = [node["avg"] for node in document["rows"] if node["avg"] is not None]
    assert len(average) == 24
    assert average == sorted(average, reverse=True)
    assert {c["name"]: c["unit"] for c in document["columns"]}["avg"] == "us"
    # The exported graph has times too: a linear layer those of its permute and its addmm.
    exported = rows("cnn_portable", "exported", "--dump", files.etdump)
    linear = next(node for node in exported if node["op"] == "linear.default")
    assert linear["avg"] is not None and len(linear["instructions"]) == 2


def test_a_bundled_program_has_the_instructions_of_its_program(run: Run) -> None:
    bundled, record = artifacts("bundled"), artifacts("bundled").etrecord
    code, out, _ = run("graph", bundled.bpte)
    assert code == 0 and out.startswith("Instructions of forward")
    assert run("graph", bundled.bpte, record, "edge")[0] == 0


def test_the_program_tells_of_branches(rows: Rows) -> None:
    files = artifacts("cond")
    words = ("cond", "edge", "--dump", files.etdump)
    without, with_program = (
        sum(row["avg"] is not None for row in found)
        for found in (rows(*words), rows(*words, "--program", files.pte))
    )
    assert without < with_program


def test_a_selection_of_nodes_and_modules(run: Run, rows: Rows) -> None:
    words = ("cnn_portable", "-s", "module:head and op:addmm")
    assert [node["module"] for node in rows(*words)] == ["head.fc"]
    assert rows(*words, "--tree")[-1]["module"] == "head.fc"
    # A limit of nothing is no error.
    record = artifacts("cnn_portable").etrecord
    assert run("graph", record, "-s", "op:relu", "-n", 0)[0] == 0


def test_lowered_modules_open_and_closed(rows: Rows) -> None:
    words = ("cnn_xnnpack_lowered", "edge")
    assert len(rows(*words)) > 24
    closed = [node["node"] for node in rows(*words, "-X", "into_delegates=false")]
    assert closed == ["x", "executorch_call_delegate", "output"]


def test_one_node(run: Run) -> None:
    files = artifacts("cnn_portable")
    words = (files.etrecord, "--dump", files.etdump, "--node", "aten_addmm_default")
    code, out, _ = run("graph", *words)
    assert code == 0
    for expected in ("head.fc.bias", "float32[1, 64]", "aten__softmax_default", "share of",
                     "innermost last", "torch.nn.modules.linear.Linear", "linear"):  # fmt: skip
        assert expected in out


def test_one_node_for_machines(run: Run) -> None:
    record = artifacts("cnn_xnnpack_lowered").etrecord
    _, out, _ = run("graph", record, "--node", "executorch_call_delegate", "-f", "json")
    document = json.loads(out)
    (report,) = document["reports"]
    assert document["schema"] == "etscope.node/1"
    assert report["node"] == "executorch_call_delegate"
    assert report["sections"]["delegate"]["backend"] == "XnnpackBackend"
    assert len(report["sections"]["delegated"]) == 24


def test_columns_and_limit(run: Run) -> None:
    record = artifacts("cnn_portable").etrecord
    _, out, _ = run("graph", record, "edge", "--columns", "node,op", "-n", 2, "-f", "csv")
    assert out.splitlines() == [
        "node,op",
        "x,placeholder",
        "aten_convolution_default,aten.convolution.default",
    ]


def test_a_program_lists_its_instructions(run: Run) -> None:
    program = artifacts("two_methods").pte

    code, everything, _ = run("graph", program)
    _, one, _ = run("graph", program, "encode", "-f", "json")

    assert code == 0
    assert "Instructions of encode" in everything and "Instructions of decode" in everything
    assert [row["op"] for row in json.loads(one)["rows"]] == ["permute_copy", "addmm", "tanh"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("/nowhere", 2, "file not found: /nowhere"),
        ("@cnn_portable.pte --tree", 2, "has instructions, but not graphs"),
        ("@cnn_portable.pte nope", 4, "does not have a method 'nope'"),
        ("@cnn_portable.etdp", 2, "has neither an ETRecord nor a program"),
        ("@two_methods --tree", 2, "'edge' matches several graphs"),
        ("@cnn_portable edgy", 4, "did you mean 'edge'?"),
        ("@cnn_portable --node aten_adm_default", 4, "did you mean"),
        ("@cnn_portable -s op:nothing", 4, "nothing matches 'op:nothing'"),
        ("@cnn_portable -s op:nothing --tree", 4, "nothing matches"),
        ("@cnn_portable -s flops>1e15", 4, "flops is 0 to"),
        ("@cnn_portable -s share>5%", 2, "share needs the times of a run"),
        ("@cnn_portable -s gbps>1", 2, "cannot select by gbps"),
        ("@cnn_portable --partition -s flops>1", 2, "cannot select by"),
        ("@cnn_portable -s dtype:f32", 4, "did you mean dtype:float32?"),
        ("@cnn_portable -s convo", 4, "did you mean name:*convo*"),
        ("@cnn_portable -s nokey:x", 2, "unknown key 'nokey'"),
        ("@cnn_portable edge --sort nothing", 2, "unknown column 'nothing'"),
        ("@cnn_portable edge --columns nothing", 2, "unknown column 'nothing'"),
        ("@cnn_portable --tree --sort nodes", 2, "--sort does not go with --tree"),
        ("@cnn_portable --node x --tree", 2, "--node shows everything about one node"),
        ("@cnn_portable --dump @two_methods.etdp", 3, "do not belong together"),
        ("@method_only --dump @method_only.etdp", 4, "logged no instructions"),
        ("@cnn_xnnpack_lowered executed", 4, "name the .pte too"),
    ],
)
def test_errors(run: Run, words: str, code: int, message: str) -> None:
    found, out, err = run("graph", *map(_file, words.split()))
    assert (found, out) == (code, "")
    assert message in err


def _file(word: str) -> object:
    """The file of an artefact: "@two_methods" its record, "@two_methods.pte" its program, ..."""
    if not word.startswith("@"):
        return word
    name, _, suffix = word[1:].partition(".")
    files = artifacts(name)
    return {"": files.etrecord, "pte": files.pte, "etdp": files.etdump}[suffix]


@pytest.mark.parametrize("name", ["executed", "executed/forward"])
def test_the_executed_program_is_a_table(run: Run, rows: Rows, name: str) -> None:
    made = artifacts("cnn_xnnpack")
    found = rows("cnn_xnnpack", name, "-p", made.pte, "--dump", made.etdump)
    called = [row for row in found if row["kind"] == "call_function"]
    program = read_pte(made.pte).method("forward")
    assert {number for row in called for number in row["instructions"]} == {
        number for number, label in enumerate(instruction_labels(program)) if label != "free"
    }
    assert any(row["avg"] for row in called if row["op"] == "XnnpackBackend")
    assert any(row["module"] for row in called)
    # Of a program alone: no lines, but what runs is the same.
    alone = json.loads(run("graph", made.pte, name, "-f", "json")[1])["rows"]
    outside, the_same = (
        [row["node"] for row in side if row["graph"] == found[0]["graph"]]
        for side in (found, alone)
    )
    assert outside == the_same


def test_the_files_of_a_run_come_in_any_order(run: Run) -> None:
    made = artifacts("cnn_xnnpack")
    as_option = run("graph", made.etrecord, "executed", "-p", made.pte, "--dump", made.etdump)
    assert as_option[0] == 0
    assert run("graph", made.etdump, made.pte, made.etrecord, "executed") == as_option
    assert run("graph", made.pte, made.etrecord, made.etdump, "executed", "--all-runs")[0] == 0


def test_nodes_have_their_work(run: Run, rows: Rows) -> None:
    found = rows("int_outputs", "edge", "--sort", "-flops")
    known = [row["flops"] for row in found if row["flops"] is not None]
    assert len(known) > 3 and known == sorted(known, reverse=True)
    (topk,) = (row for row in found if row["op"] == "aten.topk.default")
    assert topk["flops"] is None and topk["bytes"] > 0
    record = artifacts("int_outputs").etrecord
    _, out, _ = run("graph", record, "edge", "--columns", "node,flops")
    assert "The work of 1 of 7 nodes is unknown: aten.topk." in out
    code, out, _ = run("graph", artifacts("dynamic_shape").etrecord, "edge")
    assert code == 0 and "work" not in out


@pytest.mark.parametrize("name", ["cnn_xnnpack", "cnn_portable", "transformer"])
def test_a_program_alone_has_the_work_of_its_record(run: Run, name: str) -> None:
    made = artifacts(name)

    def flops(*words: object) -> list[float | None]:
        """Those of the calls."""
        rows = json.loads(run("graph", *words, "-f", "json")[1])["rows"]
        if "graph" in rows[0]:  # or they are the instructions of a program
            called = [row for row in rows if row["kind"] == "call_function"]
            rows = [row for row in called if row["graph"] == "executed/forward"]
        return [row["flops"] for row in rows]

    with_record = flops(made.etrecord, "executed", "-p", made.pte)
    assert any(with_record)
    assert with_record == flops(made.pte, "executed") == flops(made.pte)
    rows = json.loads(run("graph", made.pte, "executed", "-f", "json")[1])["rows"]
    inside = [row["flops"] for row in rows if row["graph"] != "executed/forward"]
    assert any(inside) == (name != "cnn_portable")  # told by the delegate
