"""What delegates log is shown as what it is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etscope.analysis.comparison.diff import diff_profiles
from etscope.analysis.comparison.diff_table import diff_table
from etscope.analysis.profile.profile import MethodProfile
from etscope.analysis.profile.scale import Scale
from etscope.analysis.profile.timeline import event_rows, timeline
from etscope.analysis.profile.trace import Trace
from etscope.analysis.tables.profile_table import grouped_table, profile_table
from etscope.backends.registry.decoders import DELEGATES, EventDecoder, LoggedCall, Meaning, decoded
from etscope.backends.xnnpack import instruction_set
from etscope.cli.output.tables import row_filter
from etscope.errors import UsageError
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.units import TimeScale
from etscope.views.tables import report
from tests.support.delegate_dumps import (
    Log,
    coreml,
    dump_of,
    ethos_u,
    neutron,
    qnn,
    vgf,
    vgf_statistics,
    vulkan,
)
from tests.support.docs.pages import BAR

MS = Scale(TimeScale.NS, TimeScale.MS)
DURATIONS = ("avg", "p50", "p90", "p10", "min", "max", "std", "first")


def trace(*logs: Log) -> Trace:
    return Trace(read_etdump(dump_of(*logs)))


def profile_of(*logs: Log) -> MethodProfile:
    (found,) = trace(*logs).profiles()
    return found


def logging(*events: tuple[Any, int, int]) -> Log:
    """What logs these names with their starts and ends."""

    def log(writer: ETDumpWriter, instruction: int) -> None:
        for name, start, end in events:
            writer.log_profiling_delegate(
                name, start, end, chain_index=0, instruction_id=instruction
            )

    return log


def cells(*logs: Log) -> dict[str, dict[str, Any]]:
    """The rows of the table by the name of the event."""
    values = profile_table(profile_of(*logs), MS, sort="run").values
    rows = (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
    return {row["event"]: row for row in rows}


def test_numbers_of_qnn_have_their_units_and_are_no_times() -> None:
    rows = cells(qnn())
    for event, value, unit in (("RPC (execute) time", 18_000, "us"), ("conv_1", 700, "cycles")):
        assert (rows[event]["value"], rows[event]["unit"]) == (value, unit)
    assert rows["Number of HVX threads used"]["unit"] == "count"
    assert rows["DSP:before_context_created"]["unit"] == "bytes"
    for name, row in rows.items():
        if row["value"] is not None:
            assert row["share"] is None, name
            assert all(row[column] is None for column in DURATIONS), name
    assert rows["DELEGATE_CALL"]["avg"] == pytest.approx(0.001)


def test_cycles_of_nodes_are_parts_of_the_accelerator() -> None:
    profile = profile_of(qnn(), qnn((("conv_1", 720), ("relu_2", 240))))
    depths = {row.name: row.depth for row in profile.rows}
    assert (depths["Accelerator (execute) time"], depths["conv_1"], depths["relu_2"]) == (1, 2, 2)
    assert depths["RPC (execute) time"] == 1
    (call,) = profile.instructions
    assert call.leaves == (call.head,)


def test_cycles_of_qnn_become_microseconds_by_the_accelerator() -> None:
    def with_time(us: int) -> Log:
        return logging(
            ("Accelerator (execute) time (us)", 0, us),
            ("Accelerator (execute) time (cycles)", 0, 900),
            ("conv:OpId_7 (cycles)", 0, 300),
            ("pad (cycles)", 0, 600),
        )

    rows = cells(with_time(450), with_time(150))  # a third of a microsecond a cycle, in both runs
    assert rows["conv"]["derived"] == pytest.approx(100)
    assert rows["pad"]["derived"] == pytest.approx(200)
    assert rows["conv"]["avg"] is None and rows["conv"]["value"] == 300
    assert rows["conv"]["op_id"] == 7
    assert cells(with_time(0))["conv"]["derived"] is None


def test_estimates_of_coreml_are_marked_and_not_added() -> None:
    profile = profile_of(coreml(), coreml())
    (call,) = profile.instructions
    assert not call.is_split and call.leaves == (call.head,)
    rows = cells(coreml(), coreml())
    conv = rows["conv_1"]
    assert (conv["value"], conv["unit"]) == (pytest.approx(480e-6), "ms, estimated")
    assert conv["quantity"] == "estimate" and conv["compute_unit"] == "ANE"
    assert conv["supported_compute_units"] == "ANE, CPU, GPU"
    assert rows["cast_0"]["delegate_operator"] == "ios16.cast", "without the operator in its name"
    assert all(rows["conv_1"][column] is None for column in (*DURATIONS, "share"))
    drawn = timeline(trace(coreml()))
    assert [track.note for track in drawn.tracks] == [None, "estimated"]
    told = event_rows(trace(coreml()), MS)
    units = zip(told.values["unit"], told.values["quantity"], strict=True)
    estimated = [unit for unit, quantity in units if quantity == "estimate"]
    assert estimated == ["ns"] * 3
    by = grouped_table(profile, MS, "compute_unit")
    assert list(by.values["compute_unit"]) == ["ANE", "GPU", "CPU"]
    assert list(by.values["unit"]) == ["ms, estimated"] * 3


def test_a_number_is_the_mean_of_the_runs_that_logged_it() -> None:
    rows = cells(qnn(), qnn([("pool_3", 40)]), qnn())  # another pattern of the same method
    assert (rows["conv_1"]["value"], rows["pool_3"]["value"]) == (700, 40)


def test_columns_of_backends_select_rows() -> None:
    table = profile_table(profile_of(coreml()), MS, keep=row_filter("compute_unit:gpu"))
    kept = [name for name in table.values["event"] if name.endswith(("_1", "_2", "_0"))]
    assert kept == ["linear_2"]
    table = profile_table(profile_of(vulkan()), MS, keep=row_filter("kernel_name:relu*"))
    kept = list(table.values["event"])
    assert "aten.relu.default (relu_float) #1" in kept and "ETVK_EXECUTE" in kept
    assert not any(name.startswith("aten.convolution") for name in kept)


def test_kernels_of_neutron_have_ticks_of_the_npu() -> None:
    rows = cells(neutron(at=2**32 - 300))  # its counter wraps in the first kernel
    for kernel, ticks in (("kernel 0 (function 12)", 400), ("kernel 1 (function 7)", 250)):
        assert (rows[kernel]["value"], rows[kernel]["unit"]) == (ticks, "ticks")
    dump = rows["profiling dump"]
    assert dump["value"] is None and dump["avg"] is None, "a length of two clocks"
    assert len(timeline(trace(neutron())).tracks) == 1


@pytest.mark.parametrize(
    ("dump", "columns"),
    [
        (b"\0", {"function_code": 0}),
        (b"\x20\x03", {"driver_version": "3.2.0"}),  # since pytorch/executorch#21614
        (b"\x20\x03\x01", None),  # of a later version: not Neutron's, without the record
    ],
)
def test_the_last_event_of_neutron(dump: bytes, columns: dict[str, Any] | None) -> None:
    """Found without a record; a driver's version is kept."""
    rows = cells(neutron(dump=dump))
    if columns is None:
        assert "kernel 0 (function 12)" not in rows
        (one,) = decoded("NeutronBackend", call_with(b"\x20\x03\x01"))
        assert one.columns == {"metadata": "20 03 01"}
        return
    last = rows["profiling dump"]
    assert columns.items() <= last.items() and last["value"] is None
    assert rows["kernel 1 (function 7)"]["value"] == 250


