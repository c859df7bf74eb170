"""What is made of a job's files: once, in a child process, and never half."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etscope_lab.pages import _artifact_cache
from etscope_lab.pages._artifact_cache import ArtifactCache, ArtifactState, Recipe
from etscope_lab.store import Store
from tests.support.artifacts import artifacts
from tests.support.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture
def cache(tmp_path: Path, store: Store) -> Iterator[ArtifactCache]:
    made = ArtifactCache(tmp_path / "made", store)
    yield made
    made.close()


@pytest.fixture
def recipe(store: Store) -> Recipe:
    found = artifacts("cnn_xnnpack")
    names = {"run.etdp": found.etdump_timing, "record": found.etrecord, "model": found.pte}
    return Recipe("operators", {name: put(store, path) for name, path in names.items()})


def put(store: Store, path: Path | None) -> str:
    assert path is not None
    return store.put_file(path, path.name).sha256


def finished(cache: ArtifactCache, recipe: Recipe) -> ArtifactState:
    """The piece when it is there, or why it is not."""
    until(lambda: cache.request(recipe) != ArtifactState())
    return cache.request(recipe)


def left(cache: ArtifactCache) -> list[str]:
    return sorted(path.name for path in cache._folder.iterdir())


def test_a_piece_is_made_once_and_kept(
    cache: ArtifactCache, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.lookup(recipe) is None  # looking makes nothing
    made = finished(cache, recipe)
    assert made.folder is not None
    assert "Convolution" in (made.folder / "tables.json").read_text()
    # The temporary folder is removed after the artifact has appeared.
    until(lambda: left(cache) == [recipe.key])
    monkeypatch.setattr(cache, "_make", lambda _: pytest.fail("made again"))
    assert cache.request(recipe) == made
    assert cache.lookup(recipe) == made


def test_other_files_are_another_piece(recipe: Recipe) -> None:
    other = Recipe(recipe.kind, {**recipe.files, "run.etdp": "0" * 64})
    assert other.key != recipe.key != Recipe("report", recipe.files).key


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"no dump at all", "not an ETDump"), (b"", "empty")],
)
def test_what_cannot_be_made_says_why(
    cache: ArtifactCache, store: Store, recipe: Recipe, content: bytes, words: str
) -> None:
    bad = store.put_stream([content], "run.etdp").sha256
    made = finished(cache, Recipe("operators", {**recipe.files, "run.etdp": bad}))
    assert made.folder is None
    assert made.failure is not None and words in made.failure
    assert left(cache) == []
    missing = finished(cache, Recipe("operators", {"run.etdp": "0" * 64}))
    assert missing.failure is not None and "0" * 12 in missing.failure


def test_what_takes_too_long_is_ended(tmp_path: Path, store: Store, recipe: Recipe) -> None:
    cache = ArtifactCache(tmp_path / "made", store, seconds=0.01)
    try:
        made = finished(cache, recipe)
    finally:
        cache.close()
    assert made.failure is not None and "given up" in made.failure
    assert not cache._children
    assert left(cache) == []


def test_closing_ends_what_is_being_made(cache: ArtifactCache, recipe: Recipe) -> None:
    assert cache.request(recipe) == ArtifactState()
    until(lambda: cache._children)
    cache.close()
    made = cache.lookup(recipe)
    assert made is not None
    assert made.failure == "the lab is being closed"
    assert left(cache) == []


def test_a_process_that_breaks_down_is_a_failure(
    cache: ArtifactCache, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_artifact_cache, "_BUILDERS", "tests.support.child_programs")
    made = finished(cache, recipe)
    assert made.failure is not None and "ended with exit code 1" in made.failure
    assert "Traceback" in made.failure


def test_what_nobody_looks_at_goes_first(tmp_path: Path, store: Store, recipe: Recipe) -> None:
    cache = ArtifactCache(tmp_path / "made", store, most_bytes=1_500_000)
    for name, at in (("old", 1_000), ("older", 500)):
        (tmp_path / "made" / name).mkdir(parents=True)
        (tmp_path / "made" / name / "file").write_bytes(bytes(1_000_000))
        os.utime(tmp_path / "made" / name, (at, at))
    try:
        finished(cache, recipe)
    finally:
        cache.close()  # waits for the sweep
    assert left(cache) == sorted(["old", recipe.key])


def test_what_a_killed_server_left_goes(cache: ArtifactCache, recipe: Recipe) -> None:
    for name, age in (("making-old", 1e6), ("making-new", 0)):
        (cache._folder / name / "in").mkdir(parents=True)
        at = time.time() - age
        os.utime(cache._folder / name, (at, at))
    finished(cache, recipe)
    cache.close()  # waits for the sweep
    assert left(cache) == sorted([recipe.key, "making-new"])


@pytest.mark.usefixtures("real_children")
def test_modules_do_not_come_from_where_the_server_runs(
    cache: ArtifactCache, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    assert finished(cache, recipe).failure is None


def test_a_bug_is_a_failure_too(
    cache: ArtifactCache, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(cache, "_run_child", fail)
    assert finished(cache, recipe).failure == "this is a bug in the lab"


def test_after_the_end_nothing_is_begun(cache: ArtifactCache, recipe: Recipe) -> None:
    cache.close()
    assert cache.request(recipe) == ArtifactState()
    assert not cache._running
