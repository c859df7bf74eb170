"""`etscope export`, as a person calls it."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from etscope.cli import main
from etscope.errors import EtscopeWarning, UsageError
from etscope.formats.program.pte import read_pte
from etscope.support.quiet import quiet
from tests.support.artifacts import ROOT
from tests.support.export import factories

FACTORIES = str(ROOT / "tests/support/export/factories.py")
Captured = pytest.CaptureFixture[str]


def run(capfd: Captured, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_three_files_in_a_folder_of_the_models_name(capfd: Captured, tmp_path: Path) -> None:
    code, out, err = run(capfd, "export", f"{FACTORIES}:pair", "-f", "json")

    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    assert [row["file"] for row in rows] == [
        "pair/model.pte",
        "pair/model.etrecord",
        "pair/model.bpte",
    ]
    for row in rows:
        assert row["bytes"] == (tmp_path / row["file"]).stat().st_size

    for row in rows:
        code, out, err = run(capfd, "info", row["file"])
        assert (code, err) == (0, "")
        assert "forward" in out


def test_a_backend_that_took_nothing_is_in_the_json(capfd: Captured, tmp_path: Path) -> None:
    (tmp_path / "brain.py").write_text(
        "import torch\n"
        "def make():\n"
        "    x = torch.ones(1, 4, dtype=torch.bfloat16)\n"
        "    return torch.nn.Linear(4, 4).to(x.dtype), (x,)\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("default", EtscopeWarning)
        code, out, err = run(capfd, "export", "brain.py:make", "--backend", "xnnpack", "-f", "json")
    assert code == 0
    assert "warning: the backend xnnpack took no operator of forward" in err
    for text in (err, json.loads(out)["notes"][0]):
        assert "the tensors are bfloat16" in text


@pytest.mark.parametrize("verb", ["export", "run", "numerics", "bisect -o out", "explain --try"])
def test_a_scheme_is_one_everywhere(
    capfd: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr("etscope.cli.options.export.load_torch", pytest.fail)  # needed later
    monkeypatch.setattr("etscope.cli.verbs.explain.load_torch", pytest.fail)
    monkeypatch.chdir(tmp_path)
    Path("int8").mkdir()  # as `run --save int8` leaves it
    words = (*verb.split(), f"{FACTORIES}:WithInputs", "--quantize")
    code, _, err = run(capfd, *words, "int9")
    assert code == 2 and "'int9' is not one of 'int8', '8da4w', '8da8w'" in err
    for scheme in ("int8", "8da4w"):  # the MODEL is not there: the scheme was taken
        code, _, err = run(capfd, *verb.split(), "--quantize", scheme, "no.py:m")
        assert code == 2 and "no.py" in err and "MODELs" not in err, err


def test_nothing_of_torchs_chatter_is_shown(capfd: Captured, tmp_path: Path) -> None:
    code, out, err = run(
        *(capfd, "export", f"{FACTORIES}:WithInputs", "--backend=xnnpack", "-q"),
        *("-o", tmp_path / "x"),
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["file", "what", "bytes"]
    assert len(out.splitlines()) == 5


def test_names_and_no_bundle(capfd: Captured, tmp_path: Path) -> None:
    code, out, _ = run(
        capfd, "export", f"{FACTORIES}:pair", "-Xname=net", "-Xbundle=false", "-o", tmp_path / "a"
    )
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["net.etrecord", "net.pte"]
    assert "bpte" not in out


def test_a_pt2_file_and_calibration(capfd: Captured, tmp_path: Path) -> None:
    torch.export.save(factories.program(), tmp_path / "net.pt2")
    torch.save((torch.randn(2, 8),), tmp_path / "one.pt")
    code, _, err = run(
        *(capfd, "export", tmp_path / "net.pt2", "--backend", "xnnpack", "--quantize"),
        *("-X", f"calibration={tmp_path}/one.pt", "-X", f"calibration={tmp_path}/one.pt"),
    )
    assert (code, err) == (0, "")
    assert (tmp_path / "net" / "model.bpte").exists()


def test_the_same_bytes_each_time(capfd: Captured, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        assert run(capfd, "export", f"{FACTORIES}:pair", "-X", "seed=5", "-o", folder)[0] == 0
    for name in ("model.pte", "model.bpte"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_warning_that_matters_is_shown(
    capfd: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_model.py").write_text(
        "import torch\n"
        "print('made by its author')\n"
        "class Odd(torch.nn.Module):\n"
        "    example_inputs = torch.ones(2)\n"
        "    def forward(self, x):\n"
        "        torch._dynamo.graph_break()\n"
        "        print('seen by its author')\n"
        "        return x + 1\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("default", EtscopeWarning)
        code, out, err = run(capfd, "export", "odd_model.py:Odd", "--format", "csv")
    assert code == 0
    assert out.splitlines()[0] == "file,what,bytes"
    assert "made by its author" in err
    assert "warning: exported non-strictly" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["no_such_module:pair"], 2, "cannot import no_such_module"),
        ([f"{FACTORIES}:raising"], 2, 'raise ValueError("weights are not here")'),
        ([f"{FACTORIES}:branching"], 2, "if x.sum() > 0:"),
        ([f"{FACTORIES}:module_only"], 2, "its forward takes (x)\n  hint: say their types"),
        ([f"{FACTORIES}:pair", "--backend", "vulcan"], 2, "backends: portable, xnnpack,"),
        ([f"{FACTORIES}:pair", "-o", f"{FACTORIES}/x"], 2, "cannot make the folder"),
    ],
)
def test_errors(
    arguments: list[str], code: int, words: str, capfd: Captured, tmp_path: Path
) -> None:
    found, out, err = run(capfd, "export", *arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


TEXT_MODEL = """\
import torch
class Texts(torch.nn.Module):
    def forward(self, x, mode):
        return x + 1 if mode == 'up' else x - 1
