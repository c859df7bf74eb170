"""`etscope graph`, as a person or a script calls it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from etscope.analysis.graphs.node_info import SCHEMA, find_node, node_info
from etscope.analysis.graphs.node_table import default_columns, module_tree, node_table
from etscope.analysis.graphs.node_times import node_times
from etscope.analysis.profile.scale import Scale
from etscope.analysis.program.compatibility import instruction_labels
from etscope.cli import main
from etscope.formats.program.pte import read_pte
from etscope.units import TimeScale
from etscope.views import write_table
from etscope.views.tables.report import write_reports
from tests.support.analysis.graphs import linked, lowered, profile, row
from tests.support.artifacts import artifacts
from tests.support.golden_files import check_golden


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rows(out: str) -> list[dict[str, object]]:
    return json.loads(out)["rows"]  # type: ignore[no-any-return]


def record(name: str) -> Path:
    path = artifacts(name).etrecord
    assert path is not None
    return path


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
    nodes = node_table(found, times=times, scale=scale)
    write_table(nodes.select(default_columns(nodes)), "table", out, width=width, color=False)
    out.write("\n")
    write_table(
        module_tree(found, times=times, scale=scale), "table", out, width=width, color=False
    )
    out.write("\n")
    for name in ("conv", "delegate"):
        report = node_info(found, find_node(found, name), times, scale)
        write_reports([report], SCHEMA, "table", out, width=width, color=False)
        out.write("\n")
    check_golden(f"graph/lowered_{width}.txt", out.getvalue())


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("form", [[], ["--tree"]])
def test_it_fits_the_terminal(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    form: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    files = artifacts("cnn_xnnpack_lowered")

    code, out, err = run(capsys, "graph", files.etrecord, "edge", "--dump", files.etdump, *form)

    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width


def test_the_graphs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "graph", record("forward_and_extra"), "-f", "json")

    assert code == 0
    assert {graph["graph"]: (graph["name"], graph["dialect"]) for graph in rows(out)} == {
        "exported": ("exported_program", "TRAINING"),
        "edge/forward": ("edge_dialect_exported_program/forward", "EDGE"),
        "edge/extra": ("edge_dialect_exported_program/extra", "EDGE"),
    }


def test_the_nodes_of_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "graph", record("cnn_portable"), "edge", "-f", "json")

    found = rows(out)
    assert code == 0
    convolutions = [node for node in found if node["op"] == "aten.convolution.default"]
    assert len(convolutions) == 6
    assert convolutions[0]["outputs"] == ["float32[1, 8, 16, 16]"]
    assert convolutions[0]["module"] == "stem.conv"
    assert str(convolutions[0]["source_path"]).rpartition(":")[0].endswith("cnn.py")
    assert not any(str(node["node"]).startswith("p_") for node in found)


def test_nodes_are_selected_by_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    files = artifacts("cnn_portable")
    words = ["graph", record("cnn_portable"), "edge", "-d", files.etdump, "-f", "json"]
    everything = rows(run(capsys, *words)[1])
    for name, most in (("flops", 1e5), ("bytes", 1e4), ("share", 0.05)):
        code, out, _ = run(capsys, *words, "-s", f"{name}>{most}")
        wanted = [row["node"] for row in everything if (row[name] or 0) > most]  # type: ignore[operator]
        assert code == 0 and 0 < len(wanted) < len(everything)
        assert [row["node"] for row in rows(out)] == wanted
    tree = rows(run(capsys, *words, "--tree", "-s", "flops>1e5")[1])
    assert tree[0]["nodes"] == sum((row["flops"] or 0) > 1e5 for row in everything)  # type: ignore[operator]


def test_times_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    files = artifacts("cnn_portable")

    code, out, _ = run(
        capsys, "graph", record("cnn_portable"), "-d", files.etdump, "-f", "json", "--sort", "-avg",
        "--unit", "us",
    )  # fmt: skip

    document = json.loads(out)
    average = [node["avg"] for node in document["rows"] if node["avg"] is not None]
    assert code == 0
    assert len(average) == 24
    assert average == sorted(average, reverse=True)
    assert {c["name"]: c["unit"] for c in document["columns"]}["avg"] == "us"


def test_the_program_tells_of_branches(capsys: pytest.CaptureFixture[str]) -> None:
    files = artifacts("cond")
    arguments = ["graph", record("cond"), "edge", "-d", files.etdump, "-f", "json"]

    _, without, _ = run(capsys, *arguments)
    _, with_program, _ = run(capsys, *arguments, "--program", files.pte)

    timed = [sum(row["avg"] is not None for row in rows(out)) for out in (without, with_program)]
    assert timed[0] < timed[1]


def test_the_exported_graph_has_times_too(capsys: pytest.CaptureFixture[str]) -> None:
    files = artifacts("cnn_portable")
    _, out, _ = run(
        capsys, "graph", record("cnn_portable"), "exported", "-d", files.etdump, "-f", "json"
    )
    linear = next(node for node in rows(out) if node["op"] == "linear.default")
    # its permute and its addmm
    assert linear["avg"] is not None and len(linear["instructions"]) == 2  # type: ignore[arg-type]


def test_a_tree_of_modules(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "graph", record("cnn_portable"), "edge", "--tree", "-f", "json")
    document = json.loads(out)
    depth = dict(zip((r["module"] for r in document["rows"]), document["depth"], strict=True))
    assert code == 0
    assert (depth["(root)"], depth["stem"], depth["stages.0.first.conv"]) == (0, 1, 4)


def test_a_selection_of_nodes_and_modules(capsys: pytest.CaptureFixture[str]) -> None:
    selected = ["graph", record("cnn_portable"), "-s", "module:head and op:addmm", "-f", "json"]
    _, nodes, _ = run(capsys, *selected)
    _, tree, _ = run(capsys, *selected, "--tree")
    assert [node["module"] for node in rows(nodes)] == ["head.fc"]
    assert [module["module"] for module in rows(tree)][-1] == "head.fc"


def test_lowered_modules_open_and_closed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["graph", record("cnn_xnnpack_lowered"), "edge", "-f", "json"]
    _, opened, _ = run(capsys, *arguments)
    _, closed, _ = run(capsys, *arguments, "--no-into-delegates")
    assert len(rows(opened)) > 24
    assert [node["node"] for node in rows(closed)] == ["x", "executorch_call_delegate", "output"]


def test_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    files = artifacts("cnn_portable")
    code, out, _ = run(
        capsys, "graph", record("cnn_portable"), "--node", "aten_addmm_default", "-d", files.etdump
    )
    assert code == 0
    for expected in ("head.fc.bias", "float32[1, 64]", "aten__softmax_default", "share of",
                     "innermost last", "torch.nn.modules.linear.Linear", "linear"):  # fmt: skip
        assert expected in out


def test_one_node_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        capsys, "graph", record("cnn_xnnpack_lowered"), "--node", "executorch_call_delegate",
        "-f", "json",
    )  # fmt: skip
    document = json.loads(out)
    (report,) = document["reports"]
    assert document["schema"] == "etscope.node/1"
    assert report["node"] == "executorch_call_delegate"
    assert report["sections"]["delegate"]["backend"] == "XnnpackBackend"
    assert len(report["sections"]["delegated"]) == 24


def test_columns_and_limit(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(
        capsys, "graph", record("cnn_portable"), "edge", "--columns", "node,op", "-n", "2",
        "-f", "csv",
    )  # fmt: skip
    assert out.splitlines() == [
        "node,op",
        "x,placeholder",
        "aten_convolution_default,aten.convolution.default",
    ]


def test_a_program_lists_its_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    program = artifacts("two_methods").pte

    code, everything, _ = run(capsys, "graph", program)
    _, one, _ = run(capsys, "graph", program, "encode", "-f", "json")

    assert code == 0
    assert "Instructions of encode" in everything and "Instructions of decode" in everything
    assert [row["op"] for row in rows(one)] == ["permute_copy", "addmm", "tanh"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["/nowhere"], 2, "file not found: /nowhere"),
        ([Path("cnn_portable.pte"), "--tree"], 2, "has instructions and no graphs"),
        ([Path("cnn_portable.pte"), "nope"], 4, "no method 'nope'"),
        ([Path("cnn_portable.etdp")], 3, "not an ETRecord: this is an ETDump"),
        ([Path("two_methods"), "--tree"], 2, "several graphs could be meant by 'edge'"),
        ([Path("cnn_portable"), "edgy"], 4, "did you mean 'edge'?"),
        ([Path("cnn_portable"), "--node", "aten_adm_default"], 4, "did you mean"),
        ([Path("cnn_portable"), "-s", "op:nothing"], 4, "nothing matches 'op:nothing'"),
        ([Path("cnn_portable"), "-s", "op:nothing", "--tree"], 4, "nothing matches"),
        ([Path("cnn_portable"), "-s", "flops>1e15"], 4, "flops is 0 to"),
        ([Path("cnn_portable"), "-s", "share>5%"], 2, "add its dump: --dump"),
        ([Path("cnn_portable"), "-s", "gbps>1"], 2, "gbps cannot be selected by here"),
        ([Path("cnn_portable"), "--partition", "-s", "flops>1"], 2, "cannot be selected by"),
        ([Path("cnn_portable"), "-s", "dtype:f32"], 4, "did you mean dtype:float32?"),
        ([Path("cnn_portable"), "-s", "convo"], 4, "did you mean name:*convo*"),
        ([Path("cnn_portable"), "-s", "nokey:x"], 2, "unknown key 'nokey'"),
        ([Path("cnn_portable"), "edge", "--sort", "nothing"], 2, "unknown column 'nothing'"),
        ([Path("cnn_portable"), "edge", "--columns", "nothing"], 2, "unknown column 'nothing'"),
        ([Path("cnn_portable"), "--tree", "--sort", "nodes"], 2, "--sort does not go with --tree"),
        ([Path("cnn_portable"), "--node", "x", "--tree"], 2, "--node shows all of one node"),
        ([Path("cnn_portable"), "-d", Path("two_methods.etdp")], 3, "do not belong together"),
        ([Path("method_only"), "-d", Path("method_only.etdp")], 4, "logged no instructions"),
    ],
)
def test_errors(
    capsys: pytest.CaptureFixture[str], arguments: list[str | Path], code: int, message: str
) -> None:
    given = [_file(a) if isinstance(a, Path) else a for a in arguments]
    found, out, err = run(capsys, "graph", *given)
    assert (found, out) == (code, "")
    assert message in err


def _file(path: Path) -> Path:
    """The file of an artefact: "two_methods" its record, "two_methods.pte" its program, ..."""
    files = artifacts(path.stem)
    if path.suffix == ".pte":
        return files.pte
    return files.etdump if path.suffix == ".etdp" else record(path.stem)


def test_a_limit_of_nothing_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run(capsys, "graph", record("cnn_portable"), "-s", "op:relu", "-n", "0")
    assert code == 0


def test_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; from etscope.cli import main; code = main(['graph', *sys.argv[1:]])\n"
        "heavy = {'torch', 'executorch', 'pandas', 'rich', 'matplotlib'}\n"
        "assert code == 0 and not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    files = artifacts("cnn_xnnpack_lowered")
    done = subprocess.run(
        [sys.executable, "-c", script, str(files.etrecord), "edge", "-d", str(files.etdump)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["executed", "executed/forward"])
def test_the_executed_program_is_a_table(capsys: pytest.CaptureFixture[str], name: str) -> None:
    made = artifacts("cnn_xnnpack")
    words = ["graph", str(made.etrecord), name, "-p", str(made.pte), "-d", str(made.etdump)]
    assert main([*words, "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    called = [row for row in rows if row["kind"] == "call_function"]
    program = read_pte(made.pte).method("forward")
    assert {number for row in called for number in row["instructions"]} == {
        number for number, label in enumerate(instruction_labels(program)) if label != "free"
    }
    assert any(row["avg"] for row in called if row["op"] == "XnnpackBackend")
    assert any(row["module"] for row in called)
    # Of a program alone: no lines, but what runs is the same.
    assert main(["graph", str(made.pte), name, "-f", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)["rows"]
    outside = [[row["node"] for row in one if row["graph"] == rows[0]["graph"]]
               for one in (rows, alone)]  # fmt: skip
    assert outside[0] == outside[1]


def test_the_executed_program_needs_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    record = artifacts("cnn_xnnpack_lowered").etrecord
    assert main(["graph", str(record), "executed"]) == 4
    assert "--program MODEL.pte" in capsys.readouterr().err


def test_nodes_have_their_work(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["graph", str(artifacts("int_outputs").etrecord), "edge", "--sort", "-flops"]
    assert main([*words, "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    known = [row["flops"] for row in rows if row["flops"] is not None]
    assert len(known) > 3 and known == sorted(known, reverse=True)
    (topk,) = (row for row in rows if row["op"] == "aten.topk.default")
    assert topk["flops"] is None and topk["bytes"] > 0
    assert main([*words, "--columns", "node,flops"]) == 0
    assert "The work of 1 of 7 nodes is not known: aten.topk." in capsys.readouterr().out
    assert main(["graph", str(artifacts("dynamic_shape").etrecord), "edge"]) == 0
    assert "work" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["cnn_xnnpack", "cnn_portable", "transformer"])
def test_a_program_alone_has_the_work_of_its_record(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made = artifacts(name)

    def calls(*words: str) -> list[dict[str, object]]:
        assert main(["graph", *words, "-f", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        return [row for row in rows if row.get("graph", "executed/forward") == "executed/forward"]

    with_record = calls(str(made.etrecord), "executed", "-p", str(made.pte))
    alone = calls(str(made.pte), "executed")
    listed = calls(str(made.pte))
    flops = [row["flops"] for row in with_record if row["kind"] == "call_function"]
    assert any(flops)
    assert flops == [row["flops"] for row in alone if row["kind"] == "call_function"]
    assert flops == [row["flops"] for row in listed]
