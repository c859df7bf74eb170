"""Where ExecuTorch's Inspector is wrong or stops, and what etscope does instead.

Each test has its section in docs/appendix/differences.md.
"""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope import Event, EventBlock, Inspector, PerfData, TimeScale, compare_results
from etscope.analysis.program.correlate import delegate_handles
from etscope.errors import (
    EtscopeWarning,
    FormatError,
    MismatchError,
    MissingDataError,
    UsageError,
)
from etscope.etrecord import parse_etrecord
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.run_json import SavedCall, SavedInputs
from tests.support.artifacts import artifacts
from tests.support.inspector.opening import open_artifact


def blocks(inspector: Inspector, name: str = "Execute") -> list[EventBlock]:
    return [block for block in inspector.event_blocks if block.name == name]


def outputs_of(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """What the runtime gave back, by "method/case/index"."""
    with np.load(artifacts(name).folder / "outputs.npz") as file:
        return dict(file)


# --- what upstream cannot open -------------------------------------------------------------------


def test_a_dump_with_allocation_events_opens() -> None:
    inspector = open_artifact("allocations")
    assert [block.name for block in inspector.event_blocks] == ["Default", "Execute"]
    allocated = inspector.trace.allocations()
    assert allocated
    assert all(count > 0 and size > 0 for count, size in allocated.values())


def test_runs_with_different_inputs_keep_every_output() -> None:
    inspector = open_artifact("varying_inputs")
    (block,) = blocks(inspector)
    expected = outputs_of("varying_inputs")
    assert len(block.run_outputs) == len(block.runs) == 4
    for case, outputs in enumerate(block.run_outputs):
        np.testing.assert_array_equal(outputs[0].numpy(), expected[f"forward/{case}/0"])
    assert not np.array_equal(block.run_outputs[0][0], block.run_outputs[1][0])
    kernel = next(e for e in block.events if e.name.startswith("native_call_") and e.debug_data)
    assert len(kernel.debug_data_runs) == 4


@pytest.mark.parametrize("name", ["nan_output", "inf_output"])
def test_nan_and_inf_outputs_open(name: str) -> None:
    (block,) = blocks(open_artifact(name))
    value = block.run_output[0].numpy()
    assert not np.isfinite(value).all()
    for output in block.run_outputs:
        np.testing.assert_array_equal(output[0].numpy(), value)


def test_an_all_nan_output_is_never_perfect() -> None:
    nothing = np.full(4, np.nan)
    results = compare_results([np.ones(4)], [nothing]), compare_results([nothing], [nothing])
    assert all(math.isnan(value) for result in results for (value,) in result.values())


@pytest.mark.parametrize("name", ["two_methods", "forward_and_extra"])
def test_every_method_gets_its_own_symbols(name: str) -> None:
    inspector = open_artifact(name)
    by_method = {block.method: block for block in blocks(inspector)}
    runs = artifacts(name).meta["runs"]
    assert set(by_method) == {method for method, *_ in runs}
    for method, block in by_method.items():
        graph = inspector.trace.symbols(method).graph
        names = {f"{node.name}_" for node in graph.walk()}
        found = {node for event in block.events for node in event.stack_traces}
        assert found and found <= names


def test_an_empty_dump_has_no_blocks_and_says_so() -> None:
    files = artifacts("empty_blocks")
    empty = Inspector(etdump_path=files.folder / "only.etdp")
    assert [(block.name, block.events) for block in empty.event_blocks] == [("Only", [])]
    with pytest.raises(MissingDataError, match="no events"):
        empty.to_dataframe()
    mixed = Inspector(etdump_path=files.etdump)
    empty_blocks = {block.name for block in mixed.event_blocks if not block.events}
    assert empty_blocks
    assert set(mixed.to_dataframe()["event_block_name"]) == {"Default", "Execute"}


def test_a_record_in_memory_resolves_like_its_file() -> None:
    files = artifacts("cnn_portable")
    upstream = pytest.importorskip("executorch.devtools")
    record = upstream.parse_etrecord(str(files.etrecord))
    # What `get_etrecord()` gives after an export: integer keys where a file has text.
    for name in ("_debug_handle_map", "_delegate_map", "_instruction_id_to_num_outs_map"):
        table = getattr(record, name)
        for method, entries in table.items():
            table[method] = {int(key): value for key, value in entries.items()}

    dump = files.folder / "timing.etdp"
    memory = Inspector(etdump_path=dump, etrecord=record)
    file = Inspector(etdump_path=dump, etrecord=files.etrecord)

    def attribution(inspector: Inspector) -> list[Any]:
        return [(e.debug_handles, e.op_types) for block in inspector.event_blocks for e in block]

    assert attribution(memory) == attribution(file)
    assert any(handles is not None for handles, _ in attribution(memory))


# --- what upstream gets wrong --------------------------------------------------------------------


def test_a_loop_counts_every_pass() -> None:
    (block,) = blocks(open_artifact("while_loop"))
    sigmoid = [event for event in block.events if event.name == "native_call_sigmoid.out"]
    assert [event.occurrence for event in sigmoid] == list(range(5))
    values = [event.debug_data[0].numpy() for event in sigmoid]
    assert len({value.tobytes() for value in values}) == 5  # each pass has its own value
    (profile,) = open_artifact("while_loop").trace.profiles()
    (row,) = [row for row in profile.every.rows if row.name == "sigmoid.out"]
    assert row.calls.tolist() == [5, 5, 5]


def test_the_run_of_every_sample_is_known() -> None:
    inspector = open_artifact("cond")
    taken = blocks(inspector)
    assert len(taken) == 2
    assert sorted(run for block in taken for run in block.runs) == [1, 2, 3, 4]
    for block in taken:
        assert all(len(block.runs) == e.perf_data.count for e in block if e.perf_data)
    (profile,) = inspector.trace.profiles()
    assert profile.every.runs.tolist() == [1, 2, 3, 4]


def test_a_lowered_record_names_the_operators_of_a_delegate() -> None:
    (block,) = blocks(open_artifact("cnn_xnnpack_lowered"))
    call = block.event("DELEGATE_CALL")
    assert "aten.convolution.default" in call.op_types
    assert any("cnn.py" in (trace or "") for trace in call.stack_traces.values())
    assert any(path for frames in call.module_hierarchy.values() for path, _ in frames.values())


def test_an_operator_with_several_outputs_counts_once_in_a_delegate() -> None:
    (block,) = blocks(open_artifact("cnn_xnnpack"))
    call = block.event("DELEGATE_CALL")
    assert len(call.op_types) == len(call.stack_traces)


def test_branches_have_operators_with_the_program() -> None:
    files = artifacts("cond")
    dump = files.folder / "timing.etdp"
    alone = Inspector(etdump_path=dump, program=files.pte)
    joined = Inspector(etdump_path=dump, etrecord=files.etrecord, program=files.pte)

    def ops(inspector: Inspector) -> set[str]:
        kernels = ("native_call_sigmoid.out", "native_call_tanh.out")
        events = [e for block in inspector.event_blocks for e in block if e.name in kernels]
        assert len(events) == 2
        return {op for event in events for op in event.op_types}

    assert ops(alone) == {"aten::sigmoid.out", "aten::tanh.out"}
    assert ops(joined) == {"aten.sigmoid.default", "aten.tanh.default"}
    (profile,) = joined.trace.profiles()
    (tanh,) = [row for row in profile.rows if row.name == "tanh.out"]
    assert "control_flow.py" in str(tanh.attribution.lines[0])


def test_without_a_debug_buffer_tensors_are_absent_never_zeros() -> None:
    files = artifacts("cnn_portable")
    with pytest.warns(EtscopeWarning, match="no debug buffer"):
        inspector = Inspector(etdump_path=files.etdump)
    (block,) = blocks(inspector)
    assert block.run_output == [None]
    assert all(value is None for event in block for value in event.debug_data)
    with pytest.raises(MissingDataError, match="no reference"):
        compare_results([], block.run_output)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a profile without debug data does not warn
        Inspector(etdump_path=files.etdump_timing)


def test_no_reference_outputs_without_a_bundled_case() -> None:
    inspector = open_artifact("cnn_portable")
    assert [block.bundled_input_index for block in inspector.event_blocks] == [None, None]
    assert [block.reference_output for block in inspector.event_blocks] == [None, None]


def test_reference_outputs_are_those_of_the_case_that_ran() -> None:
    inspector = open_artifact("bundled")
    executed = blocks(inspector)
    assert [block.bundled_input_index for block in executed] == list(range(len(executed)))
    for block in executed:
        (error,) = compare_results(block.reference_output, block.run_output, ["mse"])["mse"]
        assert error < 1e-9
    assert executed[0].reference_output[0].tolist() != executed[1].reference_output[0].tolist()
    (default,) = blocks(inspector, "Default")
    assert default.reference_output is None


def test_the_only_reference_outputs_are_those_of_a_run_that_names_no_case() -> None:
    files = artifacts("cnn_portable")

    def reference(cases: list[Any], source: str | None = None) -> Any:
        record = parse_etrecord(files.etrecord)
        record.update_reference_outputs(cases)
        inputs = None if source is None else SavedInputs(source, None)
        calls = (SavedCall("forward", None, 0, inputs),)
        inspector = Inspector(etdump_path=files.etdump_timing, etrecord=record, calls=calls)
        loading, executed = inspector.event_blocks
        assert loading.reference_output is None
        return executed.reference_output

    assert reference([[1.5]]) == reference([[1.5]], "record") == [1.5]
    assert reference([[1.5]], "given") is None  # other inputs, other outputs
    assert reference([[1.5]], "seed 0") is None
    assert reference([[1.5], [2.5]]) is None  # upstream takes the last


def test_an_empty_debug_buffer_is_one_of_a_run_without_values(tmp_path: Path) -> None:
    files = artifacts("cnn_portable")
    empty = tmp_path / "debug.bin"
    empty.touch()
    timed = Inspector(etdump_path=files.folder / "timing.etdp", debug_buffer_path=empty)
    assert timed.event_blocks
    with pytest.raises(FormatError, match="is empty, and the ETDump refers to tensors"):
        Inspector(etdump_path=files.etdump, debug_buffer_path=empty)


def test_strides_are_honoured() -> None:
    (block,) = blocks(open_artifact("channels_last"))
    expected = outputs_of("channels_last")
    for index, value in enumerate(block.run_output):
        np.testing.assert_array_equal(value.numpy(), expected[f"forward/0/{index}"])
    assert any(value.dim() == 4 and not value.is_contiguous() for value in block.run_output)


def test_scalar_outputs_are_outputs() -> None:
    inspector = open_artifact("int_outputs")
    (block,) = blocks(inspector)
    kinds = [type(value).__name__ for value in block.run_output]
    assert {"int", "float", "bool"} & set(kinds)
    assert all(event.name for event in block.events)


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("15", [15]),
        (5, [5]),
        ("conv_1", None),
        ("conv_1:OpId_24 (cycles)", None),
        ("conv:OpId_3 (cycles)", [7]),
        ("Sigmoid (NC) #1", None),
    ],
)
def test_delegate_identifiers_match_whole_words(identifier: Any, expected: Any) -> None:
    assert delegate_handles(identifier, {"1": [1], "5": [5], "15": [15], "conv": [7]}) == expected


