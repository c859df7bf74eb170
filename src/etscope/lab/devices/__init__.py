"""Devices of the lab: one driver a kind, by name in `DRIVERS`.

A driver of another package is found by its entry point in the group "etscope.drivers", or named as
"package.module:Class".
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from etscope.errors import MissingDependencyError, UsageError
from etscope.lab.devices.driver import Completed, Driver
from etscope.lab.jobs.records import DeviceConfig
from etscope.run import Elsewhere

__all__ = [
    "DRIVERS",
    "ENTRY_POINTS",
    "Completed",
    "Driver",
    "driver_class",
    "open_driver",
    "runner_host",
]

DRIVERS = {
    "host": "etscope.lab.devices.host:Host",
    "ssh": "etscope.lab.devices.ssh:Ssh",
    "adb": "etscope.lab.devices.adb:Adb",
}
ENTRY_POINTS = "etscope.drivers"
_RUNNERS = "runners"


def driver_class(name: str) -> type[Driver]:
    """The class of a driver: of etscope, of an entry point, or by "package.module:Class".

    Raises `UsageError` for a name that nothing has, `MissingDependencyError` when what has it
    cannot be imported.
    """
    place = DRIVERS.get(name) or _entry_points().get(name) or (name if ":" in name else None)
    if place is None:
        listed = ", ".join(sorted({*DRIVERS, *_entry_points()}))
        raise UsageError(
            f"there is no driver {name!r}", hint=f"it is {listed}, or package.module:Class"
        )
    module, _, attribute = place.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise MissingDependencyError(f"the driver {name!r} cannot be loaded: {error}") from error
    return cast("type[Driver]", found)


def open_driver(config: DeviceConfig) -> Driver:
    """A device as its configuration says. `UsageError` for options that make no sense."""
    return driver_class(config.driver)(config.name, config.options)


def runner_host(driver: Driver, attributes: dict[str, str]) -> Elsewhere:
    """A device as a place for `etscope.run.run`; `attributes` are the driver's."""
    kinds = [kind for kind in attributes.get(_RUNNERS, "").split(",") if kind]
    return Elsewhere(driver, {kind: partial(driver.runner, kind) for kind in kinds})


def _entry_points() -> dict[str, str]:
    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS)}
