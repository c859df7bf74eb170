"""`etscope evaluate` and `etscope numerics --dataset`, as a person or a script calls them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.cli.fixtures import Run  # noqa: E402
from tests.support.evaluation.models import Classifier, inputs  # noqa: E402


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No column is left out, wherever the tests run."""
    monkeypatch.setenv("COLUMNS", "240")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """right.etrecord, which holds its program; device.pte, with a fault; x.npy; labels.txt."""
    folder = tmp_path_factory.mktemp("evaluate")
    made = artifacts("evaluated")
    shutil.copy(made.extra("classifier.etrecord"), folder / "right.etrecord")
    shutil.copy(made.extra("classifier_off.pte"), folder / "device.pte")
    np.save(folder / "x.npy", inputs(6).numpy())
    with torch.no_grad():
        right = [int(Classifier()(x).argmax()) for x in inputs(6)]
    (folder / "labels.txt").write_text("\n".join(map(str, right)))
    return folder


@pytest.fixture
def evaluate(run: Run, files: Path) -> Run:
    """Evaluate right.etrecord; or device.pte, if that is the first argument, with it as record."""

    def command(*words: object) -> tuple[int, str, str]:
        right = files / "right.etrecord"
        named = bool(words) and words[0] == files / "device.pte"
        given = (*words, "-r", right) if named else (right, *words)
        return run("evaluate", *given, "-X", "isolate=false")

    return command


def test_a_right_program(evaluate: Run, files: Path) -> None:
    code, out, err = evaluate("--dataset", files / "x.npy", "--labels", files / "labels.txt")
    assert (code, err) == (0, "")
    assert "no operator goes wrong in 6 samples" in out and "accuracy 100.00 %" in out
    assert "models.py:" in out and out.count("no operator goes wrong") == 1


def test_a_fault_is_exit_code_1(evaluate: Run, files: Path) -> None:
    def rows(code: int, *words: object) -> list[dict[str, Any]]:
        given = (files / "device.pte", "--force", "--dataset", files / "x.npy", "-f", "json")
        found, out, _ = evaluate(*given, *words)
        assert found == code
        return json.loads(out)["rows"]  # type: ignore[no-any-return]

    (row,) = rows(1, "--sort", "error", "-n", 1)
    assert (row["op"], row["wrong"]) == ("clamp", 2)
    worst = rows(1, "--show", "samples", "-X", "worst=2")
    assert {row["sample"] for row in worst} == {"x.npy 2", "x.npy 5"}
    # The tolerance may allow it all: then flips alone decide.
    lenient = ("--tolerance", -100, "--top", 1, "--show", "flips")
    flips = rows(0, *lenient)
    assert flips
    for share, expected in ((len(flips) / 6 - 0.01, 1), (len(flips) / 6 + 0.01, 0)):
        rows(expected, *lenient, "--max-flips", share)


def test_skipped_samples_are_no_pass(evaluate: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "1.npy", tmp_path / "2.npy"
    np.save(good, inputs()[0].numpy())
    bad.write_bytes(b"nothing")
    code, _, err = evaluate("--dataset", tmp_path)
    assert code == 3 and "sample 2.npy" in err
    code, out, _ = evaluate("--dataset", tmp_path, "-X", "keep_going=true")
    assert code == 3 and "not a pass" in out
    good.unlink()
    code, _, err = evaluate("--dataset", tmp_path, "-X", "keep_going=true")
    assert code == 4 and "none of 1 samples" in err
    bad.unlink()
    assert evaluate("--dataset", tmp_path)[0] == 4


def test_wrong_usage(evaluate: Run, files: Path) -> None:
    data = ("--dataset", files / "x.npy")
    for words in (
        (),
        ("--dataset", files / "nothing"),
        (*data, "--show", "flips"),
        (*data, "--show", "flips,samples", "--top", 1, "-f", "json"),
        (*data, "--show", "all"),
    ):
        assert evaluate(*words)[0] == 2, words
    assert evaluate(files / "device.pte", *data)[0] in (1, 3)


def test_a_dump_with_its_dataset(run: Run, files: Path, tmp_path: Path) -> None:
    right = files / "right.etrecord"
    given = {"one": inputs()[0], "both": inputs()[[0, 0]], "other": inputs()[[0, 2]]}
    for name, values in given.items():
        np.save(tmp_path / f"{name}.npy", values.numpy())
    dump, buffer = tmp_path / "ran" / "run.etdp", tmp_path / "ran" / "debug.bin"
    code, _, _ = run(
        *("run", right, "-i", tmp_path / "one.npy", "--debug-level", "intermediate_outputs"),
        *("-X", "separate=false", "--warmup", 0, "--iterations", 2, "--show", "latency"),
        *("--save", tmp_path / "ran"),
    )
    assert code == 0
    numerics = ("numerics", dump, "-r", right, "-b", buffer)
    data = ("--dataset", tmp_path / "both.npy")
    code, out, err = run(*numerics, *data)
    assert (code, err) == (0, "") and "no operator goes wrong in 2 samples" in out
    code, out, _ = run(*numerics, *data, "--run", 1, "--show", "samples", "-f", "json")
    assert code == 0 and [row["number"] for row in json.loads(out)["rows"]] == [1]
    assert run(*numerics, "--dataset", tmp_path / "other.npy")[0] == 1
    assert run(*numerics, "--dataset", files / "x.npy")[0] == 3
    assert run(*numerics, "--top", 1)[0] == 2
    assert run(*numerics, *data, "--coverage")[0] == 2


@pytest.mark.parametrize("absent", ["torch", "executorch"])
def test_without_torch_it_says_so(files: Path, absent: str) -> None:
    """In a process where modules that find others refuse one, as sandboxes do."""
    script = f"""
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusing())
from etscope.cli import main
from etscope.run.python import python_missing
assert python_missing() == {absent!r} + " is not installed"
sys.exit(main(sys.argv[1:]))
"""
    arguments = ["evaluate", files / "right.etrecord", "--dataset", files / "x.npy"]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 5 and done.stdout == ""
    assert f"{absent} is needed by the reference of an evaluation" in done.stderr
    assert "etscope[torch]" in done.stderr and "Traceback" not in done.stderr
