"""`etscope run` and `etscope profile`, as a person calls them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from etscope import Inspector
from etscope.cli import main
from tests.contract.source_tree import ROOT
from tests.support.artifacts import artifacts
from tests.support.run.ran import case, expected
from tests.support.warm import warm_python

pytest.importorskip("executorch")


def etscope(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_person_sees_latency_and_events(capsys: pytest.CaptureFixture[str]) -> None:
    made = artifacts("cnn_portable")

    code, out, err = etscope(
        capsys, "run", made.pte, "--etrecord", made.etrecord, "--iterations", 3
    )

    assert (code, err) == (0, "")
    assert out.startswith("Latency · ")
    assert "untraced" in out
    assert "traced: times" in out
    assert "forward · 3 runs" in out
    assert "native_call_" not in out
    assert "cnn.py:" in out  # the line of Python
    assert "Method::execute" in out


def test_files_are_written_and_belong_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = artifacts("cnn_portable")
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, *case(made, "forward/0"))
    etdump, values = tmp_path / "run.etdp", tmp_path / "debug.bin"
    outputs, times = tmp_path / "outputs.npz", tmp_path / "times.etdp"

    code, out, err = etscope(
        capsys,
        *("run", made.pte, "--inputs", inputs, "--iterations", 2),
        *("--debug-level", "intermediate_outputs", "--traced-iterations", 2),
        *("--etdump-out", etdump, "--debug-buffer-out", values),
        *("--outputs-out", outputs, "--profile-out", times, "--format", "csv"),
    )

    assert code == 0
    written = [line.removeprefix("wrote ") for line in err.splitlines()]
    assert sorted(written) == sorted(map(str, (times, etdump, values, outputs)))
    assert next(csv.DictReader(io.StringIO(out)))["method"] == "forward"
    inspector = Inspector(etdump_path=etdump, debug_buffer_path=values, etrecord=made.etrecord)
    block = next(b for b in inspector.event_blocks if b.name == "Execute")
    wanted = expected(made, "forward/0")[0]
    np.testing.assert_array_equal(np.asarray(block.run_output[0]), wanted)
    assert len(block.run_outputs) == 2
    with np.load(outputs) as found:
        np.testing.assert_array_equal(found["output_0"], wanted)


def test_two_runs_with_defaults_can_be_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = artifacts("cnn_portable")
    dumps = [tmp_path / "before.etdp", tmp_path / "after.etdp"]
    for dump in dumps:
        etscope(capsys, "run", made.pte, "--profile-out", dump)

    _, out, _ = etscope(capsys, "diff", *dumps, "--format", "json")

    rows = json.loads(out)["rows"]
    assert len(rows) > 5
    assert not [row for row in rows if "are needed" in (row["reason"] or "")]


def test_latency_alone_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = etscope(
        capsys,
        *("run", artifacts("cnn_portable").pte, "--iterations", 2),
        *("--show", "latency", "--format", "json"),
    )

    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    assert [row["run"] for row in rows] == ["untraced"]  # nothing else was run


def test_the_latency_says_of_how_many_threads(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("run", artifacts("cnn_portable").pte, "--iterations", 1, "--show", "latency")
    _, out, _ = etscope(capsys, *command, "--threads", 2, "--format", "json")
    assert [row["threads"] for row in json.loads(out)["rows"]] == [2]
    _, out, _ = etscope(capsys, *command, "--threads", 1)
    assert "threads" in out.splitlines()[1]


def test_a_bundle_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    bpte = artifacts("bundled").bpte
    arguments = ("run", bpte, "--iterations", 1, "--show", "latency,verification")

    code, out, _ = etscope(capsys, *arguments)
    strict, table, _ = etscope(capsys, *arguments, "--rtol", 0, "--atol", 0)

    assert code == 0
    assert "pass" in out.lower()
    assert strict == 1  # a finding
    assert "fail" in table.lower()


def test_one_case_of_a_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = etscope(
        capsys,
        *("run", artifacts("bundled").bpte, "--testset-index", 3, "--iterations", 1),
        *("--show", "verification", "--format", "json"),
    )

    assert code == 0
    assert [row["case"] for row in json.loads(out)["rows"]] == [3]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("nowhere.pte",), 2, "not found"),
        (("PTE", "--method", "backward"), 4, "no method 'backward'"),
        (("PTE", "--iterations", "0"), 2, "iterations"),
        (("PTE", "--debug-buffer-out", "x.bin"), 2, "--debug-level"),
        (("PTE", "--outputs-out", "nowhere/x.npz"), 2, "no folder nowhere"),
        (("PTE", "--show", "latency,events", "--format", "csv"), 2, "one table"),
        (("PTE", "--show", "colours"), 2, "colours"),
        (("PTE", "--show", "verification"), 4, "expected outputs"),
        (("PTE", "--testset-index", "0"), 2, ".bpte"),
        (("PTE", "--runner", "python", "--allocations"), 2, "allocation events"),
        (("PTE", "--data", "nowhere.ptd"), 2, "nowhere.ptd"),
        (("PTE", "--inputs", "nowhere.npz"), 2, "nowhere.npz"),
        (("PTE", "--iterations", "1000000000", "--timeout", "0.2"), 5, "did not end"),
        (("ETDUMP",), 3, "ETDump"),
        (("ETRECORD",), 4, "does not hold its program"),
        (("PTE", "--etrecord", "OTHER"), 3, "do not belong together"),
    ],
)
def test_what_cannot_be_done(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    made = artifacts("cnn_portable")
    files = {
        "PTE": made.pte,
        "ETDUMP": made.etdump,
        "ETRECORD": made.etrecord,
        "OTHER": artifacts("transformer_portable").etrecord,
    }

    found, out, err = etscope(capsys, "run", *(files.get(one, one) for one in arguments))

    assert (found, out) == (code, "")
    assert text in err
    assert list(tmp_path.iterdir()) == []


def test_profile_from_the_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "small.py"
    model.write_text(
        "import torch\n\n\n"
        "class Small(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.tanh(x) + x.mean()\n\n\n"
        "def make():\n"
        "    return Small(), (torch.ones(4, 8),)\n"
    )
    folder = tmp_path / "kept"

    # A process of its own: torch writes notices to the real stderr, and the command keeps it clean.
    arguments = ["profile", f"{model}:make", "--iterations", "2", "--save", str(folder)]
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
    written = [line.removeprefix("wrote ") for line in done.stderr.splitlines()]
    assert sorted(written) == sorted(str(folder / name) for name in names)
    again, table, _ = etscope(
        capsys, "inspect", folder / "run.etdp", "--etrecord", folder / "model.etrecord"
    )
    assert again == 0
    assert "small.py:6" in table


def test_profile_can_verify(capsys: pytest.CaptureFixture[str]) -> None:
    model = ROOT / "examples/keyword_spotter.py"

    code, out, _ = etscope(
        capsys,
        *("profile", f"{model}:KeywordSpotter", "--iterations", 1),
        *("--show", "verification", "--format", "json"),
    )

    assert code == 0
    assert {row["status"] for row in json.loads(out)["rows"]} == {"passed"}


def test_profile_of_what_no_bundle_can_hold(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = tmp_path / "optional.py"
    model.write_text(
        "import torch\n\n\n"
        "class Optional(torch.nn.Module):\n"
        "    def forward(self, x, bias):\n"
        "        return x * 2 if bias is None else x + bias\n\n\n"
        "def make():\n"
        "    return Optional(), (torch.ones(4, 8), None)\n"
    )

    code, out, _ = etscope(
        capsys, "profile", f"{model}:make", "--iterations", 1, "--show", "latency"
    )

    assert code == 0
    assert "untraced" in out


def test_profile_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = etscope(capsys, "profile", "nowhere.py:make")

    assert (code, out) == (2, "")
    assert "nowhere.py" in err


def test_a_file_that_is_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = etscope(
        capsys, "run", artifacts("cnn_portable").pte, "-r", "a.etrecord", "-r", "b.etrecord"
    )

    assert (code, out) == (2, "")
    assert "--etrecord is given twice: a.etrecord and b.etrecord" in err


@pytest.mark.parametrize("runner", ["python", "native"])
def test_each_file_of_inputs_is_a_call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, runner: str
) -> None:
    """The calls share a load: what one leaves in a buffer, the next goes on from."""
    torch = pytest.importorskip("torch")
    from etscope.export import export

    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 1.0

    program, saved = tmp_path / "sum.pte", tmp_path / "ran"
    program.write_bytes(export(Sum(), (torch.ones(3),)).program_bytes())
    files = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for path, value in zip(files, (1.0, 10.0), strict=True):
        np.savez(path, np.full(3, value, np.float32))
    arguments = ["run", program, "-i", files[0], "-i", files[1], "--warmup", 0]

    code, _, _ = etscope(capsys, *arguments, "--iterations", 1, "--save", saved, "--runner", runner)

    assert code == 0
    with np.load(saved / "outputs.npz") as outputs:
        assert [outputs[name].tolist() for name in outputs.files] == [[1.0] * 3, [11.0] * 3]
    calls = json.loads((saved / "run.json").read_text())["calls"]
    assert [call["inputs_from"] for call in calls] == ["given", "given"]
    assert len({call["inputs_sha256"] for call in calls}) == 2
    code, _, err = etscope(capsys, *arguments, "--pools")
    assert code == 2 and "give --inputs once" in err