def make():
    return Texts(), (torch.ones(2), 'up')
"""


def test_what_no_bundle_can_hold(capfd: Captured, tmp_path: Path) -> None:
    (tmp_path / "text_model.py").write_text(TEXT_MODEL)
    code, _, err = run(capfd, "export", "text_model.py:make", "-o", "x")
    assert code == 2
    assert "cannot write the .bpte" in err
    assert "-X bundle=false" in err
    assert not list(tmp_path.glob("x/*"))
    assert run(capfd, "export", "text_model.py:make", "-o", "x", "-X", "bundle=false")[0] == 0


@pytest.mark.filterwarnings("default::etscope.errors.EtscopeWarning")
def test_a_text_among_example_inputs_is_profiled(capfd: Captured, tmp_path: Path) -> None:
    (tmp_path / "mode_model.py").write_text(TEXT_MODEL)
    level = ("--debug-level", "intermediate_outputs")
    code, out, err = run(capfd, "run", "mode_model.py:make", *level, "--save", "saved")
    assert code == 0, err
    assert "add.out" in out
    code, _, err = run(capfd, "run", "saved/model.etrecord", "--iterations", "1")
    assert code == 0, err
    record = ("--etrecord", "saved/model.etrecord", "-b", "saved/debug.bin")
    code, _, err = run(capfd, "numerics", "saved/values.etdp", *record)
    assert code == 0, err


@pytest.mark.filterwarnings("default::etscope.errors.EtscopeWarning")
def test_an_output_that_is_none_is_in_the_bundle_unverified(
    capfd: Captured, tmp_path: Path
) -> None:
    (tmp_path / "none_model.py").write_text(
        "import torch\n"
        "class Maybe(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x + 1, None\n"
        "def make():\n"
        "    return Maybe(), (torch.ones(2),)\n"
    )
    code, _, err = run(capfd, "export", "none_model.py:make", "-o", "x")
    assert code == 0
    assert "no expected outputs of forward" in err
    assert "output 1 (Null)" in err
    code, out, _ = run(capfd, "run", "x/model.bpte", "--iterations", "1")
    assert code == 0
    assert "Method::execute" in out


# -- silence


def write_to_stderr() -> None:
    os.write(2, b"from C++\n")
    print("from Python", file=sys.stderr)


def test_quiet(capfd: Captured) -> None:
    with quiet():
        write_to_stderr()
        print("printed")
    os.write(2, b"after\n")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "from C++" not in captured.err
    assert "after" in captured.err


@pytest.mark.parametrize(("error", "shown"), [(KeyError("x"), True), (UsageError("x"), False)])
def test_failures_bring_the_log_back(capfd: Captured, error: Any, shown: bool) -> None:
    with pytest.raises(type(error)), quiet():
        os.write(2, b"from C++\n")
        raise error
    assert ("from C++" in capfd.readouterr().err) == shown


def test_debug_is_not_quiet(capfd: Captured) -> None:
    code, _, err = run(capfd, "--debug", "export", f"{FACTORIES}:failing")
    assert code == 2
    assert "Traceback" in err


def test_example_inputs_are_made_of_texts(capfd: Captured, tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(
        "import torch\n"
        "class Bare(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table = torch.nn.Embedding(5, 8)\n"
        "    def forward(self, ids, x):\n"
        "        return self.table(ids) + x\n"
    )
    texts = ("--input", "int64[b=1..4,3]", "--input", "float32[b=1..4,3,8]")
    code, _, err = run(capfd, "export", "bare.py:Bare", "-o", "x", *texts)
    assert code == 0, err
    method = read_pte(next((tmp_path / "x").glob("*.pte"))).method("forward")
    sizes = [method.values[index].sizes for index in method.inputs]
    assert list(map(tuple, sizes)) == [(4, 3), (4, 3, 8)]
    for wrong, message in (
        ("float32", "one file, or a type for each input"),
        ("text[1]", "'text[1]' is not an input"),
        ("float32[a]", "'a' in 'float32[a]' is not a size"),
        ("float32[b=4..4]", "is not a size"),
        ("x=float32[1]", "name all, or none"),
    ):
        code, _, err = run(capfd, "export", "bare.py:Bare", "--input", wrong, *texts[:2])
        assert (code, message in err) == (2, True), err
