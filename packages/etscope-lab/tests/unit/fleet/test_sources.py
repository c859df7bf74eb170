"""What names of dumps mean, and what is known of a run beside its dump."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import FormatError, MissingFileError
from etscope_lab.fleet import Source, find_sources
from etscope_lab.fleet.run_metadata import name_of, run_metadata

DUMP = b"\x10\x00\x00\x00\x00\x00\x00\x00ED00rest"


def put(path: Path, content: bytes = DUMP) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    put(tmp_path / "a" / "run.etdp")
    put(tmp_path / "a" / "values.etdp")  # of a run that logged values: its times are not the run's
    put(tmp_path / "b" / "values.etdp")  # there is no other
    put(tmp_path / "b" / "deep" / "trace.bin")  # known by its first bytes
    put(tmp_path / "b" / "deep" / "model.pte", b"\x10\x00\x00\x00ET12....")
    put(tmp_path / "b" / "short", b"ED")
    os.mkfifo(tmp_path / "b" / "pipe")
    return tmp_path


def names(folder: Path, *given: str | Path) -> list[str]:
    found, wrong = find_sources(given)
    assert wrong == []
    return [os.path.relpath(source.url, folder) for source in found]


def test_folders_files_and_globs(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = ["a/run.etdp", "b/values.etdp", "b/deep/trace.bin"]
    assert names(tree, tree) == everything
    assert names(tree, tree / "a" / "values.etdp") == ["a/values.etdp"]
    assert names(tree, f"{tree}/*/*.etdp") == ["a/run.etdp", "a/values.etdp", "b/values.etdp"]
    assert names(tree, f"{tree}/**/deep") == ["b/deep/trace.bin"]
    assert names(tree, tree / "a" / "run.etdp", tree / "a") == ["a/run.etdp"]
    assert names(tree, f"{tree}/none*") == []
    put(tree / "odd [1]" / "run.etdp")
    assert names(tree, tree / "odd [1]" / "run.etdp") == ["odd [1]/run.etdp"]
    monkeypatch.chdir(tree)
    (source,) = find_sources(["a"])[0]
    assert source.url == str(tree / "a" / "run.etdp")  # workers may be elsewhere
    assert source.size == len(DUMP)
    assert source.modified == pytest.approx((tree / "a" / "run.etdp").stat().st_mtime)
    found, wrong = find_sources([tree / "none.etdp", tree / "a" / "run.etdp"])
    assert len(found) == 1
    ((name, error),) = wrong
    assert name == str(tree / "none.etdp") and isinstance(error, MissingFileError)


def test_lists(tree: Path) -> None:
    (tree / "list").write_text(f"# dumps\n{tree}/a\n\n  {tree}/b/deep  \n")
    assert names(tree, f"@{tree}/list") == ["a/run.etdp", "b/deep/trace.bin"]
    with pytest.raises(MissingFileError, match="list of dumps"):
        find_sources([f"@{tree}/none"])
    (tree / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="list of dumps"):
        find_sources([f"@{tree}/binary"])


def test_urls(tree: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for name in ("one/run.etdp", "one/values.etdp", "one/run.json", "two/x.etdump"):
        memory.pipe(f"/fleet/{name}", DUMP)
    found, wrong = find_sources(
        ["memory://fleet/one/run.etdp", "memory://fleet", "memory://fleet/*/*.etdump"]
    )
    assert wrong == []
    assert [s.url.replace("memory:///", "memory://") for s in found] == [
        f"memory://fleet/{name}" for name in ("one/run.etdp", "one/values.etdp", "two/x.etdump")
    ]
    assert all(s.size == len(DUMP) and s.modified is not None for s in found)
    local, _ = find_sources([f"file://{tree}/a"])
    assert [s.url for s in local] == [f"file://{tree}/a/run.etdp", f"file://{tree}/a/values.etdp"]
    for bad in ("memory://fleet/none.etdp", "nosuch://x/y"):
        ((name, error),) = find_sources([bad])[1]
        assert name == bad and isinstance(error, (FormatError, MissingFileError))


# -- beside a dump


def told(**facts: Any) -> Source:
    return Source("x/run.etdp", 1, 1e9, about=facts)


def test_names_go_before_one_another() -> None:
    assert run_metadata(told(program="/m/net.pte"), {}).model == "net"
    assert run_metadata(told(program="/m/net.pte", model="vision"), {}).model == "vision"
    assert run_metadata(told(model="vision", labels={"model": "mine"}), {}).model == "mine"
    assert run_metadata(told(labels={"model": "mine"}), {"model": "ours"}).model == "ours"
    assert run_metadata(told(), {}, "records/net.etrecord").model == "net"
    assert run_metadata(told(), {}).model == "unknown"
    assert run_metadata(told(device="p8"), {}).device == "p8"
    assert run_metadata(told(device={"name": "p8"}), {"device": "p9"}).device == "p9"
    assert run_metadata(told(device={"soc": "G3"}), {}).environment == {"device.soc": "G3"}
    assert name_of(None) == name_of(" \n") == "unknown"
    assert name_of(" a\tb ") == "ab"
    assert name_of("é" * 300) != name_of("é" * 301)
    assert name_of("é" * 300).startswith("é" * 20)


def test_other_facts() -> None:
    calls = [{"warmup": 2}, {"warmup": 2}]
    environment = {"a": {"b": True, "c": None, "e": {"f": "y"}}, "d": [1, "x"]}
    facts = {"threads": 4, "calls": calls, "marks": ["hot"], "job": "j1"}
    found = run_metadata(told(**facts, environment=environment), {"k": "v"})
    columns = found.columns()
    assert [columns[n] for n in ("threads", "warmup", "marks", "job")] == [4, 2, ["hot"], "j1"]
    assert found.environment == {"a.b": "true", "a.e.f": "y", "d": "1, x"}
    assert found.labels == {"k": "v"}
    several = run_metadata(told(calls=[{"warmup": 2}, {"warmup": 3}]), {})
    assert several.columns()["warmup"] is None
    for at, wanted in (  # times are UTC
        ("2026-05-01T12:00:00Z", datetime(2026, 5, 1, 12)),
        ("2026-05-01T12:00:00-05:00", datetime(2026, 5, 1, 17)),
        ("2026-05-01T12:00:00.500", datetime(2026, 5, 1, 12, 0, 0, 500_000)),
    ):
        assert run_metadata(told(recorded_at=at), {}).recorded_at == wanted
    assert run_metadata(told(), {}).recorded_at == datetime(2001, 9, 9, 1, 46, 40)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recorded_at", "today"),
        ("recorded_at", 5),
        ("labels", ["a"]),
        ("environment", "linux"),
        ("calls", {"warmup": 1}),
        ("calls", [1]),
        ("threads", "many"),
        ("threads", True),
        ("model", ["x"]),
        ("marks", "hot"),
    ],
)
def test_damaged_facts(name: str, value: Any) -> None:
    with pytest.raises(FormatError):
        run_metadata(told(**{name: value}), {}).columns()


def test_a_damaged_run_json(tmp_path: Path) -> None:
    dump = put(tmp_path / "run.etdp")
    for content in (b"{", b"[]", b'{"a": 1} x', b"\xff"):
        (tmp_path / "run.json").write_bytes(content)
        with pytest.raises(FormatError, match=r"run\.json"):
            run_metadata(Source(str(dump), 1), {})
