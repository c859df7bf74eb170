"""Vulkan and WebGPU, which share a partitioner and a delegate id.

Export is by `executorch.backends.vulkan` and `.webgpu`.

The delegate logs nested phases of the call on the host's clock, which is the runtime's:
ETVK_EXECUTE holds the copies of inputs and outputs, ETVK_RESIZE and ETVK_COMPUTE_GRAPH_EXECUTE
(backends/vulkan/runtime/VulkanBackend.cpp). It also logs each dispatch, on the GPU's clock in ns.
The name of a dispatch is JSON: {"operator": {"name", "delegate_node_id", "args"}, "kernel_name",
"operator_id", "dispatch_id"} (backends/vulkan/runtime/graph/ops/DispatchNode.cpp). The record's
delegate map has the node by its `delegate_node_id`. Older versions write the kernel and the number
of the dispatch: "conv2d_clamp_half_163".

With WEBGPU_TIMESTAMP_QUERY set, the WebGPU delegate prints the times of dispatches.
`backends/webgpu/runtime/WebGPUQueryPool.cpp` (`print_results`) prints a table after each execution.
Its columns are separated by tabs below "idx\\tkernel\\tgwg\\tduration_us", or by two spaces below
"=== WebGPUQueryPool: per-dispatch GPU time ===" (WebGPUGraph.cpp). Other lines are skipped,
including the means after the second form. A duration is GPU time from the end of one dispatch to
the end of the next (`fill_shader_durations`); starts are not printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from etscope.backends.common.chrome_trace import Numbered
from etscope.backends.common.imported import BackendFile, Basis, ImportedRow, ImportedSpans
from etscope.backends.common.logged import LoggedCall, parents
from etscope.errors import FormatError
from etscope.model.event_table import Clock, Meaning, Quantity
from etscope.model.table import Column, Kind

Storage = Literal["buffer", "texture_3d", "texture_2d"]
Layout = Literal["width_packed", "height_packed", "channels_packed"]


def partitioners(
    *,
    force_fp16: bool = False,
    require_dynamic_shapes: bool = False,
    small_texture_limits: bool = False,
    storage_type_override: Storage | None = None,
    memory_layout_override: Layout | None = None,
) -> list[Any]:
    """Make the partitioner of Vulkan.

    force_fp16: convert float32 tensors to float16 inside the delegate.
    require_dynamic_shapes: take only operators that support dynamic shapes.
    small_texture_limits: limit textures to 2048 texels, for desktop GPUs; else to the limits of
        phones.
    storage_type_override, memory_layout_override: set these for all tensors; by default Vulkan
        chooses.
    """
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    flags = {
        "force_fp16": force_fp16,
        "require_dynamic_shapes": require_dynamic_shapes,
        "small_texture_limits": small_texture_limits,
    }
    return [VulkanPartitioner(_options(flags, storage_type_override, memory_layout_override))]


def webgpu_partitioners(
    *, force_fp16: bool = False, require_dynamic_shapes: bool = False
) -> list[Any]:
    """Make the partitioner of WebGPU. Its delegates have Vulkan's id."""
    from executorch.backends.webgpu.partitioner import WebGPUPartitioner

    flags = {"force_fp16": force_fp16, "require_dynamic_shapes": require_dynamic_shapes}
    return [WebGPUPartitioner(_options(flags))]


def quantizer(*, weight_bits: Literal[8, 4] = 8, dynamic: bool = False) -> Any:
    """Make a quantizer of linear layers: weights by channel. With `dynamic`, also quantize their
    inputs to int8, with ranges that each run finds."""
    from executorch.backends.vulkan.quantizer.vulkan_quantizer import (
        VulkanQuantizer,
        get_symmetric_quantization_config,
    )

    config = get_symmetric_quantization_config(is_dynamic=dynamic, weight_bits=weight_bits)
    return VulkanQuantizer().set_global(config)


def _options(
    flags: dict[str, bool], storage: Storage | None = None, layout: Layout | None = None
) -> dict[str, Any]:
    """Return the partitioner's options, without those left at their default."""
    from executorch.backends.vulkan.serialization.vulkan_graph_schema import (
        VkMemoryLayout,
        VkStorageType,
    )

    options: dict[str, Any] = {name: True for name, wanted in flags.items() if wanted}
    if storage is not None:
        options["storage_type_override"] = VkStorageType[storage.upper()]
    if layout is not None:
        options["memory_layout_override"] = VkMemoryLayout[f"TENSOR_{layout.upper()}"]
    return options


_PHASE = "ETVK_"
_NUMBERED = re.compile(r"(?P<kernel>.+)_(?P<dispatch>\d+)$", re.DOTALL)
_EXECUTE = "ETVK_COMPUTE_GRAPH_EXECUTE"  # its dispatches follow it in the log


def recognises(call: LoggedCall) -> bool:
    """True for the names of Vulkan's phases."""
    return any(name.startswith(_PHASE) for name in call.names)


