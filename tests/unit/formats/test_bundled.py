from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.errors import FormatError, MissingDataError, VersionError
from etscope.formats.program.bpte import read_bundled
from etscope.formats.program.pte import program_fingerprint
from etscope.formats.program.scalar_type import ScalarType
from tests.support.formats.handmade import Number, build, ints, method, pte_file


def bundle(*inputs: dict[int, Any], program: bytes | None = b"") -> bytes:
    """One case of `forward` with those inputs and no expected outputs."""
    suites = [{0: "forward", 1: [{0: list(inputs)}]}]
    return build({0: Number("I", 2), 1: suites, 2: program}, b"BP08")


def tensor(array: np.ndarray, scalar_type: int, dim_order: bytes | None = None) -> dict[int, Any]:
    order = bytes(range(array.ndim)) if dim_order is None else dim_order
    data = array.transpose(list(order)).tobytes() if len(order) == array.ndim else array.tobytes()
    content = {0: Number("b", scalar_type), 1: ints(*array.shape), 2: data, 3: order}
    return {0: Number("B", 1), 1: content}


def test_values_of_every_kind() -> None:
    array = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    numbers = {2: Number("q", -5), 3: Number("?", True), 4: Number("d", 0.25)}
    file = read_bundled(
        bundle(
            tensor(array, ScalarType.FLOAT),
            tensor(array, ScalarType.FLOAT, bytes([0, 2, 3, 1])),
            *({0: Number("B", kind), 1: {0: number}} for kind, number in numbers.items()),
        )
    )
    assert file.version == 2
    plain, channels_last, number, flag, real = file.suite("forward").cases[0].inputs
    np.testing.assert_array_equal(plain, array)
    np.testing.assert_array_equal(channels_last, array)
    assert isinstance(channels_last, np.ndarray)
    assert channels_last.strides == (96, 4, 32, 8)
    assert not channels_last.flags.writeable
    assert np.shares_memory(plain, np.frombuffer(file.source.buffer, np.uint8))
    assert (number, flag, real) == (-5, True, 0.25)
    assert flag is True


def test_the_program_is_read_in_place() -> None:
    inner = pte_file(method([], name="encode"), segments=[b"weights"])
    file = read_bundled(bundle(program=inner))
    assert bytes(file.program_bytes) == inner
    assert file.program().method("encode").name == "encode"
    assert file.program().blob(file.program().segments[0]) == b"weights"
    assert program_fingerprint(file.program_bytes) == program_fingerprint(inner)


def test_errors_of_the_program_name_the_bundle(tmp_path: Path) -> None:
    path = tmp_path / "model.bpte"
    path.write_bytes(bundle(program=b"not a program at all"))
    file = read_bundled(path)
    with pytest.raises(FormatError, match="not an ExecuTorch program") as caught:
        file.program()
    assert caught.value.path == str(path)
    assert caught.value.member == "program"
    path.write_bytes(bundle(program=b""))
    with pytest.raises(MissingDataError, match="does not contain a program"):
        read_bundled(path).program()


def test_what_is_not_there() -> None:
    with pytest.raises(MissingDataError, match="not have cases for method 'encode'") as caught:
        read_bundled(bundle()).suite("encode")
    assert "forward" in str(caught.value)
    with pytest.raises(VersionError, match="etscope reads BP08"):
        read_bundled(b"\0\0\0\0BP07" + bytes(64))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0\0\0ET12" + bytes(40), r"this is an ExecuTorch program \(.pte\)"),
        (b"PK\x05\x06" + bytes(18), "not match a known format"),
        (bundle({0: Number("B", 7), 1: {}}), "unknown kind of value 7"),
        (bundle({0: Number("B", 1)}), "unknown kind of value 1"),
        (bundle(tensor(np.zeros(3, np.uint8), 200 - 256)), "unknown scalar type -56"),
        (bundle(tensor(np.zeros((2, 2), np.uint8), 0, b"\x05")), "not an order of 2 dimensions"),
        (
            bundle({0: Number("B", 1), 1: {1: ints(100), 2: b"short", 3: b"\0"}}),
            r"100 bytes \(uint8 \(100,\)\) has only 5 bytes",
        ),
        (
            bundle({0: Number("B", 1), 1: {1: ints(-1), 3: b"\0"}}),
            r"a tensor has the negative size \[-1\]",
        ),
        (bundle()[:30], "byte"),
    ],
)
def test_a_broken_file_says_what_is_wrong(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.bpte"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message) as caught:
        read_bundled(path)
    assert str(path) in str(caught.value)
