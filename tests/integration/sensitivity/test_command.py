"""`etscope sensitivity`, as a person calls it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.cli import main
from etscope.cli.options.export import RUN_HERE
from etscope.cli.verbs.checking import sensitivity as command
from etscope.sensitivity._groups import GROUPINGS

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 2)
        with torch.no_grad():
            self.wide.weight[0] *= 3000
            self.head.weight[:, 0] /= 3000

    def forward(self, x):
        return self.head(self.wide(x))

def make():
    return Net(), (torch.ones(1, 4),)
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "wide_model", raising=False)
    Path("wide_model.py").write_text(MODEL)


def etscope(capfd: Any, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_the_arguments_it_ends_with_do_what_it_says(
    capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    Path("data").mkdir()
    for seed in range(3):
        values = np.random.default_rng(seed).standard_normal((1, 4)).astype(np.float32)
        np.savez(f"data/{seed}.npz", x=values)
    data = ["--calibration", "data", "--samples", "data", "--no-isolate", "--rounds", "1"]
    fast = ["sensitivity", "wide_model.py:make", *data, "--keep", "kept"]
    code, out, err = etscope(capfd, *fast, "--tolerance", "25")
    assert code == 0, err
    assert "module:wide + module:head: " in err
    last = out.strip().splitlines()[-1]
    assert last == "--keep-float module:wide --keep-float module:head"

    code, out, err = etscope(
        capfd, "export", "wide_model.py:make", "-b", "xnnpack", "-q", *shlex.split(last), "-o", "o"
    )
    assert code == 0, err
    programs = {path.stem.partition("-")[0]: path for path in Path("kept/programs").iterdir()}
    assert Path("o/model.pte").stat().st_size == programs["float"].stat().st_size

    code, out, err = etscope(capfd, *fast, "--tolerance", "999", "--resume", "-f", "json")
    assert code == 1, err
    rows = json.loads(out)["rows"]
    assert [row["role"] for row in rows] == ["int8", "variant", "variant", "variant", "float"]
    assert rows[1]["keep_float"] == ["module:wide", "module:head"]

    code, out, _ = etscope(capfd, *fast, "--resume", "--limit", "1", "-f", "json")
    assert code == 0
    assert [row["role"] for row in json.loads(out)["rows"]] == ["int8", "variant", "float"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--plot", "plot.gif"], "no picture format"),
        (["--select", "op:("], "nothing after op"),
    ],
)
def test_wrong_usage(capfd: Any, arguments: list[str], words: str) -> None:
    code, out, err = etscope(capfd, "sensitivity", "wide_model.py:make", *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_selector_of_an_export_that_picks_nothing(capfd: Any) -> None:
    code, _, err = etscope(
        capfd, "export", "wide_model.py:make", "-b", "xnnpack", "-q", "--keep-float", "module:had"
    )
    assert code == 2
    assert "near names: head" in err
    assert not Path("make").exists()


def test_the_words_are_those_of_the_library() -> None:
    assert set(command.GROUPINGS) == set(GROUPINGS)
    assert "xnnpack" in RUN_HERE
