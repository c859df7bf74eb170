"""Inputs made of a program's own description of them: the same numbers on each machine.

The native runner makes them, too, by the formula that `docs/inputs.md` gives; so that recorded
results keep their meaning, it must never change.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.dense_tensor import in_dim_order
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import ScalarValue, TensorValue, ValueKind
from etscope.formats.program.scalar_type import ScalarType

MAX_BYTES = 8 << 30  # of one generated tensor

_MASK = (1 << 64) - 1
_INPUT_STEP = 0xD1B54A32D192ED03
_ELEMENT_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_CHUNK = 1 << 18  # elements at a time: what is in between stays in the cache

_FLOATS = frozenset(
    {
        *(ScalarType.HALF, ScalarType.FLOAT, ScalarType.DOUBLE, ScalarType.BFLOAT16),
        *(ScalarType.FLOAT8E5M2, ScalarType.FLOAT8E4M3FN),
        *(ScalarType.FLOAT8E5M2FNUZ, ScalarType.FLOAT8E4M3FNUZ),
    }
)
_BITS = frozenset(
    {
        *(ScalarType.SHORT, ScalarType.INT, ScalarType.LONG, ScalarType.BOOL),
        *(ScalarType.UINT16, ScalarType.UINT32, ScalarType.UINT64),
    }
)
_BYTES = frozenset({ScalarType.BYTE, ScalarType.CHAR})
_SCALARS = frozenset({ValueKind.INT, ValueKind.DOUBLE, ValueKind.BOOL, ValueKind.NULL})


def generate_inputs(program: Program, method: str, seed: int) -> tuple[CaseValue | None, ...]:
    """Inputs of a method, flat: tensors of random numbers, and for the rest the value that the
    program holds (the runtime takes no other).

    Floats are uniform in [-1, 1), bytes in all of their range, other integers 0 or 1, which are
    good indices of any table. Sizes that may vary are as large as they may be. Arrays are dense in
    the order of dimensions that the program expects. Raises `MissingDataError` for a method that
    is not there, `UsageError` for an input of a type that has no such numbers.
    """
    found = program.method(method)
    return tuple(
        _generated(found.values[value], index, seed) for index, value in enumerate(found.inputs)
    )


def _generated(value: Any, index: int, seed: int) -> CaseValue | None:
    if isinstance(value, TensorValue):
        return _generated_tensor(value, index, seed)
    if isinstance(value, ScalarValue) and value.kind in _SCALARS:
        return value.value  # type: ignore[return-value]  # no text, by its kind
    raise UsageError(f"cannot generate input {index}: it is a {value.kind.value}")


def _generated_tensor(tensor: TensorValue, index: int, seed: int) -> npt.NDArray[Any]:
    kind = tensor.scalar_type
    if kind not in _FLOATS | _BITS | _BYTES:
        raise UsageError(f"cannot generate input {index}: {tensor} is of no plain type")
    if min(tensor.sizes, default=0) < 0:
        raise UsageError(
            f"cannot generate input {index}: {tensor} has sizes without a bound",
            hint="give an input",
        )
    # Sizes beside a size of 0 count, too: numpy has limits for them.
    size = kind.nbytes(math.prod(max(size, 1) for size in tensor.sizes))
    if size > MAX_BYTES:
        raise UsageError(
            f"cannot generate input {index}: {tensor} takes {size:,} bytes",
            hint="give an input of smaller sizes",
        )
    count = math.prod(tensor.sizes)
    flat: npt.NDArray[Any] = np.empty(count, kind.numpy_dtype)
    base = _mix(seed + (index + 1) * _INPUT_STEP)
    for start in range(0, count, _CHUNK):
        flat[start : start + _CHUNK] = _values(kind, base, start, min(count - start, _CHUNK))
    return in_dim_order(flat.reshape(tensor.sizes), tensor.dim_order)


def _values(kind: ScalarType, base: int, start: int, count: int) -> npt.NDArray[Any]:
    """Elements `start` to `start + count`, in the order of the sizes."""
    numbers = np.arange(start + 1, start + 1 + count, dtype=np.uint64)
    numbers *= np.uint64(_ELEMENT_STEP)
    numbers += np.uint64(base)
    bits = _mix_all(numbers)
    values: npt.NDArray[Any]
    if kind in _FLOATS:
        # 24 bits: exact in float32. The narrower types round these, to the nearest.
        values = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    elif kind in _BYTES:
        values = (bits >> np.uint64(56)).astype(np.uint8).view(kind.numpy_dtype)
    else:
        values = bits >> np.uint64(63)
    return values


def _mix(number: int) -> int:
    """The end of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
    2014), of a number modulo 2**64."""
    return int(_mix_all(np.array([number & _MASK], np.uint64))[0])


def _mix_all(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed: npt.NDArray[np.uint64] = numbers ^ (numbers >> np.uint64(30))
    mixed *= np.uint64(_FACTORS[0])
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_FACTORS[1])
    mixed ^= mixed >> np.uint64(31)
    return mixed
