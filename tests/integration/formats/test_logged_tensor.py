from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from etscope.errors import UsageError
from etscope.formats.etdump.writer import is_tensor, tensor_storage
from etscope.formats.program.scalar_type import ScalarType

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


def test_what_is_a_tensor() -> None:
    assert is_tensor(GRID)
    assert not is_tensor(np.float32(1))
    assert not is_tensor([1, 2])
    with pytest.raises(UsageError, match="no scalar type for float128"):
        tensor_storage(np.zeros(2, np.longdouble))
    with pytest.raises(UsageError, match="object"):
        tensor_storage(np.array([object()]))


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([[1.0, -2.5], [0.0, 4.0]], requires_grad=True)

    for dtype, numpy_dtype in [
        (torch.float32, np.float32),
        (torch.float16, np.float16),
        (torch.bfloat16, ml_dtypes.bfloat16),
        (torch.float8_e5m2, ml_dtypes.float8_e5m2),
        (torch.int64, np.int64),
        (torch.bool, np.bool_),
    ]:
        tensor = values.to(dtype).t()
        kind, array, _ = tensor_storage(tensor)
        assert array.dtype == kind.numpy_dtype == numpy_dtype
        assert tuple(step // array.itemsize for step in array.strides) == tensor.stride()
        assert array.tolist() == tensor.to(torch.float64).tolist()
