"""Files that tools of backends write, in the shape in which these write them.

Paths are of pytorch/executorch unless said otherwise. Those that run here are not imitated: Vela's
and Arm's files are in tests/corpus/ethos_u.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from etscope.formats.etdump.writer import ETDumpWriter

# HTP operation, flags, thread, cycles: of each node of an optrace.
OPERATIONS: tuple[tuple[str, str, int, int], ...] = (
    ("q::*InputSlice", "dma", 256, 2_504),
    ("q::ConvLayer_s1.opt", "uses_hmx", 256, 700),
    ("q::ForceFormat_Crouton", "uses_hvx", 512, 300),
)
_UNITS = {256: "HMX", 512: "HVX"}
_VERSION = {"major": 1, "minor": 0, "patch": 0}


def _header(kind: str) -> Mapping[str, Any]:
    return {"header_version": _VERSION, "version": _VERSION, "artifact_type": kind}


def optrace(nodes: Sequence[str] = ("conv_1", "relu_2")) -> str:
    """What qnn-profile-viewer writes with libQnnHtpOptraceProfilingReader.so, which
    backends/qualcomm/debugger/utils.py runs; backends/qualcomm/tests/test_qnn_delegate.py
    (`test_qnn_backend_generate_optrace`) has its header. Each operation is written twice: in the
    overview (pid 0) and in the process of its type of node. Times are cycles."""
    events: list[Mapping[str, Any]] = []
    start = 34
    for number, node in enumerate(nodes):
        for kind, flag, thread, cycles in OPERATIONS:
            for process, prefix in ((0, ""), (2, "Core:0 ")):
                suffix = f" Tid: {thread}" if process else ""
                events += (
                    {
                        "name": kind,
                        "ph": "X",
                        "tid": thread,
                        "pid": process,
                        "ts": start,
                        "dur": cycles,
                        "args": {
                            "ID": f"0x{number:08x}{cycles:08x}",
                            "HTP Op Type": kind,
                            "Dims": [1, 1, 256, 256],
                            "Data Type": "QUInt8",
                            "Rank": 4,
                            "Step Size": 0.00787402,
                            "Zero Offset": 128,
                            "Inputs Ops": ["0x0000100382d28377"],
                            "Flags": [flag],
                            "Cycles per Packet": 4.75,
                            "QNN Op Type": "Conv2d",
                            "QNN Op Name": node,
                            "Start Cycle": 1_668_553_966_040 + start,
                            "Duration (cycles)": cycles,
                            "Dominant Path Cycles": cycles if thread == 256 else 0,
                        },
                    },
                    {
                        "cat": "__metadata",
                        "pid": process,
                        "tid": thread,
                        "ph": "M",
                        "name": "thread_name",
                        "args": {"name": f"{prefix}Type: {_UNITS[thread]}{suffix}"},
                    },
                )
            start += cycles + 50
        events.append(
            {"name": "VTCM read", "ph": "C", "tid": 0, "pid": 0, "ts": start, "args": {"": 65_536}}
        )
    events.append(
        {
            "cat": "__metadata",
            "pid": 0,
            "ph": "M",
            "name": "process_name",
            "args": {"name": "Core 0 Overview"},
        }
    )
    return json.dumps({"header": _header("OP_TRACE"), "traceEvents": events})


def qhas(nodes: Sequence[str] = ("conv_1", "relu_2")) -> str:
    """What qnn-profile-viewer writes beside it with the feature "qhas_json"
    (backends/qualcomm/debugger/utils.py; test_qnn_delegate.py reads its `htp_op_types`)."""
    traffic = {"dram_read": 67_584, "dram_write": 0, "vtcm_read": 198_656, "vtcm_write": 198_656}
    cost = {
        "cycles": 3_504,
        "percent_active_cycles": 50.0,
        "num_dominant_path_cycles_htp_0": 3_204,
        "percent_dominant_path_cycles_htp_0": 50.0,
        **traffic,
    }
    unit = {
        "type": "HMX",
        "tid": 256,
        "start_cycle": 1_668_553_966_074,
        "end_cycle": 1_668_553_974_000,
        "timeline_cycles": 7_926,
        "cycles_used": 6_408,
        "utilization": 80.8,
        **traffic,
    }
    overall = {
        "htp_resources": {"data": [unit]},
        "htp": 0,
        "percent_idle": 2.5,
        "percent_utilization": 97.5,
        "time_us": 410,
        "graph_execute_us": 56,
        "inf_per_s": 2439.02,
        "timeline_cycles": 7_926,
        "total_dram_read": 135_168,
        "total_dram_write": 0,
        "peak_vtcm_alloc": 1_126_400,
        "total_vtcm_read": 397_312,
        "total_vtcm_write": 397_312,
        "qnn_nodes": len(nodes),
        "htp_nodes": 6,
    }
    tables: dict[str, Sequence[Mapping[str, Any]]] = {
        "htp_overall_summary": [overall],
        "qnn_op_types": [{"op": "Conv2d", **cost, "num_htp_ops": 6}],
        "qnn_op_instances_nodes": [
            {"qnn_op": node, "qnn_op_type": "Conv2d", **cost, "num_htp_ops": 3} for node in nodes
        ],
        "htp_op_types": [{"op": "q::ConvLayer_s1.opt", **cost, "instances": 2}],
    }
    data = {name: {"data": rows} for name, rows in tables.items()}
    return json.dumps({"header": _header("QHAS"), "model_id": "model", "data": data})


U55_EVENTS = (
    "ETHOSU_PMU_AXI0_RD_DATA_BEAT_RECEIVED",
    "ETHOSU_PMU_AXI1_RD_DATA_BEAT_RECEIVED",
    "ETHOSU_PMU_AXI0_WR_DATA_BEAT_WRITTEN",
    "ETHOSU_PMU_NPU_IDLE",
)


def pmu_log(
    counters: Sequence[int] = (1_024, 512, 300, 200), inferences: int = 2, cycles: int = 6_400
) -> str:
    """examples/arm/executor_runner/arm_perf_monitor.cpp, `StopMeasurements`, behind the prefix of
    arm_executor_runner.cpp's `et_pal_emit_log_message`."""

    def each(value: int) -> str:
        return f"{value / inferences:.2f} per inference"

    lines = [
        f"NPU Inferences : {inferences}",
        f"NPU delegations: {inferences} (1.00 per inference)",
        "Profiler report, CPU cycles per operator:",
        f"ethos-u : cycle_cnt : 9000 cycles ({each(9000)})",
        f"Operator(s) total: 9000 CPU cycles ({each(9000)})",
        f"Inference runtime: 12000 CPU cycles total ({each(12000)})",
        "NOTE: CPU cycle values and ratio calculations require FPGA and identical CPU/NPU "
        "frequency",
        "Inference CPU ratio: 40.00 %",
        "Inference NPU ratio: 60.00 %",
        f"cpu_wait_for_npu_cntr : 7200 CPU cycles ({each(7200)})",
        "Ethos-U PMU report:",
        f"ethosu_pmu_cycle_cntr : {cycles} ({each(cycles)})",
        *(f"ethosu_pmu_cntr{n} : {value} ({each(value)})" for n, value in enumerate(counters)),
        f"Ethos-U PMU Events:[{', '.join(U55_EVENTS)}]",
    ]
    prefix = "I [executorch:arm_perf_monitor.cpp:190 StopMeasurements()] "
    return "I [executorch:arm_executor_runner.cpp:703 main()] Running method forward\n" + "".join(
        f"{prefix}{line}\n" for line in lines
    )


