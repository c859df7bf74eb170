"""The page of findings has a section for each rule of `etscope explain`, and for nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from etscope.analysis.insights.facts import Level
from etscope.analysis.insights.insights import rules

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/findings.md"


def sections() -> dict[str, str]:
    """The text of each section, by its heading."""
    _, *parts = re.split(r"^## (.+)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_each_rule_has_a_section_with_an_example() -> None:
    explained = [name for name, rule in rules().items() if Level.FULL in rule.level]
    assert sorted(sections()) == sorted(explained)
    for name, text in sections().items():
        (example,) = re.findall(r"```text\n(.+?)```", text, flags=re.DOTALL)
        assert "To do: " in example, name
        if name not in ("program-faults", "large-bounds"):  # which are there before a run
            assert re.search(r"\(<?\d[\d.]*%\)|up to \d[\d.]* ms", example), (
                f"{name}: no number of a run"
            )


def test_rules_are_called_as_their_functions() -> None:
    for name, rule in rules().items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert rule.find.__name__ == name.replace("-", "_")
