"""Hostile .pte and .bpte files: a result or an error of etscope, in bounded time and memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.file_parts import ProgramClaims
from etscope.analysis.memory.needs import context_section, owners_section, program_memory
from etscope.analysis.memory.plan import debug_buffer_bytes, memory_plan
from etscope.analysis.memory.state import state_section
from etscope.analysis.program.compatibility import instruction_labels
from etscope.analysis.program.program import instructions
from etscope.errors import EtscopeError, FormatError
from etscope.formats.identify import identify
from etscope.formats.program.bpte import read_bundled
from etscope.formats.program.ptd import read_ptd, write_ptd
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.pte_schema import (
    JumpFalseCall,
    KernelCall,
    ListValue,
    MoveCall,
    TensorValue,
    ValueKind,
)
from tests.attacks.hostile import is_read_in_little_memory
from tests.attacks.mutations import attack, mutated
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import (
    Number,
    build,
    instruction,
    integer,
    ints,
    method,
    pte_file,
    tensor,
    tensor_list,
    value,
)
from tests.support.fuzz import fuzzed

# -- what is done with each


def touch(program: Program) -> None:
    """Ask a program for all that it holds. An error of one answer does not stop the rest."""
    for span in program.segments:
        assert len(program.blob(span)) == span.size
    for entry in program.named_data:
        assert len(program.blob(entry.blob)) >= 0
    with suppress(EtscopeError):
        assert sum(part.size for part in ProgramClaims(program).parts()) == program.source.size
    with suppress(EtscopeError):
        memory = program_memory(Export(program))
        list(owners_section(memory).table.rows())
        list(state_section(memory.state).table.rows())
        list(context_section(memory, 4096).table.rows())
    for one in program.methods:
        for index, held in enumerate(one.values):
            str(held)
            if isinstance(held, TensorValue):
                with suppress(EtscopeError):
                    program.constant(one.name, index).tobytes()
        for delegate in range(len(program.method(one.name).delegates)):
            bytes(program.delegate_blob(one.name, delegate))
        with suppress(EtscopeError):
            analyse(program, one.name)


def analyse(program: Program, name: str) -> None:
    listing = instructions(program, name)
    assert len(list(listing.table().rows())) == len(listing.records)
    assert len(instruction_labels(program.method(name))) == len(listing.records)
    plan = memory_plan(program, name)
    assert plan.peak_bytes >= 0
    list(plan.table().rows())
    list(plan.summary().rows())
    assert debug_buffer_bytes(program, name) >= 0


def touch_pte(data: bytes) -> None:
    with suppress(FormatError):
        assert identify(data)
    touch(read_pte(data))


def touch_ptd(data: bytes) -> None:
    found = read_ptd(data)
    for key, entry in found.entries.items():
        str(entry)
        assert len(found.blob(key)) == entry.blob.size
        with suppress(EtscopeError):
            found.tensor(key).tobytes()


def touch_bpte(data: bytes) -> None:
    bundle = read_bundled(data)
    for suite in bundle.suites:
        for case in suite.cases:
            for one in (*case.inputs, *case.expected_outputs):
                str(one)
    touch(bundle.program())


def attack_files(
    seed: int, count: int, files: Sequence[bytes], touch_file: Callable[[bytes], None]
) -> None:
    for data in files:
        touch_file(data)
    attack(seed, count, lambda rng: mutated(rng, files), touch_file)


def with_everything() -> bytes:
    """A program with what the artefacts lack: stack traces, state, inline data, devices."""
    frames = [{0: "model.py", 1: Number("i", 12), 2: "forward", 3: "return self.fc(x)"}]
    values = [
        tensor(2, 3, at=(1, 0)),
        tensor(2, 3, data_index=1),
        tensor(2, 3, data_index=1, at=(1, 64)),
        tensor_list(0, 2),
        integer(4),
        tensor(2, 3, at=(1, 128)),
    ]
    calls = [KernelCall(0, (0, 1, 5, 5)), KernelCall(1, (2, 3, 2)), MoveCall(5, 0)]
    return pte_file(
        {
            **method(
                values,
                [*calls, JumpFalseCall(4, 0)],
                inputs=[0],
                outputs=[5, 4],
                operators=["aten::add.out", "aten::cat_"],
                delegates=[("Backend", 0, 0), ("Backend", 1, 0)],
                buffer_sizes=[0, 256],
                stacktrace=[{0: frames}] * 4,
            ),
            9: [{0: Number("i", 1), 1: Number("b", 1)}],
        },
        segments=[bytes(48), bytes(48)],
        more={
            3: [{0: b"inline data of a delegate"}],
            5: {0: Number("I", 0), 1: Number("Q", [0, 16])},
            6: [{0: Number("I", 1), 1: Number("Q", [0, 16])}],
            7: [{0: "key", 1: Number("I", 1)}],
        },
    )


def with_a_cache() -> bytes:
    """Two methods with a cache that one of them writes at positions, and a context length."""
    indices = ListValue(ValueKind.OPTIONAL_TENSOR_LIST, (-1, 1))
    values = [
        tensor(2, 16, at=(2, 0), name="k_cache"),
        tensor(1, at=(1, 0)),
        indices,
        tensor(2, 16, at=(1, 64)),
        integer(1),
    ]
    calls = [KernelCall(0, (0, 2, 1, 4, 3, 3)), KernelCall(1, (0, 3, 4, 0))]
    operators = ["aten::index_put.out", "aten::copy_"]
    made = [
        method(
            values, calls, name=name, inputs=[1], operators=operators, buffer_sizes=[0, 192, 128]
        )
        for name in ("prefill", "decode")
    ]
    return pte_file(*made, method([integer(16)], name="get_max_context_len", outputs=[0]))


@fuzzed(1200, nightly=40_000)
def test_mutated_programs(seed: int, count: int) -> None:
    names = ("bf16_fp16", "cond", "forward_and_extra", "int_outputs", "two_methods", "while_loop")
    real = [artifacts(name).pte.read_bytes() for name in names]
    attack_files(seed, count, [*real, with_everything(), with_a_cache()], touch_pte)


@fuzzed(800, nightly=40_000)
def test_mutated_bundles(seed: int, count: int) -> None:
    floats = {0: Number("b", 6), 1: ints(2, 3), 2: bytes(24), 3: bytes([1, 0])}
    case = [
        {0: Number("B", 1), 1: floats},
        {0: Number("B", 2), 1: {0: Number("q", 3)}},
        {0: Number("B", 3), 1: {0: Number("?", True)}},
        {0: Number("B", 4), 1: {0: Number("d", 0.5)}},
    ]
    suites = [{0: "forward", 1: [{0: case, 1: case[:1]}, {0: case}]}]
    small = build({0: Number("I", 2), 1: suites, 2: with_everything()}, b"BP08")
    real = artifacts("bundled").bpte
    assert real is not None
    attack_files(seed, count, [*[small] * 7, real.read_bytes()], touch_bpte)


@fuzzed(800, nightly=40_000)
def test_mutated_external_tensors(seed: int, count: int, tmp_path: Path) -> None:
    made = tmp_path / "made.ptd"
    write_ptd({"a": np.zeros((2, 3), np.float32), "b": np.int8(1), "c": b"opaque"}, made)
    names = ("external_portable", "external_xnnpack")
    real = [artifacts(name).extra("weights.ptd").read_bytes() for name in names]
    attack_files(seed, count, [*real, made.read_bytes()], touch_ptd)


def test_files_cut_off_anywhere() -> None:
    for data, read in (
        (artifacts("external_portable").extra("weights.ptd").read_bytes(), read_ptd),
        (with_everything(), read_pte),
    ):
        for size in range(len(data)):
            with pytest.raises(EtscopeError):
                read(data[:size])


@given(st.binary(max_size=300), st.sampled_from([b"ET12", b"BP08", b"FT01"]))
def test_any_bytes_behind_the_identifier(rest: bytes, identifier: bytes) -> None:
    data = struct.pack("<I4s", 8, identifier) + rest
    for read in (touch_pte, touch_bpte, touch_ptd):
        with suppress(EtscopeError):
            read(data)


# -- small files that stand for large ones


def in_little_memory(data: bytes) -> bool:
    return is_read_in_little_memory(data, touch_pte)


def test_one_tensor_as_many_values() -> None:
    one = value(tensor(*[1] * 30))
    data = pte_file({**method([]), 2: [one] * 50_000})
    assert len(data) < 250_000
    assert not in_little_memory(data)


def test_one_long_list_as_the_argument_of_many_calls() -> None:
    values = [tensor(1, at=(1, 0)), tensor_list(*[0] * 5000)]
    calls = [instruction(KernelCall(0, (1, 1, 1)))] * 5000
    made = method(values, operators=["aten::cat.out"])
    assert not in_little_memory(pte_file({**made, 5: [{2: calls}]}))


def test_one_long_stack_trace_for_many_instructions() -> None:
    frames = [{0: "model.py", 1: Number("i", n), 2: "forward", 3: ""} for n in range(1000)]
    data = pte_file(method([integer(1)], [MoveCall(0, 0)] * 2000, stacktrace=[{0: frames}] * 2000))
    assert in_little_memory(data)
    assert [len(trace) for trace in read_pte(data).stack_traces("forward")] == [1000] * 2000


def test_many_buffers_and_many_instructions() -> None:
    """A row of live bytes for each memory id would take 3,000 x 3,000 numbers."""
    count = 3000
    data = pte_file(
        method(
            [tensor(4, at=(i, 0)) for i in range(count)],
            [KernelCall(0, (i, i, i)) for i in range(count)],
            operators=["aten::relu.out"],
            buffer_sizes=[64] * count,
        )
    )
    assert in_little_memory(data)


def test_many_loops_around_many_values() -> None:
    count = 2000
    data = pte_file(
        method(
            [*(tensor(4, at=(1, 16 * i)) for i in range(count)), integer(0)],
            [JumpFalseCall(count, 0) if i % 2 else MoveCall(i, i) for i in range(count)],
            buffer_sizes=[0, 16 * count],
        )
    )
    assert in_little_memory(data)


def test_many_values_at_one_place() -> None:
    count = 2000
    data = pte_file(
        method(
            [tensor(4, at=(1, 0))] * count,
            [KernelCall(0, (i, i + 1, i + 1)) for i in range(count - 1)],
            inputs=[0],
            operators=["aten::relu.out"],
            buffer_sizes=[0, 16],
        )
    )
    assert in_little_memory(data)


def test_enormous_tensors() -> None:
    """Sizes whose product has 300 digits, planned and live."""
    huge = tensor(*[2**31 - 1] * 32, at=(1, 0))
    data = pte_file(
        method(
            [huge, huge],
            [KernelCall(0, (0, 1, 1))],
            inputs=[0],
            operators=["aten::relu.out"],
            buffer_sizes=[0, 2**62],
        )
    )
    assert in_little_memory(data)
    assert memory_plan(read_pte(data), "forward").peak_bytes == 4 * (2**31 - 1) ** 32
