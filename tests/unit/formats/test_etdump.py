from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import FormatError, MissingDataError
from etscope.formats.etdump.debug_values import ValueType
from etscope.formats.etdump.reader import (
    ETDump,
    EventKind,
    TensorRef,
    logged_values,
    read_etdump,
)
from etscope.formats.etdump.writer import ETDumpWriter
from etscope.formats.program.scalar_type import ScalarType
from tests.support.artifacts import artifacts
from tests.support.etdump_by_hand import (
    Table,
    allocation,
    debug,
    etdump,
    flatbuffer,
    profile,
    run,
    tensor,
    value,
)

ULONG_MAX = 2**64 - 1


@pytest.fixture
def dump() -> ETDump:
    """Two runs with an event of every kind."""
    events = [
        profile(
            "conv", chain=0, instruction=3, delegate_int=-1, metadata=b"", start=10, end=ULONG_MAX
        ),
        profile(delegate_str="conv #1", chain=0, instruction=3, metadata=b"\xff\x00", start=11),
        allocation(allocator=2, size=2**40),
        debug(value(1, 3, {0: ("q", -7)}), chain=0, instruction=3, delegate_int=5),
        debug(value(2, 6, {0: ("?", True)}, output=True), chain=ULONG_MAX, instruction=0),
    ]
    allocators = [{0: "method"}, {0: "temp"}]
    return read_etdump(
        etdump(
            run("Default", [profile("Method::init", chain=-1, instruction=0, start=1, end=2)]),
            run("Execute", events, bundled_input_index=4, allocators=allocators),
            version=9,
        )
    )


def test_runs_and_columns(dump: ETDump) -> None:
    assert dump.version == 9
    assert dump.num_runs == 2
    assert [dump.run_name_of(r) for r in (0, 1)] == ["Default", "Execute"]
    assert dump.run_bundled_input_index.tolist() == [-1, 4]
    assert dump.run_first_event.tolist() == [0, 1, 6]
    assert dump.run_allocators == ((), ("method", "temp"))

    assert dump.num_events == 6
    assert dump.run.tolist() == [0, 1, 1, 1, 1, 1]
    assert dump.kind.tolist() == [0, 0, 0, 1, 2, 2]
    assert [dump.strings[i] if i >= 0 else None for i in dump.name.tolist()] == [
        "Method::init",
        "conv",
        *[None] * 4,
    ]
    assert dump.chain_index.tolist() == [-1, 0, 0, -1, 0, -1]
    assert dump.instruction_id.tolist() == [0, 3, 3, -1, 3, 0]
    assert dump.delegate_id_int.tolist() == [-1, -1, -1, -1, 5, -1]
    assert dump.delegate_id_str.tolist() == [-1, -1, dump.strings.index("conv #1"), -1, -1, -1]
    assert dump.start.tolist() == [1, 10, 11, 0, 0, 0]
    assert dump.end.tolist() == [2, ULONG_MAX, 0, 0, 0, 0]
    assert dump.metadata_length.tolist() == [-1, 0, 2, -1, -1, -1]
    assert [dump.metadata(i) for i in range(3)] == [b"", b"", b"\xff\x00"]
    assert dump.allocator_id.tolist() == [0, 0, 0, 2, 0, 0]
    assert dump.allocation_size.tolist() == [0, 0, 0, 2**40, 0, 0]
    assert dump.is_output.tolist() == [False] * 5 + [True]
    assert [dump.value(i) for i in (4, 5)] == [-7, True]


def test_column_types(dump: ETDump) -> None:
    names = {
        np.bool_: "is_output",
        np.uint8: "kind",
        np.int32: "run run_name run_bundled_input_index name instruction_id allocator_id "
        "delegate_id_int delegate_id_str",
        np.int64: "run_first_event chain_index metadata_offset metadata_length debug_value_offset",
        np.uint64: "start end allocation_size",
    }
    expected = {name: dtype for dtype, some in names.items() for name in some.split()}
    for source in (dump, read_etdump(etdump()), read_etdump(etdump(run("Empty")))):
        assert {name: getattr(source, name).dtype for name in expected} == expected
        assert not any(getattr(source, name).flags.writeable for name in expected)


