"""The energy of an execution, by every kind of meter, on simulated sensors with a known power."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etscope.errors import MissingDependencyError, UsageError
from etscope_lab.devices.driver import loaded_class
from etscope_lab.jobs.spec import spec_of
from etscope_lab.worker import energy, sampling
from etscope_lab.worker.energy import Meter, Rail, rails_of
from etscope_lab.worker.measure import answer_to
from lab_support.orders import ordered
from lab_support.sensor_device import BUSY_W, DRIVER, IDLE_W, METER, tree
from tests.support.artifacts import artifacts


def _answer(folder: Path, kind: str, seconds: float, **attributes: str) -> dict[str, Any]:
    device = {"name": "d", "driver": DRIVER, "options": {"meter": kind}, "attributes": attributes}
    files = {"model": artifacts("cnn_xnnpack").pte}
    more = {"metrics": ["latency", "energy"], "duration_seconds": seconds, "threads": 1}
    return answer_to(ordered(folder, files, device=device, traced_iterations=0, **more))


@pytest.mark.parametrize(
    ("kind", "rails", "attributes"),
    [
        ("rapl", ["package-0"], {}),
        ("ina", ["VDD_IN"], {}),
        ("odpm", ["S2M_VDD_CPUCL2", "S3M_VDD_CPUCL1"], {"rail": "S*_VDD_CPUCL*"}),
        ("battery", ["BAT0"], {}),
        ("none", [METER], {"meter": METER, "port": "/dev/ttyACM0"}),
    ],
)
def test_the_energy_of_an_execution(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    rails: list[str],
    attributes: dict[str, str],
) -> None:
    # Ten times as fast as on a device.
    monkeypatch.setattr(sampling, "_EVERY", 0.1)
    monkeypatch.setattr(sampling, "_SHARE", 1.0)
    monkeypatch.setattr("etscope_lab.worker.measure.IDLE_SECONDS", 1.0)
    answer = _answer(tmp_path, kind, 1.2, **attributes)
    assert answer["state"] == "done", answer
    found = answer["summary"]["energy"]
    assert found["rails"] == rails
    assert found["meter"] == ("external" if kind == "none" else "hwmon" if kind == "ina" else kind)
    assert (found["reason"], found["executions"] > 100) == ("", True)
    # The ends of a span are known to a reading or so, 0.1 s here.
    assert found["idle_w"] == pytest.approx(IDLE_W, rel=0.1)
    assert found["power_w"] == pytest.approx(BUSY_W, rel=0.1)
    each = found["seconds"] / found["executions"]
    assert found["per_inference_j"] == pytest.approx(found["power_w"] * each)
    above = (found["power_w"] - found["idle_w"]) * each
    assert found["above_idle_j"] == pytest.approx(above)
    assert not any("energy" in mark for mark in answer["marks"])


def test_no_energy_is_said_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etscope_lab.worker.measure.IDLE_SECONDS", 0.0)
    for kind, attributes, reason in (
        ("none", {}, "the device shows no meter (RAPL is for root only)"),
        ("odpm", {}, "the device's attribute `rail` has to choose from: S2M_VDD_CPUCL2, S3M_VDD_"
         "CPUCL1, VSYS_PWR_DISPLAY"),
        ("rapl", {}, "package-0 was updated"),
    ):  # fmt: skip
        answer = _answer(tmp_path / kind, kind, 0.1, **attributes)
        assert "energy" not in answer["summary"]
        [mark] = [mark for mark in answer["marks"] if mark.startswith("no energy: ")]
        assert mark.removeprefix("no energy: ").startswith(reason)


# -- readings without a device


class _Files:
    """A driver that shows one kind of meter, changed by a test."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def read(self, paths: Any) -> dict[str, str]:
        return self.files


def _metered(monkeypatch: pytest.MonkeyPatch, texts: list[dict[str, str]]) -> Meter:
    """A meter that was read every second from 0 s, the rest in the first 10."""
    device: Any = _Files()
    meter = Meter("d", device, {})
    for at, files in enumerate(texts):
        device.files = files
        monkeypatch.setattr(energy.time, "time", lambda at=at: float(at))
        meter.look()
        if at == 10:
            meter._rest = (0.0, 10.0)
    return meter


def _rapl(joules: float, wraps: bool = True) -> dict[str, str]:
    zone = "/sys/class/powercap/intel-rapl:0"
    found = {f"{zone}/name": "package-0", f"{zone}/energy_uj": f"{joules * 1e6:.0f}"}
    return found | ({f"{zone}/max_energy_range_uj": "100000000"} if wraps else {})


