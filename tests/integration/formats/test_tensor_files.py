"""Files of tensors: what other libraries write is read, what we write they read."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from etscope.errors import FormatError, MissingDependencyError, MissingFileError, UsageError
from etscope.formats.program.scalar_type import ScalarType
from etscope.formats.torch_files.tensor_files import read_tensor_file, write_tensor_file
from tests.support.artifacts import artifacts
from tests.support.etrecord_files import zip_bytes

EXTENSIONS = ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz")
BUILTIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def some(name: str) -> np.ndarray:
    return (np.arange(6).reshape(2, 3) % 2).astype(dtype_of(name))


def check_equal(found: Any, expected: np.ndarray) -> None:
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
    assert not found.flags.writeable


def refusal(path: Path) -> str:
    with pytest.raises(FormatError) as caught:
        read_tensor_file(path)
    assert caught.value.path == str(path)
    return str(caught.value)


# -- .npy and .npz


@given(npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_dims=0, min_side=0)), st.booleans())
def test_any_array_of_numbers(array: np.ndarray, fortran: bool) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"etscope-any-{os.getpid()}.npy"
    try:
        np.save(path, np.asarray(array, order="F" if fortran else "C"))
        if array.dtype.kind in "biufc":
            (found,) = read_tensor_file(path).values
            check_equal(found, array)
        else:
            assert "is not a tensor" in refusal(path)
    finally:
        path.unlink()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_keeps_order_and_names(save: Any, tmp_path: Path) -> None:
    wanted = {"z": some("float32"), "a/b": some("int64").T, "m": np.array(3)}
    save(tmp_path / "some.npz", **wanted)
    data = (tmp_path / "some.npz").read_bytes()
    for suffix in (".npz", ".pt", ".npy", ".safetensors", ""):  # the bytes tell, not the name
        path = tmp_path / f"other{suffix}"
        path.write_bytes(data)
        file = read_tensor_file(str(path))
        assert (file.path, file.names) == (str(path), ("z", "a/b", "m"))
        assert file.ordered
        for found, expected in zip(file.values, wanted.values(), strict=True):
            check_equal(found, expected)
    save(tmp_path / "numbered.npz", *wanted.values())
    assert read_tensor_file(tmp_path / "numbered.npz").names == ("arr_0", "arr_1", "arr_2")
    save(tmp_path / "empty.npz")
    assert read_tensor_file(tmp_path / "empty.npz").values == ()


def test_stored_arrays_are_views_of_the_file(tmp_path: Path) -> None:
    """Of a sparse file of 64 GiB only what is touched is read."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 34,)}
    path = tmp_path / "large.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + (4 << 34))
    (array,) = read_tensor_file(path).values
    assert isinstance(array, np.ndarray)
    assert (array.shape, array[-1]) == ((1 << 34,), 0)


def test_arrays_that_are_no_tensors(tmp_path: Path) -> None:
    objects = np.array([{}, None], object)
    for name, save in (("objects.npy", np.save), ("objects.npz", np.savez)):
        save(tmp_path / name, objects)
        assert "is a pickle, which etscope never loads" in refusal(tmp_path / name)
    for array, words in (
        (
            some("bfloat16"),
            "lacks bfloat16 and float8\n  hint: write such arrays to a .safetensors",
        ),
        (np.array(["text"]), "is not a tensor"),
        (np.array(["2020-01-01"], "M8[D]"), "is not a tensor"),
        (np.zeros(2, [("x", "f4")]), "an array of the type"),
    ):
        np.save(tmp_path / "other.npy", array)
        assert words in refusal(tmp_path / "other.npy")


def test_damaged_arrays(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, some("float32"))
    data = stream.getvalue()
    path = tmp_path / "a.npy"
    path.write_bytes(data[:-1])
    assert "float32[2, 3] has only 23 bytes of data" in refusal(path)
    path.write_bytes(data[:6] + b"\3" + data[7:])
    assert "version 3.0 of the format" in refusal(path)
    shapes = (b"(2,-3)", b"(9**9**9,)", b"(10000000000000000,)")
    others = [data.replace(b"(2, 3), }" + b" " * 20, (one + b", }").ljust(29)) for one in shapes]
    for damaged in (*(data[:size] for size in (6, 8, 10, 60, 127)), *others):
        path.write_bytes(damaged)
        refusal(path)


# -- .safetensors


def test_safetensors(tmp_path: Path) -> None:
    """All types of the runtime but complex128, which such a file does not have."""
    package = pytest.importorskip("safetensors.numpy")
    plain = {k.torch_name for k in ScalarType if not k.torch_name.startswith(("q", "bits"))}
    assert plain == {*BUILTIN, *EXTENSIONS, "complex64", "complex128"}
    wanted = {}
    for name in (*BUILTIN, *EXTENSIONS):
        one = np.asarray(some(name)[0, 0])
        wanted |= {name: some(name), f"{name} none": some(name)[:0], f"{name} one": one}
    package.save_file(wanted, tmp_path / "some.safetensors", {"by": "us"})
    file = read_tensor_file(tmp_path / "some.safetensors")
    assert not file.ordered
    found = dict(zip(file.names, file.values, strict=True))
    assert set(found) == set(wanted)
    for key, array in wanted.items():
        check_equal(found[key], array)


