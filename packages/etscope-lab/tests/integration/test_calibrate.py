"""`etscope lab calibrate`: the peaks of devices through their drivers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from etscope.analysis.insights.facts import Facts
from etscope.cli import main
from etscope.formats.calibration import find_calibration
from etscope.formats.conditions import conditions_here
from etscope.formats.run_json import SavedRun, read_run_json
from etscope.run.native import VARIABLE, find_runner
from etscope_lab.config import Home
from etscope_lab.devices.calibrator import Calibrator
from etscope_lab.devices.peaks import CalibrationOrder, DeviceCalibration, due_threads
from etscope_lab.engine import Engine, EngineOptions
from etscope_lab.jobs.job_tables import devices_report
from etscope_lab.jobs.records import DeviceConfig, Job, State
from etscope_lab.jobs.spec import spec_of
from etscope_lab.lab import Lab
from etscope_lab.pages import _overviews as overviews
from etscope_lab.pages._artifact_builders import BUILDERS
from etscope_lab.worker import worker
from lab_support.small_calibration import BROKEN
from tests.support import calibrations
from tests.support.artifacts import artifacts
from tests.support.run.calibration import small_program
from tests.support.waiting import PATIENCE, until

pytest.importorskip("executorch")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETSCOPE_LAB", str(tmp_path))
    monkeypatch.delenv("ETSCOPE_LAB_SERVER", raising=False)
    monkeypatch.delenv("ETSCOPE_CALIBRATION", raising=False)
    folder = tmp_path / "calibrations"
    monkeypatch.setattr("etscope.formats.calibration.calibrations_folder", lambda: folder)
    devices = [
        {"name": "bench", "driver": "host"},
        {"name": "gone", "driver": "host", "options": {"runner": "/no/such/runner"}},
    ]
    (tmp_path / "lab.yaml").write_text(json.dumps({"devices": devices}))
    return tmp_path


@pytest.mark.filterwarnings("ignore::etscope.errors.EtscopeWarning")  # of a busy machine
def test_a_device_is_measured_and_its_jobs_find_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("etscope.analysis.calibration.WORKING_SETS", (16 << 10, 64 << 10))
    words = ["lab", "calibrate", "--program", str(small_program()), "-X", "runner=native"]
    words += ["--threads", "1", "-X", "rounds=1"]
    assert main([*words, "bench"]) == 0
    shown = capsys.readouterr()
    assert "Matrix products" in shown.out
    assert f"bench: kept in {home / 'calibrations'}" in shown.err
    cpu = conditions_here().cpu
    if cpu:
        job = SavedRun({"device": "bench", "conditions": {"cpu": cpu}, "threads": 1})
        found = find_calibration(job)
        assert found is not None and found.device.name == "bench"
        assert found.device.architecture and found.device.system
        assert found.peaks(1).peak_flops("float32")
    with Lab.open(home) as lab:
        [mine] = lab.database.calibrations("bench")
        assert mine.runner == "native" and mine.threads == (1,) and mine.calibration is not None

    assert main([*words, "gone"]) == 5
    assert "gone could not be measured: the device gone is not set up" in capsys.readouterr().err
    assert main([*words, "absent"]) == 2
    assert "the lab's devices: bench, gone" in capsys.readouterr().err


# -- By the lab itself.


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_children: None) -> Iterator[Lab]:
    monkeypatch.setenv(VARIABLE, str(find_runner()))  # which is in the cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ETSCOPE_CALIBRATION", raising=False)
    monkeypatch.setattr("etscope_lab.engine._POLL", 0.1)
    monkeypatch.setattr(worker, "CALIBRATE", "lab_support.small_calibration")
    monkeypatch.setattr(worker, "_lost", set())
    with Lab.open(tmp_path / "lab") as lab:
        yield lab


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[CalibrationOrder | None]:
    """What the lab's engine decides after each job that is done."""
    found: list[CalibrationOrder | None] = []
    due = Calibrator.due

    def noted(self: Calibrator, config: DeviceConfig) -> CalibrationOrder | None:
        is_asked = config.name in self._done
        order = due(self, config)
        if is_asked:
            found.append(order)
        return order

    monkeypatch.setattr(Calibrator, "due", noted)
    return found