def test_what_is_left_out_has_its_default() -> None:
    dump = read_etdump(etdump(run(), run("no events", []), run(events=[profile(), debug()])))
    assert dump.run_name.tolist() == [-1, 0, -1]
    assert dump.run_name_of(0) == ""
    assert dump.run_first_event.tolist() == [0, 0, 0, 2]
    assert dump.name.tolist() == dump.delegate_id_str.tolist() == [-1, -1]
    assert dump.chain_index.tolist() == [0, 0]  # the schema's defaults differ
    assert dump.instruction_id.tolist() == dump.delegate_id_int.tolist() == [-1, -1]
    assert dump.metadata(0) == b""
    with pytest.raises(MissingDataError, match="event 1 does not have a debug value"):
        dump.value(1)


def test_a_dump_without_runs_or_events() -> None:
    for data in (etdump(), flatbuffer({}), etdump(run("a"), run("b"))):
        dump = read_etdump(data)
        assert dump.num_events == 0
        assert dump.run_first_event.tolist() == [0] * (dump.num_runs + 1)


def test_bytes_around_the_flatbuffer(tmp_path: Path) -> None:
    data = etdump(run("Execute", [profile("conv", start=1, end=2)]))
    size = len(data) - 4
    variants = {
        "as it is": data,
        "without a size": data[4:],
        "followed by other bytes": data + b"\xff" * 99,
        "a size that counts some padding": (size + 12).to_bytes(4, "little") + data[4:],
    }
    for name, variant in variants.items():
        path = tmp_path / "dump.etdp"
        path.write_bytes(variant)
        for source in (variant, bytearray(variant), memoryview(variant), path, str(path)):
            dump = read_etdump(source)
            assert (dump.strings, dump.end.tolist()) == (("Execute", "conv"), [2]), name
            assert dump.size == len(variant)
    assert dump.path == str(path)


def test_texts_are_told_apart_by_their_content() -> None:
    shared = "native_call_add.out"
    names = [shared, "native_call_mul.out", shared, "".join(["native_call_", "add.out"]), "äöü"]
    dump = read_etdump(etdump(run(shared, [profile(name) for name in names])))

    assert dump.strings == (shared, "native_call_mul.out", "äöü")
    assert dump.name.tolist() == [0, 1, 0, 0, 2]
    assert dump.run_name.tolist() == [0]

    names = [f"op_{i}" * (1 + i % 23) for i in range(1000)] * 2
    dump = read_etdump(etdump(run("Execute", [profile(name) for name in names])))

    assert [dump.strings[i] for i in dump.name] == names
    assert len(dump.strings) == 1001

    dump = read_etdump(etdump(run("", [profile("", delegate_str=""), profile("x")])))

    assert dump.strings == ("", "x")
    assert dump.run_name.tolist() == [0]
    assert dump.name.tolist() == [0, 1]
    assert dump.delegate_id_str.tolist() == [0, -1]


def test_long_strings_used_often() -> None:
    name = "x" * 50_000  # the uses together are far longer than the file
    dump = read_etdump(etdump(run("Execute", [profile(name) for _ in range(100)])))
    assert dump.strings == ("Execute", name)
    assert dump.name.tolist() == [1] * 100