def decode(call: LoggedCall) -> list[Meaning]:
    """Return phases, nested by time, and the GPU's dispatches."""
    inside = call.is_inside
    dispatches = {
        number: _Dispatch.of_json(name) or (None if inside[number] else _Dispatch.numbered(name))
        for number, name in enumerate(call.names)
    }
    phases = [number for number in range(len(call.names)) if dispatches[number] is None]
    around = parents(
        LoggedCall(
            [call.names[n] for n in phases],
            [call.identifiers[n] for n in phases],
            call.start[phases],
            call.ticks[phases],
        )
    )
    holders = {
        number: None if parent is None else phases[parent]
        for number, parent in zip(phases, around, strict=True)
    }
    found: list[Meaning] = []
    execute: int | None = None
    for number, (name, identifier) in enumerate(zip(call.names, call.identifiers, strict=True)):
        dispatch = dispatches[number]
        if dispatch is None:
            clock = Clock.RUNTIME if inside[number] else Clock.DEVICE
            known = None if name.startswith(_PHASE) else identifier
            found.append(Meaning(name, known, clock=clock, parent=holders[number]))
            execute = number if name == _EXECUTE else execute
        else:
            known = identifier if dispatch.node is None else dispatch.node
            found.append(
                Meaning(
                    dispatch.name,
                    known,
                    clock=Clock.DEVICE,
                    parent=execute,
                    columns=dispatch.columns,
                )
            )
    return found


class _Dispatch(NamedTuple):
    """A dispatch: its operator and kernel. node: id of its node in the delegate map."""

    name: str
    node: int | str | None
    columns: dict[str, str | float]

    @classmethod
    def numbered(cls, name: str) -> _Dispatch | None:
        """Return the dispatch of a name without JSON; None for the name of a phase."""
        parts = None if name.startswith(_PHASE) else _NUMBERED.fullmatch(name)
        if parts is None:
            return None
        kernel = parts["kernel"]
        return cls(f"{kernel} #{parts['dispatch']}", None, {"kernel_name": kernel})

    @classmethod
    def of_json(cls, name: str) -> _Dispatch | None:
        """Return the dispatch of a name in JSON; None for a phase and for broken JSON."""
        if not name.startswith("{"):
            return None
        try:
            content: Any = json.loads(name)
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict) or "dispatch_id" not in content:
            return None
        operator = content.get("operator")
        operator = operator if isinstance(operator, dict) else {}
        kernel, of = content.get("kernel_name"), operator.get("name")
        parts = [part for part in (of, kernel) if isinstance(part, str) and part]
        node = operator.get("delegate_node_id")
        shown = f"{parts[0]} ({parts[1]})" if len(parts) == 2 else (parts or ["dispatch"])[0]
        is_known = isinstance(node, (int, str)) and not isinstance(node, bool)
        return cls(
            f"{shown} #{content['dispatch_id']}",
            node if is_known else None,
            {"kernel_name": kernel} if isinstance(kernel, str) and kernel else {},
        )


# -- times that WebGPU prints

TIMES = "WebGPU timestamps"
BACKENDS = ("VulkanBackend",)  # the id that WebGPUBackend.cpp registers
COLUMNS = (
    Column("shortest", Kind.FLOAT, "us", title="min", priority=3),
    Column("longest", Kind.FLOAT, "us", title="max", priority=3),
    Column("work_groups", title="work-groups", priority=2),
)
_TSV_HEADER = "idx\tkernel\tgwg\tduration_us"
_TIMES_HEADER = "=== WebGPUQueryPool: per-dispatch GPU time ==="
_LINE = re.compile(
    r"(?P<index>\d{1,9})(?:\t|  )(?P<kernel>.+?)(?:\t|  )"
    r"(?P<groups>\(\d+,\d+,\d+\))(?:\t|  )(?P<us>\d{1,15}\.\d{3})"
)


@dataclass(frozen=True, slots=True)
class _TimedDispatch:
    index: int
    kernel: str
    groups: str
    us: float


def has_times(text: str) -> bool:
    """True for text with the header of one of the tables."""
    return _TSV_HEADER in text or _TIMES_HEADER in text


def read_times(path: str, text: str) -> BackendFile:
    """Read all tables of an output: one for each execution of a delegate call."""
    executions: list[list[_TimedDispatch]] = []
    for line in text.splitlines():
        if line.strip() in (_TSV_HEADER, _TIMES_HEADER):
            executions.append([])
        elif executions and (found := _LINE.fullmatch(line.rstrip())):
            index, kernel, groups, us = found.group("index", "kernel", "groups", "us")
            executions[-1].append(_TimedDispatch(int(index), kernel, groups, float(us)))
    if not any(executions):
        raise FormatError("this output has the header of WebGPU's times, but no dispatch below it")
    return _file_of_times(path, [one for one in executions if one])


def _file_of_times(path: str, executions: Sequence[Sequence[_TimedDispatch]]) -> BackendFile:
    def split(calls: int) -> Sequence[BackendFile] | None:
        if len(executions) % calls:
            return None
        return [_file_of_times(path, executions[number::calls]) for number in range(calls)]

    by_dispatch: dict[tuple[int, str, str], list[float]] = {}
    for execution in executions:
        for one in execution:
            by_dispatch.setdefault((one.index, one.kernel, one.groups), []).append(one.us)
    several, first, names = len(executions) > 1, executions[0], Numbered()
    name = np.array([names.of(f"{one.kernel} #{one.index}") for one in first], np.int32)
    duration = np.array([one.us for one in first], np.float64)
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
        TIMES,
        BACKENDS,
        tuple(rows),
        value_title="mean" if several else "time",
        columns=COLUMNS,
        spans=ImportedSpans(
            "us",
            ("GPU",),
            names.texts,
            [{"work_groups": one.groups} for one in first],
            np.zeros(len(first), np.int32),
            name,
            np.arange(len(first), dtype=np.int32),
            np.cumsum(duration) - duration,
            duration,
        ),
        notes=(
            "Times are GPU times, from the end of one dispatch to the end of the next. The output "
            "does not have starts: the timeline draws the dispatches end to end.",
        ),
        split=split,
    )
