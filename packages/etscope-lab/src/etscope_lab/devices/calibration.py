"""Measure the peaks of a device of the lab.

As a process, `main(FOLDER)` reads FOLDER/order.json (`etscope_lab.devices.peaks.CalibrationOrder`)
and writes FOLDER/answer.json:

    {"content": the calibration's file, or null, "threads": […], "error": "", "again": false}

`again`: the device was lost, and another try may succeed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etscope.errors import DeviceLost, EtscopeError
from etscope.formats.bytes.files import PathLike
from etscope.formats.calibration import CACHE_FILES, CalibratedDevice, caches_of
from etscope.run.calibration import BUSY, CalibrationOptions, Machine, calibrate, find_program
from etscope.support.quiet import quiet
from etscope_lab.devices.driver import Driver, opened, runner_host
from etscope_lab.devices.peaks import DeviceCalibration, description_of
from etscope_lab.jobs.records import DeviceConfig
from etscope_lab.worker.conditions import read_conditions

REST_SECONDS = 60.0  # until a device, which has just done a job, is at rest
_PROCESS_SECONDS = 300.0  # of each process of the runner
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
    with opened(config) as driver:
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


def _rest(driver: Driver, seconds: float) -> None:
    """Wait until a device's load, an average of the last minute, shows no other work."""
    end = time.monotonic() + seconds
    while time.monotonic() + _STEP < end and (read_conditions(driver).load_per_core or 0) >= BUSY:
        time.sleep(_STEP)


def main(name: str) -> None:
    """Execute the order in the folder of that name, and write the answer."""
    folder = Path(name)
    order = json.loads((folder / "order.json").read_bytes())
    answer: dict[str, Any] = {"content": None, "threads": order["threads"], "again": False}
    try:
        with quiet():
            program = find_program()
        found = calibrate_device(
            DeviceConfig(**order["device"]),
            program,
            CalibrationOptions(order["runner"], tuple(order["threads"]), timeout=_PROCESS_SECONDS),
            rest_seconds=REST_SECONDS,
        )
        answer |= {"content": found.content, "threads": found.threads, "error": ""}
    except EtscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        answer |= {"error": error.message, "again": isinstance(error, DeviceLost)}
    (folder / "answer.json").write_text(json.dumps(answer))
