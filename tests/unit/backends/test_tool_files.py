"""Each kind of file is told by its content, and its numbers are what its writer means by them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etscope.analysis.info import file_info
from etscope.backends.registry.tool_files import BackendFile, Basis, read_backend_file
from etscope.errors import EtscopeError, FormatError, MissingFileError
from etscope.model.event_table import Quantity
from tests.support.backend_files import (
    OPERATIONS,
    chrome_trace,
    optrace,
    pmu_log,
    qhas,
    webgpu_output,
)

ETHOS_U = Path(__file__).parents[2] / "corpus" / "ethos_u"
LAYERS = ETHOS_U / "out_per-layer.csv"


def read(tmp_path: Path, text: str | bytes, name: str = "file") -> BackendFile:
    """Read a file of this content; the name says nothing."""
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_backend_file(path)


def values(file: BackendFile) -> dict[str, tuple[float | None, str | None]]:
    return {row.name: (row.value, row.unit) for row in file.rows}


# -- Chrome traces


def test_a_trace_has_spans_counters_and_instants(tmp_path: Path) -> None:
    file = read(tmp_path, json.dumps({"traceEvents": chrome_trace(), "displayTimeUnit": "ns"}))
    assert file.kind == "Chrome trace"
    assert values(file) == {
        "gemm": (50.0, "us"),
        "inner": (30.5, "us"),
        "outside": (10.0, "us"),
        "sync": (None, None),
        "memory used": (100.0, None),
    }
    rows = {row.name: row for row in file.rows}
    assert rows["gemm"].group == "app / stream 1"
    assert rows["gemm"].extra["self_time"] == 19.5  # without the span inside it
    assert rows["sync"].quantity is Quantity.INSTANT
    assert rows["memory used"].quantity is Quantity.COUNTER
    assert file.spans is not None and len(file.spans) == 4  # counters are no spans


def test_a_trace_may_be_an_array_without_an_end(tmp_path: Path) -> None:
    whole = json.dumps(chrome_trace())
    for text in (whole, whole[:-1], whole[:-1] + ",\n"):
        assert values(read(tmp_path, text))["inner"] == (30.5, "us")


def test_what_a_trace_cannot_tell_is_counted(tmp_path: Path) -> None:
    thread = {"pid": 1, "tid": 1, "name": "x"}
    events = [
        {"ph": "X", "ts": 0, "dur": 5, **thread},
        {"ph": "B", "ts": 6, **thread},  # never ends
        {"ph": "E", "ts": 7, "pid": 1, "tid": 2},  # never began
        {"ph": "X", "ts": 8, "dur": -2, **thread},
        {"ph": "X", "ts": 8, **thread},
        {"ph": "X", "ts": "8", "dur": 1, **thread},
        {"ph": "b", "ts": 8, "id": 1, **thread},
        {"ph": "B", "name": "back", "ts": 9, "pid": 1, "tid": 3},
        {"ph": "E", "ts": 3, "pid": 1, "tid": 3},
        {"ph": "X", "name": "of another process", "ts": 0, "dur": 1, "pid": 2, "tid": 4},
    ]
    file = read(tmp_path, json.dumps(events))
    assert values(file) == {"x": (5.0, "us"), "of another process": (1.0, "us")}
    assert {row.group for row in file.rows} == {"process 1 / thread 1", "process 2 / thread 4"}
    assert file.notes == (
        "Events left out: 1 of phase E without a B, 2 that end before they begin, 1 of phase X "
        "without a duration, 1 without a time, 1 of phase b, 1 of phase B without an E.",
    )


# -- QNN


def test_an_optrace_counts_each_operation_once_in_cycles(tmp_path: Path) -> None:
    file = read(tmp_path, optrace(("conv_1", "relu_2")))
    assert file.kind == "QNN optrace"
    cycles = sum(one[3] for one in OPERATIONS)
    nodes = [row for row in file.rows if not row.depth]
    assert [(row.name, row.value, row.unit) for row in nodes] == [
        ("conv_1", cycles, "cycles"),
        ("relu_2", cycles, "cycles"),
        ("VTCM read (largest sample)", 65_536, "bytes"),
    ]
    units = ["HMX", "HVX"]
    assert nodes[0].extra == {"dominant_path": 3_204, "units": units, "dma": 1, "dma_wait": None}
    below = [row for row in file.rows if row.depth][: len(OPERATIONS)]
    assert {row.name: row.value for row in below} == {kind: n for kind, _, _, n in OPERATIONS}
    assert sum(row.value or 0 for row in below) == cycles
    assert (file.spans.unit, len(file.spans)) == ("cycles", 2 * len(OPERATIONS))
    assert file.spans.lanes == ("Core:0 Type: HMX Tid: 256", "Core:0 Type: HVX Tid: 512")
    events = json.loads(optrace())["traceEvents"]  # known without its header
    assert read(tmp_path, json.dumps(events)).kind == "QNN optrace"


def test_qhas_has_units_and_tells_what_is_computed(tmp_path: Path) -> None:
    file = read(tmp_path, qhas())
    assert file.kind == "QNN HTP analysis summary"
    found = values(file)
    assert found["graph_execute_us"] == (56, "us")
    assert found["peak_vtcm_alloc"] == (1_126_400, "bytes")
    assert found["HMX 256"] == (6_408, "cycles")
    assert found["conv_1"] == (3_504, "cycles")
    rows = {row.name: row for row in file.rows}
    conv = rows["conv_1"]
    assert (rows["inf_per_s"].basis, conv.basis) == (Basis.DERIVED, Basis.MEASURED)
    assert (conv.extra["dram_read"], conv.extra["cycles_share"]) == (67_584, 0.5)
    assert conv.nodes == ("conv_1",)


# -- Ethos-U: real files of Vela and of Arm's backend


def test_layers_and_summary_of_vela_are_estimates() -> None:
    file = read_backend_file(LAYERS)
    assert file.kind == "Vela per-layer estimate"
    assert {row.quantity for row in file.rows} == {Quantity.ESTIMATE}
    assert {row.basis for row in file.rows} == {Basis.ESTIMATED}
    row = next(row for row in file.rows if row.name == "tosa_rescale_default")
    assert (row.value, row.unit) == (1826, "cycles")
    assert (row.extra["macs"], row.extra["staging_usage"]) == (17_496, 1_952)
    assert sum(row.extra["cycles_share"] for row in file.rows) == pytest.approx(1)
    cycles = sum(row.value or 0 for row in file.rows)

    file = read_backend_file(ETHOS_U / "out_summary_Ethos_U55_High_End_Embedded.csv")
    found = values(file)
    assert found["cycles_total"] == (3128, "cycles") == (cycles, "cycles")
    assert found["sram_memory_used"] == (1952, "bytes")  # the file has KiB
    assert found["inference_time"] == (6.256e-06, "s")
    assert {row.basis for row in file.rows} == {Basis.ESTIMATED}
    assert "Ethos_U55_128" in file.notes[1]


def test_the_debug_map_leads_to_lines() -> None:
    file = read_backend_file(ETHOS_U / "debug.json")
    rows = {row.name: row for row in file.rows}
    conv = rows["tosa_conv2d_default"]
    assert (conv.group, conv.module) == ("CONV2D", "first")
    assert conv.nodes == ("convolution", "conv2d")
    assert conv.lines[0].text == "x = torch.relu(self.first(x))"
    assert all(row.value is None for row in file.rows)


def test_pmu_counters_have_names_and_units(tmp_path: Path) -> None:
    file = read(tmp_path, pmu_log())
    assert file.kind == "Ethos-U PMU log"
    found = values(file)
    assert found["NPU active"] == (6_400, "NPU cycles")
    assert found["AXI0_RD_DATA_BEAT_RECEIVED"] == (1_024, "beats")
    assert found["NPU_IDLE"] == (200, "NPU cycles")
    assert found["inference"] == (12_000, "CPU cycles")
    rows = {row.name: row for row in file.rows}
    assert rows["NPU active"].extra == {"per_inference": 3_200}
    assert rows["NPU share"].basis is Basis.DERIVED

    file = read(tmp_path, pmu_log() + pmu_log(cycles=8_000))
    apart = [(row.value, row.group) for row in file.rows if row.name == "NPU active"]
    assert apart == [(6_400, "NPU of report 1"), (8_000, "NPU of report 2")]


def test_microkernels_of_a_log_have_their_instruction_set(tmp_path: Path) -> None:
    """The lines that examples/riscv/etdump_summary.py looks for; no build here prints them."""
    kernels = ("xnn_f32_gemm_ukernel_7x16__avx512f_broadcast", "xnn_f32_vadd_ukernel__avx_u16")
    lines = [f"Note (XNNPACK): using microkernel '{one}'" for one in (*kernels, kernels[0])]
    file = read(tmp_path, "\n".join(["I 00:00 something", *lines]))
    assert [(row.name, row.group) for row in file.rows] == [
        (kernels[0], "avx512f"),
        (kernels[1], "avx"),
    ]
    assert "registered 2 microkernels for avx, avx512f" in file.notes[0]


def test_allocators_of_a_board_are_memory(tmp_path: Path) -> None:
    """The lines of arm_executor_runner.cpp, beside the counters or alone."""
    lines = (
        "I [executorch:arm_executor_runner.cpp:484] method_allocator_used:     1355722 / 62914560"
        "  free: 61558838 ( used: 2 % ) \n"
        "I [executorch:arm_executor_runner.cpp:491] method_allocator_planned:  752640 bytes\n"
    )
    for text in (lines, pmu_log() + lines):
        file = read(tmp_path, text)
        found = {row.name: row for row in file.rows if row.group == "memory"}
        assert {name: row.value for name, row in found.items()} == {
            "method_allocator_used": 1_355_722,
            "method_allocator_planned": 752_640,
        }
        assert found["method_allocator_used"].extra == {"capacity": 62_914_560}
    (tmp_path / "board.log").write_text(lines)
    report = file_info(tmp_path / "board.log")
    assert report.about["kind"] == "tool-file"
    assert list(report.sections[0].table.values["value"]) == [1_355_722, 752_640]


def test_a_counter_that_stands_still_is_told(tmp_path: Path) -> None:
    stopped = pmu_log(cycles=10**6) + "I cpu_wait_for_npu_cntr : 729 CPU cycles\n"
    notes = " ".join(read(tmp_path, stopped).notes)
    assert "shares of CPU and NPU in the log are not shares of time" in notes
    assert "not shares of time" not in " ".join(read(tmp_path, pmu_log()).notes)


def test_counters_that_run_backwards_or_have_no_names(tmp_path: Path) -> None:
    file = read(tmp_path, pmu_log((1_024, 512, 300, 2**64 - 616)))
    assert values(file)["NPU_IDLE"] == (None, "NPU cycles")
    assert any("NPU_IDLE runs backwards" in note for note in file.notes)
    file = read(tmp_path, pmu_log((1, 2, 3, 4, 5)))
    assert values(file)["counter 4"] == (5, "count")
    assert any("5 counters, but 4 counter names" in note for note in file.notes)


# -- WebGPU


def test_both_forms_of_webgpu_are_read(tmp_path: Path) -> None:
    for tsv in (True, False):
        file = read(tmp_path, webgpu_output(tsv=tsv))
        assert file.kind == "WebGPU timestamps"
        assert values(file) == {"conv2d #0": (12.345, "us"), "dispatch #1": (2.0, "us")}
        assert file.rows[0].extra["work_groups"] == "(8,8,1)"
        assert file.spans.start.tolist() == [0, 12.345]  # end to end
    # Executions are averaged.
    file = read(tmp_path, webgpu_output(([("k", "(1,1,1)", 2.0)], [("k", "(1,1,1)", 4.0)])))
    (row,) = file.rows
    assert (row.value, row.events, row.basis) == (3.0, 2, Basis.DERIVED)


# -- Other files


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("NNG Operator,Op Cycles\n", "a header, but no layer"),
        ("NNG Operator,Op Cycles\n" + "x" * 200_000 + ",1", "not valid CSV"),
        ("experiment,network,cycles_total\n", "a header, but no row"),
        ("", "empty"),
        (" \n", "(?s)empty.*optrace"),
        ("hello,world\n1,2\n", "does not match a known format"),
        ('{"a": 1}', "JSON of another kind"),
        ("[1, 2]", "JSON of another kind"),
        ('{"traceEvents": [{"ph": "X", "ts": 1', "broken JSON"),
        ('{"traceEvents": [{}] "a": 1}', "broken JSON"),
        ('[{"ph": "X"} {"ph": "X"}]', "broken JSON"),
        ("{" * 5_000, "JSON"),
        ("[" * 100_000, "JSON"),
        (gzip.compress(b"{}", mtime=0), "gzip-compressed"),
        (b"\xff\xfe\x00\x01", "first bytes"),
        ("something else", r"Chrome trace .*optrace.*Vela.*PMU.*WebGPU"),
        (
            '{"traceEvents": [{"ph": "M", "name": "process_name"}]}',
            "event that etscope can show",
        ),
        (json.dumps(json.loads(optrace()) | {"traceEvents": []}), "does not have an HTP operation"),
        ('{"header": {"artifact_type": "QHAS"}, "data": {}}', "the table htp_overall_summary"),
        (LAYERS.read_text().replace(",tosa_transpose_default", ""), "line 3 .* has 15 columns"),
        (webgpu_output([[]]), "no dispatch"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_not_known_is_named(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        read(tmp_path, content)
    assert caught.value.path == str(tmp_path / "file")
    with pytest.raises(MissingFileError):
        read_backend_file("nowhere.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(["ph", "ts", "dur", "pid", "tid", "name", "args"])
PHASES = st.sampled_from(["B", "E", "X", "i", "C", "M", "s"])
EVENTS = st.dictionaries(KEYS, JSON | PHASES | st.floats(-5, 5), max_size=7)
HTP = st.dictionaries(
    st.sampled_from(["ID", "HTP Op Type", "QNN Op Name", "Duration (cycles)", "Flags", ""]), JSON
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENTS | st.builds(lambda e, a: {**e, "args": a}, EVENTS, HTP), max_size=6))
def test_any_events_are_read_or_refused(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    for header in ({}, {"header": {"artifact_type": "OP_TRACE"}}):
        try:
            file = read(tmp_path, json.dumps({**header, "traceEvents": events}))
        except EtscopeError:
            continue
        assert file.rows
        assert all((row.value or 0) >= 0 for row in file.rows if row.unit in ("us", "cycles"))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["htp_resources", "cycles", "qnn_op", "time_us"]), JSON))
def test_any_summary_is_read_or_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    tables = ("htp_overall_summary", "qnn_op_instances_nodes", "htp_op_types")
    document = {"data": {name: {"data": [row]} for name in tables}}
    try:
        file = read(tmp_path, json.dumps(document))
    except EtscopeError:
        return
    assert all(row.unit for row in file.rows)


LINES = st.lists(
    st.sampled_from(
        [
            *pmu_log().splitlines(),
            *webgpu_output().splitlines(),
            *webgpu_output(tsv=True).splitlines(),
            *LAYERS.read_text().splitlines(),
            "experiment,network,cycles_total",
            "default,out,3128",
        ]
    ).flatmap(
        lambda line: st.one_of(
            st.just(line),
            st.integers(0, len(line)).map(lambda at: line[:at]),
            st.integers().map(lambda number: re.sub(r"\d+", str(number), line)),
            st.just(re.sub(r"\d+", "9" * 5_000, line)),
        )
    ),
    max_size=12,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES)
def test_any_lines_are_read_or_refused(tmp_path: Path, lines: list[str]) -> None:
    try:
        file = read(tmp_path, "\n".join(lines))
    except EtscopeError:
        return
    assert file.rows
    numbers = [row.value for row in file.rows if row.value is not None]
    assert all(abs(number) < 2**63 for number in numbers if not file.kind.startswith("Vela"))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["stack_trace", "node_trace", "nn_module_stack"]),
        JSON | st.lists(st.dictionaries(st.just("name"), JSON)) | st.lists(st.text()),
    )
)
def test_any_debug_event_is_read_or_refused(tmp_path: Path, torch: dict[str, Any]) -> None:
    event = {"event_id": 0, "aten_info": {"node_name": "a"}, "torch_info": torch}
    (row,) = read(tmp_path, json.dumps([event])).rows
    assert row.name == "a"
