"""Collecting in other processes: the same dataset, whatever happens to one."""

from __future__ import annotations

from pathlib import Path

import pytest

from etscope.errors import LabError
from etscope_lab.fleet import collect, query
from lab_support.dumps import dies, saved_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for number in range(6):
        saved_run(folder / str(number), seed=number, runs=2, device=f"d{number % 2}")
    (folder / "5" / "copy.etdp").write_bytes((folder / "0" / "run.etdp").read_bytes())
    (folder / "6.etdp").write_bytes(b"bad")
    return folder


def content(dataset: Path) -> list[tuple[object, ...]]:
    table = query(
        str(dataset),
        "select dump_id, device, count(*), sum(duration_ns)::bigint, sum(start_ns)::bigint "
        "from events group by all order by all",
    )
    return list(table.rows())


def test_workers_make_the_same_dataset(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = collect([runs], tmp_path / "here")
    assert (here.taken, here.again, len(here.bad)) == (6, 1, 1)
    told: list[int] = []
    there = collect(
        [runs], tmp_path / "there", workers=1, progress=lambda done, _: told.append(done)
    )
    # The dump that is there twice is in two batches: what counts is that it is taken once.
    assert (there.taken, there.again, len(there.bad)) == (6, 1, 1)
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert told == [8]
    # What the dataset has is known to the workers, and each dump in a batch of its own.
    monkeypatch.setattr("etscope_lab.fleet._collect._MOST_DUMPS", 1)
    again = collect([runs], tmp_path / "here", workers=2)
    assert (again.taken, again.again, len(again.bad)) == (0, 7, 1)


def test_a_worker_that_dies(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is lost ends the collect, and what came before it is in the dataset."""
    monkeypatch.setattr("etscope_lab.fleet._collect.write_batch", dies)
    with pytest.raises(LabError, match="lost with its process"):
        collect([runs], tmp_path / "ds", workers=1)
    monkeypatch.undo()
    assert collect([runs], tmp_path / "ds").taken == 6