def start(lab: Lab) -> None:
    lab.engine = Engine(lab.home, lab.database, EngineOptions(in_process=True), changed=lab._notify)
    lab.engine.start()


def done(lab: Lab, **more: Any) -> Job:
    """A job on the host that is done."""
    wanted = {"model": str(artifacts("cnn_xnnpack").pte), "runner": "native", "threads": 1}
    spec = spec_of({**wanted, "iterations": 3, "traced_iterations": 1, **more})
    job = lab.wait(lab.submit(spec, again=True).id, PATIENCE)
    assert job.state is State.DONE, job.error
    return job


def kept(lab: Lab) -> DeviceCalibration:
    """What is kept of the host; the first time that is waited for."""
    until(lambda: lab.database.calibrations("host"))
    [found] = lab.database.calibrations("host")
    return found


def test_a_device_is_calibrated_once_after_its_first_job(
    lab: Lab, tmp_path: Path, decided: list[CalibrationOrder | None]
) -> None:
    start(lab)
    assert "calibration.json" not in done(lab).artifacts
    first = kept(lab)
    assert (first.runner, first.threads, first.error) == ("native", (1,), "")

    program = str(artifacts("cnn_portable").pte)
    second = done(lab, kind="ab", baseline=program, rounds=4, iterations=1, traced_iterations=0)
    until(lambda: len(decided) == 2)
    assert decided[1] is None and kept(lab) == first
    lab.fetch(second.id, tmp_path / "second")
    saved = read_run_json(tmp_path / "second" / "run.json")
    found = find_calibration(saved)
    assert found is not None and found.device.name == "host"
    assert found.mismatch_with(saved) == ()

    # Another number of threads is another case; the one before stays measured.
    third = done(lab, threads=2)
    lab.fetch(third.id, tmp_path / "third")
    [facts] = operators_of(tmp_path / "third", tmp_path)
    assert facts.calibration is not None and facts.calibration.device == found.device
    until(lambda: kept(lab) != first)
    later = kept(lab)
    assert later.threads == (1, 2) and later.at >= first.at
    calibration = later.calibration
    assert calibration is not None and [one.threads for one in calibration.all_peaks] == [1, 2]
    [device] = lab.devices()
    [summary] = device.calibrations
    assert summary["flop_per_s"]["float32"] == max(
        peaks.peak_flops("float32") or 0 for peaks in calibration.all_peaks
    )
    [section] = devices_report([device]).sections
    assert "native: float32" in section.table.values["peaks"][0][0]
    [(shown, _)] = overviews.devices(lab)["peaks"]["host"]
    assert shown["native runner"].endswith("GB/s (threads: 1, 2)")


def operators_of(job: Path, folder: Path) -> list[Facts]:
    """What the builder of a job's page gives to explain."""
    seen: list[Facts] = []
    with mock.patch(
        "etscope.analysis.insights.insights.insights", lambda one, level: seen.append(one) or ()
    ):
        (folder / "out").mkdir()
        BUILDERS["operators"](job, folder / "out", {})
    return seen


def test_a_device_that_cannot_be_calibrated_is_left_alone(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    decided: list[CalibrationOrder | None],
) -> None:
    monkeypatch.setenv(BROKEN, "1")
    start(lab)
    done(lab)
    first = kept(lab)
    assert first.content is None
    assert first.error == "the program of the calibration cannot be made here"
    assert "calibration.json" not in done(lab, traced_iterations=0).artifacts
    until(lambda: len(decided) == 2)
    assert decided[1] is None and kept(lab) == first
    told = [one for one in caplog.messages if "cannot be calibrated" in one]
    assert told == [
        "host (native runner) cannot be calibrated; it is tried again only after a change: "
        "the program of the calibration cannot be made here"
    ]
    [section] = devices_report(lab.devices()).sections
    assert section.table.values["peaks"][0] == [f"native: not calibrated: {first.error}"]