def call_with(metadata: bytes) -> LoggedCall:
    number = np.array([[7]])
    return LoggedCall(["a"], ["a"], number, number, metadata=[metadata])


@pytest.mark.parametrize(
    ("metadata", "columns"),
    [
        (
            b"xnn_f32_gemm_minmax_ukernel_7x4v__rvv\x0035512",
            {
                "microkernel": "xnn_f32_gemm_minmax_ukernel_7x4v__rvv",
                "instruction_set": "rvv",
                "microkernel_us": 35512,
            },
        ),
        (
            b"xnn_xx_transposev_ukernel__1x1_scalar_memcpy\x000",
            {
                "microkernel": "xnn_xx_transposev_ukernel__1x1_scalar_memcpy",
                "instruction_set": "scalar",
            },
        ),
        (b"something else\x001", {}),
        (b"", {}),
    ],
)
def test_the_microkernel_of_an_xnnpack_event(metadata: bytes, columns: dict[str, Any]) -> None:
    """As examples/riscv/etdump_summary.py reads it after pytorch/executorch#18991."""
    (one,) = decoded("XnnpackBackend", call_with(metadata))
    assert one.columns == columns and one.quantity.value == "interval"


@pytest.mark.parametrize(
    ("symbol", "found"),
    [
        ("xnn_f32_igemm_minmax_ukernel_4x8__asm_aarch64_neonfma_cortex_a75", "neonfma"),
        ("xnn_qd8_f32_qc8w_gemm_minmax_ukernel_7x8c8__avx512vnni_prfm", "avx512vnni"),
        ("xnn_f16_f32acc_vexp_ukernel__f16c_poly_3_u8", "f16c"),
        ("xnn_x32_transposec_ukernel__4x4_sse", "sse"),
        ("kai_run_matmul_clamp_f32_qai8dxp1x8_qsi4c32p4x8_1x4x32_neon_dotprod", "neon_dotprod"),
        ("kai_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa", "sme2"),
        ("xnn_f32_vadd_ukernel__later_u8", None),
    ],
)
def test_the_instruction_set_of_a_microkernel(symbol: str, found: str | None) -> None:
    assert instruction_set(symbol) == found


