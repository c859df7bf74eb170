from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from etscope.errors import FormatError, UsageError
from etscope.formats.program.scalar_type import ScalarType, scalar_type, scalar_type_of


@pytest.mark.parametrize("kind", ScalarType)
def test_storage_units_have_the_size_that_is_told(kind: ScalarType) -> None:
    assert kind.numpy_dtype.itemsize == kind.itemsize


def test_types_against_torch() -> None:
    torch = pytest.importorskip("torch")

    for kind in ScalarType:
        dtype = getattr(torch, kind.torch_name)
        assert dtype.itemsize == kind.itemsize
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


def test_packed_types() -> None:
    assert (ScalarType.QUINT4X2.nbytes(5), ScalarType.QUINT2X4.nbytes(5)) == (3, 2)
    assert ScalarType.DOUBLE.nbytes(5) == 40
    assert ScalarType.QUINT2X4.nbytes(0) == 0


def test_types_by_number_and_by_dtype() -> None:
    assert scalar_type(15) is ScalarType.BFLOAT16
    with pytest.raises(FormatError, match="unknown scalar type 8") as caught:
        scalar_type(8, offset=12)
    assert caught.value.offset == 12

    assert scalar_type_of(np.dtype("int8")) is ScalarType.CHAR  # and not QINT8
    assert scalar_type_of(np.dtype("uint16")) is ScalarType.UINT16  # and not BITS16
    assert scalar_type_of(np.dtype(">f4")) is ScalarType.FLOAT
    assert scalar_type_of(np.dtype(ml_dtypes.float8_e4m3fn)) is ScalarType.FLOAT8E4M3FN
    assert scalar_type_of("bfloat16") is ScalarType.BFLOAT16
    with pytest.raises(UsageError, match="no scalar type for float128"):
        scalar_type_of(np.dtype(np.longdouble))
