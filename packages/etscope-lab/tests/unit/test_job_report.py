"""A job as tables: what is found out about it is told whole, and is a finding."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from etscope_lab.jobs.job_tables import devices_report, findings_of, job_report
from etscope_lab.jobs.records import Device, DeviceConfig, Job, State
from etscope_lab.jobs.spec import FileRef, JobSpec

WRONG = "instruction 3, convolution (module body.0), is the first that goes wrong: its SQNR is low"
AB = {
    "verdict": "regressed", "reason": "", "relative": 0.25, "low": 0.2, "high": 0.3, "p": 1e-6,
    "noise_floor": 0.05, "min_effect": 0.03, "confidence": 0.99, "rounds": 20, "judged": 19,
    "rounds_needed": None, "order": ["model"], "failed": [{"round": 4, "error": "it aborted"}],
    "sides": {"model": {"processes": 19, "p50_ms": 1.25}, "baseline": {"p50_ms": 1.0}},
}  # fmt: skip


def a_job(state: State = State.DONE, error: str = "", **summary: Any) -> Job:
    spec = JobSpec(model=FileRef(sha256="ab" * 32, name="net.pte"))
    now = datetime.now(timezone.utc)
    return Job("ab12", spec, "cd" * 32, state, now, summary=summary, error=error)


def test_wrong_values_and_outputs_are_findings() -> None:
    numerics = {"metric": "sqnr", "fine": False, "verdict": WRONG}
    job = a_job(numerics=numerics, verification={"passed": 2, "failed": 1}, method="forward")
    assert findings_of(job) == (
        f"the values are not the reference's: {WRONG}",
        "outputs of 1 of 3 test cases are not as expected",
    )
    report = job_report(job)
    assert [one.name for one in report.sections] == ["job", "numerics", "verification", "summary"]
    section = report.section("numerics")
    assert section.table.notes == (WRONG,)
    fine = {"fine": True, "verdict": "no operator goes wrong"}
    assert findings_of(a_job(numerics=fine, verification={"passed": 1, "failed": 0})) == ()
    [section] = job_report(a_job(State.USER_ERROR, error="x" * 300)).sections
    assert section.table.notes == ("x" * 300,)  # told whole


def test_a_verdict_on_two_models() -> None:
    job = a_job(ab=AB)
    assert findings_of(job) == ("the model is slower than the baseline, by 25.0%",)
    assert findings_of(a_job(ab={**AB, "verdict": "improved"})) == ()
    ab, sides = (job_report(job).section(name) for name in ("ab", "sides"))
    assert ab.table.values["relative"] == [0.25]
    assert ab.table.notes == ("Round 4 failed: it aborted",)
    assert sides.table.values == {
        "side": ["model", "baseline"], "processes": [19, None], "p50_ms": [1.25, 1.0],
    }  # fmt: skip


def test_conditions_of_a_device() -> None:
    conditions = {
        "at": 1.0, "temperature_c": 41.2, "governors": ["performance"], "load": 1.0, "cores": 4,
        "frequencies_mhz": [900.0, 1800.0], "battery_percent": None, "later": "unknown",
    }  # fmt: skip
    config = DeviceConfig("board", "ssh")
    [section] = devices_report([Device(config, {}, "available", conditions=conditions)]).sections
    [shown] = section.table.values["conditions"]
    assert shown == ["41 °C", "performance", "1800 MHz", "load 0.25 a core"]
    [section] = devices_report([Device(config, {}, "offline")]).sections
    assert section.table.values["conditions"] == [[]]
