"""The skill: how an agent works with etscope on the command line."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["skill_text"]


def skill_text() -> str:
    """Return SKILL.md."""
    return files("etscope.agent").joinpath("SKILL.md").read_text(encoding="utf-8")
