from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import UsageError
from etscope.formats.program.scalar_type import as_numpy, dim_order_of, in_dim_order


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


@pytest.mark.parametrize("shape", [(0, 3), (2, 1, 4, 4), (1, 1)])
def test_where_there_is_a_choice_the_order_of_the_sizes_is_kept(shape: tuple[int, ...]) -> None:
    assert dim_order_of(np.zeros(shape)) == tuple(range(len(shape)))


def test_strides_of_size_one_say_nothing() -> None:
    images = np.arange(6).reshape(1, 1, 3, 2).transpose(1, 0, 3, 2)
    strange = np.lib.stride_tricks.as_strided(images, strides=(8, 48, *images.strides[2:]))
    assert dim_order_of(images) == dim_order_of(strange) == (0, 1, 3, 2)


def test_what_is_not_dense_has_the_order_of_its_sizes() -> None:
    assert dim_order_of(np.zeros((4, 6)).T[::2]) == (0, 1)


@given(st.data())
def test_values_stay_when_the_order_changes(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), max_size=5))
    order = data.draw(st.permutations(range(len(shape))))
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    moved = in_dim_order(array, order)
    np.testing.assert_array_equal(moved, array)
    assert moved.transpose(order).flags.c_contiguous
    assert np.shares_memory(in_dim_order(moved, order), moved) or not array.size


def test_types_that_no_file_can_hold() -> None:
    for array in (np.zeros(1, np.longdouble), np.array(["a"]), np.array([None])):
        with pytest.raises(UsageError, match="no scalar type for"):
            as_numpy(array)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "int64", "bool"])
def test_tensors_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24).reshape(1, 2, 3, 4).to(getattr(torch, name))
    tensor = tensor.contiguous(memory_format=torch.channels_last)
    array = as_numpy(tensor)
    assert array.dtype.name == name
    assert dim_order_of(array) == (0, 2, 3, 1)
    np.testing.assert_array_equal(array.astype(np.float64), tensor.double().numpy())


def test_a_tensor_that_wants_gradients() -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(as_numpy(torch.ones(2, requires_grad=True)), np.ones(2))