def test_a_marked_calibration_is_taken_again_after_a_quiet_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ETSCOPE_CALIBRATION", raising=False)
    clock = [100.0]
    monkeypatch.setattr("etscope_lab.devices.calibrator.time.monotonic", lambda: clock[0])
    told = {"runner": "native", "threads": 1, "executorch": "1.5.1", "device": {}}
    config, marks = DeviceConfig("host", "host"), ["the load was 3.1 on 2 cores before it began"]
    with Lab.open(tmp_path / "lab") as lab:
        calibrator = Calibrator(lab.database, lab.home.store_url, wanted=True)

        def due(*of_job: str) -> CalibrationOrder | None:
            calibrator.note_done("host", told, of_job)
            return calibrator.due(config)

        order = due()
        assert order is not None
        marked = DeviceCalibration(
            "host", "native", order.description, (1,), datetime.now(timezone.utc), measured(marks)
        )
        calibrator.keep(marked)
        assert due("the device was busy before the run: a load of 2 a core") is None
        again = due()
        assert again is not None and again.threads == (1,)
        calibrator.keep(replace(marked, content=measured([*marks, "spread"])))  # no better: dropped
        assert lab.database.calibrations("host")[0].marks == marks
        assert due() is None
        clock[0] += 3601
        assert due() is not None
        clock[0] += 3601
        assert due() is None  # the wait is doubled
        calibrator.keep(replace(marked, content=measured([])))
        clock[0] += 10**6
        assert due() is None


def measured(marks: list[str]) -> dict[str, Any]:
    """The content of a calibration's file with these marks."""
    return dict(replace(calibrations.calibration(), marks=tuple(marks)).to_json())


@pytest.mark.parametrize("how", ["lab.yaml", "environment", "somebody waits"])
def test_nothing_is_calibrated_where_it_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    config = DeviceConfig("host", "host")
    told = {"runner": "native", "threads": 1, "executorch": "1.5.1", "device": {"cores": "2"}}
    monkeypatch.delenv("ETSCOPE_CALIBRATION", raising=False)
    with Lab.open(tmp_path / "lab") as lab:
        monkeypatch.setenv("ETSCOPE_LAB", str(tmp_path / "lab"))

        def due() -> CalibrationOrder | None:
            home = Home.open(tmp_path / "lab")
            only = ["some"] if how == "somebody waits" and changed else None
            engine = Engine(home, lab.database, EngineOptions(only=only))
            engine._calibrator.note_done("host", told)
            return engine._calibrator.due(config)

        changed = False
        order = due()
        assert order is not None and (order.runner, order.threads) == ("native", (1,))
        changed = True
        if how == "lab.yaml":
            (tmp_path / "lab" / "lab.yaml").write_text("calibrate: false\n")
        elif how == "environment":
            monkeypatch.setenv("ETSCOPE_CALIBRATION", "")
        assert due() is None


@pytest.mark.parametrize(
    ("changed", "threads", "due"),
    [
        ({}, 1, None),
        ({}, None, None),
        ({}, 4, (1, 2, 4)),
        ({"cpu": "another"}, 2, (1, 2)),
        ({"executorch": "1.6.0"}, None, ()),
    ],
)
def test_what_makes_a_calibration_due_again(
    changed: dict[str, str], threads: int | None, due: tuple[int, ...] | None
) -> None:
    before = {"driver": "host", "options": {}, "cpu": "a", "executorch": "1.5.1"}
    at = datetime(2026, 5, 1, tzinfo=timezone.utc)
    found = DeviceCalibration("host", "native", before, (1, 2), at, error="broken")
    assert due_threads(found, {**before, **changed}, threads) == due
    assert due_threads(None, before, 2) == (1, 2)
