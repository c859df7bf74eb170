"""The conditions that a device measures under: heat, clock, load, memory and battery, and the
verdict on a number taken under them.

`main` is the program behind `etscope_lab.worker.worker.check`: it reads FOLDER/device.json and
writes FOLDER/answer.json with `attributes`, `conditions` and `error`.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from operator import eq, ge, le
from pathlib import Path
from typing import Any

from etscope.errors import EtscopeError
from etscope.formats.conditions import CONDITION_FILES, Conditions, conditions_of, number_of
from etscope_lab.devices.driver import Driver, open_driver
from etscope_lab.jobs.records import DeviceConfig
from etscope_lab.jobs.spec import Limits

_COMMAND_SECONDS = 10.0
_WARMED_C = 10.0  # a rise that is marked
_MOVED = 0.10  # a change of the fastest core's clock that is marked
_BUSY = 0.5  # a load a core that is marked
_LOAD_SECONDS = 60.0  # the time constant of Linux's load average of one minute
_STEP = 2.0  # seconds between two readings of the temperature
_UNSTABLE = 0.5  # stdev / mean of the steady runs that is marked
PERFORMANCE = "performance"
_LASTING = re.compile(r"a virtual machine: .*|.* cannot be read(, so its limit .*)?")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on conditions. broken: the limits that did not hold, in words; with one of them
    the number is not a result. marks: conditions that could not be held or checked, in words."""

    broken: tuple[str, ...]
    marks: tuple[str, ...]


def read_conditions(driver: Driver) -> Conditions:
    """The conditions of a device now. Raises `DeviceLost`."""
    found = conditions_of(driver.read(CONDITION_FILES), time.time())
    if found.battery_percent is not None or driver.attributes().get("os") != "android":
        return found
    facts = android_battery(driver)
    level, scale = number_of(facts.get("level", "")), number_of(facts.get("scale", "100"))
    if level is None or not scale or facts.get("present") == "false":
        return found
    # BatteryManager.BATTERY_STATUS_*
    names = {"2": "Charging", "3": "Discharging", "4": "Not charging", "5": "Full"}
    status = names.get(facts.get("status", ""), "")
    return replace(found, battery_percent=100 * level / scale, battery_status=status)


def android_battery(driver: Driver) -> dict[str, str]:
    """Return what Android's service, which the shell user may ask, shows of the battery; {} if it
    does not answer. Raises `DeviceLost`."""
    try:
        done = driver.call(["dumpsys", "battery"], _COMMAND_SECONDS)
    except TimeoutError:
        return {}
    facts = re.findall(r"^ *([A-Za-z ]+): *(\S+)\r?$", done.log, re.MULTILINE)
    return {} if done.code else dict(facts)


def judged(
    readings: Sequence[Conditions], limits: Limits, cv: float | None, threads: int | None = None
) -> Judgement:
    """Check the limits, and collect marks for the result.

    readings: conditions read before the first run, after each run, and at the end of the job. cv:
    stdev / mean of the steady runs, None if nothing was timed. threads: the runtime's thread pool
    size, None if unknown.
    """
    heats = [one.temperature_c for one in readings if one.temperature_c is not None]
    levels = [one.battery_percent for one in readings if one.battery_percent is not None]
    governors = ", ".join(sorted({name for one in readings for name in one.governors}))
    load = readings[0].load_per_core if readings else None
    others, moment, alone = _load_of_others(readings, threads), "before the run", ""
    if load is not None and others is not None and others > load:
        load, moment, alone = others, "during the run", " without the job's own"
    checks: tuple[tuple[str, Any, Callable[[Any, Any], bool], Any, str], ...] = (
        ("the temperature", max(heats, default=None), le, limits.max_temperature_c,
         "the temperature was {:.1f} °C, the limit is {} °C"),
        ("the battery", min(levels, default=None), ge, limits.min_battery_percent,
         "the battery was at {:g} %, the limit is {} %"),
        ("the CPU governor", governors or None, eq, limits.governor,
         "the CPU governor was {}, not {}"),
        ("the load", load, le, limits.max_load,
         f"the load was {{:.2f}} a core {moment}{alone}, the limit is {{}}"),
        ("how much the steady runs vary", cv, le, limits.max_cv,
         "the steady runs vary by {:.2%} (stdev / mean), the limit is {:.2%}"),
    )  # fmt: skip
    broken: list[str] = []
    unchecked: list[str] = []
    for what, value, holds, limit, fault in checks:
        if limit is None:
            continue
        if value is None:
            unknown = f"{what} cannot be read, so its limit could not be checked"
            (broken if limits.strict else unchecked).append(unknown)
        elif not holds(value, limit):
            broken.append(fault.format(value, limit))
    marks = [*unchecked, *_marks(readings, limits)]
    if load is not None and load > _BUSY:
        marks.append(f"the device was busy {moment}: a load of {load:.2f} a core{alone}")
    if cv is not None and cv > _UNSTABLE and limits.max_cv is None:
        marks.append(f"the steady runs vary by {cv:.0%} (stdev / mean)")
    return Judgement(tuple(broken), tuple(marks))


