"""The conditions that a device shows, and whether a number under them is a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from etscope.formats.conditions import Conditions, conditions_of
from etscope_lab.devices.driver import Completed
from etscope_lab.devices.host import Host
from etscope_lab.jobs.spec import Limits
from etscope_lab.worker.conditions import (
    Judgement,
    cool_down,
    is_lasting,
    judged,
    read_conditions,
)

_ZONE = "/sys/class/thermal/thermal_zone"
_CPU = "/sys/devices/system/cpu/cpu"
_SUPPLY = "/sys/class/power_supply/"

BOARD = {
    f"{_ZONE}0/type": "cpu-thermal\n",
    f"{_ZONE}0/temp": "48312\n",
    **{f"{_CPU}{core}/cpufreq/scaling_governor": "ondemand\n" for core in range(4)},
    **{f"{_CPU}{core}/cpufreq/scaling_cur_freq": f"{600 + core}000\n" for core in range(4)},
    "/proc/loadavg": "0.52 0.40 0.20 2/180 4242\n",
    "/proc/meminfo": "MemTotal:        3884376 kB\nMemAvailable:    3000000 kB\n",
    "/proc/cpuinfo": "".join(f"processor\t: {core}\nBogoMIPS\t: 108.00\n\n" for core in range(4)),
}
GOOD = Conditions(
    at=0.0,
    temperature_c=40.0,
    governors=("performance",),
    frequencies_mhz=(1800.0, 1800.0),
    battery_percent=90.0,
    load=0.2,
    cores=2,
)


def _loads(*loads: float, seconds: float = 60.0, **more: Any) -> list[Conditions]:
    """Readings at equal distances, of a machine of two cores."""
    return [replace(GOOD, at=seconds * at, load=load, **more) for at, load in enumerate(loads)]


def test_a_board() -> None:
    assert conditions_of(BOARD, 12.5) == Conditions(
        at=12.5,
        temperature_c=48.312,
        sensor="cpu-thermal",
        governors=("ondemand",),
        frequencies_mhz=(600.0, 601.0, 602.0, 603.0),
        load=0.52,
        cores=4,
        memory_available_bytes=3000000 * 1024,
        memory_bytes=3884376 * 1024,
    )
    assert conditions_of(BOARD, 0).load_per_core == 0.13
    files = {**BOARD, "/proc/self/status": "Name:\tcat\nCpus_allowed_list:\t0-1,3\n"}
    found = conditions_of(files, 0)
    assert found.cpus == "0-1,3"
    assert found.in_words(1) == "1 thread, CPUs 0-1,3 of 4, governor ondemand, load 0.52"


def test_the_time_of_all_cpus() -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice, in 1/100 s
    text = "cpu  100 20 30 9000 500 4 6 70 8 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n"
    found = conditions_of({"/proc/stat": text}, 0)
    assert (found.busy_s, found.stolen_s) == (pytest.approx(1.6), 0.7)
    assert conditions_of({"/proc/stat": "cpu  1 2\n"}, 0).busy_s is None


def test_nothing_shown_is_nothing_known() -> None:
    nothing = conditions_of({}, 3.0)
    assert nothing == Conditions(at=3.0)
    assert (nothing.in_words(None), nothing.in_words(2)) == ("", "2 threads")
    assert judged([nothing], Limits(), None).marks == (
        "the CPU governor cannot be read",
        "the temperature cannot be read",
    )


def test_a_phone_calls_more_than_temperatures_a_zone() -> None:
    zones = {
        "soc": "87",  # per cent of charge
        "vbat": "3985000",  # µV
        "ibat-high": "3000",
        "cpu-0-0-step": "52100",
        "battery": "31000",
        "old": "41",  # °C
        "broken": "-274000",
        "off": "0",
        "text": "none",
    }
    files = {}
    for number, (kind, temperature) in enumerate(zones.items()):
        files[f"{_ZONE}{number}/type"] = f"{kind}\n"
        files[f"{_ZONE}{number}/temp"] = f"{temperature}\n"
    found = conditions_of(files, 0)
    assert (found.temperature_c, found.sensor) == (52.1, "cpu-0-0-step")
    del files[f"{_ZONE}3/temp"]
    assert conditions_of(files, 0).temperature_c == 41.0
    server = conditions_of({"/sys/class/hwmon/hwmon1/temp2_input": "61000\n"}, 0)  # has no zones
    assert (server.temperature_c, server.sensor) == (61.0, "hwmon1/temp2_input")


def test_the_battery_is_that_of_the_device() -> None:
    files = {
        f"{_SUPPLY}mouse/type": "Battery\n",
        f"{_SUPPLY}mouse/scope": "Device\n",
        f"{_SUPPLY}mouse/capacity": "5\n",
        f"{_SUPPLY}BAT0/type": "Battery\n",
        f"{_SUPPLY}BAT0/capacity": "77\n",
        f"{_SUPPLY}BAT0/status": "Discharging\n",
        f"{_SUPPLY}AC/type": "Mains\n",
    }
    found = conditions_of(files, 0)
    assert (found.battery_percent, found.battery_status) == (77.0, "Discharging")


def test_a_virtual_machine_is_seen() -> None:
    flags = {"/proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme hypervisor lm\n"}
    for files in (flags, {"/sys/class/dmi/id/sys_vendor": "QEMU\n"}):
        found = conditions_of(files, 0)
        assert found.virtual
        marks = judged([found], Limits(), None).marks
        assert any(mark.startswith("a virtual machine") for mark in marks)


def test_this_machine_is_read() -> None:
    with closing(Host("here", {})) as host:
        found = read_conditions(host)
    assert found.load is not None
    assert found.cores
    assert found.memory_bytes
    assert found.memory_bytes > (found.memory_available_bytes or 0) > 0


@dataclass
class Shown:
    """A device that shows files, one mapping a reading."""

    files: Iterator[dict[str, str]]
    os: str = "linux"
    dumpsys: Completed = field(default_factory=lambda: Completed(127, "not found"))

    def attributes(self) -> dict[str, str]:
        return {"os": self.os}

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        return next(self.files)

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        assert list(command) == ["dumpsys", "battery"]
        return self.dumpsys


_DUMPSYS = """Current Battery Service state:
  AC powered: false
  status: 3
  present: true
  level: 43
  scale: 50
