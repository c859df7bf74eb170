"""What a device says of itself: the program behind `etscope.lab.worker.worker.check`.

`python -m etscope.lab.worker.probe FOLDER` reads FOLDER/device.json and writes FOLDER/answer.json
with `attributes`, `conditions` and `error`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from etscope.errors import EtscopeError
from etscope.lab.devices import open_driver
from etscope.lab.jobs.records import DeviceConfig
from etscope.lab.worker.conditions import read_conditions


def probe(config: DeviceConfig) -> dict[str, Any]:
    """The answer for a device; it never raises for what is the device's fault."""
    try:
        driver = open_driver(config)
    except EtscopeError as error:
        return {"error": error.message}
    try:
        attributes = driver.attributes()
        return {
            "attributes": attributes,
            "conditions": read_conditions(driver).plain(),
            "error": "",
        }
    except EtscopeError as error:
        return {"error": error.message}
    finally:
        driver.close()


def main(name: str) -> None:
    folder = Path(name)
    config = DeviceConfig(**json.loads((folder / "device.json").read_text()))
    (folder / "answer.json").write_text(json.dumps(probe(config)))


if __name__ == "__main__":
    main(sys.argv[1])
