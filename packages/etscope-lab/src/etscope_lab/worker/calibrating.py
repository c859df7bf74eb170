"""The process that calibrates a device: `main(FOLDER)` reads FOLDER/order.json
(`etscope_lab.devices.peaks.CalibrationOrder`) and writes FOLDER/answer.json:

    {"content": the calibration's file, or null, "threads": […], "error": "", "again": false}

`again`: the device was lost, and another try may succeed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from etscope.errors import DeviceLost, EtscopeError
from etscope.run.calibration import CalibrationOptions, find_program
from etscope.support.quiet import quiet
from etscope_lab.devices.calibration import calibrate_device
from etscope_lab.jobs.records import DeviceConfig

REST_SECONDS = 60.0  # until a device, which has just done a job, is at rest
_PROCESS_SECONDS = 300.0  # of each process of the runner


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
