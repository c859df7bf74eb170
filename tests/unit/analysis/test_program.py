from __future__ import annotations

from collections.abc import Sequence

import pytest

from etscope.analysis.program.compatibility import Observed
from etscope.analysis.program.program import InstructionRecord, instructions, is_prim, registered_by
from etscope.formats.etdump.debug_values import TensorRef
from etscope.formats.program.pte import read_pte
from etscope.formats.program.pte_schema import (
    DelegateCall,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    ListValue,
    MoveCall,
    Operator,
    ScalarValue,
    ShapeDynamism,
    Value,
    ValueKind,
)
from etscope.model.graph import SourceLine
from tests.support.analysis.traces import open_trace
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import Number, integer, method, pte_file, tensor, tensor_list

RECORDED = (
    *("bundled", "channels_last", "cnn_portable", "cnn_xnnpack", "cond", "int_outputs"),
    *("transformer", "transformer_portable", "two_methods", "while_loop"),
)


def records(
    values: Sequence[Value],
    calls: Sequence[Instruction],
    *operators: str,
    inputs: Sequence[int] = (),
    delegate_outputs: dict[int, int] | None = None,
) -> tuple[InstructionRecord, ...]:
    backend = [("Backend", 0, 0)]
    made = method(values, calls, operators=operators, inputs=inputs, delegates=backend)
    program = read_pte(pte_file(made, more={3: [{0: b""}]}))
    return instructions(program, "forward", delegate_outputs=delegate_outputs).records


def place(number: int) -> Value:
    """A tensor at the `number`-th place of 64 bytes."""
    return tensor(2, 3, at=(1, 64 * number))


T, N = place(0), integer(0)


# -- which arguments are results


@pytest.mark.parametrize(
    ("operator", "args", "values", "inputs", "outputs"),
    [
        ("aten::add.out", (0, 1, 2, 3, 3), [T, T, integer(1), T], (0, 1, 2), (3,)),
        ("aten::max.dim_max", (0, 1, 2, 3, 4), [T, N, T, T, tensor_list(2, 3)], (0, 1), (2, 3)),
        ("aten::split_copy.Tensor_out", (0, 3, 4), [T, T, T, *[tensor_list(1, 2)] * 2], (0,), (3,)),
        ("aten::split_copy.Tensor_out", (0, 1, 2), [T, *[tensor_list()] * 2], (0, 1), ()),
        ("aten::add_.Tensor", (0, 1, 0), [T, T], (0, 1), (0,)),
        ("aten::relu_", (0, 0), [T, T], (0,), (0,)),
        ("aten::copy_", (0, 1, 0), [T, T], (1,), (0,)),
        ("aten::sym_size.int", (0, 1, 2), [T, N, N], (0, 1), (2,)),
        ("executorch_prim::add.Scalar", (0, 1, 0), [N, integer(1)], (0, 1), (0,)),
        ("executorch_prim::et_copy_index.tensor", (0, 1, 2), [T, T, N], (1, 2), (0,)),
    ],
)
def test_arguments_and_results(
    operator: str, args: tuple[int, ...], values: list[Value], inputs: object, outputs: object
) -> None:
    (record,) = records(values, [KernelCall(0, args)], operator)
    assert (record.inputs, record.outputs) == (inputs, outputs)


def test_instructions_of_control_flow() -> None:
    values = [T, T, ScalarValue(ValueKind.BOOL, False)]
    move, jump, free = records(values, [MoveCall(0, 1), JumpFalseCall(2, 0), FreeCall(1)])
    assert (move.kind, move.event, move.inputs, move.outputs) == ("move", "MOVE_CALL", (0,), (1,))
    assert (jump.kind, jump.event, jump.destination) == ("jump", "JF_CALL", 0)
    assert jump.label == "jump to 0 if false"
    assert (free.kind, free.event, free.inputs) == ("free", "FREE_CALL", (1,))
    assert move.bytes_read == move.bytes_written == 0


WEIGHT = tensor(3, data_index=1)
UNPLANNED = tensor(2, 3)


@pytest.mark.parametrize(
    ("values", "written", "args", "inputs", "outputs"),
    [
        ([T, WEIGHT, place(1), place(2), place(3)], 2, (0, 1, 2, 3, 4), (0, 1, 2), (3, 4)),
        # Value 1 is a view: nothing writes it either. Outputs have indices in a row.
        ([T, T, T, place(1), place(2)], 2, (2, 1, 3, 4), (2, 1), (3, 4)),
        # Value 2 is a view of memory that the kernel wrote.
        ([T, tensor(6, at=(1, 64)), place(1), place(2)], 1, (2, 3), (2,), (3,)),
        ([T, UNPLANNED, UNPLANNED, N], 1, (0, 2, 3), (0,), (2, 3)),
    ],
)
def test_outputs_of_a_delegate_are_what_nothing_wrote(
    values: list[Value], written: int, args: tuple[int, ...], inputs: object, outputs: object
) -> None:
    calls = [KernelCall(0, (0, written, written)), DelegateCall(0, args)]
    _, delegate = records(values, calls, "aten::relu.out", inputs=[0])
    assert (delegate.inputs, delegate.outputs) == (inputs, outputs)
    assert delegate.backend_id == delegate.label == "Backend"
    assert delegate.event == delegate.call == "DELEGATE_CALL"