def test_find_total_for_module_matches_path_components() -> None:
    inspector = open_artifact("cnn_portable")
    stem = inspector.find_total_for_module("stem")
    parts = [inspector.find_total_for_module(f"stem.{part}") for part in ("conv", "bn", "act")]
    assert stem == pytest.approx(sum(parts))
    assert inspector.find_total_for_module("L__self___stem_conv") == parts[0]
    assert inspector.find_total_for_module("conv") > parts[0]
    with pytest.raises(MissingDataError, match="no event belongs to a module 'ste'"):
        inspector.find_total_for_module("ste")


def test_find_total_for_module_divides_a_delegate_call() -> None:
    files = artifacts("cnn_xnnpack")
    inspector = Inspector(
        etdump_path=files.etdump,
        etrecord=str(files.etrecord),
        debug_buffer_path=files.debug_buffer,
        program=files.pte,
    )
    (block,) = blocks(inspector)
    call = block.event("DELEGATE_CALL")
    inner = [event for event in block if event.is_delegated_op]
    parts = [inspector.find_total_for_module(name) for name in ("stem", "stages", "head")]
    assert all(0 < part < call.perf_data.avg for part in parts)
    assert sum(parts) <= sum(event.perf_data.avg for event in inner) + 1e-9
    assert inspector.find_total_for_module("L__self__") == pytest.approx(call.perf_data.avg)


