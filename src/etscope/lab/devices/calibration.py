"""The peaks of a device of the lab."""

from __future__ import annotations

from collections.abc import Callable

from etscope.errors import LabError, UsageError
from etscope.formats.bytes.files import PathLike
from etscope.formats.calibration import CACHE_FILES, CalibratedDevice, Calibration, caches_of
from etscope.lab.devices.driver import open_driver, runner_host
from etscope.lab.jobs.records import DeviceConfig
from etscope.lab.worker.conditions import read_conditions
from etscope.run.calibration import CalibrationOptions, calibrate
from etscope.run.calibration.measure import Machine


def calibrate_device(
    config: DeviceConfig,
    program: PathLike,
    options: CalibrationOptions | None = None,
    *,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> Calibration:
    """Measure the peaks of a device that is in reach of this machine.

    Raises as `etscope.run.calibration.calibrate`, `DeviceLost`, and `LabError` for an invalid
    configuration of the device.
    """
    try:
        driver = open_driver(config)
    except UsageError as error:
        raise LabError(
            f"the device {config.name} is not set up: {error.message}", hint=error.hint
        ) from error
    try:
        attributes = driver.attributes()
        now = read_conditions(driver)
        device = CalibratedDevice(
            name=config.name,
            cpu=now.cpu or attributes.get("cpu", ""),
            cores=now.cores,
            architecture=attributes.get("arch", ""),
            system=attributes.get("kernel", ""),
            caches=caches_of(driver.read(CACHE_FILES)),
        )
        machine = Machine(runner_host(driver, attributes), lambda: read_conditions(driver), device)
        return calibrate(program, options, machine=machine, told=told)
    finally:
        driver.close()
