"""A file of more than 800 lines holds more than one idea. Length is a symptom, not a goal."""

from __future__ import annotations

from pathlib import Path

from tests.contract.source_tree import ROOT

LIMIT = 800
FOLDERS = ("src", "packages", "tests", "benchmarks", "docs", "examples")


def too_long(root: Path) -> dict[str, int]:
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    lengths = {str(path.relative_to(root)): len(path.read_text().splitlines()) for path in files}
    return {name: length for name, length in lengths.items() if length > LIMIT}


def test_no_file_is_longer_than_800_lines() -> None:
    assert too_long(ROOT) == {}


def test_a_long_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("\n" * 800)
    (tmp_path / "src/b.py").write_text("\n" * 801)
    assert too_long(tmp_path) == {"src/b.py": 801}
