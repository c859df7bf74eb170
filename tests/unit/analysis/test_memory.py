"""Plans of memory, by hand and of real programs, and the report that tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.plan import (
    MemoryPlan,
    PlannedValue,
    debug_buffer_bytes,
    memory_plan,
    memory_report,
)
from etscope.analysis.program.source_location import common_module, short_lines
from etscope.cli import main
from etscope.errors import MismatchError, MissingDataError
from etscope.formats.etdump.debug_values import TensorRef
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.formats.program.pte_schema import (
    DelegateCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    ScalarValue,
    ShapeDynamism,
    Value,
    ValueKind,
)
from etscope.model.event_table import find_blocks
from etscope.model.table import Table
from tests.support.analysis.traces import open_trace
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import Number, integer, method, pte_file, tensor, tensor_list

PROGRAMS = (
    *("channels_last", "cnn_portable", "cond", "dynamic_shape", "int_outputs", "transformer"),
    *("transformer_portable", "two_methods", "while_loop"),
)


def plan_of(values: Sequence[Value], calls: Sequence[Instruction], **options: Any) -> MemoryPlan:
    operators = ("aten::relu.out", "aten::add_.Tensor")
    chosen = {"operators": operators, "buffer_sizes": (0, 1024), **options}
    return memory_plan(read_pte(pte_file(method(values, calls, **chosen))), "forward")


def lives(plan: MemoryPlan) -> dict[int, tuple[int, int, str]]:
    return {value.value: (value.first, value.last, value.role) for value in plan.values}


def slot(number: int, *sizes: int) -> Value:
    """A tensor at the `number`-th place of 64 bytes."""
    return tensor(*(sizes or (4,)), at=(1, 64 * number))


def relu(source: int, target: int) -> Instruction:
    return KernelCall(0, (source, target, target))


def test_a_value_lives_from_its_write_to_its_last_read() -> None:
    values = [slot(0), slot(1), slot(2), slot(3)]
    plan = plan_of(values, [relu(0, 1), relu(1, 2), relu(1, 3)], inputs=[0], outputs=[3])
    assert lives(plan) == {
        0: (0, 0, "input"),
        1: (0, 2, "activation"),
        2: (1, 1, "activation"),
        3: (2, 2, "output"),
    }
    assert plan.live_bytes == (32, 32, 32)
    assert plan.peak_bytes == 32
    assert plan.peak_instructions == (0, 1, 2)
    assert [value.op for value in plan.values] == [None, "relu", "relu", "relu"]
    assert [value.value for value in plan.live_at(1)] == [1, 2]
    # Outputs live to the end.
    plan = plan_of([slot(0), slot(1), slot(2)], [relu(0, 1), relu(0, 2)], inputs=[0], outputs=[1])
    assert lives(plan)[1] == (0, 1, "output")


def test_views_share_their_place_and_count_once() -> None:
    """Value 2 is a view of 1, value 4 of the input."""
    values = [slot(0), slot(1), slot(1, 2, 2), slot(2), slot(0, 2, 2), slot(3)]
    plan = plan_of(values, [relu(0, 1), relu(2, 3), relu(4, 5)], inputs=[0], outputs=[5])
    assert lives(plan)[2] == (0, 1, "activation")
    assert lives(plan)[4] == (0, 2, "activation")
    assert plan.live_bytes == (32, 48, 32)


def test_state_lives_all_the_time() -> None:
    values = [slot(0), slot(1), slot(2)]
    plan = plan_of(values, [relu(0, 2), KernelCall(1, (1, 0, 1)), relu(0, 2)], inputs=[0])
    assert lives(plan)[1] == (0, 2, "state")
    # What no instruction uses is never alive.
    plan = plan_of([slot(0), slot(1)], [relu(0, 0)], inputs=[0])
    assert (lives(plan)[1], plan.peak_bytes) == ((0, -1, "unused"), 16)


def test_a_loop_keeps_what_crosses_it() -> None:
    """Instructions 1 to 3 repeat. Value 1 comes in from before, 3 is used after; 2 is local."""
    flag = ScalarValue(ValueKind.BOOL, False)
    values = [slot(0), slot(1), slot(2), slot(3), flag, slot(4)]
    calls = [relu(0, 1), relu(1, 2), relu(2, 3), JumpFalseCall(4, 1), relu(3, 5)]
    plan = plan_of(values, calls, inputs=[0], outputs=[5])
    assert lives(plan) == {
        0: (0, 0, "input"),
        1: (0, 3, "activation"),
        2: (1, 2, "activation"),
        3: (1, 4, "activation"),
        5: (4, 4, "output"),
    }


def test_nested_loops_count_as_one_and_a_jump_ahead_is_none() -> None:
    flag = ScalarValue(ValueKind.BOOL, False)
    values = [slot(0), slot(1), flag, slot(2)]
    calls = [relu(0, 1), relu(1, 0), JumpFalseCall(2, 1), JumpFalseCall(2, 0), MoveCall(2, 2)]
    plan = plan_of(values, [*calls, relu(1, 3)], inputs=[0], outputs=[3])
    assert lives(plan)[1] == (0, 5, "activation")
    plan = plan_of(values, [relu(0, 1), JumpFalseCall(2, 3), relu(1, 3)], inputs=[0])
    assert lives(plan)[1] == (0, 2, "activation")


def test_buffers_have_their_own_peaks() -> None:
    values = [tensor(8, at=(1, 0)), tensor(2, at=(2, 0)), tensor(4, at=(2, 64))]
    calls, sizes = [relu(0, 1), relu(1, 2)], [0, 64, 128]
    places = {"inputs": [0], "outputs": [2], "operators": ["aten::relu.out"]}
    made = method(values, calls, **places, buffer_sizes=sizes)  # type: ignore[arg-type]
    devices = {9: [{0: Number("i", 2), 1: Number("b", 1), 2: Number("b", 0)}]}
    plan = memory_plan(read_pte(pte_file(made | devices)), "forward")
    assert [(one.memory_id, one.device, one.size, one.peak_bytes) for one in plan.arenas] == [
        (1, "cpu", 64, 32),
        (2, "cuda:0", 128, 24),
    ]
    assert plan.planned_bytes == 192
    assert plan.live_bytes == (40, 24)
    assert plan.peak_instructions == (0,)


def test_a_method_without_instructions() -> None:
    plan = plan_of([slot(0)], [], inputs=[0], outputs=[0])
    assert plan.live_bytes == (16,)
    assert plan.peak_bytes == 16
    assert plan.peak_instructions == ()
    assert len(plan.table()) == 1
    empty = plan_of([integer(3)], [], outputs=[0], buffer_sizes=[0])
    assert empty.peak_bytes == 0
    assert len(empty.table()) == 0
    assert len(empty.summary()) == 0


def test_data_beside_the_plan_counts_once() -> None:
    weight, same = tensor(4, data_index=1), tensor(2, 2, data_index=1)
    state = tensor(2, data_index=1, at=(1, 0))
    data = pte_file(
        method(
            [weight, same, state],
            [MoveCall(0, 1)],
            delegates=[("Backend", 1, 1), ("Backend", 1, 1), ("Backend", 1, 2)],
            buffer_sizes=[0, 8],
        ),
        segments=[bytes(16), b"blob of one", b"other", bytes(8)],
        more={
            5: {0: Number("I", 0), 1: Number("Q", [0, 0])},
            6: [{0: Number("I", 3), 1: Number("Q", [0, 0])}],
            7: [{0: "a", 1: Number("I", 2)}, {0: "b", 1: Number("I", 2)}],
        },
    )
    plan = memory_plan(read_pte(data), "forward")
    assert (plan.constant_bytes, plan.state_bytes, plan.delegate_bytes) == (16, 8, 16)
    assert (plan.named_bytes, plan.external_bytes) == (5, 0)
    summary = plan.summary()
    assert dict(zip(summary.values["memory"], summary.values["size"], strict=True)) == {
        "planned memory 1 (cpu)": 8,
        "weights": 16,
        "initial state": 8,
        "delegates' data": 16,
        "named data of the program": 5,
    }


def test_the_table_marks_what_is_alive_at_the_peak() -> None:
    values = [slot(0), slot(1, 100), slot(9)]
    plan = plan_of(values, [relu(0, 1), relu(1, 2)], inputs=[0], outputs=[2])
    table = plan.table()
    assert list(table.values["at_peak"]) == [True, True, False]
    assert table.notes == ("The peak is reached at instruction 0 (relu).",)
    assert list(table.values["size"]) == [16, 400, 16]
    assert list(table.values["offset"]) == [0, 64, 576]


# -- real programs


def overlaps(one: PlannedValue, other: PlannedValue) -> bool:
    same_time = one.first <= other.last and other.first <= one.last
    same_bytes = (
        one.place.memory_id == other.place.memory_id
        and one.place.offset < other.place.offset + other.nbytes
        and other.place.offset < one.place.offset + one.nbytes
    )
    return same_time and same_bytes


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_alive_fits_the_plan(name: str) -> None:
    """ExecuTorch gives no byte to two tensors at one time: lives that are too long would show as
    an overlap, but for views, which begin at the same byte."""
    program = read_pte(artifacts(name).pte)
    for found in program.methods:
        plan = memory_plan(program, found.name)
        values = plan.values
        assert values
        for index, one in enumerate(values):
            for other in values[index + 1 :]:
                assert one.place == other.place or not overlaps(one, other), (one, other)
        for arena in plan.arenas:
            assert 0 < arena.peak_bytes <= arena.size
            assert all(
                value.place.offset + value.nbytes <= arena.size
                for value in values
                if value.place.memory_id == arena.memory_id
            )
        assert plan.peak_bytes <= plan.planned_bytes


def test_the_peak_of_a_cnn_is_its_whole_plan() -> None:
    """Three feature maps of 8 x 16 x 16 are alive where the skip connection is open."""
    plan = memory_plan(read_pte(artifacts("cnn_portable").pte), "forward")
    assert plan.peak_bytes == plan.planned_bytes == 3 * 8 * 16 * 16 * 4
    live = plan.live_at(plan.peak_instructions[0])
    assert {str(value.tensor) for value in live if value.nbytes} == {"float32[1, 8, 16, 16]"}


# -- the debug buffer


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack", "int_outputs", "transformer"])
def test_a_run_fills_the_debug_buffer_as_foreseen(name: str) -> None:
    program = read_pte(artifacts(name).pte)
    dump = read_etdump(artifacts(name).etdump)
    (block,) = (block for block in find_blocks(dump) if block.name == "Execute")
    assert len(block.runs) > 1
    starts = []
    for run in (0, 1):
        values = (dump.value(block.row(run, key.debug[0])) for key in block.keys if key.debug)
        flat = (one for it in values for one in (it if isinstance(it, tuple) else (it,)))
        starts.append(min(one.offset for one in flat if isinstance(one, TensorRef)))
    assert starts[1] - starts[0] == debug_buffer_bytes(program, "forward")


def test_debug_buffer_of_every_kind_of_instruction() -> None:
    values = [
        *(slot(0, 17), slot(2, 17), tensor_list(0, 1), tensor_list(0, 1), integer(0)),
        *(tensor(9, dynamism=ShapeDynamism.DYNAMIC_UNBOUND), tensor(0)),
    ]
    calls = [
        KernelCall(0, (0, 2, 3)),
        KernelCall(1, (0, 4, 4)),
        DelegateCall(0, (0, 0, 1)),
        KernelCall(2, (0, 5, 5)),
        KernelCall(2, (0, 6, 6)),
        MoveCall(0, 1),
    ]
    data = pte_file(
        method(
            values,
            calls,
            inputs=[0],
            outputs=[0, 4],
            operators=["aten::split_copy.Tensor_out", "aten::sym_size.int", "aten::nonzero.out"],
            delegates=[("Backend", 0, 0)],
        ),
        more={3: [{0: b""}]},
    )
    tensor_bytes = 128  # 68, aligned
    assert debug_buffer_bytes(read_pte(data), "forward") == (2 + 3 + 1) * tensor_bytes


# -- the report


def section(name: str, artifact: str) -> Table:
    return memory_report(Export(read_pte(artifacts(artifact).pte)), {}).section(name).table


def test_the_peak_names_the_instructions_that_made_it() -> None:
    plan = memory_plan(read_pte(artifacts("cnn_portable").pte), "forward")
    peak = section("memory_peak", "cnn_portable")
    assert plan.peak_bytes == 24_576
    assert sum(peak.values["size"]) == plan.peak_bytes
    assert sum(peak.values["share"]) == pytest.approx(1.0)
    at = plan.peak_instructions[0]
    columns = (peak.values[name] for name in ("made_by", "instruction", "last"))
    for op, made, last in zip(*columns, strict=True):
        assert made <= at <= last
        assert plan.labels[made] == op
    assert f"instruction {at} ({plan.labels[at]})" in peak.notes[0]


def test_live_bytes_are_the_plans_at_each_instruction() -> None:
    plan = memory_plan(read_pte(artifacts("cnn_portable").pte), "forward")
    live = section("memory_live", "cnn_portable")
    assert tuple(live.values["alive"]) == plan.live_bytes
    assert max(live.values["of_peak"]) == 1.0
    assert sum(live.values["begin"]) == sum(live.values["end"])
    assert sum(live.values["begin"]) == sum(v.last >= v.first for v in plan.values)


@pytest.mark.parametrize("name", ["transformer", "cnn_portable"])
def test_a_value_is_at_the_module_and_line_of_what_writes_it(name: str) -> None:
    trace = open_trace(name, timing=True)
    (profile,) = trace.profiles()
    places = {
        row.instruction_id: (
            common_module(row.attribution.located),
            short_lines(row.attribution.lines) or None,
        )
        for row in profile.rows
        if row.depth == 0
    }
    report = memory_report(trace.export, {})
    for section_name, first in (("memory_values", "first"), ("memory_peak", "instruction")):
        values = report.section(section_name).table.values
        rows = zip(*(values[of] for of in ("role", first, "module", "source")), strict=True)
        written = [row[1:] for row in rows if row[0] == "activation" and row[1] in places]
        assert written and all(places[number] == (at, line) for number, at, line in written)
        assert any(module for _, module, _ in written)


def test_the_record_of_another_program_is_an_error() -> None:
    file, other = artifacts("cnn_portable").pte, artifacts("cnn_xnnpack").etrecord
    program, record = read_pte(file), read_etrecord(other)
    with pytest.raises(MismatchError, match="do not belong together"):
        memory_report(Export(program, record), {})
    assert (
        memory_report(Export(program, record), {}, force=True).section("memory_values") is not None
    )
    assert main(["info", "--memory", str(file), "-r", str(other)]) == 3
    assert main(["info", "--memory", str(file), "-r", str(other), "--force"]) == 0


def test_values_of_all_methods_are_listed() -> None:
    values = section("memory_values", "two_methods")
    assert set(values.values["module"]) == {None}  # without a record
    assert set(values.values["method"]) == {"encode", "decode"}
    program = read_pte(artifacts("two_methods").pte)
    planned = sum(len(memory_plan(program, m.name).values) for m in program.methods)
    assert len(values) == planned


def test_a_program_that_plans_nothing_is_no_empty_answer() -> None:
    with pytest.raises(MissingDataError, match="plans no memory"):
        memory_report(Export(read_pte(pte_file(method([])))), {})
