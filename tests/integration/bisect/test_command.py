"""`etscope bisect`, as a person calls it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from etscope.cli import main
from etscope.cli.verbs import bisect as command
from etscope.errors import RuntimeFailure
from etscope.export import export
from etscope.search.bisect._bisect import AGAINST, STRATEGIES
from etscope.search.bisect._probe import CommandCheck

MODEL = """
import torch

class Bad(torch.nn.Module):
    example_inputs = (torch.ones(1, 4),)

    def forward(self, x):
        return torch.sigmoid(torch.relu(x).sort(dim=1).values)

class Fine(torch.nn.Module):
    example_inputs = (torch.ones(1, 4),)

    def forward(self, x):
        return torch.relu(x)
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "bad_model", raising=False)
    Path("bad_model.py").write_text(MODEL)


def run(capfd: Any, *arguments: object) -> tuple[int, str, str]:
    code = main(["bisect", *(str(argument) for argument in arguments)])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_a_failing_piece_is_told_with_its_line(capfd: Any) -> None:
    """An operator that has no kernel: a failure in the process of its own."""
    code, out, err = run(capfd, "bad_model.py:Bad", "-o", "out", "-f", "json")
    assert (code, err) == (1, "")
    (row,) = json.loads(out)["rows"]
    assert row["nodes"] == ["sort"]
    assert row["source"] == ["bad_model.py:8"]
    assert row["failure"] == "fails to run"
    assert row["detail"] == "this runtime has no kernel for aten::sort.values"
    assert Path("out/repro/repro.py").is_file()

    code, _, err = run(capfd, "bad_model.py:Bad", "-o", "out", "--backend", "xnnpack")
    assert code == 3
    assert "from another backend: portable" in err


def test_nothing_to_find(capfd: Any) -> None:
    code, out, err = run(capfd, "bad_model.py:Fine", "-o", "out", "-X", "isolate=false")
    assert (code, err) == (0, "")
    assert "Nothing to find: the whole model is good." in out
    assert not Path("out/repro").exists()


def test_a_record_and_a_command_that_knows_nothing(capfd: Any) -> None:
    export(torch.nn.ReLU(), (torch.ones(2),)).save("saved", bundle=False)
    skip = "sh -c 'exit 125' {program}"
    code, _, err = run(capfd, "saved/model.etrecord", "-o", "out", "--command", skip)
    assert code == 4
    assert "exit status is 125" in err
    assert run(capfd, "saved/model.etrecord", "-o", "new", "-X", "isolate=false")[0] == 0


def test_the_words_are_those_of_the_library() -> None:
    assert (command.STRATEGIES, command.AGAINST) == (STRATEGIES, AGAINST)


@pytest.mark.parametrize(("script", "told"), [("kill -SEGV $$", "SIGSEGV"), ("nothing", "127")])
def test_a_command_that_crashes_is_no_answer(script: str, told: str, tmp_path: Path) -> None:
    Path("check.sh").write_text(f"echo it loads $1\n{script}\n")
    check = CommandCheck("sh check.sh {program}")
    with pytest.raises(RuntimeFailure, match=told) as error:
        check.answer(tmp_path / "a.pte", [(tmp_path / "in.npz", tmp_path / "out.npz")])
    assert f"it loads {tmp_path / 'a.pte'}" in str(error.value)


def test_the_detail_is_the_reason_and_no_warning(tmp_path: Path) -> None:
    def answer(text: str) -> str:
        Path("check.py").write_text(text)
        command = f"{sys.executable} check.py {{program}}"
        return CommandCheck(command).answer(tmp_path, [(tmp_path, tmp_path)]).detail

    warn = "import sys, warnings\nwarnings.warn('torch is old')\n"
    assert answer(f"{warn}print('class 3, not 5')\nsys.exit(1)") == "class 3, not 5"
    assert answer(f"{warn}sys.exit('no class')") == "no class"
    assert answer(f"{warn}raise ValueError('off by 3')") == "ValueError: off by 3"
    assert answer(f"{warn}sys.exit(1)") == ""
