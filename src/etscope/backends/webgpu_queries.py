r"""Read the dispatch times that the WebGPU delegate prints when WEBGPU_TIMESTAMP_QUERY is set.

`backends/webgpu/runtime/WebGPUQueryPool.cpp` (`print_results`) prints a table after each execution.
Its columns are separated by tabs below "idx\tkernel\tgwg\tduration_us", or by two spaces below
"=== WebGPUQueryPool: per-dispatch GPU time ===" (WebGPUGraph.cpp). Other lines are skipped,
including the means after the second form. A duration is GPU time from the end of one dispatch to
the end of the next (`fill_shader_durations`); starts are not printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from etscope.backends.common.chrome_trace import Numbered
from etscope.backends.common.imported import BackendFile, Basis, ImportedRow, ImportedSpans
from etscope.errors import FormatError
from etscope.model.event_table import Quantity
from etscope.model.table import Column, Kind

KIND = "WebGPU timestamps"
BACKENDS = ("VulkanBackend",)  # the id that WebGPUBackend.cpp registers
COLUMNS = (
    Column("shortest", Kind.FLOAT, "us", title="min", priority=3),
    Column("longest", Kind.FLOAT, "us", title="max", priority=3),
    Column("work_groups", title="work-groups", priority=2),
)
_TSV_HEADER = "idx\tkernel\tgwg\tduration_us"
_HEADER = "=== WebGPUQueryPool: per-dispatch GPU time ==="
_DISPATCH = re.compile(
    r"(?P<index>\d{1,9})(?:\t|  )(?P<kernel>.+?)(?:\t|  )"
    r"(?P<groups>\(\d+,\d+,\d+\))(?:\t|  )(?P<us>\d{1,15}\.\d{3})"
)


@dataclass(frozen=True, slots=True)
class _Dispatch:
    index: int
    kernel: str
    groups: str
    us: float


def recognises(text: str) -> bool:
    """True for text with the header of one of the tables."""
    return _TSV_HEADER in text or _HEADER in text


def read(path: str, text: str) -> BackendFile:
    """Read all tables of an output: one for each execution of a delegate call."""
    executions: list[list[_Dispatch]] = []
    for line in text.splitlines():
        if line.strip() in (_TSV_HEADER, _HEADER):
            executions.append([])
        elif executions and (found := _DISPATCH.fullmatch(line.rstrip())):
            index, kernel, groups, us = found.group("index", "kernel", "groups", "us")
            executions[-1].append(_Dispatch(int(index), kernel, groups, float(us)))
    if not any(executions):
        raise FormatError("this output has the header of WebGPU's times, but no dispatch below it")
    return _file(path, [one for one in executions if one])


def _file(path: str, executions: Sequence[Sequence[_Dispatch]]) -> BackendFile:
    def split(calls: int) -> Sequence[BackendFile] | None:
        if len(executions) % calls:
            return None
        return [_file(path, executions[number::calls]) for number in range(calls)]

    by_dispatch: dict[tuple[int, str, str], list[float]] = {}
    for execution in executions:
        for one in execution:
            by_dispatch.setdefault((one.index, one.kernel, one.groups), []).append(one.us)
    several = len(executions) > 1
    rows = [
        ImportedRow(
            f"{kernel} #{index}",
            sum(times) / len(times),
            "us",
            "",
            len(times),
            Quantity.INTERVAL,
            Basis.DERIVED if several else Basis.MEASURED,
            extra={"shortest": min(times), "longest": max(times), "work_groups": groups},
        )
        for (index, kernel, groups), times in by_dispatch.items()
    ]
    return BackendFile(
        path,
        KIND,
        BACKENDS,
        tuple(rows),
        value_title="mean" if several else "time",
        columns=COLUMNS,
        spans=_spans(executions[0]),
        notes=(
            "Times are GPU times, from the end of one dispatch to the end of the next. The output "
            "does not have starts: the timeline draws the dispatches end to end.",
        ),
        split=split,
    )


def _spans(execution: Sequence[_Dispatch]) -> ImportedSpans:
    names = Numbered()
    name = np.array([names.of(f"{one.kernel} #{one.index}") for one in execution], np.int32)
    duration = np.array([one.us for one in execution], np.float64)
    return ImportedSpans(
        "us",
        ("GPU",),
        names.texts,
        [{"work_groups": one.groups} for one in execution],
        np.zeros(len(execution), np.int32),
        name,
        np.arange(len(execution), dtype=np.int32),
        np.cumsum(duration) - duration,
        duration,
    )
