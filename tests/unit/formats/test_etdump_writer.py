from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import UsageError
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import ETDump, EventKind, TensorRef, read_etdump
from etscope.formats.etdump.writer import ETDumpWriter, write_etdump
from etscope.formats.program.scalar_type import ScalarType

PLACES = {"source", "flatbuffer_end", "metadata_offset", "debug_value_offset"}


@pytest.fixture
def writer() -> ETDumpWriter:
    writer = ETDumpWriter(clock=iter(range(100, 200)).__next__)
    writer.create_event_block("Execute")
    return writer


def written(writer: ETDumpWriter) -> ETDump:
    return read_etdump(writer.finish())


def assert_same(actual: ETDump, expected: ETDump) -> None:
    for name in {field.name for field in fields(ETDump)} - PLACES:
        left, right = getattr(actual, name), getattr(expected, name)
        if isinstance(right, np.ndarray):
            np.testing.assert_array_equal(left, right, err_msg=name)
        else:
            assert left == right, name
    for event in range(expected.num_events):
        assert actual.metadata(event) == expected.metadata(event)
        if expected.debug_value_offset[event] >= 0:
            assert repr(actual.value(event)) == repr(expected.value(event))


def test_spans_take_their_times_from_the_clock(writer: ETDumpWriter) -> None:
    outer = writer.start_profiling("Method::execute")
    writer.set_chain_debug_handle(0, 7)
    inner = writer.start_profiling("native_call_add.out")
    writer.end_profiling(inner)
    delegated = writer.start_profiling_delegate("conv #1", instruction_id=8)
    writer.end_profiling_delegate(delegated, b"meta")
    writer.end_profiling(outer)
    dump = written(writer)

    # In the order in which they ended; each with the instruction that was set when it began.
    assert [dump.strings[i] if i >= 0 else None for i in dump.name.tolist()] == [
        "native_call_add.out",
        None,
        "Method::execute",
    ]
    assert dump.start.tolist() == [101, 103, 100]
    assert dump.end.tolist() == [102, 104, 105]
    assert dump.chain_index.tolist() == [0, 0, -1]
    assert dump.instruction_id.tolist() == [7, 8, 0]
    assert dump.strings[dump.delegate_id_str[1]] == "conv #1"
    assert dump.metadata(1) == b"meta"


def test_scalars(writer: ETDumpWriter) -> None:
    values = [True, False, 5, -(2**63), 2.5, float("inf"), None, np.float32(0.5), np.int8(-3)]
    for value in values:
        writer.log_evalue(value)
    dump = written(writer)
    assert (dump.kind == EventKind.DEBUG).all()
    read = [dump.value(event) for event in range(len(values))]
    assert read == values
    assert [type(value) for value in read[:2]] == [bool, bool]
    assert_same(read_etdump(write_etdump(dump)), dump)


def test_tensors_go_to_the_debug_buffer(writer: ETDumpWriter, tmp_path: Path) -> None:
    channels_last = np.arange(24, dtype=np.float32).reshape(1, 4, 3, 2).transpose(0, 3, 1, 2)
    writer.log_evalue(channels_last)
    writer.log_evalue([np.array([True]), np.zeros((0, 3))], output=True)
    writer.log_intermediate_output_delegate(5, np.int16([[1, 2], [3, 4]])[:, 1])
    writer.save(tmp_path / "x.etdp", tmp_path / "x.bin")
    dump, buffer = read_etdump(tmp_path / "x.etdp"), DebugBuffer.open(tmp_path / "x.bin")

    first = dump.value(0)
    assert first == TensorRef(ScalarType.FLOAT, (1, 2, 4, 3), (24, 1, 6, 2), 0)
    assert np.array_equal(buffer.tensor(first), channels_last)
    second = dump.value(1)
    assert isinstance(second, tuple)
    assert [ref.offset for ref in second] == [128, -1]  # 96 bytes, then the next multiple of 64
    assert [buffer.tensor(ref).shape for ref in second] == [(1,), (0, 3)]
    assert buffer.tensor(dump.value(2)).tolist() == [2, 4]
    assert dump.is_output.tolist() == [False, True, False]
    assert dump.delegate_id_int.tolist() == [-1, -1, 5]
    assert writer.debug_data == (tmp_path / "x.bin").read_bytes()


def test_allocations(writer: ETDumpWriter) -> None:
    method = writer.track_allocator("method")
    writer.track_allocation(method, 2**40)
    writer.create_event_block("Execute")
    temp = writer.track_allocator("temp")
    writer.track_allocation(temp, 16)
    dump = written(writer)
    assert (method, temp) == (1, 2)
    assert dump.run_allocators == (("method",), ("method", "temp"))
    assert dump.allocator_id.tolist() == [1, 2]
    assert dump.allocation_size.tolist() == [2**40, 16]
    assert_same(read_etdump(write_etdump(dump)), dump)
    with pytest.raises(UsageError, match="no allocator has the id 3"):
        writer.track_allocation(3, 1)


def test_blocks(writer: ETDumpWriter) -> None:
    writer.set_bundled_input_index(2)
    writer.create_event_block("")
    writer.create_event_block("Execute")
    dump = written(writer)
    assert [dump.run_name_of(run) for run in range(3)] == ["Execute", "", "Execute"]
    assert dump.run_bundled_input_index.tolist() == [-1, 2, 2]
    assert dump.num_events == 0
    assert written(ETDumpWriter()).num_runs == 0
    with pytest.raises(UsageError, match="create_event_block first"):
        ETDumpWriter().log_profiling("a", 1, 2)


