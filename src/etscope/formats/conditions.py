"""The conditions of a measurement: heat, clock, load, memory, battery and CPUs, from files of
Linux.

Sources:

- temperature: /sys/class/thermal/thermal_zone*/{type,temp}, m°C (Documentation/driver-api/thermal/
  sysfs-api.rst of Linux); without these, /sys/class/hwmon/hwmon*/temp*_input;
- clock: /sys/devices/system/cpu/cpu*/cpufreq/{scaling_governor,scaling_cur_freq}, kHz
  (Documentation/admin-guide/pm/cpufreq.rst);
- battery: /sys/class/power_supply/*/{type,scope,status,capacity}; on many devices Android's shell
  user cannot read these, and has `dumpsys battery` instead;
- load and memory: /proc/loadavg, /proc/meminfo; CPU time, in 1/100 s: /proc/stat (proc_stat(5));
  a virtual machine: the flag `hypervisor` in /proc/cpuinfo (x86), or the vendor in
  /sys/class/dmi/id/sys_vendor;
- CPU affinity: Cpus_allowed_list in /proc/self/status (proc_pid_status(5));
- CPU: "model name" (x86), "Hardware" (older kernels of Arm), "CPU implementer" and "CPU part" (the
  other kernels of Arm64, one pair for each kind of core), "uarch" (RISC-V) in /proc/cpuinfo.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CONDITION_FILES", "Conditions", "conditions_of", "number_of", "read_files"]

_ZONES = "/sys/class/thermal/thermal_zone*"
_CPUFREQ = "/sys/devices/system/cpu/cpu*/cpufreq"
_SUPPLIES = "/sys/class/power_supply/*"
_STATUS = "/proc/self/status"
CONDITION_FILES = (
    f"{_ZONES}/type",
    f"{_ZONES}/temp",
    "/sys/class/hwmon/hwmon*/temp*_input",
    f"{_CPUFREQ}/scaling_governor",
    f"{_CPUFREQ}/scaling_cur_freq",
    *(f"{_SUPPLIES}/{name}" for name in ("type", "scope", "status", "capacity")),
    "/proc/loadavg",
    "/proc/stat",
    "/proc/meminfo",
    "/proc/cpuinfo",
    _STATUS,
    "/sys/class/dmi/id/sys_vendor",
)

# Thermal zones of phones that report a percentage, a voltage or a current, not a temperature.
_NO_TEMPERATURE = re.compile(r"soc|.*(vbat|ibat|vph|bcl|-lvl|_lvl).*")
# Outside these, a sensor is broken or reports something other than °C.
_PLAUSIBLE_C = (-40.0, 150.0)
_HYPERVISORS = re.compile(
    r"QEMU|KVM|VMware|Xen|innotek|VirtualBox|Parallels|Amazon EC2|Bochs", re.IGNORECASE
)
_CPU_NAME = re.compile(r"^(?:model name|Hardware|uarch)\s*:\s*(\S.*?)\s*$", re.MULTILINE)
_CPU_PART = re.compile(
    r"^CPU implementer\s*:\s*(0x[0-9a-f]+)$(?:\n.+)*?\nCPU part\s*:\s*(0x[0-9a-f]+)", re.MULTILINE
)
_CPU_TIMES = re.compile(r"^cpu +(\d+(?: \d+){7,9})$", re.MULTILINE)
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a device at one moment; None or () for unknown ones.

    at: seconds since the epoch, by this machine's clock; 0 if unknown. temperature_c: the
    temperature of the hottest sensor in °C; `sensor` is that sensor's name. governors: the
    governors in use, sorted. frequencies_mhz: the frequency of each core. battery_percent,
    battery_status ("Charging"): the charge and state of the battery. load: the load average of one
    minute. busy_s, stolen_s: CPU time since the start of the device, in seconds of a core: of all
    programs, and what other virtual machines took. cores: the number of cores. cpus:
    the CPUs that a new process may use, "0-3,6". memory_*: bytes. virtual: True for a virtual
    machine. cpu: the model of the CPU.
    """

    at: float = 0.0
    temperature_c: float | None = None
    sensor: str = ""
    governors: tuple[str, ...] = ()
    frequencies_mhz: tuple[float, ...] = ()
    battery_percent: float | None = None
    battery_status: str = ""
    load: float | None = None
    busy_s: float | None = None
    stolen_s: float | None = None
    cores: int | None = None
    memory_available_bytes: int | None = None
    memory_bytes: int | None = None
    virtual: bool = False
    cpus: str = ""
    cpu: str = ""

    @property
    def load_per_core(self) -> float | None:
        return None if self.load is None or not self.cores else self.load / self.cores

    def in_words(self, threads: int | None) -> str:
        """Return the conditions in words: "2 threads, CPUs 0-3 of 4, governor powersave, load 3.1".
        threads: the runtime's thread pool size; None if unknown.
        """
        return ", ".join(
            text
            for text in (
                "" if threads is None else f"{threads} thread{'' if threads == 1 else 's'}",
                f"CPUs {self.cpus}{f' of {self.cores}' if self.cores else ''}" * bool(self.cpus),
                f"governor {' and '.join(self.governors)}" * bool(self.governors),
                "" if self.load is None else f"load {self.load:.2f}",
            )
            if text
        )


