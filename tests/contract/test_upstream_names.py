"""etscope can be written for `executorch.devtools` wherever upstream's API is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.upstream_names import declared, is_declared, missing, upstream_folder

pytest.importorskip("executorch")


@pytest.fixture(scope="module")
def gaps() -> list[str]:
    return missing(upstream_folder())


def test_what_is_missing_is_declared(gaps: list[str]) -> None:
    """In the table of docs/differences.md, with a reason."""
    known = declared()
    assert known
    assert [name for name in gaps if not is_declared(name, known)] == []


def test_what_is_declared_is_missing(gaps: list[str]) -> None:
    stale = [one for one in declared() if not any(is_declared(gap, {one: ""}) for gap in gaps)]
    assert stale == []


def test_the_walk_finds_modules_names_members_and_parameters(tmp_path: Path) -> None:
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere/a.py").write_text("def f(): ...")
    (tmp_path / "units.py").write_text(
        "import os\n"
        "def format_share(value, colour): ...\n"
        "def _private(): ...\n"
        "BITS = 8\n"
        "class TimeScale:\n    NS = 1\n    WEEKS = 2\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/b.py").write_text("def g(): ...")

    assert missing(tmp_path) == [
        "nowhere.a",
        "units.format_share(colour)",
        "units.BITS",
        "units.TimeScale.WEEKS",
    ]


def test_all_is_what_counts(tmp_path: Path) -> None:
    (tmp_path / "units.py").write_text("__all__ = ['grams']\ngrams = miles = 1")

    assert missing(tmp_path) == ["units.grams"]
