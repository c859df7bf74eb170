"""etscope can be written for `executorch.devtools` wherever upstream's API is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.upstream_names import declared, is_declared, missing, upstream_folder

pytest.importorskip("executorch")


def test_what_is_missing_is_declared() -> None:
    """The table of docs/appendix/differences.md has each with a reason, and nothing else."""
    gaps, known = missing(upstream_folder()), declared()
    assert known
    assert [name for name in gaps if not is_declared(name, known)] == []
    assert [one for one in known if not any(is_declared(gap, {one: ""}) for gap in gaps)] == []


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
    (tmp_path / "support").mkdir()
    (tmp_path / "support/options.py").write_text("__all__ = ['grams']\ngrams = miles = 1")
    assert missing(tmp_path) == [
        "nowhere.a",
        "support.options.grams",  # what __all__ names is all that counts
        "units.format_share(colour)",
        "units.BITS",
        "units.TimeScale.WEEKS",
    ]
