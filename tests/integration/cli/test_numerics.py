"""`etscope numerics`, as a person or a script calls it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

from etscope.analysis.numerics.rows import BY_DESIGN, INHERITED
from etscope.diagnosis.numerics import RunToCompare, numerics_of
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.numeric_runs import inputs_of, inspector


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No column is left out, wherever the tests run."""
    monkeypatch.setenv("COLUMNS", "240")


@pytest.fixture
def numerics(run: Run) -> Run:
    return partial(run, "numerics")


def files(name: str) -> list[object]:
    made = artifacts(name)
    return [made.etdump, "-r", made.etrecord, "-b", made.debug_buffer]


def inputs(tmp_path: Path, name: str) -> list[object]:
    import torch

    path = tmp_path / "inputs.pt"
    torch.save(list(torch.load(artifacts(name).inputs_pt)["forward"][0]), path)
    return ["--inputs", path]


def with_inputs(tmp_path: Path, name: str) -> list[object]:
    return [*files(name), *inputs(tmp_path, name)]


def test_a_fine_run(numerics: Run, tmp_path: Path) -> None:
    given = with_inputs(tmp_path, "batched_linear")
    code, out, err = numerics(*given)
    assert (code, err) == (0, "")
    assert "addmm" in out and "numerics.py:" in out
    assert "no operator goes wrong: 6 values" in out
    assert "6 of 6 logged values" in out

    code, out, _ = numerics(*given, "-X", "graph=exported", "--coverage")
    assert code == 0
    assert "inside linear" in out
    assert "no operator goes wrong: 3 values" in out


def test_one_value_is_counted_in_the_singular() -> None:
    trace, given = inspector("batched_linear").trace, inputs_of("batched_linear")
    found = numerics_of(trace, RunToCompare(inputs=given))
    (row, *_) = found.rows
    assert replace(found, rows=(row,)).verdict.startswith("no operator goes wrong: 1 value is what")
    for verdict, said in (
        (INHERITED, "1 value is wrong only because their inputs are"),
        (BY_DESIGN, "1 value differs from the graph's by design: "),
    ):
        notes = replace(found, rows=(replace(row, verdict=verdict),)).notes
        assert any(note.startswith(said) for note in notes), notes


def test_a_wrong_operator_is_exit_code_1(numerics: Run, tmp_path: Path) -> None:
    given = with_inputs(tmp_path, "replaced_operators")
    code, out, _ = numerics(*given, "--sort", "error", "-n", 1, "-f", "json")
    assert code == 1
    document = json.loads(out)
    (row,) = document["rows"]
    assert row["verdict"] == "wrong" and row["op"].startswith("cos")
    assert "lowering.py:" in document["notes"][0]
    # The tolerance decides.
    assert numerics(*given, "--tolerance", -20)[0] == 0
    assert numerics(*given, "--metric", "mse", "--tolerance", 100)[0] == 0
    assert numerics(*given, "--metric", "mse", "--tolerance", 0.01)[0] == 1


@pytest.mark.parametrize(
    ("left_out", "more", "code", "words"),
    [
        ("-b", (), 4, "which is missing"),
        ("-r", (), 4, "needs an ETRecord"),
        (None, (), 4, "no inputs to run the reference graph on"),
        (None, ("--metric", "euclid"), 2, "unknown metric 'euclid'"),
    ],
)
def test_what_is_missing_or_wrong(
    numerics: Run, left_out: str | None, more: tuple[str, ...], code: int, words: str
) -> None:
    given = files("batched_linear")
    if left_out is not None:
        at = given.index(left_out)
        del given[at : at + 2]
    found, out, err = numerics(*given, *more)
    assert (found, out) == (code, "") and words in err
    assert "hint: " in err


def test_files_that_do_not_belong_together(numerics: Run, tmp_path: Path) -> None:
    dump, *_, buffer = files("batched_linear")
    code, _, err = numerics(dump, "-r", artifacts("cnn_portable").etrecord, "-b", buffer)
    assert code == 3 and "do not belong together" in err
    code, _, err = numerics(*files("batched_linear"), *inputs(tmp_path, "cnn_portable"))
    assert code in (3, 4) and "float32[" in err


def test_each_method_that_ran_on_the_inputs_of_the_record(numerics: Run) -> None:
    code, out, _ = numerics(*files("two_methods"), "--format", "json")
    assert code == 0
    table = json.loads(out)
    assert Counter(row["method"] for row in table["rows"]) == {"encode": 3, "decode": 6}
    assert {row["verdict"] for row in table["rows"]} == {"fine"}
    for name, count in (("encode", 3), ("decode", 6)):
        assert f"{name}: {count} of {count} logged values" in str(table["notes"])

    code, out, _ = numerics(*files("two_methods"), "--method", "encode")
    assert code == 0
    assert "sigmoid" not in out


@pytest.fixture
def saved(run: Run, tmp_path: Path) -> Path:
    """The folder of a saved run with values."""
    values = ("--debug-level", "intermediate_outputs", "--iterations", 1)
    program, folder = artifacts("cnn_xnnpack").pte, tmp_path / "ran"
    assert run("run", program, "-X", "seed=5", *values, "--save", folder)[0] == 0
    return folder


def test_a_folder_of_a_saved_run(run: Run, numerics: Run, saved: Path, tmp_path: Path) -> None:
    record = artifacts("cnn_xnnpack").etrecord
    for dump in (saved, saved / "values.etdp"):
        code, out, err = numerics(dump, "-r", record)
        assert (code, err) == (0, "") and "no operator goes wrong" in out
    assert run("inspect", saved, "-r", record)[0] == 0
    assert run("convert", saved, "-o", tmp_path / "a.csv")[0] == 0

    # Of other inputs than those that ran.
    other = tmp_path / "other.npz"
    with np.load(saved / "inputs.npz") as kept:
        np.savez(other, *(kept[name] * 2 + 1 for name in kept.files))
    given = [saved / "values.etdp", "-r", record, "-b", saved / "debug.bin"]
    assert numerics(*given, "--inputs", saved / "inputs.npz")[0] == 0
    code, out, err = numerics(*given, "--inputs", other)
    assert (code, out) == (3, "")
    assert "these are not the inputs that ran: the run recorded other inputs (seed 5)" in err
    assert "leave out --inputs" in err
    report = tmp_path / "report.html"
    assert run("report", saved, record, "--inputs", other, "-o", report)[0] == 0
    assert "These are not the inputs that ran: the run recorded" in report.read_text()

    (saved / "run.json").unlink()
    code, _, err = numerics(saved / "values.etdp", "-r", record)
    assert code == 4 and "no inputs to run the reference graph on" in err


def test_without_torch(numerics: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, err = numerics(*files("batched_linear"))
    assert code == 5 and "torch" in err
