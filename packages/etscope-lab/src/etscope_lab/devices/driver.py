"""The protocol of drivers, which connect the lab to devices, and the registry of drivers.

A driver moves files and starts commands. Measuring is the same for all of them:
`etscope_lab.worker.measure` runs the job through `etscope.run`, with the driver as the host of the
runner's processes.

A driver of another package is found by its entry point in the group "etscope.drivers", or named as
"package.module:Class".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from etscope.errors import LabError, MissingDependencyError, UsageError
from etscope.run import Elsewhere
from etscope.run.app import APP, App
from etscope.run.remote import Completed
from etscope_lab.jobs.records import DeviceConfig

DRIVERS = {
    "host": "etscope_lab.devices.host:Host",
    "ssh": "etscope.run.ssh:Ssh",
    "adb": "etscope_lab.devices.adb:Adb",
    "devicectl": "etscope.run.devicectl:Devicectl",
}
ENTRY_POINTS = "etscope.drivers"


class Driver(Protocol):
    """A reachable device. It does one job at a time, and is made in the process that measures.

    Every method raises `etscope.errors.DeviceLost` when the device cannot be reached, and
    `UsageError` for invalid options.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None: ...

    def attributes(self) -> dict[str, str]:
        """Attributes for selectors: arch, os, soc or model, cores, memory_bytes, and "runners", the
        available ones of "python" and "native"."""
        ...

    def runner(self, kind: str) -> Sequence[str]:
        """The words that begin the command of a runner ("python": an interpreter that has etscope
        and executorch; "native": the binary), which is pushed or built first.

        Raises `MissingDependencyError` when the device has none of that kind.
        """
        ...

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        """Return files of the device (its conditions in /sys and /proc) as text by path. Shell
        patterns are expanded; missing and unreadable files are left out."""
        ...

    def push(self, files: Mapping[Path, str]) -> None:
        """Copy local files into the job's folder on the device, each to the given name, which may
        begin with folders inside it."""
        ...

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        """Run a command in the job's folder and wait. It is ended with all its children at the
        timeout (`TimeoutError`, with the log so far) and when this process ends."""
        ...

    def pull(self, names: Sequence[str], folder: Path) -> None:
        """Copy files of the job's folder into a local one; missing ones are left out."""
        ...

    def close(self) -> None:
        """Remove the job's folder and end processes that still run there. Never raises."""
        ...


def driver_class(name: str) -> type[Driver]:
    """Return the class of a driver: a driver of etscope, an entry point, or a class named as
    "package.module:Class".

    Raises as `loaded_class`.
    """
    return cast("type[Driver]", loaded_class(name, "driver", ENTRY_POINTS, DRIVERS))


def loaded_class(name: str, what: str, group: str, own: Mapping[str, str]) -> Any:
    """Return a class by its name: an own one, an entry point of the group, or
    "package.module:Class".

    Raises `UsageError` for an unknown name, `MissingDependencyError` when the class cannot be
    imported.
    """
    known = {entry.name: entry.value for entry in entry_points(group=group)} | dict(own)
    target = known.get(name) or (name if ":" in name else None)
    if target is None:
        listed = ", ".join([*sorted(known), "package.module:Class"])
        raise UsageError(f"unknown {what} {name!r}", hint=f"known: {listed}")
    module, _, attribute = target.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise MissingDependencyError(f"the {what} {name!r} cannot be loaded: {error}") from error
    return found


def open_driver(config: DeviceConfig) -> Driver:
    """Open a device by its configuration. Raises `UsageError` for invalid options."""
    app_of(config)
    options = {name: value for name, value in config.options.items() if name != APP}
    return driver_class(config.driver)(config.name, options)


@contextmanager
def opened(config: DeviceConfig) -> Iterator[Driver]:
    """Open a device for a block. Raises `LabError` for invalid options: they are not the fault of
    the user whose job needs the device."""
    try:
        driver = open_driver(config)
    except UsageError as error:
        raise LabError(
            f"the device {config.name} is not set up: {error.message}", hint=error.hint
        ) from error
    with closing(driver):
        yield driver


def app_of(config: DeviceConfig) -> App | None:
    """The app of a device that runs programs in its own way: the option `app` of any driver."""
    return App.of(config.options[APP]) if APP in config.options else None


def runner_host(driver: Driver, attributes: dict[str, str]) -> Elsewhere:
    """A device as a host of runners for `etscope.run.run`; `attributes` are the driver's."""
    kinds = [kind for kind in attributes.get("runners", "").split(",") if kind]
    return Elsewhere(driver, {kind: partial(driver.runner, kind) for kind in kinds})