"""


@pytest.mark.parametrize(
    ("said", "percent", "status"),
    [
        (Completed(0, _DUMPSYS), 86.0, "Discharging"),
        (Completed(0, _DUMPSYS.replace("present: true", "present: false")), None, ""),
        (Completed(1, "Permission denied"), None, ""),
        (Completed(0, ""), None, ""),
    ],
)
def test_androids_battery_service_is_asked(
    said: Completed, percent: float | None, status: str
) -> None:
    device: Any = Shown(iter([{}]), "android", said)
    found = read_conditions(device)
    assert (found.battery_percent, found.battery_status) == (percent, status)


# -- limits


@pytest.mark.parametrize(
    ("limits", "readings", "broken"),
    [
        (
            {"max_temperature_c": 39.5}, [GOOD],
            "the temperature was 40.0 °C, the limit is 39.5 °C",
        ),
        (  # the hottest moment counts
            {"max_temperature_c": 60}, [GOOD, replace(GOOD, temperature_c=61.0), GOOD],
            "the temperature was 61.0 °C, the limit is 60.0 °C",
        ),
        (
            {"min_battery_percent": 95}, [GOOD],
            "the battery was at 90 %, the limit is 95.0 %",
        ),
        (
            {"governor": "performance"}, [replace(GOOD, governors=("performance", "powersave"))],
            "the CPU governor was performance, powersave, not performance",
        ),
        (
            {"max_load": 0.05}, [GOOD],
            "the load was 0.10 a core before the run, the limit is 0.05",
        ),
        (
            {"max_load": 0.05}, _loads(0.0, 0.2, 1.0, 0.2),
            "the load was 0.07 a core during the run without the job's own, the limit is 0.05",
        ),
        (
            {"max_cv": 0.01}, [GOOD],
            "the steady runs vary by 2.00% (stdev / mean), the limit is 1.00%",
        ),
    ],
)  # fmt: skip
def test_a_limit_that_did_not_hold(
    limits: dict[str, Any], readings: list[Conditions], broken: str
) -> None:
    assert judged(readings, Limits(**limits), 0.02, threads=1).broken == (broken,)


def test_limits_that_held() -> None:
    most = {"max_temperature_c": 40, "max_load": 0.1, "max_cv": 0.02}
    limits = Limits(min_battery_percent=90, governor="performance", strict=True, **most)
    found = judged([GOOD, GOOD], limits, 0.02)
    assert (found.broken, found.marks) == ((), ())


@pytest.mark.parametrize(
    ("limits", "conditions", "what"),
    [
        ({"max_temperature_c": 50}, {"temperature_c": None}, "the temperature"),
        ({"min_battery_percent": 5}, {"battery_percent": None}, "the battery"),
        ({"governor": "performance"}, {"governors": ()}, "the CPU governor"),
        ({"max_load": 1}, {"load": None}, "the load"),
        ({"max_cv": 1}, {}, "how much the steady runs vary"),
    ],
)
def test_what_cannot_be_checked_is_marked_or_with_strict_invalid(
    limits: dict[str, Any], conditions: dict[str, Any], what: str
) -> None:
    said = f"{what} cannot be read, so its limit could not be checked"
    readings = [replace(GOOD, **conditions)]
    assert judged(readings, Limits(**limits), None).marks == (said,)
    assert judged(readings, Limits(**limits), None).broken == ()
    assert judged(readings, Limits(**limits, strict=True), None).broken == (said,)


@pytest.mark.parametrize(
    ("before", "after", "mark"),
    [
        ({}, {"temperature_c": 50.0}, "the device warmed from 40 to 50 °C"),
        ({}, {"frequencies_mhz": (1500.0, 900.0)}, "the clock moved from 1800 to 1500 MHz"),
        ({"governors": ("schedutil",)}, {}, "the CPU governor is performance, schedutil, not"),
        ({"load": 1.5}, {}, "the device was busy before the run: a load of 0.75 a core"),
    ],
)
def test_what_was_not_held_is_marked(
    before: dict[str, Any], after: dict[str, Any], mark: str
) -> None:
    (said,) = judged([replace(GOOD, **before), replace(GOOD, **after)], Limits(), None).marks
    assert said.startswith(mark)


# -- load that comes while the job measures


@pytest.mark.parametrize(
    ("readings", "threads", "mark"),
    [
        (_loads(0.1, 1.3, 1.8, 0.1), 2, None),  # two threads on two cores
        (_loads(0.1, 2.6, 3.4, 0.1), 4, None),  # more threads than cores
        (_loads(0.1, 1.2, 0.1), None, None),  # as many as cores, if their number is not known
        (_loads(0.1, 3.0), 1, None),  # after comparing values in PyTorch, which uses all cores
        (_loads(0.1, 0.5, 3.0), 1, None),
        (_loads(0.1, 3.0, 0.1, cores=None), 1, None),
        # After 60 s the job's own thread has added 0.63 to the average; 1.9 - 0.63 is 0.63 a core.
        (_loads(0.0, 1.9, 0.5), 1, "during the run: a load of 0.63 a core without the job's own"),
        (_loads(3.0, 2.0, 1.0), 1, "before the run: a load of 1.50 a core"),  # one mark is enough
    ],
)
def test_load_that_is_not_the_jobs_own_is_marked(
    readings: list[Conditions], threads: int | None, mark: str | None
) -> None:
    found = judged(readings, Limits(), None, threads)
    assert found.marks == (() if mark is None else (f"the device was busy {mark}",))
    assert found.broken == ()
    if mark is not None and mark.startswith("during"):
        assert not is_lasting(found.marks[0])


# -- cooling down


class Clock:
    """Time that passes by sleeping only."""

    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def _cooling(start: int) -> Iterator[dict[str, str]]:
    return ({f"{_ZONE}0/temp": f"{heat * 1000}"} for heat in range(start, 0, -1))


@pytest.mark.parametrize(
    ("limits", "patience", "heat", "seconds"),
    [
        (Limits(), 100.0, 70.0, 30.0),  # nothing to wait for but the rest
        (Limits(max_temperature_c=60), 100.0, 60.0, 50.0),
        (Limits(max_temperature_c=60), 10.0, 65.0, 40.0),  # given up: too hot
    ],
)
def test_a_device_rests_until_it_is_cool_enough(
    limits: Limits, patience: float, heat: float, seconds: float
) -> None:
    device: Any = Shown(_cooling(70))
    clock = Clock()
    found = cool_down(device, 30, limits, patience, sleep=clock.sleep, clock=clock)
    assert (found.temperature_c, clock.now) == (heat, seconds)


def test_unstable_samples_are_marked() -> None:
    for unstable, said in (
        (None, ()),
        (0.3, ()),
        (0.98, ("the steady runs vary by 98% (stdev / mean)",)),
    ):
        assert judged([GOOD], Limits(), unstable).marks == said
    assert judged([GOOD], Limits(max_cv=1.0), 0.98) == Judgement((), ())
    [mark] = judged([GOOD], Limits(), 1.6).marks
    assert not is_lasting(mark)