def safetensors(header: Any, data: bytes = bytes(8)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_damaged_safetensors(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    types = (entry("F4", (16,)), entry("F8_E8M0", (8,)), entry("float", (2,)))
    for data in (
        *(safetensors({"x": entry()}, bytes(7)), safetensors({"x": entry()}, bytes(9))),
        safetensors({"x": entry(offsets=(4, 12))}, bytes(12)),
        *(safetensors({"x": entry(shape=shape)}) for shape in ((3,), (1 << 62, 1 << 62))),
        safetensors({"x": entry(), "y": entry()}),
        *(safetensors({"x": one}) for one in types),
        *(safetensors(text) for text in (b"{", b'{"x": 3}', b"{" + b'"a":{' * 5000)),
        struct.pack("<Q", 1 << 60) + b"{}",
    ):
        (tmp_path / "some.safetensors").write_bytes(data)
        refusal(tmp_path / "some.safetensors")


def test_safetensors_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.safetensors"
    path.write_bytes(safetensors({"x": entry()}))
    for name in ("safetensors", "safetensors.numpy"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(MissingDependencyError, match=r"etscope\[safetensors\]"):
        read_tensor_file(path)
    with pytest.raises(MissingDependencyError, match=r"etscope\[safetensors\]"):
        write_tensor_file(path, [some("int8")], ["x"])


# -- torch.save


def test_what_torch_saves(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "some.pt"
    one, two = torch.randn(2, 3), torch.ones(2, dtype=torch.bfloat16)
    torch.save([one, (3, 2.5, None), [two.t()]], path)
    file = read_tensor_file(path)
    assert file.names == (None,) * 5
    assert file.values[1:4] == (3, 2.5, None)
    check_equal(file.values[0], one.numpy())
    check_equal(file.values[4], np.ones(2, ml_dtypes.bfloat16))
    torch.save({"x": one, "state": (two, {"deep": True})}, path)
    file = read_tensor_file(path)
    assert file.names == ("x", "state.0", "state.1.deep")
    assert set(file.content) == {"x", "state"}
    torch.save(one, path)
    check_equal(read_tensor_file(path).values[0], one.numpy())


def test_what_torch_saves_and_is_no_tensor(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "some.pt"
    for value, words in (
        ({"x": b"bytes"}, "which is not a tensor"),
        (torch.nn.Linear(1, 1), "not allowed"),
        ([0] * 100_001, "has more than 100,000 values"),
    ):
        torch.save(value, path)
        assert words in refusal(path)
    torch.save(torch.ones(2), path, _use_new_zipfile_serialization=False)
    hint = "hint: write the tensors with numpy.savez"
    assert f"a Python pickle, which etscope never loads\n  {hint}" in refusal(path)


# -- what is no such file


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        read_tensor_file(tmp_path / "none.npz")
    assert "this is a directory" in refusal(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert "the file is empty" in refusal(path)
    for data in (b"\x80", b"{", b"PK", b"PK\x03\x04", b"\x93NUMPY", b"\0" * 100, b"text of some"):
        path.write_bytes(data)
        refusal(path)
    path.write_bytes(zip_bytes({"readme.txt": b""}))
    assert "not a tensor file: this is a zip file" in refusal(path)
    for other in (artifacts("cnn_portable").pte, artifacts("cnn_portable").etrecord):
        assert other is not None
        assert "not a tensor file: this is an E" in refusal(other)


# -- writing


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".NPZ"])
def test_what_is_written_is_read(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    names = [n for n in BUILTIN if n != "complex64"]
    values: list[Any] = [some(name) for name in names]
    values += [some("float32").T, np.float32(1.5), 3, 2.5, True, some("int8")[:0]]
    keys = [*names, "transposed", "scalar", "int", "float", "flag", "empty"]
    path = tmp_path / f"out{suffix}"
    write_tensor_file(path, [*values, None], [*keys, "absent"])
    file = read_tensor_file(path)
    found = dict(zip(file.names, file.values, strict=True))
    assert set(found) == set(keys)
    for key, value in zip(keys, values, strict=True):
        check_equal(found[key], np.asarray(value))
    if suffix != ".safetensors":
        with np.load(path) as theirs:
            assert list(theirs) == keys
            assert theirs["transposed"].tobytes() == some("float32").T.tobytes()


def test_types_that_numpy_s_files_cannot_hold(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    for name in EXTENSIONS:
        with pytest.raises(UsageError, match=f"lacks {name}\n  hint: write a .safetensors file"):
            write_tensor_file(tmp_path / "out.npz", [some("int8"), some(name)], ["a", "b"])
        write_tensor_file(tmp_path / "out.safetensors", [some(name)], ["b"])
        check_equal(read_tensor_file(tmp_path / "out.safetensors").values[0], some(name))
    assert [path.name for path in tmp_path.iterdir()] == ["out.safetensors"]


@pytest.mark.parametrize(
    ("file", "values", "names", "words"),
    [
        ("out.pt", [1], ["a"], "'.pt' is not the suffix of a format\n  hint: name it .npz"),
        ("out", [1], ["a"], "'' is not the suffix of a format"),
        ("out.npz", [1, 2], ["a", "a"], "2 values need 2 different names"),
        ("out.npz", [1, 2], ["a"], "2 values need 2 different names"),
        ("out.npz", [object()], ["a"], "cannot write a: object is not a tensor"),
        ("out.npz", [1], ["../a"], "with the name '../a'"),
        ("out.npz", [1], [""], "with the name ''"),
        ("out.safetensors", [np.zeros(2, complex)], ["a"], "cannot write"),
        ("no/such/folder/out.npz", [1], ["a"], "cannot write"),
        ("no/such/folder/out.safetensors", [1], ["a"], "cannot write"),
    ],
)
def test_what_cannot_be_written(
    file: str, values: list[Any], names: list[str], words: str, tmp_path: Path
) -> None:
    if file.endswith(".safetensors"):
        pytest.importorskip("safetensors")
    with pytest.raises(UsageError) as caught:
        write_tensor_file(tmp_path / file, values, names)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_same_content_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("one.npz", "two.npz"):
        write_tensor_file(tmp_path / name, [some("int8")], ["x"])
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.npz") as archive:
        assert archive.infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)
