"""Dumps of backends that do not run here, in the shape in which their C++ writes them.

Paths are of pytorch/executorch. Each function logs one call of a delegate.
"""

from __future__ import annotations

import base64
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
            ("Accelerator (execute) time (us)", 480),
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
    *,
    with_node: bool = True,
) -> Log:
    """backends/vulkan/runtime/VulkanBackend.cpp, `execute`: phases inside ETVK_EXECUTE, on the
    runtime's clock, logged when they end; dispatches on the GPU's, after they ran. Their names are
    of graph/ops/DispatchNode.cpp and graph/Logging.cpp, which has the node's id since 84f541ca."""

    def log(writer: ETDumpWriter, instruction: int) -> None:
        place = {"chain_index": 0, "instruction_id": instruction}

        def event(name: str, start: int, end: int) -> None:
            writer.log_profiling_delegate(name, start, end, **place)

        event("ETVK_COPY_INPUTS", begin + 10, begin + 110)
        event("ETVK_COMPUTE_GRAPH_EXECUTE", begin + 120, begin + 820)
        at = 77_000_000_000
        for number, (operator, kernel, node, length) in enumerate(dispatches):
            known = {"delegate_node_id": node} if with_node else {}
            name = {
                "operator": {"name": operator, **known, "args": []},
                "kernel_name": kernel,
                "operator_id": number,
                "dispatch_id": number,
            }
            event(json.dumps(name), at, at + length)
            at += length + 500
        event("ETVK_COPY_OUTPUTS", begin + 830, begin + 900)
        event("ETVK_EXECUTE", begin, begin + 920)

    return log


def coreml(
    operations: Sequence[tuple[str | None, str, str, str, float]] = (
        ("conv_1", "conv_1_cast_fp16", "ios16.conv", "NE", 0.6),
        ("linear_2", "linear_2_cast_fp16", "ios16.linear", "GPU", 0.3),
        (None, "cast_0", "ios16.cast", "CPU", 0.1),
    ),
    begin: int = 1_100,
    length: int = 800,
) -> Log:
    """backends/apple/coreml/runtime/sdk/model_event_logger_impl.mm, `log_profiling_infos`: debug
    symbols, or "<output>:<operator>"; the prediction's time divided by cost, as
    ETCoreMLModelProfiler.mm does; metadata as ETCoreMLOperationProfilingInfo.mm makes it. A
    dictionary's order, which is any.

    operations: the debug symbol, the output, the operator, the preferred unit, the cost.
    """

    def log(writer: ETDumpWriter, instruction: int) -> None:
        at = begin
        events: list[tuple[str, int, int, bytes]] = []
        for symbol, output, operator, unit, cost in operations:
            metadata = {
                "preferredComputeUnit": unit,
                "supportedComputeUnits": ["NE", "CPU", "GPU"],
                "outputNames": [output],
                "operatorName": operator,
                "estimatedCost": cost,
            }
            name = f"{output}:{operator}" if symbol is None else symbol
            events.append((name, at, at + int(length * cost), json.dumps(metadata).encode()))
            at += int(length * cost)
        for name, start, end, content in reversed(events):
            writer.log_profiling_delegate(
                name, start, end, chain_index=0, instruction_id=instruction, metadata=content
            )

    return log


def neutron(
    kernels: Sequence[tuple[int, int]] = ((12, 400), (7, 250)),
    at: int = 5_000,
    dump: bytes = b"\0",
) -> Log:
    """backends/nxp/runtime/NeutronBackend.cpp, `execute`: numbers for names, ticks of the NPU, a
    byte of metadata, and the dump of these numbers at the end, whose end has host ticks added.

    kernels: function code and ticks. dump: the metadata of the last event.
    """

    def log(writer: ETDumpWriter, instruction: int) -> None:
        start = at
        last = (dump, 90_000)
        for number, (code, ticks) in enumerate((*((bytes([c]), t) for c, t in kernels), last)):
            writer.log_profiling_delegate(
                number,
                start % 2**32,
                (start + ticks) % 2**32,
                chain_index=0,
                instruction_id=instruction,
                metadata=code,
            )
            start += ticks

    return log


def ethos_u(inputs: int = 2, begin: int = 1_020) -> Log:
    """backends/arm/runtime/EthosUBackend.cpp, `execute`: `start_profiling` without an identifier;
    what was opened first is logged last."""

    def log(writer: ETDumpWriter, instruction: int) -> None:
        def event(name: str, start: int, end: int) -> None:
            writer.log_profiling(name, start, end, chain_index=0, instruction_id=instruction)

        for number in range(inputs):
            start = begin + 10 + 40 * number
            event("+EthosUBackend::execute()handles.input.memcpy()", start, start + 30)
        event("+EthosUBackend::execute()NPU", begin + 100, begin + 900)
        event("EthosUBackend::execute()", begin, begin + 930)

    return log


def vgf(statistics: bytes | None = None, begin: int = 1_010) -> Log:
    """backends/arm/runtime/VGFBackend.cpp, `execute`, and VGFSetup.cpp: phases, logged when they
    end; the event of the statistics has no length of its own.

    statistics: the metadata of VGFNeuralStatistics.cpp.
    """

    def log(writer: ETDumpWriter, instruction: int) -> None:
        def event(name: str, start: int, end: int, metadata: bytes | None = None) -> None:
            writer.log_profiling_delegate(
                name,
                begin + start,
                begin + end,
                chain_index=0,
                instruction_id=instruction,
                metadata=metadata,
            )

        event("VGF_COPY_INPUTS", 10, 90)
        event("VGF_QUEUE_SUBMIT_AND_WAIT_FENCE", 110, 720)
        event("VGF_DISPATCH_AND_WAIT", 100, 740)
        if statistics is not None:
            event("VGF_NEURAL_STATISTICS", 750, 752, statistics)
        event("VGF_COPY_OUTPUTS", 760, 850)
        event("VGF_EXECUTE", 0, 900)

    return log


def vgf_statistics(**blobs: bytes | None) -> bytes:
    """backends/arm/runtime/VGFNeuralStatistics.cpp, `to_json`: one segment. blobs: by name; None
    for one that is not there."""
    told = {
        name: {
            "available": data is not None,
            "is_text": False,
            "vulkan_result": 0 if data is not None else -3,
            "size": len(data or b""),
            "encoding": "base64",
            "reason": "" if data is not None else "query failed",
            "data": base64.b64encode(data or b"").decode(),
        }
        for name, data in blobs.items()
    }
    segment = {"segment_id": 0, "is_data_graph_pipeline": True, **told}
    content = {
        "schema": "executorch.vgf.neural_statistics",
        "schema_version": 1,
        "backend": "VgfBackend",
        "available": True,
        "segments": [segment],
    }
    return json.dumps(content).encode()


def dump_of(*runs: Log, call: tuple[int, int] = (1_000, 2_000)) -> bytes:
    """A dump with a run of a method for each log: one delegate call, instruction 0."""
    writer = ETDumpWriter()
    for log in runs:
        writer.create_event_block("Execute")
        log(writer, 0)
        writer.log_profiling("DELEGATE_CALL", *call, chain_index=0, instruction_id=0)
        writer.log_profiling("Method::execute", call[0] - 100, call[1] + 100)
    return writer.finish()
