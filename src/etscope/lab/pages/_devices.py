"""The page of the lab's devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etscope.analysis.comparison.compare_samples import Policy
from etscope.errors import MissingDataError
from etscope.lab.comparison.history import device_noise
from etscope.lab.jobs.records import Device, Filter, State
from etscope.lab.lab import Lab
from etscope.lab.pages import _site as _texts

_NOISE_JOBS = 60  # the newest ones, from which a device's noise is known


def context(lab: Lab) -> dict[str, Any]:
    """What the template shows."""
    devices = list(lab.devices())
    return {
        "devices": devices,
        "at_work": {device.job: lab.job(device.job) for device in devices if device.job},
        "conditions": {device.config.name: _conditions(device) for device in devices},
    }


def noise(lab: Lab, name: str) -> Mapping[str, str]:
    """How much jobs on a device differ when nothing was changed; nothing where it is not known.

    Raises `MissingDataError` for a device that is not there.
    """
    if all(device.config.name != name for device in lab.devices()):
        raise MissingDataError(f"there is no device {name!r}")
    wanted = Filter(states=(State.DONE,), device=name)
    done = lab.jobs(wanted, limit=_NOISE_JOBS).jobs
    found = device_noise(done, done[:1])
    floor = found.floor(Policy())
    if found.spread is None or floor is None:
        return {}
    return {
        "spread of repeats": _texts.share(found.spread),
        "a change that it can pass for": _texts.share(floor),
        "known from": f"{found.jobs} {found.source}",
    }


def _conditions(device: Device) -> Mapping[str, str]:
    """What the device shows, with its units (`etscope.lab.worker.conditions.Conditions`)."""
    found = device.conditions
    load, cores = found.get("load"), found.get("cores")
    clocks = found.get("frequencies_mhz") or ()
    heat, battery = found.get("temperature_c"), found.get("battery_percent")
    shown = {
        "hottest sensor": None if heat is None else f"{heat:.1f} °C {found.get('sensor') or ''}",
        "governor": ", ".join(map(str, found.get("governors") or ())),
        "clocks": f"{min(clocks):,.0f} to {max(clocks):,.0f} MHz" if clocks else None,
        "load a core": f"{load / cores:.2f}" if load is not None and cores else None,
        "battery": None if battery is None else f"{battery:.0f} % {found.get('battery_status')}",
        "memory free": _texts.size(found.get("memory_available_bytes")),
        "virtual machine": "yes" if found.get("virtual") else None,
    }
    return {name: text for name, text in shown.items() if text and text != _texts.NOTHING}
