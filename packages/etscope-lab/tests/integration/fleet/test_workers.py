"""Collecting on Dask's workers: the same dataset, whatever happens to a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import distributed
import pytest

from etscope.errors import LabError, UsageError
from etscope_lab.fleet import collect, query
from lab_support.dumps import saved_run
from tests.support.ports import nobody_listens


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
    # A cluster that is there already; what the dataset has is known to its workers.
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        monkeypatch.setattr("etscope_lab.fleet._collect._MOST_DUMPS", 1)
        again = collect([runs], tmp_path / "here", scheduler=cluster.scheduler_address)
        assert (again.taken, again.again, len(again.bad)) == (0, 7, 1)
        third = collect([runs], tmp_path / "third", scheduler=cluster.scheduler_address)
        assert (third.taken, third.again) == (6, 1)
    assert content(tmp_path / "third") == content(tmp_path / "here")


def test_nobody_else_reaches_the_workers(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of the machine that knows the addresses gets no answer."""
    stranger = (
        "import sys\nfrom distributed import Client\n"
        "try: Client(sys.argv[1], timeout=3).run_on_scheduler(print)\n"
        "except Exception: sys.exit(9)\n"
    )
    answers: list[int] = []
    addresses: set[str] = set()
    made = distributed.LocalCluster

    def local(**options: object) -> object:
        cluster = made(**options)
        about = cluster.scheduler_info
        addresses.update([cluster.scheduler_address, *about["workers"]])
        addresses.update(worker["nanny"] for worker in about["workers"].values())
        plain = cluster.scheduler_address.replace("tls://", "tcp://")
        answers.extend(
            subprocess.call([sys.executable, "-c", stranger, address])
            for address in (cluster.scheduler_address, plain)
        )
        return cluster

    monkeypatch.setattr(distributed, "LocalCluster", local)
    assert collect([runs], tmp_path / "ds", workers=1).taken == 6
    assert answers == [9, 9]
    assert len(addresses) == 3 and all(address.startswith("tls://127") for address in addresses)


def test_a_worker_that_dies(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is tried again elsewhere; one that is lost each time ends the collect, and what came
    before it is in the dataset."""
    import etscope_lab.fleet._collect as workers

    def deadly(batch: object, options: object, known: object) -> object:
        os._exit(1)

    monkeypatch.setattr(workers, "write_batch", deadly)
    with pytest.raises(LabError, match="lost with its worker"):
        collect([runs], tmp_path / "ds", workers=1)
    monkeypatch.undo()
    assert collect([runs], tmp_path / "ds").taken == 6


def test_no_cluster(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etscope_lab.fleet._collect._CONNECT_SECONDS", 0.5)
    with nobody_listens() as port:
        address = f"tcp://127.0.0.1:{port}"
        with pytest.raises(LabError, match="no Dask scheduler answers"):
            collect([runs], tmp_path / "ds", scheduler=address)
        with pytest.raises(UsageError, match="not both"):
            collect([runs], tmp_path / "ds", scheduler=address, workers=2)