def test_statistics_of_vgf_are_no_time() -> None:
    statistics = vgf_statistics(debug_database=b"abc", statistics_memory=None)
    rows = cells(vgf(statistics), vgf(statistics))
    told = rows["VGF_NEURAL_STATISTICS"]
    assert (told["segments"], told["debug_database_bytes"]) == (1, 3)
    assert told["statistics"] == "statistics_memory: query failed"
    assert told["value"] is None and told["share"] is None
    assert rows["(rest of VGF_EXECUTE)"]["avg"] == pytest.approx(90e-6)
    broken = cells(vgf(b"{"))["VGF_NEURAL_STATISTICS"]
    assert broken["statistics"].startswith("unreadable: Malformed VGF neural statistics")


def test_a_clock_of_a_delegate_that_runs_backwards_is_told() -> None:
    backwards, forwards = (
        logging(('{"dispatch_id": 0}', 2**40, end)) for end in (2**39, 2**40 + 8)
    )
    row = cells(backwards, forwards, backwards)['{"dispatch_id": 0}']
    assert row["problem"] == "ends before it starts in 2 runs"
    assert row["calls"] == pytest.approx(1 / 3)
    assert row["min"] == pytest.approx(8e-6)


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"preferredComputeUnit": 3}', b"\xff" * 9])
def test_broken_metadata_keeps_the_row(broken: bytes) -> None:
    call = call_with(broken)
    for backend in DELEGATES:
        (told,) = decoded(backend, call)
        assert told.name


def test_qnn_is_on_no_timeline() -> None:
    assert set(timeline(trace(qnn())).names) == {"DELEGATE_CALL", "Method::execute"}
    rows = event_rows(trace(qnn()), MS)
    number = list(rows.values["event"]).index("RPC (execute) time (us)")
    assert (rows.values["value"][number], rows.values["unit"][number]) == (18_000, "us")
    assert np.isnan(rows.values["elapsed"][number])


