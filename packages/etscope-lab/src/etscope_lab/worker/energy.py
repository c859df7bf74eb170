"""Energy of a device by its own meters, or an external one.

Sources, from the most exact:

- an external meter, which the device's attribute `meter` names (`ExternalMeter`);
- RAPL: /sys/class/powercap/intel-rapl:*/{name,energy_uj,max_energy_range_uj}, also of AMD, for
  root only (Documentation/power/powercap/powercap.rst of Linux);
- ODPM of Pixel phones: /sys/bus/iio/devices/iio:device*/energy_value, lines
  "CH3(T=358356)[S2M_VDD_CPUCL2], 761330", in µWs (drivers/iio/power/odpm.c of Android);
- INA and ACPI power meters in /sys/class/hwmon: energy*_input (µJ), power*_input or
  power*_average (µW), or in*_input (mV) times curr*_input (mA)
  (Documentation/hwmon/sysfs-interface.rst);
- the battery: energy_now (µWh), or charge_now or charge_counter (µAh) times voltage_now (µV), in
  /sys/class/power_supply; of Android else `dumpsys battery` (charge counter µAh, voltage mV).
  `current_now` is not used: phones disagree on its sign and unit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from etscope.formats.conditions import number_of
from etscope_lab.devices.driver import Driver, loaded_class
from etscope_lab.worker.conditions import android_battery
from etscope_lab.worker.sampling import watching

ENTRY_POINTS = "etscope.meters"
IDLE_SECONDS = 8.0  # of rest before the run, at least, which show the idle power
_HWMON = "/sys/class/hwmon/hwmon*"
_RAPL = "/sys/class/powercap/intel-rapl:*"
_SUPPLIES = "/sys/class/power_supply/*"
ENERGY_FILES = (
    *(f"{_RAPL}/{name}" for name in ("name", "energy_uj", "max_energy_range_uj")),
    "/sys/bus/iio/devices/iio:device*/energy_value",
    f"{_HWMON}/name",
    f"{_HWMON}/power*_average",
    *(
        f"{_HWMON}/{kind}*_{what}"
        for kind in ("in", "curr", "power", "energy")
        for what in ("input", "label")
    ),
    *(
        f"{_SUPPLIES}/{name}"
        for name in (
            "type", "scope", "status", "voltage_now", "energy_now", "charge_now", "charge_counter",
        )
    ),
)  # fmt: skip
_CHIPS = re.compile(r"ina\d+\w*|power_meter")
_CHANNEL = re.compile(r"(in|curr|power|energy)(\d+)_(?:input|average)")
_ODPM = re.compile(r"^CH\d+\(T=\d+\)\[([^\]]+)\], *(\d+) *$", re.MULTILINE)
_WHOLE = re.compile(r"package-\d+|VDD_IN|POM_5V_IN")  # rails that hold what others hold a part of
_FEWEST = 5  # updates of a meter in a span of time: fewer say too little of its ends
_ORDER = ("external", "rapl", "odpm", "hwmon", "battery")

Floats = npt.NDArray[np.float64]


class ExternalMeter(Protocol):
    """A meter that is not part of the device, made with the device's name and attributes.

    The attribute `meter` is its name in the entry point group "etscope.meters", or
    "package.module:Class".
    """

    def __init__(self, name: str, attributes: Mapping[str, str]) -> None: ...

    def joules(self) -> float:
        """Return the energy since some moment, in J. Raises `DeviceLost` if the meter is out of
        reach."""
        ...


@dataclass(frozen=True, slots=True)
class Rail:
    """A reading of a supply. It has one of: joules, a counter, which begins anew after wraps_j
    (None if unknown); watts; coulombs that are left in a battery, at volts. why_not: in words, if
    its energy is not the device's.
    """

    meter: str
    name: str
    joules: float | None = None
    wraps_j: float | None = None
    watts: float | None = None
    coulombs: float | None = None
    volts: float = 0.0
    why_not: str = ""


def rails_of(files: Mapping[str, str]) -> tuple[Rail, ...]:
    """Return the supplies in files of /sys, given as text by path."""
    folders: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = text.strip()
    found: list[Rail] = []
    for folder, texts in folders.items():
        numbers = {name: n for name, text in texts.items() if (n := number_of(text)) is not None}
        if "energy_uj" in numbers:
            wraps = numbers.get("max_energy_range_uj")
            span = None if wraps is None else wraps / 1e6
            found.append(Rail("rapl", texts.get("name", folder), numbers["energy_uj"] / 1e6, span))
        elif "energy_value" in texts:
            channels = _ODPM.findall(texts["energy_value"])
            found += [Rail("odpm", rail, int(energy) / 1e6) for rail, energy in channels]
        elif folder.startswith("/sys/class/hwmon/") and _CHIPS.fullmatch(texts.get("name", "")):
            found += _hwmon(texts, numbers)
        elif folder.startswith("/sys/class/power_supply/"):
            found += _battery(folder.rpartition("/")[2], texts, numbers)
    return tuple(found)


def _hwmon(texts: Mapping[str, str], numbers: Mapping[str, float]) -> Iterator[Rail]:
    channels: dict[str, dict[str, float]] = {}
    for name, number in numbers.items():
        if found := _CHANNEL.fullmatch(name):
            channels.setdefault(found[2], {})[found[1]] = number
    for channel, one in sorted(channels.items()):
        labels = (texts.get(f"{kind}{channel}_label") for kind in ("energy", "power", "in", "curr"))
        name = next(filter(None, labels), f"{texts['name']} {channel}")
        if "energy" in one:
            yield Rail("hwmon", name, one["energy"] / 1e6)
        elif "power" in one:
            yield Rail("hwmon", name, watts=one["power"] / 1e6)
        elif "in" in one and "curr" in one:
            yield Rail("hwmon", name, watts=one["in"] * one["curr"] / 1e6)


def _battery(name: str, texts: Mapping[str, str], numbers: Mapping[str, float]) -> Iterator[Rail]:
    charge = numbers.get("charge_counter", numbers.get("charge_now"))
    volts = numbers.get("voltage_now")
    is_own = texts.get("type", "Battery") == "Battery" and texts.get("scope") != "Device"
    why = "" if texts.get("status") == "Discharging" else "the battery is not discharging"
    if is_own and "energy_now" in numbers:
        coulombs = numbers["energy_now"] * 3.6e-3  # at 1 V: J
        yield Rail("battery", name, coulombs=coulombs, volts=1.0, why_not=why)
    elif is_own and charge is not None and volts is not None:
        yield Rail("battery", name, coulombs=charge * 3.6e-3, volts=volts / 1e6, why_not=why)


class Meter:
    """Reads the supplies of a device.

    attributes: the device's. `meter` names an external meter; `rail`, a shell pattern, the supplies
    to add up, where there are several. Raises the errors of the external meter's class.
    """

    def __init__(self, name: str, driver: Driver, attributes: Mapping[str, str]) -> None:
        self._driver, self._attributes = driver, attributes
        self._external: ExternalMeter | None = None
        if external := attributes.get("meter"):
            made = cast("type[ExternalMeter]", loaded_class(external, "meter", ENTRY_POINTS, {}))
            self._external = made(name, attributes)
        self._readings: list[tuple[float, tuple[Rail, ...]]] = []
        self._rest = (0.0, 0.0)

    def look(self) -> None:
        begin = time.time()
        if self._external is not None:
            name = self._attributes["meter"]
            rails: tuple[Rail, ...] = (Rail("external", name, self._external.joules()),)
        else:
            rails = rails_of(self._driver.read(ENERGY_FILES))
            if not rails and self._attributes.get("os") == "android":
                rails = _of_android(android_battery(self._driver))
        self._readings.append(((begin + time.time()) / 2, rails))

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Measure the idle power in a block in which the device rests."""
        self.look()
        with watching(self.look):
            yield
        self.look()
        self._rest = (self._readings[0][0], self._readings[-1][0])

    def energy(self, run: tuple[float, float], executions: int) -> dict[str, Any]:
        """Return the energy of an execution, as plain JSON; only `reason` if it is not known.

        run: the span of the executions, seconds since the epoch.

        meter, rails: what was read. per_inference_j: all energy in the span of the executions; the
        idle power is not subtracted. power_w: its average power. idle_w: of the rest before the
        run. above_idle_j: per_inference_j with the idle power subtracted. Both are None, and
        `reason` says why, if the idle power is not known. seconds, executions: of the span.
        """
        meter, names = self._chosen()
        if not names:
            return {"reason": meter}
        used = [self._between(meter, name, run) for name in names]
        joules = [one for one in used if isinstance(one, float)]
        if len(joules) < len(used):
            return {"reason": next(one for one in used if isinstance(one, str))}
        seconds, total = run[1] - run[0], sum(joules)
        idle = self._rest
        at_rest = [self._between(meter, name, idle) for name in names]
        rest = [one for one in at_rest if isinstance(one, float)]
        found: dict[str, Any] = {
            "meter": meter,
            "rails": names,
            "per_inference_j": total / executions,
            "above_idle_j": None,
            "power_w": total / seconds,
            "idle_w": None,
            "seconds": seconds,
            "executions": executions,
            "reason": "",
        }
        if len(rest) < len(at_rest):
            why = next(one for one in at_rest if isinstance(one, str))
            found["reason"] = f"the idle power is not known: {why}"
            return found
        idle_w = sum(rest) / (idle[1] - idle[0])
        above = (total - idle_w * seconds) / executions
        return found | {"idle_w": idle_w, "above_idle_j": above}

    def _chosen(self) -> tuple[str, list[str]]:
        """Return the meter and the names of its rails to add up; or why there is none, and no
        names."""
        first = self._readings[0][1] if self._readings else ()
        wanted = self._attributes.get("rail")
        by_meter = {
            meter: list(group)
            for meter, group in groupby(sorted(first, key=lambda r: _ORDER.index(r.meter)),
                                        key=lambda r: r.meter)
        }  # fmt: skip
        if not by_meter:
            return "the device shows no meter (RAPL is for root only)", []
        for meter, rails in by_meter.items():
            names = [rail.name for rail in rails]
            kept = [name for name in names if fnmatchcase(name, wanted or "*")]
            if wanted is None and len(names) > 1:
                kept = [name for name in names if _WHOLE.fullmatch(name)]
            why = next((one.why_not for one in rails if one.name in kept and one.why_not), "")
            if why:
                return why, []
            if kept:
                return meter, kept
        listed = ", ".join(rail.name for rails in by_meter.values() for rail in rails)
        return f"the device's attribute `rail` has to choose from: {listed}", []

    def _between(self, meter: str, name: str, span: tuple[float, float]) -> float | str:
        """Return the energy of a rail in a span of time, J; or why it is not known."""
        own = [
            (at, rail)
            for at, rails in self._readings
            for rail in rails
            if (rail.meter, rail.name) == (meter, name)
        ]
        if any(rail.why_not for _, rail in own):
            return next(rail.why_not for _, rail in own if rail.why_not)
        if not own or own[0][0] > span[0] or own[-1][0] < span[1]:
            return f"{name} was not read at both ends of it"
        at = np.array([one for one, _ in own])
        used = _used([rail for _, rail in own], at)
        if used is None:
            return f"the counter {name} began anew"
        steps = used[1:][(at[1:] >= span[0]) & (at[:-1] <= span[1])] != 0
        if np.count_nonzero(steps) < _FEWEST:
            return (
                f"{name} was updated {np.count_nonzero(steps)} times in {span[1] - span[0]:.1f} s"
            )
        begin, end = np.interp(span, at, np.cumsum(used))
        return float(end - begin)


