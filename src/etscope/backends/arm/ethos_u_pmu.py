"""Read the counters and the memory that ExecuTorch's Arm runner logs after its inferences.

`examples/arm/executor_runner/arm_perf_monitor.cpp` (`StopMeasurements`) logs them with `ET_LOG`,
each on a line such as "… ethosu_pmu_cntr0 : 4096 (512.00 per inference)", then the names of the
counters in their order: "Ethos-U PMU Events:[ETHOSU_PMU_AXI0_RD_DATA_BEAT_RECEIVED, …]". All
numbers are sums over the calls of the delegate, from `StartMeasurements` on. Other lines of the log
are skipped; each "NPU Inferences" begins a report.

`arm_executor_runner.cpp` logs the bytes that a program took of each allocator, such as
"method_allocator_used: 1355722 / 62914560  free: …", then planned, loaded, input, executor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from etscope.backends.common.imported import BackendFile, Basis, ImportedRow
from etscope.errors import FormatError
from etscope.model.table import Column, Kind

KIND = "Ethos-U PMU log"
BACKENDS = ("EthosUBackend", "ArmBackend")
COLUMNS = (
    Column("per_inference", Kind.FLOAT, title="per inference", priority=1),
    Column("capacity", Kind.BYTES, priority=1),
)
_MARK = "ethosu_pmu_"
_COUNTER = re.compile(r"ethosu_pmu_(cycle_cntr|cntr(?P<number>\d{1,3})) : *(?P<value>-?\d{1,30})\b")
_EVENTS = re.compile(r"Ethos-U PMU Events:\s*\[(?P<names>[^\]]*)\]")
_INFERENCES = re.compile(r"NPU Inferences : (\d{1,15})\b")
_DELEGATIONS = re.compile(r"NPU delegations: (\d{1,15})\b")
# Lines of the CPU: pattern, name, unit.
_CPU = (
    (re.compile(r"ethos-u : cycle_cnt : (-?\d{1,30})\b"), "delegate call", "CPU cycles"),
    (re.compile(r"Inference runtime: (-?\d{1,30})\b"), "inference", "CPU cycles"),
    (re.compile(r"cpu_wait_for_npu_cntr : (-?\d{1,30})\b"), "CPU waits for the NPU", "CPU cycles"),
)
_MEMORY = re.compile(
    r"(?P<name>model_pte_loaded_size|\w{1,40}_allocator_\w{1,20}): +(?P<bytes>\d{1,15})"
    r"(?: / (?P<capacity>\d{1,15})| bytes)"
)
_RATIO = re.compile(r"Inference (?P<unit>CPU|NPU) ratio: (?P<value>-?\d{1,6}\.\d{1,6}) %")
# An unsigned 64-bit difference from here on is negative: the counter's end is below its start.
_BACKWARDS = 1 << 63
_STOPPED = 0.01  # of the NPU's cycles: no CPU is 100 times slower than its NPU


def recognises(text: str) -> bool:
    """True for a log with a line of a counter or of an allocator."""
    return _COUNTER.search(text) is not None or _MEMORY.search(text) is not None


@dataclass
class _Report:
    inferences: int | None = None
    delegations: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    cpu: dict[str, tuple[int, str]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    names: Sequence[str] = ()

    @property
    def calls_per_inference(self) -> float | None:
        if self.delegations is None or not self.inferences:
            return None
        return self.delegations / self.inferences

    def rows(self, group: str, notes: list[str]) -> Iterator[ImportedRow]:
        """Yield the rows of the report, and add its problems to `notes`."""

        def row(name: str, value: int, unit: str, kind: str) -> ImportedRow:
            if not 0 <= value < _BACKWARDS:
                notes.append(
                    f"{name}{group} runs backwards ({value}): something reset it while it counted."
                )
                return ImportedRow(name, None, unit, kind + group)
            each = value / self.inferences if self.inferences else None
            return ImportedRow(
                name, float(value), unit, kind + group, extra={"per_inference": each}
            )

        cycles = self.counters.get("cycles")
        if cycles is not None:
            yield row("NPU active", cycles, "NPU cycles", "NPU")
        numbered = {int(key): value for key, value in self.counters.items() if key != "cycles"}
        for number, value in sorted(numbered.items()):
            known = number < len(self.names)
            name = self.names[number].removeprefix("ETHOSU_PMU_") if known else f"counter {number}"
            unit = "beats" if "_BEAT_" in name else "NPU cycles" if known else "count"
            yield row(name, value, unit, "NPU")
        if len(numbered) != len(self.names):
            notes.append(
                f"The log{group} has {len(numbered)} counters, but {len(self.names)} counter names."
            )
        for name, (value, unit) in self.cpu.items():
            yield row(name, value, unit, "CPU")
        for unit, ratio in self.ratios.items():
            yield ImportedRow(f"{unit} share", ratio, "%", "CPU" + group, basis=Basis.DERIVED)
        if self.delegations is not None:
            yield row("delegate calls", self.delegations, "count", "NPU")

    def doubts(self, group: str) -> Iterator[str]:
        """Yield a sentence if the CPU's counter did not run on while it waited for the NPU."""
        waited, cycles = self.cpu.get("CPU waits for the NPU"), self.counters.get("cycles")
        if waited is not None and cycles and waited[0] < _STOPPED * cycles:
            yield (
                f"The CPU counted {waited[0]:,} cycles{group} while the NPU was active for "
                f"{cycles:,} of its own: the CPU's counter stood still, or the clocks differ. The "
                "shares of CPU and NPU in the log are not shares of time."
            )


def read(path: str, text: str) -> BackendFile:
    """Read all reports of a log. Raises `FormatError` for a log without counters."""
    reports = [report for report in _reports(text) if report.counters]
    memory = [
        ImportedRow(
            found["name"],
            float(found["bytes"]),
            "bytes",
            "memory",
            extra={"capacity": None if found["capacity"] is None else int(found["capacity"])},
        )
        for found in _MEMORY.finditer(text)
    ]
    if not reports and not memory:
        raise FormatError(f"this log does not have a line of {_MARK}cycle_cntr or {_MARK}cntrN")
    sums = "Numbers are sums over all delegate calls in the report's inferences."
    notes = [sums] if reports else []
    rows: list[ImportedRow] = []
    for number, report in enumerate(reports, 1):
        group = f" of report {number}" if len(reports) > 1 else ""
        rows += report.rows(group, notes)
        notes += report.doubts(group)
    return BackendFile(
        path,
        KIND,
        BACKENDS,
        (*rows, *memory),
        group_title="of",
        columns=COLUMNS,
        notes=tuple(notes),
        of_inference=True,
        calls_per_inference=reports[-1].calls_per_inference if reports else None,
    )


def _reports(text: str) -> Iterator[_Report]:
    report = _Report()
    for line in text.splitlines():
        if found := _INFERENCES.search(line):
            yield report
            report = _Report(inferences=int(found[1]))
        elif found := _DELEGATIONS.search(line):
            report.delegations = int(found[1])
        elif found := _COUNTER.search(line):
            report.counters[found["number"] or "cycles"] = int(found["value"])
        elif found := _EVENTS.search(line):
            report.names = [name.strip() for name in found["names"].split(",")]
        elif found := _RATIO.search(line):
            report.ratios[found["unit"]] = float(found["value"])
        else:
            for pattern, name, unit in _CPU:
                if found := pattern.search(line):
                    report.cpu[name] = int(found[1]), unit
    yield report