def test_what_a_record_says_of_a_delegate_decides() -> None:
    values = [T, T, T]
    calls = [DelegateCall(0, (0, 1, 2))]
    (told,) = records(values, calls, inputs=[0], delegate_outputs={0: 1})
    assert (told.inputs, told.outputs) == ((0, 1), (2,))


# -- what else a record holds


def test_names_sizes_and_bytes() -> None:
    values = [tensor(2, 3), tensor(4), tensor_list(0, 1, 0), integer(0), tensor(10)]
    (record,) = records(values, [KernelCall(0, (2, 3, 4, 4))], "aten::cat.out")
    assert record.operator == "aten::cat.out"
    assert record.event == "native_call_cat.out"
    assert record.call == "OPERATOR_CALL"
    assert record.label == "cat"
    assert [str(one) for one in record.read] == ["float32[2, 3]", "float32[4]"]
    assert [str(one) for one in record.written] == ["float32[10]"]
    assert (record.bytes_read, record.bytes_written) == (40, 40)


def test_names_of_other_operators() -> None:
    values = [T]
    (custom,) = records(values, [KernelCall(0, (0, 0))], "llama::update_cache")
    assert (custom.label, custom.event) == ("llama.update_cache", "native_call_update_cache")
    (prim,) = records(values, [KernelCall(0, (0, 0))], "executorch_prim::et_view.default")
    assert (prim.label, prim.event) == ("executorch_prim.et_view", "OPERATOR_CALL")
    assert prim.bytes_read == prim.bytes_written == 0
    assert is_prim(Operator("aten::sym_size", "int"))
    assert not is_prim(Operator("aten::add", "out"))


def test_bytes_without_a_bound_and_missing_tensors_of_a_list() -> None:
    unbounded = tensor(8, dynamism=ShapeDynamism.DYNAMIC_UNBOUND)
    (record,) = records([T, unbounded], [KernelCall(0, (0, 1, 1))], "aten::nonzero.out")
    assert (record.bytes_read, record.bytes_written) == (24, None)
    index = ListValue(ValueKind.OPTIONAL_TENSOR_LIST, (-1, 1))
    (record,) = records([T, tensor(4), index, T], [KernelCall(0, (0, 2, 3, 3))], "aten::index.out")
    assert [str(one) for one in record.read] == ["float32[2, 3]", "float32[4]"]


def test_stack_traces_become_source_lines() -> None:
    frames = [
        {0: "model.py", 1: Number("i", 12), 2: "forward", 3: "return self.fc(x)"},
        {0: "fc.py", 1: Number("i", 3), 2: "forward", 3: "return x + 1"},
    ]
    data = pte_file(method([T], [MoveCall(0, 0)] * 2, stacktrace=[{0: frames}, {0: []}]))
    listing = instructions(read_pte(data), "forward")
    assert listing.records[0].stack == (
        SourceLine("model.py", 12, "forward", "return self.fc(x)"),
        SourceLine("fc.py", 3, "forward", "return x + 1"),
    )
    assert listing.table().values["source"] == ["fc.py:3", None]


def test_the_table_has_a_row_for_each_instruction() -> None:
    program = read_pte(artifacts("transformer").pte)
    listing = instructions(program, "forward")
    table = listing.table()
    assert len(table) == len(program.method("forward").instructions)
    assert list(table.values["instruction"]) == list(range(len(table)))
    row = dict(zip(table.names, next(table.rows()), strict=True))
    assert row["op"] == "embedding"
    assert row["inputs"] == ["float32[64, 32]", "int64[1, 16]"]
    assert row["outputs"] == ["float32[1, 16, 32]"]
    assert row["bytes_read"] == 64 * 32 * 4 + 16 * 8
    assert "XnnpackBackend" in table.values["op"]


# -- against what real runs logged


@pytest.mark.parametrize("name", RECORDED)
def test_a_run_logs_the_events_and_results_that_the_program_names(name: str) -> None:
    """With intermediate outputs recorded, a kernel logs its results and a delegate call all its
    arguments, in order: the rules of the module hold for every operator that ran."""
    trace = open_trace(name, record=False)
    compared = 0
    for block in (one for one in trace.blocks if one.name == "Execute"):
        listed = instructions(trace.program, trace.method_of(block)).records
        for index, names in Observed.of(block).events.items():
            known = {one for one in names if one.endswith("_CALL") or one.startswith("native_")}
            assert known == {listed[index].event, listed[index].call}
        for key in block.keys:
            if key.is_framework or key.chain_index < 0 or not key.debug or key.delegate_id:
                continue
            record = listed[key.instruction_id]
            expected = record.read + record.written if record.kind == "delegate" else record.written
            logged = [trace.dump.value(block.row(0, position)) for position in key.debug]
            flat = [one for it in logged for one in (it if isinstance(it, tuple) else (it,))]
            assert [one.sizes for one in flat if isinstance(one, TensorRef)] == [
                one.sizes for one in expected if one.dynamism is ShapeDynamism.STATIC
            ]
            compared += 1
    assert compared


@pytest.mark.parametrize(
    ("operator", "library"),
    [
        ("aten::add.out", "executorch::kernels_optimized"),
        ("quantized_decomposed::add.out", "executorch::kernels_quantized"),
        ("my::op.out", None),
    ],
)
def test_the_library_that_registers_an_operator(operator: str, library: str | None) -> None:
    assert registered_by(operator) == library