DISPATCHES = (("conv2d", "(8,8,1)", 12.345), ("", "(1,1,1)", 2.0))


def webgpu_output(
    executions: Sequence[Sequence[tuple[str, str, float]]] = (DISPATCHES,), tsv: bool = False
) -> str:
    """backends/webgpu/runtime/WebGPUQueryPool.cpp, `print_results`."""
    space = "\t" if tsv else "  "
    text = "Model file loaded\n"
    for dispatches in executions:
        head = ("idx", "kernel", "gwg", "duration_us")
        text += space.join(head) if tsv else "=== WebGPUQueryPool: per-dispatch GPU time ==="
        text += "\n"
        for number, (kernel, groups, us) in enumerate(dispatches):
            text += space.join((str(number), kernel or "dispatch", groups, f"{us:.3f}")) + "\n"
        if not tsv:
            text += "--- per-kernel mean / total (us) ---\n"
            text += f"conv2d{space}mean 12.345{space}total 12.345 (n=1)\n"
    return text


def run_of(
    calls: Sequence[Sequence[str]] = ((),),
    runs: int = 1,
    begin: int = 10_000_000,
    kernels: Sequence[str] = (),
) -> bytes:
    """A dump of runs, each 1 ms after the other, of a method with a delegate call for each of
    `calls`, at 2 µs and every 200 µs after that, each 100 µs long. The strings are QNN's names of
    nodes that a call logs in cycles (backends/qualcomm/runtime/backends/QnnProfiler.cpp). kernels:
    that run before the first call and, the last of them, after all calls."""
    writer = ETDumpWriter()
    for run in range(runs):
        start = begin + run * 1_000_000
        before, after = kernels[:-1], kernels[-1:]
        writer.create_event_block("Execute")
        for number, name in enumerate(before):
            _log_kernel(writer, name, number, start + 700 * number)
        for number, nodes in enumerate(calls):
            at = start + 2_000 + number * 200_000
            place = {"chain_index": 0, "instruction_id": len(before) + number}
            for node in nodes:
                writer.log_profiling_delegate(f"{node}:OpId_1 (cycles)", 0, 700, **place)
            writer.log_profiling("DELEGATE_CALL", at, at + 100_000, **place)
        for name in after:
            _log_kernel(writer, name, len(before) + len(calls), start + 900_000)
        writer.log_profiling("Method::execute", start, start + 950_000)
    return writer.finish()


def _log_kernel(writer: ETDumpWriter, name: str, instruction: int, at: int) -> None:
    place = {"chain_index": 0, "instruction_id": instruction}
    writer.log_profiling(f"native_call_{name}", at, at + 500, **place)
    writer.log_profiling("OPERATOR_CALL", at, at + 600, **place)


# The kernels around the delegate of tests/corpus/ethos_u.
ETHOS_U_KERNELS = (
    "quantized_decomposed::quantize_per_tensor.out",
    "quantized_decomposed::dequantize_per_tensor.out",
)


def chrome_trace(begin_us: float = 10_002.0, runs: int = 1) -> list[dict[str, Any]]:
    """Events of all phases that are read (Trace Event Format), in the first call of `run_of`."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "app"}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 9, "args": {"name": "stream 1"}},
    ]
    for run in range(runs):
        at, thread = begin_us + run * 1_000, {"pid": 7, "tid": 9}
        events += (
            {"ph": "B", "name": "gemm", "ts": at + 10, **thread},
            {"ph": "X", "name": "inner", "ts": at + 20, "dur": 30.5, "args": {"m": 8}, **thread},
            {"ph": "E", "ts": at + 60, **thread},
            {"ph": "i", "name": "sync", "ts": at + 70, "s": "t", **thread},
            {"ph": "C", "name": "memory", "ts": at + 70, "pid": 7, "args": {"used": 100 + run}},
            {"ph": "X", "name": "outside", "ts": at + 110, "dur": 10, **thread},
        )
    return events