def test_a_module_that_was_fused_is_not_among_those_that_are_known() -> None:
    """A batch norm that XNNPACK computes in its convolution."""
    files = artifacts("cnn_xnnpack")
    inspector = Inspector(files.etdump_timing, etrecord=str(files.etrecord), program=files.pte)
    with pytest.raises(MissingDataError, match="its operators were fused") as caught:
        inspector.find_total_for_module("stem.bn")
    known = str(caught.value.hint).removeprefix("modules are: ").split(", ")
    assert "stem.conv" in known and "stem.bn" not in known
    for name in known:
        assert inspector.find_total_for_module(name) > 0, name


def test_cycles_on_one_side_are_refused_at_once() -> None:
    """As upstream does, so that a `try` around the constructor catches it."""
    for scales in ({"source_time_scale": "cycles"}, {"target_time_scale": "cycles"}):
        with pytest.raises(RuntimeError, match="both the source and target"):
            Inspector(artifacts("cnn_portable").etdump, **scales)


def test_no_debug_buffer_may_be_the_null_device() -> None:
    files = artifacts("cnn_xnnpack")
    opened = Inspector(files.etdump_timing, debug_buffer_path=os.devnull)
    assert len(opened.to_dataframe()) == len(Inspector(files.etdump_timing).to_dataframe())
    with pytest.raises(FormatError, match="not a regular file"):
        Inspector(files.etdump_timing, debug_buffer_path="/dev/zero")


