"""The work of a dataset's events, and what bounds them where the machine is calibrated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.profile.trace import Trace
from etscope.analysis.work.limits import OVERHEAD_SHARE
from etscope.analysis.work.profile_work import profile_work
from etscope.formats.calibration import VARIABLE, keep_calibration, write_calibration
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope_lab.fleet import Dataset, collect, query
from lab_support.dumps import record_of, saved_run
from tests.support.artifacts import artifacts
from tests.support.calibrations import calibration

ABOUT = {"cpu": "Test CPU", "cores": 2, "load": 0.1}


def rows(dataset: Path, sql: str) -> list[tuple[Any, ...]]:
    return list(query(Dataset.open(dataset), sql, timeout=None).rows())


@pytest.fixture(autouse=True)
def no_calibrations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack", "transformer"])
def test_leaves_have_the_work_of_the_method(name: str, tmp_path: Path) -> None:
    dump = saved_run(tmp_path / "run", name)
    record = record_of(name)
    collect([dump], tmp_path / "ds", etrecord=record)
    trace = Trace(read_etdump(dump), read_etrecord(record), all_runs=True)
    (profile,) = trace.profiles()
    work = profile_work(trace, profile)
    assert work is not None and work.total.flops > 0
    ((flops, known, bounds),) = rows(
        tmp_path / "ds", "SELECT sum(flops), count(flops), count(bound) FROM leaves WHERE run >= 0"
    )
    assert flops == pytest.approx(work.total.flops * len(profile.runs))
    assert known >= len(profile.runs)
    assert bounds == 0  # nothing is calibrated
    if name == "cnn_portable":
        ((activations, weights, intensity),) = rows(
            tmp_path / "ds",
            "SELECT activation_bytes, weight_bytes, intensity FROM leaves "
            "WHERE op = 'aten.convolution.default' ORDER BY start_ns LIMIT 1",
        )
        first = work.of([profile.rows[0]])
        assert (activations, weights) == (first.traffic.activations, first.traffic.weights)
        assert intensity == pytest.approx(first.flops / first.traffic.total)


def test_work_that_is_not_known(tmp_path: Path) -> None:
    collect([saved_run(tmp_path / "run")], tmp_path / "ds")  # without a record
    counts = "SELECT count(flops), count(weight_bytes) FROM events"
    assert rows(tmp_path / "ds", counts) == [(0, 0)]
    files = artifacts("dynamic_shape")  # sizes that only a run tells
    collect([files.etdump], tmp_path / "sizes", etrecord=files.etrecord)
    ((known, all_of_them),) = rows(tmp_path / "sizes", "SELECT count(flops), count(*) FROM leaves")
    assert known < all_of_them


@pytest.mark.parametrize("given", ["kept", "variable"])
def test_bounds_are_those_of_the_machine(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"conditions": ABOUT, "runner": "native", "executorch": "1.5.1", "threads": 1}
    dumps = [saved_run(tmp_path / "here", **known)]
    other = {**known, "conditions": {**ABOUT, "cpu": "Other CPU"}}
    if given == "kept":
        keep_calibration(calibration())
        dumps.append(saved_run(tmp_path / "there", **other, device="other"))
    else:
        write_calibration(calibration(), tmp_path / "peaks.json")
        monkeypatch.setenv(VARIABLE, str(tmp_path / "peaks.json"))
    collect(dumps, tmp_path / "ds", etrecord=record_of())
    found = rows(
        tmp_path / "ds",
        "SELECT device, flops, activation_bytes + weight_bytes, duration_ns, least_ns, bound "
        "FROM leaves",
    )
    here = [row for row in found if row[0] != "other"]
    assert len(here) > 40
    assert all(row[4:] == (None, None) for row in found if row[0] == "other")
    for _, flops, moved, duration, least, bound in here:
        compute, memory = flops / 100, moved / 50  # 100 GFLOP/s, 50 GB/s up to 64 KiB
        assert least == pytest.approx(max(compute, memory))
        expected = "compute" if compute > memory else "memory"
        if least == 0 or (least < 200 and OVERHEAD_SHARE * duration <= 200):
            expected = "overhead"
        assert bound == expected
