from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import BundleError, UsageError
from etscope.formats.program import bpte as schema
from etscope.formats.program.bpte import (
    MAX_BYTES,
    Case,
    Suite,
    bundled_parts,
    read_bundled,
    read_bundled_schema,
    write_bundled,
)
from etscope.formats.program.scalar_type import ScalarType, dim_order_of
from tests.support.formats.handmade import method, pte_file

PROGRAM = pte_file(method([]), segments=[b"weights"])
NAMED = [kind for kind in ScalarType if kind.numpy_dtype.name == kind.torch_name]


def written(*inputs: Any) -> tuple[Any, ...]:
    """The inputs of a case after writing and reading."""
    data = write_bundled(PROGRAM, [Suite("forward", (Case(inputs, ()),))])
    return read_bundled(data).suite("forward").cases[0].inputs


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Of every type, shape and dense order of dimensions."""
    kind = draw(st.sampled_from(NAMED))
    sizes = draw(st.lists(st.integers(0, 4), max_size=5))
    order = draw(st.permutations(range(len(sizes))))
    count = int(np.prod(sizes, dtype=np.int64))
    raw = draw(st.binary(min_size=count * kind.itemsize, max_size=count * kind.itemsize))
    if kind is ScalarType.BOOL:
        raw = bytes(byte & 1 for byte in raw)
    flat = np.frombuffer(raw, kind.numpy_dtype)
    return flat.reshape([sizes[d] for d in order]).transpose(np.argsort(np.array(order, int)))


numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False))
values = st.one_of(arrays(), numbers)
cases = st.builds(Case, st.tuples(values, values), st.lists(arrays(), max_size=2).map(tuple))


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, np.ndarray):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()
        assert dim_order_of(found) == dim_order_of(wanted)
    else:
        assert type(found) is type(wanted)
        assert found == wanted


@given(
    st.dictionaries(st.text(min_size=1), st.lists(cases, max_size=2), max_size=2),
    st.integers(0, 70),
)
def test_what_is_written_is_aligned_and_read(content: dict[str, list[Case]], padding: int) -> None:
    program = PROGRAM + bytes(padding)
    data = write_bundled(program, [Suite(name, tuple(some)) for name, some in content.items()])
    file = read_bundled(data)
    span = file.program_span
    assert (file.version, bytes(file.program_bytes)) == (2, program)
    assert (span.offset % 32, span.offset + span.size) == (0, len(data))
    assert [suite.method for suite in file.suites] == sorted(content)
    for suite in file.suites:
        for found, wanted in zip(suite.cases, content[suite.method], strict=True):
            for one, other in zip(found.inputs, wanted.inputs, strict=True):
                assert_same(one, other)
            for one, other in zip(found.expected_outputs, wanted.expected_outputs, strict=True):
                assert_same(one, other)
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    for stored in read_bundled_schema(data).method_test_suites:
        for value in (value for case in stored.test_cases for value in case.inputs):
            if isinstance(value.val, schema.Tensor) and len(value.val.data):
                place = np.frombuffer(value.val.data, np.uint8).__array_interface__["data"][0]
                assert (place - start) % 16 == 0


def test_the_program_is_not_copied() -> None:
    head, program = bundled_parts([], PROGRAM)
    assert program.obj is PROGRAM
    assert len(head) < 100


def test_what_is_dense_in_no_order_becomes_contiguous() -> None:
    wide = np.arange(12, dtype=np.int16).reshape(3, 4)
    for array in (wide[:, ::2], wide[::-1], np.broadcast_to(wide[0], (2, 4)), wide.astype(">i2")):
        (found,) = written(array)
        np.testing.assert_array_equal(found, array)
        assert found.dtype == np.dtype("<i2")
        assert found.flags.c_contiguous


def test_numbers_of_numpy_are_numbers() -> None:
    found = written(np.int32(-3), np.bool_(True), np.float32(0.5), np.array(0.5, np.float32))
    assert found[:3] == (-3, True, 0.5)
    assert [type(one) for one in found] == [int, bool, float, np.ndarray]


def test_types_that_numpy_does_not_name_come_back_from_the_schema() -> None:
    packed = schema.Tensor(ScalarType.QUINT4X2, [3], b"\x12\x03", [0])
    quantized = schema.Tensor(ScalarType.QINT8, [2], b"\xff\x01", [0])
    case = schema.BundledMethodTestCase([schema.Value(packed), schema.Value(quantized)], [])
    suites = [schema.BundledMethodTestSuite("forward", [case])]
    found = read_bundled_schema(b"".join(bundled_parts(suites, PROGRAM, version=7)))
    assert found == schema.BundledProgram(7, suites, PROGRAM)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "cannot contain a value of type NoneType"),
        ([1.0], "cannot contain a value of type list"),
        (1 << 63, "does not fit in 64 bits"),
        (np.zeros(2, np.longdouble), "not have a scalar type for float128"),
        (np.array(["a"]), "not have a scalar type for str"),
        (np.array([object()]), "not have a scalar type for object"),
    ],
)
def test_what_has_no_place_is_refused(value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write_bundled(PROGRAM, [Suite("forward", (Case((value,), ()),))])


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (schema.Tensor(ScalarType.FLOAT, [2], b"1234", [0]), "needs 8 bytes of data and has 4"),
        (schema.Tensor(ScalarType.BYTE, [2], b"123", [0]), "needs 2 bytes of data and has 3"),
        (schema.Tensor(ScalarType.BYTE, [2, 1], b"12", [0, 0]), "not an order of 2 dimensions"),
    ],
)
def test_a_tensor_that_contradicts_itself_is_refused(tensor: schema.Tensor, message: str) -> None:
    case = schema.BundledMethodTestCase([schema.Value(tensor)], [])
    with pytest.raises(BundleError, match=message):
        bundled_parts([schema.BundledMethodTestSuite("forward", [case])], PROGRAM)


def test_more_than_two_gigabytes_are_refused() -> None:
    with mmap.mmap(-1, MAX_BYTES + 1) as memory:  # no byte of it is touched but the first
        memory[4:8] = b"ET12"
        program = memoryview(memory)
        with pytest.raises(BundleError, match="limited to 2 GiB"):
            bundled_parts([], program)
        program.release()


def test_names_and_programs_must_be_such() -> None:
    for name in ("\ud800", 3, None):
        with pytest.raises(BundleError, match="is not a method"):
            write_bundled(PROGRAM, [Suite(name, ())])  # type: ignore[arg-type]
    for program in (b"", b"no", b"    BP08" + bytes(32)):
        with pytest.raises(BundleError, match="not an ExecuTorch program"):
            write_bundled(program, [])