def test_results_have_short_reprs() -> None:
    """A notebook shows them of the last line of a cell."""
    files = artifacts("cnn_xnnpack")
    opened = Inspector(files.etdump_timing, etrecord=str(files.etrecord))
    runs = opened.trace.dump.num_runs
    assert repr(opened) == f"<Inspector {files.etdump_timing}: {runs} runs of forward>"
    record = parse_etrecord(str(files.etrecord))
    assert repr(record).startswith(f"<ETRecord {files.etrecord}: ")
    assert "edge_dialect_exported_program" in repr(record)


def test_completion_shows_what_a_record_loads_later() -> None:
    record = parse_etrecord(str(artifacts("cnn_xnnpack").etrecord))
    assert {"exported_program", "edge_dialect_program", "graph_map"} <= set(dir(record))


def test_find_total_for_module_does_not_guess_inside_a_delegate_call() -> None:
    """Without the program nothing tells which event inside the delegate is of which module."""
    inspector = open_artifact("cnn_xnnpack")
    with pytest.raises(MissingDataError, match="instructions 0 ran 'stem' together with other"):
        inspector.find_total_for_module("stem")


def test_perf_data_compares_and_prints() -> None:
    assert PerfData([1.0]) != PerfData([2.0])
    assert PerfData([1.0, 3.0]) == PerfData([1.0, 3.0])
    assert PerfData([float("nan")]) == PerfData([float("nan")])
    data = PerfData([1.0, 3.0])
    assert (data.count, data.sum, data.std, data.raw) == (2, 4.0, 1.0, [1.0, 3.0])
    assert "count=2" in repr(data)


def test_a_clock_of_32_bits_that_wraps() -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.log_profiling("Method::execute", 2**32 - 10, 5, chain_index=-1, instruction_id=0)
    (block,) = Inspector(etdump_data=writer.finish(), target_time_scale=TimeScale.NS).event_blocks
    assert block.events[0].perf_data.raw == [15.0]


def test_a_clock_that_runs_backwards_is_refused() -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.log_profiling("Method::execute", 2**40, 5, chain_index=-1, instruction_id=0)
    (block,) = Inspector(etdump_data=writer.finish()).event_blocks
    with pytest.raises(FormatError, match="ends before it starts"):
        block.events  # noqa: B018


def test_a_delegate_on_another_clock_is_not_mixed_in() -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    writer.set_chain_debug_handle(0, 0)
    writer.log_profiling_delegate("conv", 0, 6_400_000)  # cycles of an accelerator
    writer.log_profiling("DELEGATE_CALL", 1_000, 3_000)
    writer.log_profiling("Method::execute", 900, 3_100, chain_index=-1, instruction_id=0)
    inspector = Inspector(etdump_data=writer.finish())
    (profile,) = inspector.trace.profiles()
    with pytest.warns(EtscopeWarning, match="not on the runtime's clock"):
        assert len(inspector.event_blocks[0].events) == 3
    call, inner = profile.rows
    assert (call.kind, call.own_clock, inner.kind, inner.own_clock) == (
        "delegate", False, "delegated", True,
    )  # fmt: skip
    assert profile.unaccounted.tolist() == [200]


def test_a_float_keeps_all_its_digits() -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    for value in (math.pi, 1e-300, math.inf, math.nan):
        writer.log_evalue(value, output=True)
    (block,) = Inspector(etdump_data=writer.finish()).event_blocks
    assert block.run_output[:3] == [math.pi, 1e-300, math.inf]
    assert math.isnan(block.run_output[3])


# --- files that do not belong together -----------------------------------------------------------


def test_a_foreign_record_is_refused_and_the_first_difference_named() -> None:
    dump, record = artifacts("cnn_portable").etdump, artifacts("transformer_portable").etrecord
    with pytest.raises(MismatchError, match="instruction 0 ran convolution"):
        Inspector(etdump_path=dump, etrecord=record)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forced = Inspector(etdump_path=dump, etrecord=record, verify=False)
    (block,) = blocks(forced)
    assert block.method == "forward"
    assert any(event.op_types for event in block)


# --- arguments -----------------------------------------------------------------------------------


