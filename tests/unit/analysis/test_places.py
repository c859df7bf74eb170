"""The line that a person looks for."""

from __future__ import annotations

from etscope.analysis.profile.source_location import user_line


def trace(*frames: str) -> str:
    return "\n".join(f'  File "{file}", line 7, in forward\n    x = y' for file in frames)


def test_the_innermost_line_outside_the_framework() -> None:
    site = "/usr/lib/python3/site-packages"
    text = trace("/me/model.py", f"{site}/timm/block.py", f"{site}/torch/nn/functional.py")

    assert str(user_line(text)) == f"{site}/timm/block.py:7"
    for package in ("torch", "torchao", "executorch"):
        assert user_line(trace(f"{site}/{package}/nn/a.py")) is None


def test_generated_code_is_no_line() -> None:
    assert str(user_line(trace("/me/model.py", "<eval_with_key>.12"))) == "/me/model.py:7"
    assert user_line(trace("<eval_with_key>.12")) is None
    assert user_line(None) is None
