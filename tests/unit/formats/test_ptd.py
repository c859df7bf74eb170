"""External tensors (.ptd): read against upstream's writer and reader, written, and refused."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from etscope.analysis.info import file_info
from etscope.analysis.memory.size import size_files
from etscope.errors import FormatError, MismatchError, MissingDataError, UsageError, VersionError
from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.ptd import check_external, external_keys, read_ptd, write_ptd
from etscope.formats.program.pte import read_pte
from etscope.run.program import open_program
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import Number, build, ints

DELEGATES = Path(__file__).parents[2] / "corpus/delegates"
VALUES: dict[str, Any] = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.float32(3),
    "empty": np.zeros((0, 3), np.int64),
    "half": np.arange(4).astype(ml_dtypes.bfloat16),
    "channels_last": np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4).transpose(0, 3, 1, 2),
    "opaque": b"what only a backend knows",
}


def ptd_file(root: Mapping[int, Any], data: bytes = b"", **header: int) -> bytes:
    """A .ptd of these tables; `header` replaces numbers of the extended header."""
    size = len(build(root, b"FT01", bytes(40)))
    numbers = {"length": 40, "tables": 48, "tables_size": size - 48, "base": size}
    numbers |= {"data_size": len(data)} | header
    head = struct.pack("<4sIQQQQ", b"FH01", *numbers.values())
    return build(root, b"FT01", head) + data


def segment(offset: int, size: int) -> dict[int, Any]:
    return {0: Number("Q", offset), 1: Number("Q", size)}


def entry(key: str, index: int = 0, sizes: tuple[int, ...] | None = None) -> dict[int, Any]:
    order = Number("B", list(range(len(sizes or ()))))
    layout = None if sizes is None else {0: Number("b", 6), 1: ints(*sizes), 2: order}
    return {0: key, 1: Number("I", index), 2: layout}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "values.ptd"
    write_ptd(VALUES, path)
    data = read_ptd(path)
    assert list(data.entries) == list(VALUES)
    for key, value in VALUES.items():
        if isinstance(value, bytes):
            assert bytes(data.blob(key)) == value
            with pytest.raises(MissingDataError, match="only its backend"):
                data.tensor(key)
        else:
            found = data.tensor(key)
            assert (found.dtype, found.shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(found, value)
    assert data.entries["channels_last"].dim_order == (0, 2, 3, 1)
    assert all(one.blob.offset % 128 == 0 for one in data.entries.values())
    with pytest.raises(MissingDataError, match="not have data for the key 'other'"):
        data.blob("other")
    with pytest.raises(UsageError, match="float128"):
        write_ptd({"a": np.zeros(1, np.longdouble)}, path)
    keys: dict[Any, Any] = {1: np.zeros(1, np.float32)}
    with pytest.raises(UsageError, match="a string, not 1"):
        write_ptd(keys, path)
    write_ptd({}, path)
    assert read_ptd(path).entries == {}


def test_upstream_reads_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    path = tmp_path / "values.ptd"
    write_ptd(VALUES, path)
    payload = FlatTensorSerializer().deserialize(Cord(path.read_bytes()))
    ours = read_ptd(path)
    assert list(payload.named_data) == list(VALUES)
    for key, found in payload.named_data.items():
        assert payload.buffers[found.buffer_index] == bytes(ours.blob(key))
        layout, one = found.tensor_layout, ours.entries[key]
        if layout is None:
            assert str(one) == ""
        else:
            assert (int(layout.scalar_type), tuple(layout.sizes)) == (one.scalar_type, one.sizes)
            assert tuple(layout.dim_order) == one.dim_order


def test_the_weights_of_an_export() -> None:
    made = artifacts("external_portable")
    data, program = read_ptd(made.extra("weights.ptd")), read_pte(made.pte)
    assert external_keys(program) == dict.fromkeys(
        ("first.weight", "first.bias", "second.weight", "second.bias", "tied.bias"), "forward"
    )
    assert external_keys(program).keys() == data.entries.keys()
    assert str(data.entries["second.weight"]) == "float32[8, 8]"
    check_external(program, [data])
    for path in (artifacts("cnn_xnnpack_int8").pte, DELEGATES / "vulkan.pte"):  # with their weights
        program = read_pte(path)
        assert external_keys(program) == {}
        check_external(program, [])


@pytest.mark.parametrize("backend", ["Xnnpack", "Vulkan"])
def test_keys_that_only_a_delegate_asks_for(backend: str) -> None:
    made = artifacts("external_xnnpack")
    files = (made.pte, made.extra("weights.ptd"))
    if backend == "Vulkan":
        files = (DELEGATES / "vulkan_external.pte", DELEGATES / "vulkan_external.ptd")
    program, data = read_pte(files[0]), read_ptd(files[1])
    who = f"{backend}Backend, delegate 0 of forward"
    if backend == "Xnnpack":
        assert {str(one) for one in data.entries.values()} == {""}

    assert external_keys(program).keys() == data.entries.keys()
    assert set(external_keys(program).values()) == {who}
    check_external(program, [data])
    with pytest.raises(UsageError, match=rf"needed by {who}\)"):
        open_program(files[0]).check_weights(None)
    with pytest.raises(MismatchError, match=f"needed by {backend}Backend"):
        check_external(program, [read_ptd(artifacts("external_portable").extra("weights.ptd"))])


def test_info_of_external_tensors() -> None:
    path = artifacts("external_portable").extra("weights.ptd")
    report = file_info(path)
    assert report.about == {"file": str(path), "kind": "ptd"}
    listed = report.section("external_data")
    assert sum(listed.table.values["bytes"]) == 4 * (2 * 64 + 3 * 8)


def test_the_file_of_another_program_is_refused(tmp_path: Path) -> None:
    made = artifacts("external_portable")
    other = tmp_path / "other.ptd"
    write_ptd({"first.weight": np.zeros((8, 8), np.float32), "more": np.zeros(1)}, other)
    with pytest.raises(
        MismatchError, match=r"no data for 'first\.bias' \(needed by forward\) and 3 more keys"
    ):
        check_external(read_pte(made.pte), [read_ptd(other)])
    with pytest.raises(MismatchError, match="no data for"):
        open_program(made.pte).check_weights(other)
    open_program(made.pte).check_weights(made.extra("weights.ptd"))


def test_files_of_the_first_releases() -> None:
    """ExecuTorch 0.5 and 0.6 listed tensors at places in one segment."""
    tensors = [
        {0: "b", 1: Number("b", 6), 2: ints(2), 3: Number("B", [0])},
        {0: "a", 1: Number("b", 6), 2: ints(1, 2), 3: Number("B", [0, 1]), 5: Number("Q", 16)},
    ]
    content = np.arange(6, dtype=np.float32).tobytes()
    root = {1: Number("I", 16), 2: tensors, 3: [segment(0, 24)]}
    data = read_ptd(ptd_file(root, content))
    assert {key: data.tensor(key).tolist() for key in data.entries} == {"b": [0, 1], "a": [[4, 5]]}
    tensors[1][5] = Number("Q", 20)
    with pytest.raises(FormatError, match="'a' needs 8 bytes, but its segment has 4"):
        read_ptd(ptd_file(root, content))


def test_one_segment_of_several_keys() -> None:
    data = read_ptd(ptd_file({1: [segment(0, 8)], 2: [entry("a"), entry("b")]}, b"abcdefgh"))
    assert bytes(data.blob("a")) == bytes(data.blob("b")) == b"abcdefgh"
    assert isinstance(data.entries["a"].blob, Span)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0\0\0FT99" + bytes(60), "schema version FT99"),
        (b"\0\0\0\0ET12" + bytes(60), "not a PTD file: this is an ExecuTorch program"),
        (b"\0\0\0\0FT01FH01", "header is cut off"),
        (build({}, b"FT01", bytes(40)), "not have an extended header"),
        (ptd_file({}, length=39), "not have an extended header"),
        (ptd_file({}, tables_size=1 << 40), "its tables end at byte"),
        (ptd_file({}, data_size=1), "its data end at byte"),
        (ptd_file({}, base=(1 << 64) - 1), "its data end at byte"),
        (ptd_file({1: [segment(0, 9)]}, bytes(8)), "segment 0 is bytes"),
        (ptd_file({1: [segment((1 << 64) - 4, 8)]}, bytes(8)), "segment 0 is bytes"),
        (ptd_file({1: [segment(0, 5), segment(4, 4)]}, bytes(8)), "segments overlap"),
        (ptd_file({1: [segment(0, 8)], 2: [entry("a", 1)]}, bytes(8)), "in segment 1, but"),
        (
            ptd_file({1: [segment(0, 8)], 2: [entry("a"), entry("a")]}, bytes(8)),
            "duplicate key 'a'",
        ),
        (ptd_file({1: [segment(0, 8)], 2: [entry("a", 0, (3,))]}, bytes(8)), "needs 12 bytes"),
        (ptd_file({1: [segment(0, 8)], 2: [entry("a", 0, (-3,))]}, bytes(8)), "the sizes"),
    ],
)
def test_damaged_files_are_refused(data: bytes, message: str) -> None:
    error = VersionError if "FT99" in message else FormatError
    with pytest.raises(error, match=message):
        read_ptd(data)


def test_a_tensor_of_another_shape_or_type_is_that_of_another_program(tmp_path: Path) -> None:
    made = artifacts("external_portable")
    data = read_ptd(made.extra("weights.ptd"))
    weights = {key: data.tensor(key) for key in data.entries}
    other = tmp_path / "other.ptd"
    for value, shown in (
        (np.zeros((8, 9), np.float32), r"float32\[8, 9\]"),
        (np.zeros((8, 8), np.int32), r"int32\[8, 8\]"),
        (bytes(256), "no tensor"),
    ):
        write_ptd({**weights, "first.weight": value}, other)
        said = rf"other\.ptd is not .*: 'first\.weight' is {shown} in it, and float32\[8, 8\] in"
        with pytest.raises(MismatchError, match=said):
            check_external(read_pte(made.pte), [read_ptd(other)])
        with pytest.raises(MismatchError, match=said):
            size_files([made.pte, other])