def _used(rails: Sequence[Rail], at: Floats) -> Floats | None:
    """Return the energy since the reading before, J, the first 0; None if a counter was reset."""
    first = rails[0]
    if first.watts is not None:
        watts = np.array([rail.watts for rail in rails], np.float64)
        steps = (watts[1:] + watts[:-1]) / 2 * np.diff(at)
    elif first.coulombs is not None:
        volts = np.array([rail.volts for rail in rails])
        steps = -np.diff([rail.coulombs or 0.0 for rail in rails]) * (volts[1:] + volts[:-1]) / 2
    else:
        steps = np.diff([rail.joules or 0.0 for rail in rails])
        steps[steps < 0] += first.wraps_j or 0.0
    if first.coulombs is None and (steps < 0).any():
        return None
    return np.concatenate([[0.0], steps])


def _of_android(facts: Mapping[str, str]) -> tuple[Rail, ...]:
    """Return the supply that `dumpsys battery` shows, if it has a counter."""
    charge, millivolts = (number_of(facts.get(name, "")) for name in ("Charge counter", "voltage"))
    if not charge or not millivolts:
        return ()
    powered = [name for name, text in facts.items() if name.endswith(" powered") and text == "true"]
    why = "" if facts.get("status") == "3" else "the battery is not discharging"
    if powered:
        why = f"the battery is charged ({powered[0]}): unplug it, and use adb over Wi-Fi"
    volts = millivolts / 1e3
    return (Rail("battery", "battery", coulombs=charge * 3.6e-3, volts=volts, why_not=why),)
