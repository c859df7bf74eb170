"""The recorded runs in git are of today's recipes, small, and without paths of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import corpus
from tests.support.artifacts import RECIPES, source_hash

LARGEST = 25e6  # bytes of all archives


def test_each_archive_is_of_the_recipe_as_it_is() -> None:
    held = {path.name.removesuffix(".tar.xz") for path in corpus.RUNS.glob("*.tar.xz")}
    assert held == set(corpus.manifest()) and len(held) > 20
    old = [name for name, entry in corpus.manifest().items()
           if entry["sources"] != source_hash(RECIPES[name])]  # fmt: skip
    assert not old, f"make corpus, as their sources have changed: {old}"
    assert sum(path.stat().st_size for path in corpus.RUNS.iterdir()) < LARGEST


def test_paths_are_those_of_this_repository_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within the zip of a record; and packing gives the same archive again."""
    corpus.unpack("cnn_portable", tmp_path)
    found = (tmp_path / "etrecord.bin").read_bytes()
    assert str(corpus.ROOT).encode() in found
    assert corpus.ROOT_IN_ARCHIVE not in found
    before = corpus.archive("cnn_portable").read_bytes()
    monkeypatch.setattr(corpus, "RUNS", tmp_path / "runs")
    corpus.pack(tmp_path, "cnn_portable")
    assert corpus.archive("cnn_portable").read_bytes() == before