def test_the_file_can_be_had_between_events(writer: ETDumpWriter) -> None:
    writer.log_profiling("a", 1, 2)
    before = writer.finish()
    writer.log_profiling("b", 1, 2)
    assert read_etdump(before).num_events == 1
    assert written(writer).num_events == 2
    assert writer.finish() == writer.finish()


def test_repeated_blocks(writer: ETDumpWriter) -> None:
    writer.track_allocator("method")
    writer.log_profiling("a", 1, 2)
    writer.log_evalue(3)
    writer.log_profiling("b", 3, 4)
    writer.repeat_block([[5, 6], [7, 8]], [[9, 10], [11, 12]])
    dump = written(writer)

    assert dump.run_first_event.tolist() == [0, 3, 6, 9]
    assert dump.start.tolist() == [1, 0, 3, 5, 0, 6, 7, 0, 8]
    assert dump.end.tolist() == [2, 0, 4, 9, 0, 10, 11, 0, 12]
    assert [dump.value(event) for event in (1, 4, 7)] == [3, 3, 3]
    assert dump.run_allocators == (("method",),) * 3
    with pytest.raises(UsageError, match="create_event_block first"):
        writer.log_profiling("c", 1, 2)


def test_numbers_of_64_bits_are_aligned(writer: ETDumpWriter) -> None:
    # FlatBuffers' verifiers refuse anything else.
    marks = [0x1122334455667788, 0x1222334455667788, 0x1322334455667788, 0x1422334455667788]
    writer.log_profiling("odd name", marks[0], marks[1], chain_index=1)
    writer.log_evalue(marks[2])
    writer.track_allocation(writer.track_allocator("x"), marks[3])
    data = writer.finish()
    assert [data.index(mark.to_bytes(8, "little")) % 8 for mark in marks] == [0] * 4


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda w: w.log_profiling("a", -1, 2), "the start -1 does not fit"),
        (lambda w: w.log_profiling("a", 1, 2**64), "the end"),
        (lambda w: w.log_profiling("a", 1, 2, instruction_id=2**31), "instruction id"),
        (lambda w: w.log_profiling_delegate(-1, 1, 2), "-1 is not a delegate id"),
        (lambda w: w.set_chain_debug_handle(2**31, 0), "chain index"),
        (lambda w: w.set_bundled_input_index(-(2**40)), "bundled input index"),
        (lambda w: w.log_evalue("text"), "cannot hold a str"),
        (lambda w: w.log_evalue(2**63), "cannot hold a int"),
        (lambda w: w.log_evalue([1, 2]), "cannot hold a list"),
        (lambda w: w.log_evalue(np.zeros(2, np.longdouble)), "float128"),
        (lambda w: w.repeat_block([[1]], [[2]]), r"shape \(repeats, 0\)"),
    ],
)
def test_misuse(writer: ETDumpWriter, misuse: Callable[[ETDumpWriter], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        misuse(writer)
    assert written(writer).num_events == 0


def test_tensors_are_not_left_behind(writer: ETDumpWriter, tmp_path: Path) -> None:
    writer.log_evalue(np.zeros(3))
    with pytest.raises(UsageError, match="needs a debug_buffer_path"):
        writer.save(tmp_path / "x.etdp")
    with pytest.raises(UsageError, match="cannot write"):
        writer.save(tmp_path / "x.etdp", tmp_path / "none" / "x.bin")
    assert list(tmp_path.iterdir()) == []


INT32 = st.integers(-(2**31), 2**31 - 1)
UINT64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=9)
NAMES = TEXT | st.integers(0, 2**31 - 1)  # a delegate's events have either
SPANS = st.tuples(NAMES, UINT64, UINT64, INT32, INT32, st.none() | st.binary(max_size=9))


@given(st.lists(st.tuples(TEXT, st.lists(st.tuples(st.booleans(), SPANS), max_size=6)), max_size=5))
def test_anything_written_is_read(blocks: list[tuple[str, list[Any]]]) -> None:
    writer = ETDumpWriter()
    for name, spans in blocks:
        writer.create_event_block(name)
        for delegated, (text, start, end, chain, instruction, metadata) in spans:
            where = {"chain_index": chain, "instruction_id": instruction}
            if delegated:
                writer.log_profiling_delegate(text, start, end, metadata, **where)
            else:
                writer.log_profiling(str(text), start, end, **where)
    dump = written(writer)

    flat = [(delegated, *span) for _, spans in blocks for delegated, span in spans]
    assert [dump.run_name_of(run) for run in range(dump.num_runs)] == [name for name, _ in blocks]
    assert dump.run_first_event.tolist() == np.cumsum([0, *(len(s) for _, s in blocks)]).tolist()
    names = [dump.strings[i] if i >= 0 else None for i in dump.name]
    assert names == [None if span[0] else str(span[1]) for span in flat]
    ids = zip(dump.delegate_id_int.tolist(), dump.delegate_id_str.tolist(), strict=True)
    delegated_as = [dump.strings[text] if text >= 0 else number for number, text in ids]
    assert delegated_as == [span[1] if span[0] else -1 for span in flat]
    assert dump.start.tolist() == [span[2] for span in flat]
    assert dump.end.tolist() == [span[3] for span in flat]
    assert dump.chain_index.tolist() == [span[4] for span in flat]
    assert dump.instruction_id.tolist() == [span[5] for span in flat]
    for event, (delegated, *_, metadata) in enumerate(flat):
        kept = metadata if delegated else None
        assert dump.metadata(event) == (kept or b"")
        assert dump.metadata_length[event] == (-1 if kept is None else len(kept))
    assert_same(read_etdump(write_etdump(dump)), dump)
