from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from etscope.capture.kept_runs import Cap, KeptRuns, path_of, size_of
from etscope.errors import FormatError, UsageError


@pytest.fixture
def runs(tmp_path: Path) -> KeptRuns:
    return KeptRuns(tmp_path / "runs")


def keep(runs: KeptRuns, name: str, size: int = 10) -> Path:
    with runs.writing(name) as written:
        (written.path / "run.etdp").write_bytes(bytes(size))
    assert written.kept is not None
    return written.kept


def names(runs: KeptRuns) -> list[str]:
    return [run.path.name for run in runs.newest_first()]


def test_runs_are_numbered_in_their_order(runs: KeptRuns) -> None:
    first = keep(runs, "net")
    assert first.name == "001-net"
    keep(runs, "a model: of (mine)")
    assert names(runs) == ["002-a-model-of-mine", "001-net"]
    assert runs.at("@0").path.name == "002-a-model-of-mine"
    assert runs.at("@1").path == first
    assert (runs.folder / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(("kept", "message"), [(0, "has no runs"), (3, "has 3 runs")])
def test_a_position_without_a_run(runs: KeptRuns, kept: int, message: str) -> None:
    for _ in range(kept):
        keep(runs, "net")
    with pytest.raises(UsageError, match=message):
        runs.at("@9")


def test_a_path_goes_before_a_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETSCOPE_RUNS", str(tmp_path / "elsewhere"))
    kept = keep(KeptRuns(), "net")
    assert path_of("@0") == str(kept)
    Path("@0").mkdir()
    assert path_of("@0") == "@0"
    assert path_of("run.etdp") == "run.etdp"


def test_a_run_that_fails_leaves_nothing(runs: KeptRuns) -> None:
    with pytest.raises(KeyboardInterrupt), runs.writing("net") as written:
        assert names(runs) == []  # a run that is being written is not listed
        raise KeyboardInterrupt
    assert written.kept is None
    assert [path.name for path in runs.folder.iterdir()] == [".gitignore"]
    assert keep(runs, "net").name == "001-net"


def test_each_number_is_given_once(runs: KeptRuns) -> None:
    threads = [
        threading.Thread(target=lambda n=n: [keep(runs, f"{n}") for _ in range(10)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.number for run in runs.newest_first()] == list(range(80, 0, -1))


def test_the_oldest_go_when_the_cap_is_reached(runs: KeptRuns) -> None:
    for size in (10, 10, 1000, 10):
        keep(runs, "net", size)
    runs.cap = Cap(runs=3, bytes=10_000)
    assert [run.path.name for run in runs.make_room()] == ["001-net"]
    runs.cap = Cap(runs=3, bytes=1015)  # 10 and 1000 fit, the oldest no more
    assert [run.path.name for run in runs.make_room()] == ["002-net"]
    keep(runs, "net", 100_000)  # the last one stays, however large
    runs.make_room()
    assert names(runs) == ["005-net"]


def test_what_was_left_half_written_goes_after_a_day(runs: KeptRuns) -> None:
    keep(runs, "net")
    for number, age in ((7, 0), (8, 90_000)):
        left = runs.folder / f"{number:03}.writing"
        left.mkdir()
        os.utime(left, (time.time() - age,) * 2)
    runs.make_room()
    assert (runs.folder / "007.writing").is_dir()
    assert not (runs.folder / "008.writing").exists()


def test_a_damaged_cap_is_said(runs: KeptRuns) -> None:
    keep(runs, "net")
    (runs.folder / "cap.json").write_text('{"runs": "many"}')
    with pytest.raises(FormatError, match=r"cap\.json"):
        runs.make_room()
    assert len(names(runs)) == 1


def test_sizes_are_read() -> None:
    assert [size_of(text) for text in ("1048576", "500MB", "2GiB", "1.5k")] == [
        *(1048576, 500_000_000, 2 << 30, 1500)
    ]
    with pytest.raises(UsageError, match="not a size"):
        size_of("large")
