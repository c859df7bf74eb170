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

from etscope.cli import main  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.evaluation.models import Classifier, inputs  # noqa: E402

Captured = pytest.CaptureFixture[str]


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


def run(capsys: Captured, *arguments: Any) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def evaluate(capsys: Captured, files: Path, *arguments: Any) -> tuple[int, str, str]:
    """Evaluate right.etrecord; or device.pte, if that is the first argument, with it as record."""
    named = bool(arguments) and arguments[0] == files / "device.pte"
    program = () if named else (files / "right.etrecord",)
    record = ("-r", files / "right.etrecord") if named else ()
    return run(capsys, "evaluate", *program, *arguments, *record, "--no-isolate")


def test_a_right_program(capsys: Captured, files: Path) -> None:
    code, out, err = evaluate(
        capsys, files, "-d", files / "x.npy", "--labels", files / "labels.txt"
    )
    assert (code, err) == (0, "")
    assert "no operator goes wrong in 6 samples" in out and "accuracy 100.00 %" in out
    assert "models.py:" in out and out.count("no operator goes wrong") == 1


def test_a_fault_is_exit_code_1(capsys: Captured, files: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    device = [files / "device.pte", "--force", "-d", files / "x.npy"]
    code, out, _ = evaluate(
        capsys, files, *device, "-f", "json", "--sort", "error", "-n", 1, "--plot", plot
    )
    (row,) = json.loads(out)["rows"]
    assert code == 1 and (row["op"], row["wrong"]) == ("clamp", 2)
    assert plot.read_bytes().startswith(b"\x89PNG")
    code, out, _ = evaluate(capsys, files, *device, "-f", "json", "--show", "samples", "--worst", 2)
    assert code == 1
    assert {row["sample"] for row in json.loads(out)["rows"]} == {"x.npy 2", "x.npy 5"}
    # The tolerance may allow it all: then flips alone decide.
    lenient = [*device, "--tolerance", -100, "--top", 1]
    flips = json.loads(evaluate(capsys, files, *lenient, "--show", "flips", "-f", "json")[1])[
        "rows"
    ]
    assert flips
    for share, expected in ((len(flips) / 6 - 0.01, 1), (len(flips) / 6 + 0.01, 0)):
        assert evaluate(capsys, files, *lenient, "--max-flips", share)[0] == expected


def test_skipped_samples_are_no_pass(capsys: Captured, files: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", inputs()[0].numpy())
    (tmp_path / "2.npy").write_bytes(b"nothing")
    code, _, err = evaluate(capsys, files, "-d", tmp_path)
    assert code == 3 and "sample 2.npy" in err
    code, out, _ = evaluate(capsys, files, "-d", tmp_path, "--keep-going")
    assert code == 3 and "not a pass" in out
    (tmp_path / "1.npy").unlink()
    code, _, err = evaluate(capsys, files, "-d", tmp_path, "--keep-going")
    assert code == 4 and "none of 1 samples" in err
    (tmp_path / "2.npy").unlink()
    assert evaluate(capsys, files, "-d", tmp_path)[0] == 4


def test_wrong_usage(capsys: Captured, files: Path) -> None:
    data = ["-d", files / "x.npy"]
    assert evaluate(capsys, files)[0] == 2
    assert evaluate(capsys, files, "-d", files / "nothing")[0] == 2
    assert evaluate(capsys, files, *data, "--show", "flips")[0] == 2
    assert (
        evaluate(capsys, files, *data, "--show", "flips,samples", "--top", 1, "-f", "json")[0] == 2
    )
    assert evaluate(capsys, files, *data, "--show", "all")[0] == 2
    assert evaluate(capsys, files, *data, "--plot", "plot.txt")[0] == 2
    assert evaluate(capsys, files, files / "device.pte", *data)[0] in (1, 3)


def test_a_dump_with_its_dataset(capsys: Captured, files: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", inputs()[0].numpy())
    dump, buffer = tmp_path / "run.etdp", tmp_path / "debug.bin"
    code, _, _ = run(
        capsys, "run", files / "right.etrecord", "-i", tmp_path / "one.npy", "--debug-level",
        "intermediate_outputs", "--no-separate", "--warmup", 0, "--iterations", 2, "--etdump-out",
        dump, "--debug-buffer-out", buffer, "--show", "latency",
    )  # fmt: skip
    assert code == 0
    arguments = ["numerics", dump, "-r", files / "right.etrecord", "-b", buffer]
    np.save(tmp_path / "both.npy", inputs()[[0, 0]].numpy())
    data = ["-d", tmp_path / "both.npy"]
    code, out, err = run(capsys, *arguments, *data)
    assert (code, err) == (0, "") and "no operator goes wrong in 2 samples" in out
    code, out, _ = run(capsys, *arguments, *data, "--run", 1, "--show", "samples", "-f", "json")
    assert code == 0 and [row["number"] for row in json.loads(out)["rows"]] == [1]
    np.save(tmp_path / "other.npy", inputs()[[0, 2]].numpy())
    assert run(capsys, *arguments, "-d", tmp_path / "other.npy")[0] == 1
    assert run(capsys, *arguments, "-d", files / "x.npy")[0] == 3
    assert run(capsys, *arguments, "--top", 1)[0] == 2
    assert run(capsys, *arguments, *data, "--coverage")[0] == 2


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
    arguments = ["evaluate", files / "right.etrecord", "-d", files / "x.npy"]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 5 and done.stdout == ""
    assert f"{absent} is needed by the reference of an evaluation" in done.stderr
    assert "etscope[torch]" in done.stderr and "Traceback" not in done.stderr
