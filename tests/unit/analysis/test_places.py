"""The line that a person looks for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etscope.analysis.program.source_location import user_line


def trace(*frames: str) -> str:
    return "\n".join(f'  File "{file}", line 7, in forward\n    x = y' for file in frames)


def test_the_innermost_line_outside_the_framework() -> None:
    site = "/usr/lib/python3/site-packages"
    text = trace("/me/model.py", f"{site}/timm/block.py", f"{site}/torch/nn/functional.py")
    assert str(user_line(text)) == f"{site}/timm/block.py:7"
    for package in ("torch", "torchao", "executorch"):
        assert user_line(trace(f"{site}/{package}/nn/a.py")) is None
    models = f"{site}/executorch/examples/models"
    inside = trace(f"{models}/llama/rope.py", f"{site}/executorch/extension/llm/custom_ops/ops.py")
    assert str(user_line(inside)) == f"{models}/llama/rope.py:7"
    assert user_line(trace(f"{site}/torch/examples/a.py")) is None


def test_a_line_that_torch_notes_without_a_folder() -> None:
    check = "torch/fx/passes/runtime_assert.py"
    assert user_line(trace(check)) is None
    assert str(user_line(trace("/me/model.py", check))) == "/me/model.py:7"
    assert str(user_line(trace("/me/torch/model.py"))) == "/me/torch/model.py:7"


def test_the_line_that_is_mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = "/usr/lib/python3/site-packages/timm/block.py"
    text = trace("/me/run.py", "/me/nets/model.py", "/me/nets2/other.py", library)
    for mine, file in {
        "/me/nets": "/me/nets/model.py",
        "/me/nets/": "/me/nets/model.py",
        "/me/run.py": "/me/run.py",
        "/no/such": library,
        "": library,
        f"/no/such{os.pathsep}/me": "/me/nets2/other.py",
    }.items():
        monkeypatch.setenv("ETSCOPE_MINE", mine)
        assert str(user_line(text)) == f"{file}:7"
    inside = trace("/me/model.py", "/me/.venv/lib/python3/site-packages/timm/block.py")
    assert str(user_line(inside)) == "/me/model.py:7"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETSCOPE_MINE", "nets")
    assert str(user_line(trace(f"{tmp_path}/nets/a.py", library))) == f"{tmp_path}/nets/a.py:7"


def test_generated_code_is_no_line() -> None:
    assert str(user_line(trace("/me/model.py", "<eval_with_key>.12"))) == "/me/model.py:7"
    assert user_line(trace("<eval_with_key>.12")) is None
    assert user_line(None) is None
