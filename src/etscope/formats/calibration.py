"""The calibration of a machine: its peaks, which `etscope calibrate` measures with ExecuTorch's
kernels.

    {"schema": "etscope.calibration/1", "measured_at": "2026-05-01T12:00:00+00:00",
     "device": {"name": "pixel-8", "cpu": "Arm 0x41 0xd4d, 0x41 0xd46", "cores": 8,
                "architecture": "aarch64", "system": "Linux 6.1",
                "caches": [{"level": 1, "bytes": 65536, "cores": 1, "count": 8}]},
     "runner": "native", "etscope": "1.4.0", "executorch": "1.5.1",
     "conditions": {"before": {"at": 1777636800.0, "load": 0.2, …}, "after": {…}},
     "marks": ["the load was 3.1 on 2 cores before it began"],
     "peaks": [
       {"threads": 2,
        "gemm": [{"dtype": "float32", "m": 256, "k": 1024, "n": 1024,
                  "flop_per_s": {"median": 9.1e10, "low": 9.0e10, "high": 9.2e10, "rounds": 7}}],
        "memory": [{"working_set_bytes": 65536,
                    "bytes_per_s": {"median": 8.8e10, "low": …, "high": …, "rounds": 7}}],
        "dispatch_ns": {"median": 210.0, …}, "delegate_call_ns": {"median": 1900.0, …}}]}

`low` and `high` are the quartiles of the rounds. A GEMM multiplies activations [m, k] and weights
[k, n], which takes 2 m k n FLOP (one multiplication and one addition each). `dtype` is torch's
name; "int8" means both sides, and "8da4w" means int8 activations, quantized at run time, with int4
weights. Bytes are the reads and writes of an addition of two float32 arrays that overwrites one of
them: three times half of the working set. `dispatch_ns` is the time of an instruction with one tiny
portable kernel, `delegate_call_ns` the time of a delegate call with one tiny operator, both without
tracing. `cores` cores share each of the `count` caches. Unknown and unmeasured values are null or
missing.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from etscope.errors import EtscopeError, FormatError, VersionError, reading
from etscope.formats.bytes.files import PathLike, atomic_write, make_folder
from etscope.formats.conditions import Conditions, conditions_here
from etscope.formats.json_values import JsonValue, read_json
from etscope.formats.run_json import SavedRun
from etscope.support.shown import Shown

__all__ = [
    "CACHE_FILES",
    "CALIBRATION_JSON",
    "VARIABLE",
    "CalibratedDevice",
    "Calibration",
    "caches_of",
    "calibrations_folder",
    "find_calibration",
    "keep_calibration",
    "parse_calibration",
    "read_calibration",
    "write_calibration",
]

SCHEMA = "etscope.calibration/1"
VARIABLE = "ETSCOPE_CALIBRATION"
CALIBRATION_JSON = "calibration.json"  # next to the run.json of a lab job
FLOAT32, FLOAT16, INT8, INT8_INT4 = "float32", "float16", "int8", "8da4w"
DTYPES = (FLOAT32, FLOAT16, INT8, INT8_INT4)

CACHE_FILES = tuple(
    f"/sys/devices/system/cpu/cpu*/cache/index*/{name}"
    for name in ("level", "type", "size", "shared_cpu_list")
)

_MOST_BYTES = 4 << 20  # a real file has some kB: do not read a wrong file into memory
_MOST_FILES = 200  # bounds the time of a search in a full folder
# Largest spread of a usable peak, as a share of the median.
STEADY = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number measured in several rounds: median and quartiles."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a share of the median."""
        return (self.high - self.low) / self.median

    @property
    def is_steady(self) -> bool:
        return self.spread <= STEADY


