"""Read a QNN optrace: the Chrome trace that qnn-profile-viewer makes of what the HTP logged.

`backends/qualcomm/debugger/utils.py` (`generate_optrace`) makes it as `optrace_N.json`. Its header
has the artifact type "OP_TRACE". `ts` and `dur` are not microseconds: they are cycles of the HTP,
as is "Duration (cycles)" in the annotations; "Start Cycle" is the same clock without the shift to
0. The trace has each HTP operation twice, on threads of the same number: in the overview of its
core (pid 0), and in the process of its QNN node type. This module counts it once. "Flags" marks a
transfer ("dma") or a wait for one ("dma_wait"). Counters are bytes of VTCM and DRAM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from etscope.backends.common.chrome_trace import Numbered, is_number, trace_events
from etscope.backends.common.imported import BackendFile, ImportedRow, ImportedSpans
from etscope.errors import FormatError
from etscope.model.table import Column, Kind

KIND = "QNN optrace"
BACKENDS = ("QnnBackend",)
COLUMNS = (
    Column("dominant_path", Kind.FLOAT, "cycles", title="dominant path", priority=1),
    Column("units", Kind.LIST, title="HTP units", priority=2),
    Column("dma", Kind.COUNT, title="DMA", priority=4),
    Column("dma_wait", Kind.FLOAT, "cycles", title="DMA wait", priority=4),
)
_SHOWN = ("HTP Op Type", "QNN Op Name", "QNN Op Type", "Data Type", "Dominant Path Cycles")


def recognises(event: Mapping[str, Any]) -> bool:
    """True for an event of the HTP, in a trace without the header."""
    args = event.get("args")
    return isinstance(args, dict) and "HTP Op Type" in args and "Duration (cycles)" in args


def read(path: str, text: str) -> BackendFile:
    """Read an optrace: a row for each QNN node, with its HTP operations below it."""
    found = _Operations()
    for event in trace_events(text, {}):
        found.add(event)
    if not found.count:
        raise FormatError("this optrace does not have an HTP operation")
    return BackendFile(
        path=path,
        kind=KIND,
        backends=BACKENDS,
        rows=(*found.rows(), *found.counter_rows()),
        group_title="QNN type",
        value_title="total",
        columns=COLUMNS,
        spans=found.spans(),
        notes=tuple(found.notes()),
    )


class _Sum:
    """Sums over all operations of a QNN node, or over those of one HTP type."""

    __slots__ = ("cycles", "dma", "dma_wait", "dominant", "events", "units")

    def __init__(self) -> None:
        self.events = self.dma = 0
        self.cycles = self.dominant = self.dma_wait = 0.0
        self.units: dict[str, None] = {}

    def row(self, name: str, qnn_type: str, depth: int) -> ImportedRow:
        return ImportedRow(
            name,
            self.cycles,
            "cycles",
            qnn_type,
            self.events,
            nodes=() if depth else (name,),
            depth=depth,
            extra={
                "dominant_path": self.dominant,
                "units": list(self.units),
                "dma": self.dma or None,
                "dma_wait": self.dma_wait or None,
            },
        )


class _Operations:
    def __init__(self) -> None:
        self._names, self._lanes = Numbered(), Numbered()
        self._threads: dict[str, str] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._columns: list[tuple[int, int, float, float]] = []
        self._annotations: list[Mapping[str, Any]] = []
        # QNN node (name, type) -> its sum (key None) and the sum of each HTP type.
        self._nodes: dict[tuple[str, str], dict[str | None, _Sum]] = {}
        self._counters: dict[str, tuple[int, float, float]] = {}
        self._problems: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return len(self._columns)

    def add(self, event: Mapping[str, Any]) -> None:
        phase, args = event.get("ph"), event.get("args")
        if not isinstance(args, dict):
            return
        if phase == "M" and event.get("name") == "thread_name":
            name, thread = str(args.get("name")), str(event.get("tid"))
            # The overview has "Type: HMX", the other processes "Core:0 Type: HMX Tid: 256".
            self._threads[thread] = max(self._threads.get(thread, ""), name, key=len)
        elif phase == "C" and is_number(args.get("")) and isinstance(event.get("name"), str):
            count, total, most = self._counters.get(event["name"], (0, 0.0, 0.0))
            value = float(args[""])
            self._counters[event["name"]] = (count + 1, total + value, max(most, value))
        elif phase == "X":
            self._operation(event, args)

    def _operation(self, event: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        start, length = event.get("ts"), event.get("dur")
        cycles = args.get("Duration (cycles)", length)
        if "HTP Op Type" not in args or not is_number(start) or not is_number(length):
            self._problems["without an HTP type, start or duration"] += 1
            return
        if not is_number(cycles):
            cycles = length
        if cycles < 0 or length < 0:
            self._problems["that end before they begin"] += 1
            return
        identity = (str(args.get("ID")), str(event.get("tid")), start, length)
        if identity in self._seen:
            return
        self._seen.add(identity)
        kind, node = str(args["HTP Op Type"]), str(args.get("QNN Op Name") or "(no QNN node)")
        lane = self._lanes.of(str(event.get("tid")))
        self._columns.append((lane, self._names.of(kind), float(start), float(length)))
        self._annotations.append({key: args[key] for key in _SHOWN if key in args})
        by_type = self._nodes.setdefault((node, str(args.get("QNN Op Type") or "")), {})
        dominant = args.get("Dominant Path Cycles")
        flags = args.get("Flags")
        flags = flags if isinstance(flags, list) else []
        for name in (None, kind):
            entry = by_type.setdefault(name, _Sum())
            entry.events += 1
            entry.cycles += cycles
            entry.dominant += dominant if is_number(dominant) else 0
            entry.dma += "dma" in flags
            entry.dma_wait += cycles if "dma_wait" in flags else 0
            entry.units[str(event.get("tid"))] = None

    def rows(self) -> Iterator[ImportedRow]:
        ordered = sorted(self._nodes.items(), key=lambda item: -item[1][None].cycles)
        for by_type in self._nodes.values():
            for entry in by_type.values():
                entry.units = dict.fromkeys(self._unit(thread) for thread in entry.units)
        for (node, qnn_type), by_type in ordered:
            yield by_type[None].row(node, qnn_type, 0)
            for kind, entry in sorted(by_type.items(), key=lambda item: -item[1].cycles):
                if kind is not None:
                    yield entry.row(kind, "", 1)

    def counter_rows(self) -> Iterator[ImportedRow]:
        for name, (count, _, most) in self._counters.items():
            yield ImportedRow(f"{name} (largest sample)", most, "bytes", "counter", count)

    def _unit(self, thread: str) -> str:
        """Return the HTP unit of a thread ("HMX", "HVX"), or its number if the file lacks it."""
        parts = self._threads.get(thread, "").partition("Type: ")[2].split()
        return parts[0] if parts else f"thread {thread}"

    def spans(self) -> ImportedSpans:
        lane, name, start, cycles = zip(*self._columns, strict=True)
        begins = np.array(start, np.float64)
        return ImportedSpans(
            "cycles",
            tuple(self._threads.get(thread, f"thread {thread}") for thread in self._lanes.texts),
            self._names.texts,
            self._annotations,
            np.array(lane, np.int32),
            np.array(name, np.int32),
            np.arange(self.count, dtype=np.int32),
            begins - begins.min(),
            np.array(cycles, np.float64),
        )

    def notes(self) -> Iterator[str]:
        yield (
            "Cycles of a node are summed over the HTP's units, which run in parallel: they are not "
            "elapsed time. The dominant path is the part that the graph waits for."
        )
        if self._problems:
            listed = ", ".join(f"{count:,} {what}" for what, count in self._problems.items())
            yield f"Events left out: {listed}."