def test_idle_power_is_subtracted_only_where_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2 W for 10 s, then 12 W; the counter begins anew after 100 J.
    used = [2 * at if at <= 10 else 20 + 12 * (at - 10) for at in range(31)]
    meter = _metered(monkeypatch, [_rapl(one % 100) for one in used])
    found = meter.energy((12.5, 22.5), 100)
    assert (found["power_w"], found["idle_w"]) == (pytest.approx(12), pytest.approx(2))
    assert found["per_inference_j"] == pytest.approx(1.2)
    assert found["above_idle_j"] == pytest.approx(1.0)
    short = meter.energy((12.5, 14.5), 100)
    assert short == {"reason": "package-0 was updated 3 times in 2.0 s"}
    late = meter.energy((12.5, 30.5), 100)
    assert late == {"reason": "package-0 was not read at both ends of it"}
    unknown = _metered(monkeypatch, [_rapl(one % 100, wraps=False) for one in used])
    assert unknown.energy((12.5, 22.5), 100) == {"reason": "the counter package-0 began anew"}


def test_without_idle_power_nothing_is_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    # A gauge that is updated every four seconds.
    def battery(at: int, status: str = "Discharging") -> dict[str, str]:
        supply = "/sys/class/power_supply/BAT0"
        charge = 3_000_000 - 4000 * (at // 4)  # 14.4 C in 4 s
        volts = 4_000_000 - 10_000 * at
        return {
            f"{supply}/type": "Battery", f"{supply}/status": status,
            f"{supply}/charge_counter": f"{charge}", f"{supply}/voltage_now": f"{volts}",
        }  # fmt: skip

    meter = _metered(monkeypatch, [battery(at) for at in range(61)])
    found = meter.energy((12.0, 52.0), 40)
    assert found["power_w"] == pytest.approx(3.6 * (4.0 - 0.32), rel=0.01)
    assert found["idle_w"] is found["above_idle_j"] is None
    assert found["reason"] == "the idle power is not known: BAT0 was updated 2 times in 10.0 s"
    charged = _metered(monkeypatch, [battery(at, "Charging") for at in range(61)])
    assert charged.energy((12.0, 52.0), 40) == {"reason": "the battery is not discharging"}
    plugged = [battery(at, "Charging" if at > 40 else "Discharging") for at in range(61)]
    assert _metered(monkeypatch, plugged).energy((12.0, 52.0), 40) == {
        "reason": "the battery is not discharging"
    }


def test_an_android_shows_its_counter_to_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"Charge counter": "2000000", "voltage": "3900", "status": "3", "USB powered": "false"}
    device: Any = _Files()
    monkeypatch.setattr(energy, "android_battery", lambda driver: facts)
    meter = Meter("d", device, {"os": "android"})
    meter.look()
    [(_, rails)] = meter._readings
    assert rails == (Rail("battery", "battery", coulombs=7200.0, volts=3.9),)
    facts["USB powered"] = "true"
    meter.look()
    assert meter._readings[1][1][0].why_not == (
        "the battery is charged (USB powered): unplug it, and use adb over Wi-Fi"
    )


def test_chips_of_hwmon() -> None:
    folder = "/sys/class/hwmon/hwmon1"

    def rails(name: str, **files: str) -> tuple[Rail, ...]:
        return rails_of({f"{folder}/name": name, **{f"{folder}/{n}": t for n, t in files.items()}})

    shunt = {"in0_input": "10", "in1_input": "12000", "curr1_input": "1500"}
    assert rails("ina226", **shunt, power1_input="18100000") == (
        Rail("hwmon", "ina226 1", watts=18.1),
    )
    assert rails("ina219", **shunt) == (Rail("hwmon", "ina219 1", watts=18.0),)
    assert rails("ina228", **shunt, energy1_input="42000000") == (
        Rail("hwmon", "ina228 1", joules=42.0),
    )
    assert rails("power_meter", power1_average="90000000") == (
        Rail("hwmon", "power_meter 1", watts=90.0),
    )
    assert rails("coretemp", temp1_input="41000") == rails("k10temp", in1_input="1") == ()
    assert rails_of(tree("odpm"))[2].name == "VSYS_PWR_DISPLAY"


def test_a_meter_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="unknown meter 'otii'"):
        Meter("d", _Files(), {"meter": "otii"})  # type: ignore[arg-type]
    with pytest.raises(MissingDependencyError, match="cannot be loaded"):
        loaded_class("nowhere:Meter", "meter", energy.ENTRY_POINTS, {})
    with pytest.raises(UsageError, match="energy is only for the kind benchmark"):
        spec_of({"kind": "generate", "model": "m.pte", "metrics": ["energy"]})
