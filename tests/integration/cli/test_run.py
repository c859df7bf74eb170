"""`etscope run`, as a person calls them."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from etscope import Inspector
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.run.ran import case, expected
from tests.support.warm import warm_python

pytest.importorskip("executorch")


def test_a_person_sees_latency_and_events(run: Run) -> None:
    made = artifacts("cnn_portable")
    code, out, err = run("run", made.pte, "--etrecord", made.etrecord, "--iterations", 3)
    assert (code, err) == (0, "")
    assert out.startswith("Latency · ")
    assert "untraced" in out
    assert "traced: times" in out
    assert re.search(r"forward · (\d of )?3 runs", out)
    assert "native_call_" not in out
    assert "cnn.py:" in out  # the line of Python
    assert "Method::execute" in out


def test_files_are_written_and_belong_together(run: Run, tmp_path: Path) -> None:
    made = artifacts("cnn_portable")
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, *case(made, "forward/0"))
    folder = tmp_path / "ran"

    code, out, _ = run(
        *("run", made.pte, "--inputs", inputs, "--iterations", 2),
        *("--debug-level", "intermediate_outputs", "-X", "traced_iterations=2"),
        *("--save", folder, "--format", "csv"),
    )

    assert code == 0
    assert next(csv.DictReader(io.StringIO(out)))["method"] == "forward"
    etdump, values = folder / "values.etdp", folder / "debug.bin"
    inspector = Inspector(etdump_path=etdump, debug_buffer_path=values, etrecord=made.etrecord)
    block = next(b for b in inspector.event_blocks if b.name == "Execute")
    wanted = expected(made, "forward/0")[0]
    np.testing.assert_array_equal(np.asarray(block.run_output[0]), wanted)
    assert len(block.run_outputs) == 2
    with np.load(folder / "outputs.npz") as found:
        np.testing.assert_array_equal(found["output_0"], wanted)


def test_two_runs_with_defaults_can_be_compared(run: Run, tmp_path: Path) -> None:
    folders = [tmp_path / "before", tmp_path / "after"]
    for folder in folders:
        run("run", artifacts("cnn_portable").pte, "--save", folder)

    _, out, _ = run("diff", *folders, "--format", "json")

    rows = json.loads(out)["rows"]
    assert len(rows) > 5
    assert not [row for row in rows if "are needed" in (row["reason"] or "")]


def test_latency_alone_and_of_how_many_threads(run: Run) -> None:
    command = ("run", artifacts("cnn_portable").pte, "--iterations", 2, "--show", "latency")
    code, out, err = run(*command, "--threads", 2, "--format", "json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    assert [(row["run"], row["threads"]) for row in rows] == [("untraced", 2)]  # the only run
    _, out, _ = run(*command, "--threads", 1)
    assert "threads" in out.splitlines()[1]


def test_a_bundle_is_verified(run: Run) -> None:
    command = ("run", artifacts("bundled").bpte, "--iterations", 1, "--show")

    code, out, _ = run(*command, "latency,verification")
    strict, table, _ = run(*command, "latency,verification", "-X", "rtol=0", "-X", "atol=0")

    assert code == 0
    assert "pass" in out.lower()
    assert strict == 1  # a finding
    assert "fail" in table.lower()
    code, out, _ = run(*command, "verification", "-X", "testset_index=3", "--format", "json")
    assert code == 0
    assert [row["case"] for row in json.loads(out)["rows"]] == [3]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("run nowhere.pte", 2, "not found"),
        ("run PTE --method backward", 4, "method 'backward'"),
        ("run PTE --iterations 0", 2, "iterations"),
        ("run PTE --inputs float32[1,3]", 2, "with types is for a MODEL"),
        ("run PTE --runner native", 2, "write it as -X runner=VALUE"),
        ("run PTE -X runer=native", 2, "did you mean runner?"),
        ("run PTE -X timeout=soon", 2, "'-X timeout': 'soon' is not a valid float"),
        ("run PTE -X timeout", 2, "neither KEY=VALUE nor a .toml file"),
        ("run PTE -X timeout=1 -X timeout=2", 2, "given twice: 1 and 2"),
        ("run PTE --show latency,events --format csv", 2, "one table"),
        ("run PTE --show colours", 2, "colours"),
        ("run PTE --show verification", 4, "expected outputs"),
        ("run PTE -X testset_index=0", 2, ".bpte"),
        ("run PTE -X runner=python -X allocations=true", 2, "allocation events"),
        ("run PTE --data nowhere.ptd", 2, "nowhere.ptd"),
        ("run PTE --inputs nowhere.npz", 2, "nowhere.npz"),
        ("run PTE -i INPUTS -i INPUTS --pools", 2, "give --inputs once"),
        ("run PTE --iterations 1000000000 -X timeout=0.2", 5, "did not end"),
        ("run ETDUMP", 3, "ETDump"),
        ("run ETRECORD", 4, "does not hold its program"),
        ("run PTE --etrecord OTHER", 3, "do not belong together"),
        ("run PTE -r a.etrecord -r b.etrecord", 2, "given twice: a.etrecord and b.etrecord"),
        ("run nowhere.py:make", 2, "nowhere.py"),
    ],
)
def test_what_cannot_be_done(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    made = artifacts("cnn_portable")
    files = {
        "PTE": made.pte,
        "ETDUMP": made.etdump,
        "ETRECORD": made.etrecord,
        "OTHER": artifacts("transformer_portable").etrecord,
        "INPUTS": made.inputs,
    }

    found, out, err = run(*(files.get(word, word) for word in words.split()))

    assert (found, out) == (code, "")
    assert text in err
    assert list(tmp_path.iterdir()) == []


def model_file(path: Path, argument: str, result: str, inputs: str) -> str:
    """A file with a model, and what names it for `etscope run`."""
    path.write_text(
        "import torch\n\n\n"
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, {argument}):\n"
        f"        return {result}\n\n\n"
        "def make():\n"
        f"    return Model(), ({inputs},)\n"
    )
    return f"{path}:make"


def test_run_from_the_model(run: Run, tmp_path: Path) -> None:
    model = model_file(tmp_path / "small.py", "x", "torch.tanh(x) + x.mean()", "torch.ones(4, 8)")
    folder = tmp_path / "kept"

    # A process of its own: torch writes notices to the real stderr, and the command keeps it clean.
    arguments = ["run", model, "--iterations", "2", "--save", str(folder)]
    done = subprocess.run(
        [warm_python(), "-m", "etscope", *arguments], capture_output=True, text=True, check=True
    )

    assert "small.py:6" in done.stdout
    assert "untraced" in done.stdout
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("model.pte", "model.etrecord", "model.bpte", "run.etdp"),
        *("inputs.npz", "outputs.npz", "run.json"),
    }
    assert done.stderr.startswith(f"saved in {folder}; next: etscope explain {folder}, ")
    code, table, _ = run("inspect", folder)
    assert code == 0
    assert "small.py:6" in table


def test_a_model_is_verified(run: Run, tmp_path: Path) -> None:
    model = model_file(tmp_path / "small.py", "x", "torch.tanh(x) + 1", "torch.ones(4, 8)")
    words = ("--iterations", 1, "--show", "verification", "--format", "json")
    code, out, _ = run("run", model, *words)
    assert code == 0
    assert {row["status"] for row in json.loads(out)["rows"]} == {"passed"}


def test_a_run_of_what_no_bundle_can_hold(run: Run, tmp_path: Path) -> None:
    result = "x * 2 if bias is None else x + bias"
    model = model_file(tmp_path / "optional.py", "x, bias", result, "torch.ones(4, 8), None")
    code, out, _ = run("run", model, "--iterations", 1, "--show", "latency")
    assert code == 0
    assert "untraced" in out


@pytest.mark.parametrize("runner", ["python", "native"])
def test_each_file_of_inputs_is_a_call(run: Run, tmp_path: Path, runner: str) -> None:
    """The calls share a load: what one leaves in a buffer, the next goes on from."""
    program = artifacts("evaluated").extra("running.pte")  # the sine of the sum so far, plus x
    files, saved = [tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "ran"
    for path, value in zip(files, (1.0, 10.0), strict=True):
        np.savez(path, np.full(4, value, np.float32))
    given = ("-i", files[0], "-i", files[1], "--warmup", 0, "--iterations", 1)

    assert run("run", program, *given, "--save", saved, "-X", f"runner={runner}")[0] == 0

    with np.load(saved / "outputs.npz") as outputs:
        found = [outputs[name].tolist() for name in outputs.files]
    assert found == [pytest.approx([np.sin(s) + x] * 4) for s, x in ((1.0, 1.0), (11.0, 10.0))]
    calls = json.loads((saved / "run.json").read_text())["calls"]
    assert [call["inputs_from"] for call in calls] == ["given", "given"]
    assert len({call["inputs_sha256"] for call in calls}) == 2