@pytest.mark.parametrize("with_node", [True, False])
def test_phases_of_vulkan_are_nested_and_add_up(with_node: bool) -> None:
    logs = [vulkan(begin=begin, with_node=with_node) for begin in (1_010, 1_030)]
    profile = profile_of(*logs)
    shown = [(row.name, row.depth, row.ticks.tolist()) for row in profile.rows if row.is_time]
    assert ("ETVK_EXECUTE", 1, [920, 920]) in shown
    assert ("ETVK_COPY_INPUTS", 2, [100, 100]) in shown
    assert ("(rest of ETVK_EXECUTE)", 2, [50, 50]) in shown
    assert ("(rest of the delegate call)", 1, [80, 80]) in shown
    (call,) = profile.instructions
    assert sum(leaf.ticks for leaf in call.leaves).tolist() == call.head.ticks.tolist()
    dispatch = next(row for row in profile.rows if row.name.startswith("aten.convolution"))
    assert dispatch.name == "aten.convolution.default (conv2d_float) #0"
    assert dispatch.own_clock and dispatch.ticks.tolist() == [5_000, 5_000]
    assert dispatch.depth == 3, "inside of what the host waits for"
    lanes = timeline(trace(logs[0])).tracks
    assert len(lanes) == 3 and "own clock" in {lane.note for lane in lanes}


@pytest.mark.parametrize("limit", [None, 0, 1, 2])
def test_a_comparison_counts_no_phase_beside_its_parts(limit: int | None) -> None:
    profile = profile_of(vulkan(), vulkan(begin=1_030))
    table = diff_table(diff_profiles(profile, profile), MS, limit=limit)
    call, total = profile.rows[0], profile.total[0]
    leaves = {row.name for _, row in profile.leaves}
    shown = list(zip(table.values["event"], table.values["before"], strict=True))[:-1]
    added = sum(ms for name, ms in shown if name in leaves or "not shown" in name)
    rest = table.values["before"][-2]
    assert added == pytest.approx(float(MS(call.ticks[0])))
    assert added + rest == pytest.approx(float(MS(total)))


def test_dispatches_without_json_are_known_by_their_kernel() -> None:
    """As docs/source/backends/vulkan/tutorials/etvk-profiling-tutorial.md shows them."""

    log = logging(
        ("ETVK_COMPUTE_GRAPH_EXECUTE", 1_100, 1_900),
        ("conv2d_clamp_half_163", 2_081_488_974_948_084, 2_081_488_975_294_248),
        ("view_half_172", 2_081_488_975_688_876, 2_081_488_975_695_324),
        ("ETVK_EXECUTE", 1_050, 1_950),
    )
    rows = [row for row in profile_of(log).rows if row.own_clock]
    assert [(row.name, row.depth) for row in rows] == [
        ("conv2d_clamp_half #163", 3),
        ("view_half #172", 3),
    ]
    assert rows[0].meaning.columns == {"kernel_name": "conv2d_clamp_half"}


@pytest.mark.parametrize(
    "name",
    [
        *("{", '{"dispatch_id"', '{"dispatch_id": 0}', "[1]", "[" * 100_000),
        json.dumps({"dispatch_id": 0, "operator": 3, "kernel_name": None}),
    ],
)
def test_broken_names_keep_their_rows(name: str) -> None:
    profile = profile_of(logging((name, 5, 9), ("ETVK_EXECUTE", 1_100, 1_900)))
    assert sum(row.kind == "delegated" for row in profile.rows) == 2
    assert int(profile.total[0]) == sum(
        int(leaf.ticks[0]) for call in profile.instructions for leaf in call.leaves
    ) + int(profile.unaccounted[0])


def test_events_of_one_name_that_hold_one_another_stay() -> None:
    pairs = [("b", 1_100, 1_200), ("a", 1_050, 1_300), ("a", 1_500, 1_600), ("b", 1_450, 1_700)]
    profile = profile_of(logging(*pairs))
    assert {row.name for row in profile.rows if row.kind == "delegated"} == {"a", "b"}


