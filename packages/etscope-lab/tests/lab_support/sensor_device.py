"""This machine with simulated sensors: a tree of files of /sys whose meters add up a known power.

Its driver is named "lab_support.sensor_device:Sensors". The power is IDLE_W, and BUSY_W while a
command runs. Options: meter: the kind of meter ("rapl", "ina", "odpm", "battery" or "none").
`Beside` is an external meter of the same power.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from etscope.run.remote import Completed
from etscope_lab.devices.host import Host

DRIVER, METER = "lab_support.sensor_device:Sensors", "lab_support.sensor_device:Beside"
IDLE_W, BUSY_W = 5.0, 20.0
_WRAPS_UJ = 100_000_000  # of the counter: once in these tests
_lock = threading.Lock()
_state = {"at": time.time(), "joules": 60.0, "watts": IDLE_W}


def joules(watts: float | None = None) -> float:
    """The energy until now. watts: the power from now on."""
    with _lock:
        now = time.time()
        _state["joules"] += _state["watts"] * (now - _state["at"])
        _state["at"] = now
        if watts is not None:
            _state["watts"] = watts
        return _state["joules"]


def tree(kind: str) -> dict[str, str]:
    """The files of a kind of meter, with other supplies that are not to be counted."""
    used, watts = joules(), _state["watts"]
    rapl, hwmon = "/sys/class/powercap/intel-rapl", "/sys/class/hwmon/hwmon2"
    supply = "/sys/class/power_supply"
    return {
        "none": {},
        "rapl": {
            f"{rapl}:0/name": "package-0\n",
            f"{rapl}:0/energy_uj": f"{int(used * 1e6) % _WRAPS_UJ}\n",
            f"{rapl}:0/max_energy_range_uj": f"{_WRAPS_UJ}\n",
            f"{rapl}:0:0/name": "core\n",
            f"{rapl}:0:0/energy_uj": f"{int(used * 5e5)}\n",
        },
        "ina": {  # a Jetson's: the first rail feeds the other
            f"{hwmon}/name": "ina3221\n",
            f"{hwmon}/in1_label": "VDD_IN\n",
            f"{hwmon}/in1_input": "5000\n",
            f"{hwmon}/curr1_input": f"{watts / 5 * 1000:.0f}\n",
            f"{hwmon}/in2_label": "VDD_CPU\n",
            f"{hwmon}/in2_input": "5000\n",
            f"{hwmon}/curr2_input": f"{watts / 10 * 1000:.0f}\n",
            "/sys/class/hwmon/hwmon0/name": "nvme\n",
            "/sys/class/hwmon/hwmon0/power1_input": "9000000\n",
        },
        "odpm": {
            "/sys/bus/iio/devices/iio:device0/energy_value": (
                f"t=473848\nCH0(T=473848)[S2M_VDD_CPUCL2], {int(used * 6e5)}\n"
                f"CH1(T=473848)[S3M_VDD_CPUCL1], {int(used * 4e5)}\n"
                f"CH2(T=473848)[VSYS_PWR_DISPLAY], {int(used * 1e7)}\n"
            )
        },
        "battery": {
            f"{supply}/mouse/type": "Battery\n",
            f"{supply}/mouse/scope": "Device\n",
            f"{supply}/mouse/energy_now": "500\n",
            f"{supply}/BAT0/type": "Battery\n",
            f"{supply}/BAT0/status": "Discharging\n",
            f"{supply}/BAT0/charge_now": f"{3_000_000 - used / 4 / 3.6e-3:.0f}\n",
            f"{supply}/BAT0/voltage_now": "4000000\n",
        },
    }[kind]


class Sensors(Host):
    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(name, {})
        self._kind = options["meter"]

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        return tree(self._kind) if "/sys/class/hwmon/hwmon*/name" in paths else super().read(paths)

    def call(self, command: Sequence[str], timeout: float | None) -> Completed:
        joules(BUSY_W)
        try:
            return super().call(command, timeout)
        finally:
            joules(IDLE_W)


class Beside:
    def __init__(self, name: str, attributes: Mapping[str, str]) -> None:
        self.where = (name, attributes["port"])

    def joules(self) -> float:
        return joules()
