from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from etscope.errors import FormatError, MissingFileError
from etscope.formats.etdump.debug_values import DebugBuffer
from etscope.formats.etdump.reader import EventKind, TensorRef, read_etdump
from etscope.formats.program.scalar_type import ScalarType
from tests.support.artifacts import artifacts

GIB = 1 << 30


def test_a_tensor_is_a_view_that_cannot_be_written(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    path = tmp_path / "debug.bin"
    path.write_bytes(bytes(48) + values.tobytes())
    buffer = DebugBuffer.open(path)
    tensor = buffer.tensor(TensorRef(ScalarType.FLOAT, (2, 3), (3, 1), 48))
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (buffer.size, buffer.path) == (72, str(path))
    assert not tensor.flags.writeable
    assert not tensor.flags.owndata


@pytest.mark.parametrize("kind", ScalarType)
def test_every_type_at_an_unaligned_place(kind: ScalarType) -> None:
    stored = np.arange(1, 7).astype(kind.numpy_dtype)
    buffer = DebugBuffer.open(b"\xee" * 3 + stored.tobytes())
    sizes = (2, 3 * kind.values_per_unit)
    tensor = buffer.tensor(TensorRef(kind, sizes, (sizes[1], 1), 3))
    assert tensor.dtype == kind.numpy_dtype
    assert np.array_equal(tensor.reshape(-1), stored)
    assert tensor.shape == (sizes if kind.values_per_unit == 1 else (6,))


def test_bfloat16_values() -> None:
    buffer = DebugBuffer.open(b"\x80\x3f\x20\xc0")
    tensor = buffer.tensor(TensorRef(ScalarType.BFLOAT16, (2,), (1,), 0))
    assert tensor.dtype == ml_dtypes.bfloat16
    assert tensor.tolist() == [1.0, -2.5]


def test_strides_are_honoured() -> None:
    channels_last = np.arange(24, dtype=np.int16).reshape(1, 4, 3, 2).transpose(0, 3, 1, 2)
    transposed = np.arange(6.0).reshape(2, 3).T
    for kind, array in ((ScalarType.SHORT, channels_last), (ScalarType.DOUBLE, transposed)):
        strides = tuple(step // array.itemsize for step in array.strides)
        stored: Any = array.base
        tensor = DebugBuffer.open(stored.tobytes()).tensor(TensorRef(kind, array.shape, strides, 0))
        assert np.array_equal(tensor, array)
        assert tensor.strides == array.strides


def test_strides_that_are_absent_or_of_no_use() -> None:
    buffer = DebugBuffer.open(np.arange(6, dtype=np.int8).tobytes())
    assert buffer.tensor(TensorRef(ScalarType.CHAR, (2, 3), (), 0))[1].tolist() == [3, 4, 5]
    one = buffer.tensor(TensorRef(ScalarType.CHAR, (1, 3), (10**15, 1), 3))
    assert one.tolist() == [[3, 4, 5]]
    expanded = buffer.tensor(TensorRef(ScalarType.CHAR, (3, 2), (0, 1), 0))
    assert expanded.tolist() == [[0, 1]] * 3
    assert buffer.tensor(TensorRef(ScalarType.BYTE, (), (), 5)).tolist() == 5
    empty = buffer.tensor(TensorRef(ScalarType.FLOAT, (0, 3), (3, 1), -1))
    assert (empty.shape, empty.dtype, empty.flags.writeable) == ((0, 3), np.float32, False)


def test_a_buffer_that_is_too_short(tmp_path: Path) -> None:
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(100))
    message = r"short.bin: a tensor at offset 48 needs 100 bytes \(float32 \(5, 5\)\), but .* 100"
    with pytest.raises(FormatError, match=message):
        DebugBuffer.open(path).tensor(TensorRef(ScalarType.FLOAT, (5, 5), (5, 1), 48))


@pytest.mark.parametrize(
    ("sizes", "strides", "offset"),
    [
        *(((4,), (1,), -1), ((4,), (1,), 2**63 - 1), ((4,), (2,), 0), ((4,), (-1,), 3)),
        *(((2, 2), (2**62, 1), 0), ((-1, -4), (1, 1), 0), ((2**62, 2**62), (1, 1), 0)),
        *(((0, 2**62, 2**62), (0, 0, 0), -1), ((2, 2), (2,), 0), ((1,) * 100, (1,) * 100, 0)),
    ],
)
def test_tensors_that_lead_out_of_the_buffer(
    sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    buffer = DebugBuffer.open(bytes(16))
    with pytest.raises(FormatError):
        buffer.tensor(TensorRef(ScalarType.FLOAT, sizes, strides, offset))


def test_files_that_are_no_buffer(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="debug buffer file not found"):
        DebugBuffer.open(tmp_path / "none.bin")
    with pytest.raises(FormatError, match="directory"):
        DebugBuffer.open(tmp_path)
    (tmp_path / "empty.bin").touch()
    for source in (b"", tmp_path / "empty.bin"):
        buffer = DebugBuffer.open(source)
        assert buffer.size == 0
        with pytest.raises(FormatError):
            buffer.tensor(TensorRef(ScalarType.FLOAT, (1,), (1,), 0))


def test_one_tensor_of_a_large_buffer(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    with path.open("wb") as file:  # sparse: takes no room
        file.truncate(2 * GIB)
        file.seek(GIB)
        file.write(np.float32(1.5).tobytes())
    tensor = DebugBuffer.open(path).tensor(TensorRef(ScalarType.FLOAT, (4, 1), (1, 1), GIB))
    assert tensor.tolist() == [[1.5], [0], [0], [0]]


@pytest.mark.parametrize("name", ["channels_last", "int_outputs"])
def test_the_programs_outputs(name: str) -> None:
    """What the runtime returned, in order, is what it logged as output."""
    artifact = artifacts(name)
    dump = read_etdump(artifact.etdump)
    buffer = DebugBuffer.open(artifact.debug_buffer)
    outputs = np.flatnonzero(dump.is_output & (dump.kind == EventKind.DEBUG)).tolist()
    logged = [ref for i in outputs if isinstance(ref := dump.value(i), TensorRef)]
    returned = np.load(artifact.outputs)

    tensors = {(ref.sizes, buffer.tensor(ref).tobytes()) for ref in logged}

    expected = [returned[key] for key in returned.files if returned[key].ndim]
    assert expected
    for array in expected:
        assert (array.shape, array.tobytes()) in tensors