def is_lasting(mark: str) -> bool:
    """True for a mark that all jobs of a device share: such jobs can be compared with each
    other.
    """
    return _LASTING.fullmatch(mark) is not None


def _marks(readings: Sequence[Conditions], limits: Limits) -> list[str]:
    """Conditions that were not held, whether there are limits or not."""
    if not readings:
        return ["the conditions were not read"]
    first, last = readings[0], readings[-1]
    marks = []
    if first.virtual:
        marks.append("a virtual machine: its clock and its neighbours cannot be controlled")
    governors = sorted({name for one in readings for name in one.governors})
    if not governors and limits.governor is None:
        marks.append("the CPU governor cannot be read")
    elif governors and governors != [PERFORMANCE] and limits.governor is None:
        marks.append(f"the CPU governor is {', '.join(governors)}, not {PERFORMANCE}")
    if first.temperature_c is None and limits.max_temperature_c is None:
        marks.append("the temperature cannot be read")
    heats = [one.temperature_c for one in readings if one.temperature_c is not None]
    if heats and max(heats) - heats[0] >= _WARMED_C:
        marks.append(f"the device warmed from {heats[0]:.0f} to {max(heats):.0f} °C")
    before, after = (max(one.frequencies_mhz, default=0.0) for one in (first, last))
    if before and after and abs(after / before - 1) > _MOVED:
        marks.append(f"the clock moved from {before:.0f} to {after:.0f} MHz")
    return marks


def _load_of_others(readings: Sequence[Conditions], threads: int | None) -> float | None:
    """The greatest load a core after the runs, without what the runtime's threads add to it; None
    if there is none.

    The last reading is left out: before it, the lab itself may compare values in PyTorch.
    """
    loads = []
    for one in readings[1:-1]:
        if one.load is None or not one.cores:
            continue
        # A runtime with an unknown number of threads uses no more than all cores.
        own = one.cores if threads is None else max(threads, 1)
        # A load that begins is in the average by this share after so many seconds.
        passed = max(one.at - readings[0].at, 0.0)
        loads.append((one.load - own * (1 - math.exp(-passed / _LOAD_SECONDS))) / one.cores)
    return max(loads, default=None)


def cool_down(
    driver: Driver,
    seconds: float,
    limits: Limits,
    patience: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Conditions:
    """Let a device rest for `seconds`, then at most `patience` seconds more until its temperature
    is within the limits. Return the conditions after that."""
    sleep(seconds)
    end = clock() + patience
    while True:
        found = read_conditions(driver)
        heat, most = found.temperature_c, limits.max_temperature_c
        if heat is None or most is None or heat <= most or clock() + _STEP > end:
            return found
        sleep(_STEP)


def probe(config: DeviceConfig) -> dict[str, Any]:
    """Return `attributes`, `conditions` and `error` of a device; errors of the device are in it."""
    try:
        with closing(open_driver(config)) as driver:
            attributes = driver.attributes()
            conditions = asdict(read_conditions(driver))
            return {"attributes": attributes, "conditions": conditions, "error": ""}
    except EtscopeError as error:
        return {"error": error.message}


def main(name: str) -> None:
    folder = Path(name)
    config = DeviceConfig(**json.loads((folder / "device.json").read_bytes()))
    (folder / "answer.json").write_text(json.dumps(probe(config)))
