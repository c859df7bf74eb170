"""Every difference from upstream that the documentation claims names the test that holds it."""

from __future__ import annotations

import ast
import re

import pytest

from tests.contract.source_tree import ROOT

PAGE = (ROOT / "docs/appendix/differences.md").read_text()
SECTIONS = re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_a_difference_names_a_test_that_exists(title: str, text: str) -> None:
    named = TEST.findall(text)
    assert named, f"{title!r} names no test"
    missing = [f"{path}::{name}" for path, name in named if name not in functions_of(path)]
    assert missing == []