def conditions_here() -> Conditions:
    return conditions_of(read_files(CONDITION_FILES), time.time())


def read_files(patterns: Sequence[str]) -> dict[str, str]:
    """Read files of this machine as text by path. Expands shell patterns; skips missing and
    unreadable files."""
    found = {}
    for pattern in patterns:
        for path in sorted(Path("/").glob(pattern.lstrip("/"))):
            try:
                text = path.read_text("utf-8", "replace")
            except OSError:
                continue
            if text.strip():
                found[str(path)] = text
    return found


def conditions_of(files: Mapping[str, str], at: float) -> Conditions:
    """Return the conditions in files of /sys and /proc, given as text by path."""
    temperature, sensor = _temperature(files)
    battery, status = _battery(files)
    memory = files.get("/proc/meminfo", "")
    cpuinfo = files.get("/proc/cpuinfo", "")
    cores = len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE))
    named = _CPU_NAME.search(cpuinfo)
    parts = ", ".join(dict.fromkeys(map(" ".join, _CPU_PART.findall(cpuinfo))))
    vendor = files.get("/sys/class/dmi/id/sys_vendor", "")
    stat = _CPU_TIMES.search(files.get("/proc/stat", ""))
    seconds = [int(ticks) / 100 for ticks in stat[1].split()] if stat else []
    return Conditions(
        at=at,
        temperature_c=temperature,
        sensor=sensor,
        governors=tuple(sorted(set(_texts(files, "scaling_governor")))),
        frequencies_mhz=tuple(
            number / 1e3
            for text in _texts(files, "scaling_cur_freq")
            if (number := number_of(text)) is not None
        ),
        battery_percent=battery,
        battery_status=status,
        load=number_of((files.get("/proc/loadavg", "").split() or [""])[0]),
        # user, nice, system, idle, iowait, irq, softirq, steal
        busy_s=sum((*seconds[:3], *seconds[5:7])) if seconds else None,
        stolen_s=seconds[7] if seconds else None,
        cores=cores or None,
        memory_available_bytes=_kib(memory, "MemAvailable"),
        memory_bytes=_kib(memory, "MemTotal"),
        cpus=found[1] if (found := _ALLOWED.search(files.get(_STATUS, ""))) else "",
        cpu=named[1] if named else f"Arm {parts}" * bool(parts),
        virtual=bool(re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE))
        or bool(_HYPERVISORS.search(vendor)),
    )


def _temperature(files: Mapping[str, str]) -> tuple[float | None, str]:
    """The hottest sensor: °C and its name."""
    sensors = []
    for path, text in files.items():
        folder, _, name = path.rpartition("/")
        if folder.startswith("/sys/class/thermal/") and name == "temp":
            kind = files.get(f"{folder}/type", folder.rpartition("/")[2]).strip()
        elif folder.startswith("/sys/class/hwmon/"):
            kind = path.removeprefix("/sys/class/hwmon/")
        else:
            continue
        number = number_of(text)
        if number is None or _NO_TEMPERATURE.fullmatch(kind):
            continue
        # Some zones of older phones are in °C. A running chip is never below 1000 m°C.
        celsius = number / 1e3 if abs(number) >= 1e3 else number
        if _PLAUSIBLE_C[0] < celsius < _PLAUSIBLE_C[1] and celsius != 0:
            sensors.append((celsius, kind))
    return max(sensors, default=(None, ""), key=lambda found: found[0] or 0)


def _battery(files: Mapping[str, str]) -> tuple[float | None, str]:
    """The emptiest battery of the device itself: percent and status."""
    found = []
    for path, text in files.items():
        folder, _, name = path.rpartition("/")
        if not folder.startswith("/sys/class/power_supply/") or name != "capacity":
            continue
        kind = files.get(f"{folder}/type", "Battery").strip()
        scope = files.get(f"{folder}/scope", "System").strip()  # "Device": for example, of a mouse
        level = number_of(text)
        if kind == "Battery" and scope != "Device" and level is not None:
            found.append((level, files.get(f"{folder}/status", "").strip()))
    return min(found, default=(None, ""), key=lambda one: one[0] or 0)


def _texts(files: Mapping[str, str], name: str) -> list[str]:
    return [text.strip() for path, text in files.items() if path.endswith(f"/cpufreq/{name}")]


def number_of(text: str) -> float | None:
    """Return the number in a text; None for any other text."""
    try:
        return float(text.strip())
    except ValueError:
        return None


def _kib(meminfo: str, name: str) -> int | None:
    found = re.search(rf"^{name}:\s*(\d+) kB", meminfo, re.MULTILINE)
    return None if found is None else int(found[1]) * 1024
