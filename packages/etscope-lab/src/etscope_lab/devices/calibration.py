"""Measure the peaks of a device of the lab."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from etscope.errors import LabError, UsageError
from etscope.formats.bytes.files import PathLike
from etscope.formats.calibration import CACHE_FILES, CalibratedDevice, caches_of
from etscope.run.calibration import BUSY, CalibrationOptions, Machine, calibrate
from etscope_lab.devices.driver import Driver, open_driver, runner_host
from etscope_lab.devices.peaks import DeviceCalibration, description_of
from etscope_lab.jobs.records import DeviceConfig
from etscope_lab.worker.conditions import read_conditions

_STEP = 2.0  # seconds between two looks at the load


def calibrate_device(
    config: DeviceConfig,
    program: PathLike,
    options: CalibrationOptions | None = None,
    *,
    told: Callable[[int, int], None] = lambda done, total: None,
    rest_seconds: float = 0.0,
) -> DeviceCalibration:
    """Measure the peaks of a device that is in reach of this machine.

    rest_seconds: the longest wait for earlier work on the device to end.

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
        _rest(driver, rest_seconds)
        found = calibrate(program, options, machine=machine, told=told)
        measured = {peaks.threads for peaks in found.all_peaks if peaks.threads is not None}
        return DeviceCalibration(
            device=config.name,
            runner=found.runner,
            description=description_of(
                config, {**attributes, **config.attributes}, found.executorch
            ),
            threads=tuple(sorted(measured.union(() if options is None else options.threads))),
            at=found.measured_at,
            content=json.loads(json.dumps(found.to_json())),
        )
    finally:
        driver.close()


def _rest(driver: Driver, seconds: float) -> None:
    """Wait until a device's load, an average of the last minute, shows no other work."""
    end = time.monotonic() + seconds
    while time.monotonic() + _STEP < end and (read_conditions(driver).load_per_core or 0) >= BUSY:
        time.sleep(_STEP)
