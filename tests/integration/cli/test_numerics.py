"""`etscope numerics`, as a person or a script calls it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

from etscope.cli import main
from tests.support.artifacts import artifacts


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No column is left out, wherever the tests run."""
    monkeypatch.setenv("COLUMNS", "240")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["numerics", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def files(name: str) -> list[object]:
    made = artifacts(name)
    return [made.etdump, "-r", made.etrecord, "-b", made.debug_buffer]


def inputs(tmp_path: Path, name: str) -> list[object]:
    import torch

    path = tmp_path / "inputs.pt"
    torch.save(list(torch.load(artifacts(name).inputs_pt)["forward"][0]), path)
    return ["--inputs", path]


def test_a_fine_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, *files("batched_linear"), *inputs(tmp_path, "batched_linear"))
    assert (code, err) == (0, "")
    assert "addmm" in out and "numerics.py:" in out
    assert "no operator goes wrong: 6 values" in out
    assert "6 of 6 logged values" in out


def test_one_value_is_counted_in_the_singular() -> None:
    from dataclasses import replace

    from etscope.analysis.numerics.rows import BY_DESIGN, INHERITED
    from etscope.diagnosis.numerics import RunToCompare, numerics_of
    from tests.support.numeric_runs import inputs_of, inspector

    found = numerics_of(
        inspector("batched_linear").trace, RunToCompare(inputs=inputs_of("batched_linear"))
    )
    (row, *_) = found.rows
    assert replace(found, rows=(row,)).verdict.startswith("no operator goes wrong: 1 value is what")
    for verdict, said in (
        (INHERITED, "1 value is wrong only because of what went in"),
        (BY_DESIGN, "1 value differs from the graph's by design: "),
    ):
        notes = replace(found, rows=(replace(row, verdict=verdict),)).notes
        assert any(note.startswith(said) for note in notes), notes


def test_a_wrong_operator_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = "replaced_operators"
    plot = tmp_path / "errors.png"
    code, out, _ = run(
        capsys, *files(name), *inputs(tmp_path, name), "--sort", "error", "-n", 1, "-f", "json",
        "--plot", plot,
    )  # fmt: skip
    assert code == 1
    document = json.loads(out)
    (row,) = document["rows"]
    assert row["verdict"] == "wrong" and row["op"].startswith("cos")
    assert "lowering.py:" in document["notes"][0]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_tolerance_decides(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = "replaced_operators"
    arguments = [*files(name), *inputs(tmp_path, name)]
    assert run(capsys, *arguments, "--tolerance", -20)[0] == 0
    assert run(capsys, *arguments, "--metric", "mse", "--tolerance", 100)[0] == 0
    assert run(capsys, *arguments, "--metric", "mse", "--tolerance", 0.01)[0] == 1


def test_coverage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = "batched_linear"
    arguments = [*files(name), *inputs(tmp_path, name), "--graph", "exported"]
    code, out, _ = run(capsys, *arguments, "--coverage")
    assert code == 0
    assert "inside of linear" in out
    assert "no operator goes wrong: 3 values" in out


@pytest.mark.parametrize(
    ("left_out", "code", "words"),
    [
        ("-b", 4, "none was given"),
        ("-r", 4, "needs an ETRecord"),
    ],
)
def test_what_is_missing(
    capsys: pytest.CaptureFixture[str], left_out: str, code: int, words: str
) -> None:
    given = files("batched_linear")
    at = given.index(left_out)
    found, out, err = run(capsys, *given[:at], *given[at + 2 :])
    assert found == code and words in err and out == ""
    assert "hint: " in err


def test_each_method_that_ran_on_the_inputs_of_the_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, *files("two_methods"), "--format", "json")
    assert code == 0
    table = json.loads(out)
    methods = [row["method"] for row in table["rows"]]
    assert {name: methods.count(name) for name in methods} == {"encode": 3, "decode": 6}
    assert {row["verdict"] for row in table["rows"]} == {"fine"}
    for name, count in (("encode", 3), ("decode", 6)):
        assert f"{name}: {count} of {count} logged values" in str(table["notes"])

    code, out, _ = run(capsys, *files("two_methods"), "--method", "encode")
    assert code == 0
    assert "sigmoid" not in out


def test_no_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *files("batched_linear"))
    assert code == 4 and "no inputs to run the reference graph on" in err


def test_wrong_inputs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, *files("batched_linear"), *inputs(tmp_path, "cnn_portable"))
    assert code in (3, 4) and "float32[" in err


def ran_and_saved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, values = artifacts("cnn_xnnpack").pte, ("--debug-level", "intermediate_outputs")
    ran = ["run", program, "--seed", 5, *values, "--save", folder, "--iterations", 1]
    assert main([str(one) for one in ran]) == 0
    capsys.readouterr()


def test_a_folder_of_a_saved_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record, saved = artifacts("cnn_xnnpack").etrecord, tmp_path / "ran"
    ran_and_saved(saved, capsys)
    for dump in (saved, saved / "values.etdp"):
        code, out, err = run(capsys, dump, "-r", record)
        assert (code, err) == (0, "") and "no operator goes wrong" in out
    for verb in (["inspect", saved, "-r", record], ["convert", saved, "-o", tmp_path / "a.csv"]):
        assert main([str(one) for one in verb]) == 0
    capsys.readouterr()

    (saved / "run.json").unlink()
    code, _, err = run(capsys, saved / "values.etdp", "-r", record)
    assert code == 4 and "no inputs to run the reference graph on" in err


def test_inputs_that_did_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = artifacts("cnn_xnnpack")
    saved, other = tmp_path / "ran", tmp_path / "other.npz"
    ran_and_saved(saved, capsys)
    with np.load(saved / "inputs.npz") as kept:
        np.savez(other, *(kept[name] * 2 + 1 for name in kept.files))
    dump = [saved / "values.etdp", "-r", made.etrecord, "-b", saved / "debug.bin"]
    assert run(capsys, *dump, "--inputs", saved / "inputs.npz")[0] == 0

    code, out, err = run(capsys, *dump, "--inputs", other)

    assert (code, out) == (3, "")
    assert "these are not the inputs that ran: the run is noted to have had others (seed 5)" in err
    assert "without --inputs" in err

    report = tmp_path / "report.html"
    arguments = ["report", saved, made.etrecord, "--inputs", other]
    assert main([str(one) for one in (*arguments, "-o", report)]) == 0
    assert "These are not the inputs that ran: the run is noted" in report.read_text()


def test_files_that_do_not_belong_together(capsys: pytest.CaptureFixture[str]) -> None:
    made, other = artifacts("batched_linear"), artifacts("cnn_portable")
    code, _, err = run(capsys, made.etdump, "-r", other.etrecord, "-b", made.debug_buffer)
    assert code == 3 and "do not belong together" in err


def test_an_unknown_metric(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *files("batched_linear"), "--metric", "euclid")
    assert code == 2 and "unknown metric 'euclid'" in err


def test_a_plot_of_an_unknown_kind(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *files("batched_linear"), "--plot", "errors.doc")
    assert code == 2 and ".png" in err


def test_without_torch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, err = run(capsys, *files("batched_linear"))
    assert code == 5 and "torch" in err
