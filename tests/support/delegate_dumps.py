"""Dumps of backends that do not run here, in the shape in which their C++ writes them.

Paths are of pytorch/executorch. Each function logs one call of a delegate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from etscope.formats.etdump.writer import ETDumpWriter

Log = Callable[[ETDumpWriter, int], None]


def qnn(nodes: Sequence[tuple[str, int]] = (("conv_1", 700), ("relu_2", 260))) -> Log:
    """backends/qualcomm/runtime/backends/QnnProfiler.cpp, `ProfileData`: start 0, the number as
    end; units as `get_event_unit` has them; the events of nodes behind that of the accelerator."""

    def log(writer: ETDumpWriter, instruction: int) -> None:
        place = {"chain_index": 0, "instruction_id": instruction}
        summary = (
            ("Number of HVX threads used (count)", 4),
            ("RPC (execute) time (us)", 18_000),
            ("QNN accelerator (execute) time (us)", 9_600),
            ("Accelerator (execute) time (cycles)", 960),
        )
        for name, number in summary:
            writer.log_profiling_delegate(name, 0, number, **place)
        for number, (node, cycles) in enumerate(nodes):
            writer.log_profiling_delegate(f"{node}:OpId_{number} (cycles)", 0, cycles, **place)
        writer.log_profiling_delegate("DSP:before_context_created (bytes)", 0, 65_536, **place)

    return log


def vulkan(
    dispatches: Sequence[tuple[str, str, int, int]] = (
        ("aten.convolution.default", "conv2d_float", 3, 5_000),
        ("aten.relu.default", "relu_float", 4, 1_000),
    ),
    begin: int = 1_010,
) -> Log:
    """backends/vulkan/runtime/VulkanBackend.cpp, `execute`: phases inside ETVK_EXECUTE, on the
    runtime's clock, logged when they end; dispatches on the GPU's, after they ran. Their names are
    of graph/ops/DispatchNode.cpp and graph/Logging.cpp."""

    def log(writer: ETDumpWriter, instruction: int) -> None:
        place = {"chain_index": 0, "instruction_id": instruction}

        def event(name: str, start: int, end: int) -> None:
            writer.log_profiling_delegate(name, start, end, **place)

        event("ETVK_COPY_INPUTS", begin + 10, begin + 110)
        event("ETVK_COMPUTE_GRAPH_EXECUTE", begin + 120, begin + 820)
        at = 77_000_000_000
        for number, (operator, kernel, node, length) in enumerate(dispatches):
            name = {
                "operator": {"name": operator, "delegate_node_id": node, "args": []},
                "kernel_name": kernel,
                "operator_id": number,
                "dispatch_id": number,
            }
            event(json.dumps(name), at, at + length)
            at += length + 500
        event("ETVK_COPY_OUTPUTS", begin + 830, begin + 900)
        event("ETVK_EXECUTE", begin, begin + 920)

    return log


def dump_of(*runs: Log, call: tuple[int, int] = (1_000, 2_000)) -> bytes:
    """A dump with a run of a method for each log: one delegate call, instruction 0."""
    writer = ETDumpWriter()
    for log in runs:
        writer.create_event_block("Execute")
        log(writer, 0)
        writer.log_profiling("DELEGATE_CALL", *call, chain_index=0, instruction_id=0)
        writer.log_profiling("Method::execute", call[0] - 100, call[1] + 100)
    return writer.finish()