_NAMES = st.sampled_from(
    [
        *("conv", "graph", "ETVK_EXECUTE", "ETVK_COMPUTE_GRAPH_EXECUTE", "RPC (execute) time (us)"),
        *("Accelerator (execute) time (cycles)", "conv_1:OpId_0 (cycles)", "memory (bytes)"),
        *("x (count)", "y (watts)", json.dumps({"dispatch_id": 0, "kernel_name": "k"})),
    ]
)
_EVENTS = st.lists(st.tuples(_NAMES, st.integers(0, 3_000), st.integers(0, 2_000)), max_size=8)


@settings(max_examples=150, deadline=None)
@given(st.lists(_EVENTS, min_size=1, max_size=2))
def test_times_add_up_and_other_numbers_are_none(runs: list[list[tuple[str, int, int]]]) -> None:
    opened = trace(
        *(logging(*((name, at, at + length) for name, at, length in events)) for events in runs)
    )
    drawn = timeline(opened)
    for profile in opened.profiles():
        leaves = [leaf for call in profile.instructions for leaf in call.leaves]
        assert (sum(leaf.ticks for leaf in leaves) + profile.unaccounted == profile.total).all()
        table = profile_table(profile, MS, sort="run")
        for number, value in enumerate(table.values["value"]):
            assert not (value is not None and table.values["avg"][number] is not None)
            if value is not None:
                columns = (*DURATIONS, "share", "cumulative")
                assert all(table.values[column][number] is None for column in columns)
        shown = {row.delegate_id for row in profile.rows if row.kind == "delegated"}
        logged = {e.key.delegate_id for e in opened.events.events if e.key.role == "delegated"}
        if len(opened.profiles()) == 1:
            assert shown == logged
    others = {m.name for m in opened.events.meaning if m is not None and not m.is_drawn}
    times = {m.name for m in opened.events.meaning if m is not None and m.is_drawn}
    assert not (others - times) & set(drawn.names)


def test_a_decoder_of_a_package_is_taken_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    number = np.array([[7]])
    call = LoggedCall(["conv"], ["conv"], start=number, ticks=number)
    packages = {
        "Mine": EventDecoder(lambda call: [Meaning("shown", "conv", unit="us")]),
        "Short": EventDecoder(lambda call: []),
    }
    monkeypatch.setattr("etscope.backends.registry.decoders._from_packages", lambda: packages)
    assert [one.name for one in decoded("Mine", call)] == ["shown"]
    assert [one.name for one in decoded("Other", call)] == ["conv"]
    with pytest.raises(UsageError, match="decoder of Short returns 0 meanings for 1 events"):
        decoded("Short", call)


# -- docs/how-to/delegates.md

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/delegates.md"
STATISTICS = vgf_statistics(debug_database=b"abc", statistics_memory=b"x" * 64)
TABLES: dict[str, tuple[Log, str]] = {
    "qnn": (qnn(), "event avg value unit derived share"),
    "vulkan": (vulkan(), "event avg share kernel_name"),
    "coreml": (coreml(), "event avg value unit share compute_unit"),
    "neutron": (neutron(), "event avg value unit share"),
    "ethos_u": (ethos_u(), "event avg share"),
    "vgf": (vgf(STATISTICS), "event avg share segments statistics_memory_bytes"),
}


@pytest.mark.parametrize("backend", TABLES)
def test_the_page_shows_what_is_printed(backend: str) -> None:
    assert shown(*TABLES[backend]) in PAGE.read_text()


def shown(log: Log, columns: str) -> str:
    """The rows of a call as the page has them."""
    (profile,) = Trace(read_etdump(dump_of(log))).profiles()
    table = profile_table(profile, Scale(TimeScale.NS, TimeScale.US), sort="run")
    out = io.StringIO()
    report.write_terminal(table.select(columns.split()), out, color=False, width=100)
    lines = [BAR.sub("", line.rstrip()) for line in out.getvalue().splitlines()]
    first = next(n for n, line in enumerate(lines) if line.startswith("─"))
    last = next(n for n, line in enumerate(lines) if n > first and line.startswith("─"))
    return "\n".join(line.rstrip() for line in lines[1:last])