def test_words_and_types_of_upstream_are_taken() -> None:
    files = artifacts("cnn_portable")
    inspector = Inspector(
        etdump_path=str(files.etdump),
        buffer_path=files.debug_buffer,
        etrecord=Path(files.etrecord),
        source_time_scale="ns",
        target_time_scale="us",
    )
    (block,) = blocks(inspector)
    assert block.target_time_scale is TimeScale.US
    assert block.run_output[0].shape == outputs_of("cnn_portable")["forward/0/0"].shape
    assert inspector.get_exported_program("exported_program") is not None
    upstream = pytest.importorskip("executorch.devtools.inspector")
    scale = upstream.TimeScale.US
    other = Inspector(etdump_path=files.etdump_timing, target_time_scale=scale)
    assert other.event_blocks[0].target_time_scale is TimeScale.US


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({}, None),
        ({"etdump_path": "a", "etdump_data": "b.etrecord"}, "etrecord="),  # in the second place
        ({"etdump_path": "a", "source_time_scale": "cycles"}, ""),
        ({"etdump_path": "a", "source_time_scale": "hours"}, ""),
        ({"etdump_path": "a", "debug_buffer_path": "b", "buffer_path": "c"}, ""),
    ],
)
def test_arguments_that_do_not_fit_together(options: dict[str, Any], hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        Inspector(**options)
    if hint != "":
        assert "exactly one of etdump_path or etdump_data" in str(caught.value)
        assert caught.value.hint is None if hint is None else hint in str(caught.value.hint)


def test_events_can_be_made_by_hand() -> None:
    event = Event(name="op", perf_data=PerfData([1.0, 2.0]), op_types=["a"], _instruction_id=3)
    block = EventBlock(name="Execute", events=[event])
    frame = block.to_dataframe(include_units=True)
    assert frame["avg (ms)"].tolist() == [1.5]
    assert event.to_dataframe()["p50"].tolist() == [1.5]
    assert event.asdict()["raw"] == [[1.0, 2.0]]
    assert event.instruction_id == 3


# --- found by use --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deconvolution", "written_state", "replaced_operators"])
def test_a_record_whose_graph_is_not_what_runs_is_still_its_own(name: str) -> None:
    files = artifacts(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inspector = Inspector(
            etdump_path=files.etdump, etrecord=files.etrecord, debug_buffer_path=files.debug_buffer
        )
    assert [block.method for block in blocks(inspector)] == ["forward"]


def test_methods_that_nothing_tells_apart_are_not_told_apart(tmp_path: Path) -> None:
    """Methods of one delegate call are told apart by what it logged."""
    files = artifacts("forward_and_extra")
    dump = files.etdump_timing
    for given in ({"etrecord": files.etrecord}, {"program": files.pte}):
        trace = Inspector(etdump_path=dump, **given).trace
        for block in trace.blocks[1:]:
            logged = " ".join(str(key.delegate_id) for key in block.keys)
            expected = "forward" if "Softmax" in logged else "extra"
            assert (trace.method_of(block), trace.also_fitting(block)) == (expected, ())
    # Each method is one delegate call, whose data only XNNPACK itself can read now.
    unreadable = tmp_path / "program.pte"
    data = files.pte.read_bytes()
    assert b"XH00" in data
    unreadable.write_bytes(data.replace(b"XH00", b"XH99"))
    trace = Inspector(etdump_path=dump, program=unreadable).trace
    assert {trace.method_of(block) for block in trace.blocks[1:]} == {"forward", "extra"}
    for profile in trace.profiles():
        assert {profile.method, *profile.alternatives} == {"forward", "extra"}


def test_framework_events_belong_to_no_operator() -> None:
    files = artifacts("cnn_portable")
    inspector = Inspector(etdump_path=files.folder / "timing.etdp", etrecord=files.etrecord)
    framework = [
        event
        for block in inspector.event_blocks
        for event in block.events
        if event.name in ("Method::execute", "Method::init", "Program::load_method")
    ]
    assert len(framework) == 3
    assert [(event.op_types, event.debug_handles) for event in framework] == [([], None)] * 3


def test_small_errors_are_not_rounded_away() -> None:
    results = compare_results([np.zeros(4)], [np.full(4, 0.001)], metrics=["mse"])
    assert results["mse"] == pytest.approx([1e-6])


def test_absent_names_are_none_and_not_nan() -> None:
    frame = open_artifact("transformer").to_dataframe()
    for column in ("delegate_backend_name", "delegate_debug_identifier"):
        values = list(frame[column])
        assert None in values
        assert not any(isinstance(value, float) for value in values)