@dataclass(frozen=True, slots=True)
class GemmPoint:
    """The rate of a matrix product [m, k] by [k, n] in one dtype of `DTYPES`, FLOP/s."""

    dtype: str
    m: int
    k: int
    n: int
    flop_per_s: Estimate


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """The rate of reading and writing, bytes/s, of an addition of arrays with `working_set_bytes`
    together."""

    working_set_bytes: int
    bytes_per_s: Estimate


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """A level of memory: "L1", "L2", …, "memory"; its largest working set, None for the last level;
    and its best measured rate, bytes/s."""

    name: str
    up_to_bytes: int | None
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Cache:
    """The data caches of one level: bytes of each, the cores that share it, and their number."""

    level: int
    bytes: int
    cores: int
    count: int

    def capacity(self, threads: int | None) -> int:
        """Return the bytes of the caches that the threads reach, each on another core."""
        reached = self.count if threads is None else -(-threads // self.cores)
        return self.bytes * min(reached, self.count)


@dataclass(frozen=True, slots=True)
class CalibratedDevice:
    """The machine. name: the name of the host, or of the lab's device. architecture: "x86_64",
    "aarch64". "", None and () mean unknown.
    """

    name: str = ""
    cpu: str = ""
    cores: int | None = None
    architecture: str = ""
    system: str = ""
    caches: tuple[Cache, ...] = ()

    def in_words(self) -> str:
        """Name the device: "pixel-8 (Arm 0x41 0xd4d, 8 cores)"."""
        about = [self.cpu or self.architecture, f"{self.cores} cores" if self.cores else ""]
        text = ", ".join(filter(None, about))
        return f"{self.name} ({text})" if self.name and text else self.name or text or "a device"


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peaks with one size of the thread pool; None for an unknown size."""

    threads: int | None
    gemm: tuple[GemmPoint, ...] = ()
    memory: tuple[MemoryPoint, ...] = ()
    dispatch: Estimate | None = None
    delegate_call: Estimate | None = None

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes with measured products, in the order of `DTYPES`."""
        found = {point.dtype for point in self.gemm}
        return tuple(dtype for dtype in DTYPES if dtype in found)

    @property
    def dispatch_ns(self) -> float | None:
        """The time of an instruction with one tiny portable kernel."""
        return None if self.dispatch is None else self.dispatch.median

    @property
    def delegate_call_ns(self) -> float | None:
        """The time of a call of a delegate with one tiny operator."""
        return None if self.delegate_call is None else self.delegate_call.median

    def peak_flops(self, dtype: str) -> float | None:
        """Return the best rate of the products in a dtype, FLOP/s; None if it was not measured."""
        rates = [point.flop_per_s.median for point in self.gemm if point.dtype == dtype]
        return max(rates, default=None)

    def bandwidth(self, working_set_bytes: float) -> float | None:
        """Return the rate of reading and writing arrays of that size together, bytes/s. Interpolate
        on the logarithm of the size; outside the measured sizes, take the nearest. None if the rate
        was not measured."""
        points = self._sorted_memory
        sizes = [point.working_set_bytes for point in points]
        rates = [point.bytes_per_s.median for point in points]
        after = bisect_left(sizes, working_set_bytes)
        if not points:
            return None
        if after == 0 or after == len(points):
            return rates[min(after, len(points) - 1)]
        low, high = sizes[after - 1], sizes[after]
        share = math.log(working_set_bytes / low) / math.log(high / low)
        return rates[after - 1] + share * (rates[after] - rates[after - 1])

    def memory_levels(self, caches: Sequence[Cache]) -> tuple[MemoryLevel, ...]:
        """Return the ceilings, the smallest level of memory first.

        A level has the best rate of the working sets that fit into it and not into the one before,
        or a larger level's rate if that is better: the smallest arrays do not keep a kernel busy.
        With unknown caches there are two levels: "cache" with the best rate, and "memory" with the
        rate of the largest working set.
        """
        if not self.memory:
            return ()
        capacities: dict[int, int] = {}
        for cache in caches:  # on a phone a level has caches of several sizes
            capacities[cache.level] = capacities.get(cache.level, 0) + cache.capacity(self.threads)
        found, below = [], 0
        for level, capacity in sorted(capacities.items()):
            if capacity <= below:
                continue
            rates = self._rates(below, capacity)
            if rates:
                found.append(MemoryLevel(f"L{level}", capacity, max(rates)))
            below = capacity
        # The last cache still serves a part of a slightly larger working set.
        rates = self._rates(4 * below, math.inf) if below else []
        if not rates:
            rates = [self._sorted_memory[-1].bytes_per_s.median]
        if not found:
            best = max(point.bytes_per_s.median for point in self.memory)
            smallest = min(point.working_set_bytes for point in self.memory)
            found = [MemoryLevel("cache", smallest, best)]
        levels = [MemoryLevel("memory", None, max(rates))]
        for one in reversed(found):
            best = max(one.bytes_per_s, levels[0].bytes_per_s)
            levels.insert(0, replace(one, bytes_per_s=best))
        return tuple(levels)

    def estimates(self) -> Iterator[tuple[str, Estimate]]:
        """Yield every measured number with its name in words."""
        for product in self.gemm:
            size = f"[{product.m}, {product.k}] by [{product.k}, {product.n}]"
            yield f"the product of {size} in {product.dtype}", product.flop_per_s
        for point in self.memory:
            size = f"{point.working_set_bytes >> 10:,} KiB"
            yield f"memory with a working set of {size}", point.bytes_per_s
        if self.dispatch is not None:
            yield "the dispatch of a kernel", self.dispatch
        if self.delegate_call is not None:
            yield "the call of a delegate", self.delegate_call

    @property
    def _sorted_memory(self) -> list[MemoryPoint]:
        return sorted(self.memory, key=lambda point: point.working_set_bytes)

    def _rates(self, above: float, up_to: float) -> list[float]:
        return [
            point.bytes_per_s.median
            for point in self.memory
            if above < point.working_set_bytes <= up_to
        ]


@dataclass(frozen=True, slots=True)
class Calibration(Shown):
    """The measured peaks of a machine. marks: reasons to trust it less, in words. all_peaks: for
    each number of threads, the fewest first; never empty. path: its file."""

    device: CalibratedDevice
    runner: str
    etscope: str
    executorch: str | None
    measured_at: datetime
    all_peaks: tuple[Peaks, ...]
    before: Conditions | None = None
    after: Conditions | None = None
    marks: tuple[str, ...] = ()
    path: str | None = None

    def peaks(self, threads: int | None = None) -> Peaks:
        """Return the peaks of that number of threads, or of the nearest measured one; of the most
        threads if `threads` is None. `mismatch_with` reports another number."""
        if threads is None:
            return self.all_peaks[-1]

        def distance(peaks: Peaks) -> float:
            return math.inf if not peaks.threads else abs(math.log(peaks.threads / threads))

        return min(self.all_peaks, key=distance)

    def memory_levels(self, threads: int | None = None) -> tuple[MemoryLevel, ...]:
        """Return the ceilings of memory for that number of threads, see `Peaks.memory_levels`."""
        return self.peaks(threads).memory_levels(self.device.caches)

    def mismatch_with(self, run: SavedRun) -> tuple[str, ...]:
        """Return in words the known differences between the calibration's machine and a run's; ()
        for none. Raises `FormatError` for a damaged run.json."""
        conditions = run.conditions or Conditions()
        threads = run.count("threads")
        mine = self.peaks(threads).threads
        cpu = conditions.cpu or _cpu_of_lab(run)
        facts = (
            ("the CPU", self.device.cpu, cpu),
            ("the number of cores", self.device.cores, conditions.cores),
            ("the number of threads", mine, threads),
            ("the runner", self.runner, run.text("runner")),
            ("ExecuTorch's version", self.executorch, run.text("executorch")),
        )
        return tuple(
            f"{what} is {here} in the calibration and {there} in the run"
            for what, here, there in facts
            if here and there and here != there
        )

    def is_of_machine(self, cpu: str, cores: int | None) -> bool:
        """Return True if the machine of the calibration has this CPU, and this number of cores if
        both numbers are known. False if `cpu` is unknown.
        """
        same_cores = not cores or not self.device.cores or self.device.cores == cores
        return bool(cpu) and self.device.cpu == cpu and same_cores

    def to_json(self) -> dict[str, Any]:
        device = asdict(self.device)
        return {
            "schema": SCHEMA,
            "measured_at": self.measured_at.isoformat(timespec="seconds"),
            "device": {**device, "caches": list(device["caches"])},
            "runner": self.runner,
            "etscope": self.etscope,
            "executorch": self.executorch,
            "conditions": {
                "before": self.before and asdict(self.before),
                "after": self.after and asdict(self.after),
            },
            "marks": list(self.marks),
            "peaks": [
                {
                    "threads": peaks.threads,
                    "gemm": [asdict(point) for point in peaks.gemm],
                    "memory": [asdict(point) for point in peaks.memory],
                    "dispatch_ns": peaks.dispatch and asdict(peaks.dispatch),
                    "delegate_call_ns": peaks.delegate_call and asdict(peaks.delegate_call),
                }
                for peaks in self.all_peaks
            ],
        }


def _cpu_of_lab(run: SavedRun) -> str:
    """The CPU in the lab's description of a device."""
    found = run.content.get("environment")
    for key in ("device", "cpu"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def caches_of(files: Mapping[str, str]) -> tuple[Cache, ...]:
    """Return the data caches in `CACHE_FILES`, given as text by path
    (Documentation/ABI/testing/sysfs-devices-system-cpu of Linux)."""
    seen: dict[tuple[int, str], tuple[int, int]] = {}  # level and cores: bytes, number of cores
    for path, size in files.items():
        folder, _, name = path.rpartition("/")
        level, kind, cores = (
            files.get(f"{folder}/{other}", "").strip()
            for other in ("level", "type", "shared_cpu_list")
        )
        amount = re.fullmatch(r"(\d{1,9})([KM]?)", size.strip())
        if name != "size" or amount is None or not level.isdecimal() or kind == "Instruction":
            continue
        unit = {"": 1, "K": 1 << 10, "M": 1 << 20}[amount[2]]
        count = 0
        for part in cores.split(","):  # "3" or "0-3"
            ends = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
            count += 1 if ends is None else max(int(ends[2] or ends[1]) - int(ends[1]) + 1, 1)
        seen[int(level), cores or folder] = int(amount[1]) * unit, count
    kinds: dict[tuple[int, int, int], int] = {}
    for (number, _), (size_bytes, sharing) in seen.items():
        key = number, size_bytes, sharing
        kinds[key] = kinds.get(key, 0) + 1
    return tuple(Cache(*kind, count) for kind, count in sorted(kinds.items()))


# -- The file.


def write_calibration(calibration: Calibration, path: PathLike) -> None:
    """Write a calibration; `UsageError` for a path that cannot be written."""
    import json

    with atomic_write(path) as file:
        file.write(json.dumps(calibration.to_json(), indent=1, ensure_ascii=False).encode() + b"\n")


def read_calibration(path: PathLike) -> Calibration:
    """Read the file of a calibration.

    Raises `MissingFileError`, `VersionError` for an unknown schema, and `FormatError` with the
    member of the JSON for a damaged file and for another format.
    """
    given = read_json(path, "calibration", most_bytes=_MOST_BYTES)
    return parse_calibration(given.value, os.fspath(path))


def parse_calibration(content: Any, path: str | None = None) -> Calibration:
    """Read the JSON of a calibration from `path`; raises the errors of `read_calibration`."""
    with reading("calibration", path):
        top = JsonValue(content)
        schema = top.get("schema").text()
        if schema != SCHEMA:
            family = SCHEMA.partition("/")[0]
            if schema.partition("/")[0] != family:
                raise FormatError(
                    f"not a calibration: its schema is {schema!r:.80}",
                    hint="make one with: etscope calibrate",
                )
            raise VersionError(
                f"this calibration has the schema {schema!r:.80}; this etscope reads {SCHEMA}",
                hint="measure again with this version: etscope calibrate",
            )
        device = top.get("device")
        conditions = top.find("conditions") or JsonValue({})
        peaks = [_peaks(one) for one in top.entries("peaks")]
        calibration = Calibration(
            device=CalibratedDevice(
                **{
                    name: device.optional(name, JsonValue.text) or ""
                    for name in ("name", "cpu", "architecture", "system")
                },
                cores=device.optional("cores", JsonValue.count),
                caches=tuple(
                    Cache(*(one.get(field.name).count() for field in fields(Cache)))
                    for one in device.entries("caches")
                ),
            ),
            runner=top.get("runner").text(),
            etscope=top.optional("etscope", JsonValue.text) or "",
            executorch=top.optional("executorch", JsonValue.text) or None,
            measured_at=top.get("measured_at").time(),
            all_peaks=tuple(sorted(peaks, key=lambda one: one.threads or 0)),
            before=conditions.record("before", Conditions),
            after=conditions.record("after", Conditions),
            marks=top.texts("marks"),
            path=path,
        )
        if not calibration.all_peaks:
            raise FormatError("the calibration does not have peaks", member="peaks")
    return calibration


def _peaks(given: JsonValue) -> Peaks:
    return Peaks(
        threads=given.optional("threads", JsonValue.count),
        gemm=tuple(
            GemmPoint(
                dtype=one.get("dtype").text(DTYPES),
                m=one.get("m").count(),
                k=one.get("k").count(),
                n=one.get("n").count(),
                flop_per_s=_estimate(one.get("flop_per_s")),
            )
            for one in given.entries("gemm")
        ),
        memory=tuple(
            MemoryPoint(
                working_set_bytes=one.get("working_set_bytes").count(),
                bytes_per_s=_estimate(one.get("bytes_per_s")),
            )
            for one in given.entries("memory")
        ),
        dispatch=given.optional("dispatch_ns", _estimate),
        delegate_call=given.optional("delegate_call_ns", _estimate),
    )


def _positive(given: JsonValue) -> float:
    if given.number() <= 0:
        raise given.wrong("a number above 0")
    return given.number()


def _estimate(given: JsonValue) -> Estimate:
    median, low, high = (_positive(given.get(name)) for name in ("median", "low", "high"))
    if not low <= median <= high:
        raise given.wrong("a median between low and high")
    return Estimate(median, low, high, given.get("rounds").count())


# -- Where calibrations are kept.


def calibrations_folder() -> Path:
    """Return the folder of the calibrations of all machines, in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "etscope" / "calibrations"


def keep_calibration(calibration: Calibration) -> Path:
    """Write a calibration to `calibrations_folder`, where commands find it without an option, and
    return its path. It replaces an earlier one of the same machine, runner and version."""
    device = calibration.device
    cores = f"{device.cores} cores" if device.cores else ""
    parts = (device.name, device.cpu, cores, calibration.runner, calibration.executorch or "")
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.")[:60] for part in parts)
    name = "-".join(filter(None, words))
    path = make_folder(calibrations_folder()) / f"{name}.json"
    write_calibration(calibration, path)
    return path


def find_calibration(
    run: SavedRun | None = None, known: Sequence[Calibration] = ()
) -> Calibration | None:
    """Find the calibration for the machine of a saved run, or for this machine if `run` is None or
    is of this machine.

    Look in this order, and return None if nothing is found:

    1. the file in `$ETSCOPE_CALIBRATION`; if the variable is empty, stop and return None;
    2. the file that the lab put next to the run.json;
    3. `known`, if it has calibrations of a machine with the run's CPU and number of cores;
    4. `calibrations_folder`, for such a machine; skipped if the run's CPU is unknown.

    If there are several, prefer a calibration of the run's lab device, then the one with the fewest
    mismatches, then the newest.

    Raises the errors of `read_calibration` for the files in steps 1 and 2; skips unreadable files
    in the folder.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return read_calibration(named) if named else None
    if run is not None and run.path is not None:
        beside = Path(run.path).with_name(CALIBRATION_JSON)
        if beside.is_file():
            return read_calibration(beside)
    conditions = conditions_here() if run is None else run.conditions
    cpu = conditions.cpu if conditions is not None else ""
    if run is not None and not cpu:
        cpu = _cpu_of_lab(run)
    cores = conditions.cores if conditions is not None else None
    found = [one for one in known if not cpu or one.is_of_machine(cpu, cores)]
    if found or not cpu:
        return _best(found, run)
    for path in sorted(calibrations_folder().glob("*.json"))[:_MOST_FILES]:
        try:
            calibration = read_calibration(path)
        except EtscopeError:  # of a later version, for example
            continue
        if calibration.is_of_machine(cpu, cores):
            found.append(calibration)
    return _best(found, run)


def _best(found: Sequence[Calibration], run: SavedRun | None) -> Calibration | None:
    def fit(calibration: Calibration) -> tuple[bool, int, datetime]:
        differences = 0 if run is None else len(calibration.mismatch_with(run))
        named = run is not None and calibration.device.name == run.text("device")
        return named, -differences, calibration.measured_at

    return max(found, key=fit, default=None)