def test_more_events_than_are_read_at_once() -> None:
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 2**63, (20_000, 3), dtype=np.uint64)
    ends = rng.integers(0, 2**63, (20_000, 3), dtype=np.uint64)
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    for name in ("a", "bb", "cc"):
        writer.log_profiling(name, 0, 0)
    writer.log_evalue(True)
    writer.repeat_block(starts, ends)
    dump = read_etdump(writer.finish())

    assert (dump.num_runs, dump.num_events) == (20_001, 80_004)
    timed = dump.kind == EventKind.PROFILE
    assert np.array_equal(dump.start[timed][3:], starts.reshape(-1))
    assert np.array_equal(dump.end[timed][3:], ends.reshape(-1))
    assert np.array_equal(dump.name.reshape(-1, 4), np.tile([1, 2, 3, -1], (20_001, 1)))
    assert np.array_equal(dump.run, np.repeat(np.arange(20_001), 4))
    assert dump.value(80_003) is True


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (value(ValueType.NULL), None),
        (value(ValueType.STRING), None),
        (value(ValueType.INT, 3, {0: ("q", -(2**63))}), -(2**63)),
        (value(ValueType.INT, 3, {}), 0),
        (value(ValueType.BOOL, 6, {0: ("?", True)}), True),
        (value(ValueType.BOOL, 6, {}), False),
        (value(ValueType.FLOAT, 4, {0: ("f", 0.1)}), float(np.float32(0.1))),
        (value(ValueType.FLOAT, 4, {0: ("f", -math.inf)}), -math.inf),
        (value(ValueType.DOUBLE, 5, {0: ("d", math.nan)}), math.nan),
        (value(ValueType.DOUBLE, 5, {0: ("d", math.pi)}), math.pi),
        (value(ValueType.DOUBLE, 5, {0: ("d", 5e-324)}), 5e-324),
        (
            value(ValueType.TENSOR, 1, tensor(6, [2, 3], [1, 2], 64)),
            TensorRef(ScalarType.FLOAT, (2, 3), (1, 2), 64),
        ),
        (value(ValueType.TENSOR, 1, {}), TensorRef(ScalarType.BYTE, (), (), 0)),
        (
            value(ValueType.TENSOR_LIST, 2, {0: [tensor(15, [0], [1], -1), tensor(4, [], [], 8)]}),
            (TensorRef(ScalarType.BFLOAT16, (0,), (1,), -1), TensorRef(ScalarType.LONG, (), (), 8)),
        ),
        (value(ValueType.TENSOR_LIST, 2, {}), ()),
    ],
)
def test_values(table: dict, expected: object) -> None:
    dump = read_etdump(etdump(run("Execute", [profile(), debug(table)])))
    assert repr(dump.value(1)) == repr(expected)  # NaN is not equal to itself


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (value(8), "a debug value has the unknown type 8"),
        (value(-1), "unknown type -1"),
        (value(ValueType.TENSOR), "a debug value of type TENSOR is empty"),
        (value(ValueType.DOUBLE, 3, {0: ("q", 1)}), "a debug value of type DOUBLE is empty"),
        (value(ValueType.TENSOR, 1, tensor(8, [1], [1], 0)), "unknown scalar type 8"),
        (value(ValueType.TENSOR, 1, tensor(6, [1, 2], [1], 0)), "2 sizes and 1 strides"),
        (value(ValueType.TENSOR, 1, tensor(6, [1] * 99, [1] * 99, 0)), "99 sizes"),
    ],
)
def test_a_broken_value_is_an_error_when_it_is_asked_for(table: dict, message: str) -> None:
    dump = read_etdump(etdump(run("Execute", [profile("fine"), debug(table)])))
    with pytest.raises(FormatError, match=message):
        dump.value(1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0", "not an ETDump"),
        (etdump()[:11], "not an ETDump"),
        (
            flatbuffer({}, b"ET12", size_prefixed=False),
            r"ExecuTorch program.*\n.*etscope info shows",
        ),
        (b"PK\x03\x04" + bytes(100), "zip"),
        (etdump(run("Execute", [profile("conv")]))[:-20], "cut off: it should have"),
        (etdump(run("a", [{}])), "not exactly one of profile, allocation and debug"),
        (etdump(run("a", [profile("x") | debug()])), "not exactly one of"),
    ],
)
def test_what_is_no_etdump(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_etdump(data)


def test_errors_name_the_file_and_the_place(tmp_path: Path) -> None:
    path = tmp_path / "broken.etdp"
    path.write_bytes(etdump(run("Execute", [{0: ("I", 2**31)}])))
    with pytest.raises(FormatError, match=r"broken\.etdp at offset") as caught:
        read_etdump(path)
    assert caught.value.offset is not None
    assert "damaged" in (caught.value.hint or "")


def test_the_dump_that_executorch_breaks_itself() -> None:
    malformed = artifacts("bf16_fp16").extra("malformed.etdp")
    with pytest.raises(FormatError, match=r"ExecuTorch wrote it broken.*native runner"):
        read_etdump(malformed)


# -- the columns of logged values, against the values one by one and against broken ones


@pytest.mark.parametrize(
    "name", ["cnn_portable", "int_outputs", "channels_last", "transformer", "scalar_outputs"]
)
def test_they_are_what_the_values_are_one_by_one(name: str) -> None:
    files = artifacts(name)
    dump = read_etdump(files.etdump)
    rows = np.flatnonzero(dump.debug_value_offset >= 0)
    one_by_one = [dump.value(int(row)) for row in rows]
    tensors = [
        ref
        for value in one_by_one
        for ref in (value if isinstance(value, tuple) else (value,))
        if isinstance(ref, TensorRef)
    ]

    found = logged_values(dump)

    sizes = [ref.scalar_type.nbytes(math.prod(ref.sizes)) for ref in tensors]
    assert len(found.kind) == len(one_by_one)
    assert sorted(found.offset.tolist()) == sorted(ref.offset for ref in tensors)
    assert sorted(found.nbytes.tolist()) == sorted(sizes)
    for kind in ScalarType:
        mine = [s for s, ref in zip(sizes, tensors, strict=True) if ref.scalar_type is kind]
        assert int(found.nbytes[found.scalar_type == kind].sum()) == sum(mine)
    assert found.buffer_size == max(r.offset + s for r, s in zip(tensors, sizes, strict=True))
    assert found.buffer_size <= files.debug_buffer.stat().st_size


def test_every_kind_of_value() -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    tensors = [np.zeros(4, np.uint8), np.zeros((0, 5), np.float64)]
    for given in (None, True, 3, 2.5, np.zeros((2, 3), np.int16), tensors):
        writer.log_evalue(given)

    found = logged_values(read_etdump(writer.finish()))

    assert [ValueType(kind).name for kind in found.kind] == [
        "NULL", "BOOL", "INT", "DOUBLE", "TENSOR", "TENSOR_LIST",
    ]  # fmt: skip
    assert found.nbytes.tolist() == [12, 4, 0]
    found = logged_values(read_etdump(artifacts("large_20k").etdump))
    assert (len(found.kind), len(found.nbytes), found.buffer_size) == (0, 0, 0)


FLOAT = 6
TENSOR, TENSOR_LIST = 5, 6


def found_of(logged: Table) -> Any:
    return logged_values(read_etdump(etdump(run("Execute", [debug(logged)]))))


@pytest.mark.parametrize(
    ("logged", "message"),
    [
        (value(TENSOR, 1, tensor(FLOAT, [2, -1], [], 0)), "negative size"),
        (value(TENSOR, 1, tensor(FLOAT, [2**40, 2**40], [], 0)), "any memory"),
        (value(TENSOR, 1, tensor(FLOAT, [1] * 33, [], 0)), "33 sizes"),
        (value(TENSOR, 1, tensor(99, [1], [], 0)), "unknown scalar type 99"),
        (value(TENSOR), "TENSOR or TENSOR_LIST is empty"),
        (value(TENSOR_LIST), "TENSOR or TENSOR_LIST is empty"),
    ],
)
def test_broken_values_are_refused(logged: Table, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        found_of(logged)


def test_an_empty_tensor_may_have_a_huge_size_beside_its_zero() -> None:
    found = found_of(value(TENSOR, 1, tensor(FLOAT, [2**62, 0, 2**62], [], -1)))
    assert (found.nbytes.tolist(), found.buffer_size) == ([0], 0)
