"""Types of elements against torch and ExecuTorch, and how tensors of them lie in memory."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import FormatError, UsageError
from etscope.formats.etdump.writer import is_tensor, tensor_storage
from etscope.formats.program.scalar_type import (
    ScalarType,
    as_numpy,
    dim_order_of,
    in_dim_order,
    scalar_type,
    scalar_type_of,
)


def test_types_against_torch() -> None:
    torch = pytest.importorskip("torch")
    for kind in ScalarType:
        dtype = getattr(torch, kind.torch_name)
        assert dtype.itemsize == kind.itemsize == kind.numpy_dtype.itemsize
        if kind.name in ("HALF", "FLOAT", "DOUBLE", "LONG", "BOOL"):
            assert torch.empty(0, dtype=dtype).numpy().dtype == kind.numpy_dtype


def test_numbers_against_executorchs_schema() -> None:
    executorch = find_spec("executorch")
    if executorch is None or not executorch.submodule_search_locations:
        pytest.skip("executorch is not installed")
    folder = Path(executorch.submodule_search_locations[0])
    schema = (folder / "exir/_serialize/scalar_type.fbs").read_text()
    numbers = re.findall(r"^ *(\w+) = (\d+),", schema, re.MULTILINE)
    # The runtime writes and runs complex types, which the schema leaves out.
    complex_types = {"COMPLEX64": 9, "COMPLEX128": 10}
    known = {name: int(number) for name, number in numbers} | complex_types
    assert {kind.name: int(kind) for kind in ScalarType} == known


def test_types_by_number_and_by_dtype() -> None:
    assert scalar_type(15) is ScalarType.BFLOAT16
    packed = ScalarType.QUINT4X2.nbytes(5), ScalarType.QUINT2X4.nbytes(5)
    assert (*packed, ScalarType.QUINT2X4.nbytes(0), ScalarType.DOUBLE.nbytes(5)) == (3, 2, 0, 40)
    with pytest.raises(FormatError, match="unknown scalar type 8") as caught:
        scalar_type(8, offset=12)
    assert caught.value.offset == 12

    assert scalar_type_of(np.dtype("int8")) is ScalarType.CHAR  # and not QINT8
    assert scalar_type_of(np.dtype("uint16")) is ScalarType.UINT16  # and not BITS16
    assert scalar_type_of(np.dtype(">f4")) is ScalarType.FLOAT
    assert scalar_type_of(np.dtype(ml_dtypes.float8_e4m3fn)) is ScalarType.FLOAT8E4M3FN
    assert scalar_type_of("bfloat16") is ScalarType.BFLOAT16
    for array in (np.zeros(1, np.longdouble), np.array(["a"]), np.array([None])):
        with pytest.raises(UsageError, match="not have a scalar type for"):
            scalar_type_of(array.dtype)


# -- the order of dimensions of what is dense


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((), ()),
        ((3,), (0,)),
        ((2, 3), (1, 0)),
        ((2, 3, 4, 5), (0, 2, 3, 1)),
        ((1, 3, 4, 5), (0, 2, 3, 1)),  # a batch of one stays in front
        ((1, 3, 1, 5), (0, 2, 3, 1)),
        ((2, 3, 4, 5, 6), (0, 2, 3, 4, 1)),
        ((2, 3, 4, 5), (3, 1, 0, 2)),
    ],
)
def test_the_order_of_what_is_dense(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    array = in_dim_order(np.arange(np.prod(shape, dtype=int)).reshape(shape), order)
    assert dim_order_of(array) == order


def test_where_there_is_a_choice_the_order_of_the_sizes_is_kept() -> None:
    for shape in ((0, 3), (2, 1, 4, 4), (1, 1)):
        assert dim_order_of(np.zeros(shape)) == tuple(range(len(shape)))
    assert dim_order_of(np.zeros((4, 6)).T[::2]) == (0, 1)  # it is not dense
    # Strides of a size of 1 say nothing.
    images = np.arange(6).reshape(1, 1, 3, 2).transpose(1, 0, 3, 2)
    strange = np.lib.stride_tricks.as_strided(images, strides=(8, 48, *images.strides[2:]))
    assert dim_order_of(images) == dim_order_of(strange) == (0, 1, 3, 2)


@given(st.data())
def test_values_stay_when_the_order_changes(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), max_size=5))
    order = data.draw(st.permutations(range(len(shape))))
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    moved = in_dim_order(array, order)
    np.testing.assert_array_equal(moved, array)
    assert moved.transpose(order).flags.c_contiguous
    assert np.shares_memory(in_dim_order(moved, order), moved) or not array.size


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    images = torch.arange(-12, 12).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    for name in ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int64", "bool"):
        tensor = images.to(getattr(torch, name))
        kind, array, _ = tensor_storage(tensor)
        assert array.dtype == kind.numpy_dtype and array.dtype.name == name
        assert tuple(step // array.itemsize for step in array.strides) == tensor.stride()
        assert dim_order_of(array) == (0, 2, 3, 1)
        np.testing.assert_array_equal(array.astype(np.float64), tensor.double().numpy())
    np.testing.assert_array_equal(as_numpy(torch.ones(2, requires_grad=True)), np.ones(2))


# -- tensors in a debug buffer

GRID = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "array",
    [GRID, GRID.T, GRID.transpose(0, 2, 1), GRID[:1], np.int32(5).reshape(()), GRID[:, :0]],
)
def test_a_dense_array_keeps_its_strides(array: Any) -> None:
    kind, kept, stored = tensor_storage(array)
    assert kind is ScalarType.INT
    assert np.array_equal(kept, array)
    assert kept.strides == array.strides
    flat = stored.view(np.int32)
    assert np.array_equal(np.lib.stride_tricks.as_strided(flat, kept.shape, kept.strides), array)


@pytest.mark.parametrize(
    "array", [GRID[:, ::2], GRID[::-1], np.broadcast_to(GRID[0], (2, 3, 4)), GRID.astype(">i4")]
)
def test_any_other_array_becomes_contiguous(array: Any) -> None:
    _, kept, stored = tensor_storage(array)
    assert kept.flags.c_contiguous
    assert np.array_equal(kept, array)
    assert stored.tobytes() == array.astype("<i4").tobytes()
    assert is_tensor(GRID) and not is_tensor(np.float32(1)) and not is_tensor([1, 2])
