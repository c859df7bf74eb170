"""Read and write files of tensors as numpy arrays: .npz, .npy, .safetensors, torch.save.

The bytes of a file decide its format, not its name. Files are mapped, and uncompressed arrays are
views of the mapping, so the time to open does not depend on their size. etscope never runs code of
a file or loads a pickle; `torch_archive` reads `torch.save` files.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from etscope.errors import FormatError, MissingDataError, UsageError, reading
from etscope.formats.bytes.files import PathLike, Source, atomic_write, open_source
from etscope.formats.bytes.zip_archive import NewMember, open_archive, write_archive
from etscope.formats.identify import describe
from etscope.formats.program.scalar_type import numpy_dtype
from etscope.support.optional import require

KIND = "tensor file"
MAX_VALUES = 100_000  # more than a model's weights; bounds the work for a hostile file

# NumPy's format of one array (.npy, and each member of a .npz).
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_MAX_HEADER = 10_000  # bytes: numpy's own limit against slow parsing of the header


def array_of_npy(data: memoryview) -> npt.NDArray[Any]:
    """Return the array in the bytes of a .npy file, as a read-only view.

    Raises `FormatError` for a damaged file and for an array of other things than numbers.
    """
    with reading("NumPy array (.npy)"):
        # Enough for the longest accepted header; the elements are not copied.
        head = io.BytesIO(data[: _MAX_HEADER + 12])
        version = npy_format.read_magic(head)
        read_header = _HEADERS.get(version)
        if read_header is None:
            raise FormatError(f"version {version[0]}.{version[1]} of the format is not supported")
        try:
            shape, fortran, dtype = read_header(head, max_header_size=_MAX_HEADER)
        except (SyntaxError, TokenError) as error:  # the header is Python source
            raise FormatError(f"the header cannot be read: {error}") from error
        if dtype.hasobject:
            raise FormatError(
                "an array of Python objects is a pickle, which etscope never loads",
                hint="save arrays with one shape and a number type",
            )
        if dtype.kind == "V":
            raise FormatError(
                f"an array of the type {dtype.str}: NumPy's format lacks bfloat16 and float8",
                hint="write such arrays to a .safetensors or torch.save file",
            )
        if dtype.kind not in "biufc":
            raise FormatError(f"an array of the type {dtype.name} is not a tensor")
        count = math.prod(shape)
        content = data[head.tell() :]
        if min(shape, default=0) < 0 or count * dtype.itemsize > len(content):
            raise FormatError(
                f"an array {dtype.name}{list(shape)} has only {len(content):,} bytes of data",
                hint="the file may be cut off",
            )
        flat = np.frombuffer(content, dtype, count)
        return flat.reshape(shape, order="F" if fortran else "C")


def npy_header(array: npt.NDArray[Any]) -> bytes:
    """The header of a .npy file, before the elements of a C-contiguous array."""
    head = io.BytesIO()
    description = npy_format.dtype_to_descr(array.dtype)
    npy_format.write_array_header_1_0(
        head, {"descr": description, "fortran_order": False, "shape": array.shape}
    )
    return head.getvalue()


Leaf = npt.NDArray[Any] | int | float | bool | str | None

_NPY = b"\x93NUMPY"
_ZIP = b"PK\x03\x04"
_EMPTY_ZIP = b"PK\x05\x06" + bytes(18)  # what numpy.savez() without arrays writes
_SUPPORTED = "etscope reads tensors from .npz, .npy, .safetensors and torch.save files"

# safetensors' name of a type -> numpy's or that of ml_dtypes
_SAFETENSORS_TYPES = {
    "BOOL": "bool",
    **{f"{code}{bits}": f"{name}{bits}" for code, name in (("I", "int"), ("U", "uint"))
       for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "C64": "complex64",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class TensorFile:
    """The values of a file, flat, in the file's order.

    values: read-only arrays (types of ml_dtypes where numpy has none); a torch.save file may also
        have numbers, text and None.
    names: the name of each value; None without one. A value in a named container has its path as
        name: "state.0".
    content: for a torch.save file the saved value, with its nested containers.
    ordered: True if the file keeps the writer's order of the values.
    """

    values: tuple[Leaf, ...]
    names: tuple[str | None, ...]
    content: Any = None
    ordered: bool = True
    path: str | None = None


NPZ, SAFETENSORS = ".npz", ".safetensors"
SUFFIXES = (NPZ, ".npy", SAFETENSORS, ".pt", ".pth")


def tensor_files_in(folder: Path) -> list[Path]:
    """Return the tensor files of a folder, found by suffix and sorted by name, with numbers by
    value: 2 before 10. Hidden files are left out.

    Raises `MissingDataError` for a folder without such files.
    """

    def by_number(path: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", path.name)
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

    files = [
        path
        for path in folder.iterdir()
        if path.is_file() and path.name[0] != "." and path.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise MissingDataError(
            f"the folder {folder} does not have tensor files",
            hint=f"a tensor file ends with {', '.join(SUFFIXES)}",
        )
    return sorted(files, key=by_number)


def read_tensor_file(path: PathLike) -> TensorFile:
    """Read the tensors in a file.

    Raises `MissingFileError` for a missing file, `FormatError` for a damaged file and for another
    format, `MissingDependencyError` for .safetensors without its package.
    """
    source = open_source(path, KIND)
    with reading(KIND, source.path):
        head = bytes(source.buffer[:10])
        if head.startswith(_NPY):
            return TensorFile((array_of_npy(source.buffer),), (None,), path=source.path)
        if head.startswith(_ZIP):
            archive = open_archive(source.buffer, KIND, source.path)
            if any(name.endswith("/data.pkl") for name in archive.members):
                return _read_torch(source)
            if all(name.endswith(".npy") for name in archive.members):
                arrays = []
                for name in archive.members:
                    with reading(KIND, member=name):
                        arrays.append(array_of_npy(archive.read(name)))
                names = tuple(name.removesuffix(".npy") for name in archive.members)
                return TensorFile(tuple(arrays), names, path=source.path)
        elif source.buffer == _EMPTY_ZIP:
            return TensorFile((), (), path=source.path)
        elif head[8:9] == b"{":
            return _read_safetensors(source)
        elif len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5:
            raise FormatError(
                "this seems to be a Python pickle, which etscope never loads",
                hint="write the tensors with numpy.savez, safetensors, or torch.save of torch 1.6+",
            )
        raise FormatError(f"not a {KIND}: {describe(source.buffer)}", hint=_SUPPORTED)


def _read_torch(source: Source) -> TensorFile:
    from etscope.formats.torch_files.torch_archive import read_tensors

    content = read_tensors(source.buffer)
    values: list[Leaf] = []
    names: list[str | None] = []
    for name, leaf in _leaves(content, None):
        if len(values) == MAX_VALUES:
            raise FormatError(f"the file has more than {MAX_VALUES:,} values")
        if leaf is not None and not isinstance(leaf, (np.ndarray, int, float, str)):
            raise FormatError(f"the file contains a {type(leaf).__name__}, which is not a tensor")
        if isinstance(leaf, np.ndarray):
            leaf.flags.writeable = False
        values.append(leaf)
        names.append(name)
    return TensorFile(tuple(values), tuple(names), content, path=source.path)


def _leaves(value: Any, name: str | None) -> Iterator[tuple[str | None, Any]]:
    """Yield the values in nested containers with their paths, which start at the first dict."""
    if isinstance(value, Mapping):
        prefix = "" if name is None else f"{name}."
        for key, item in value.items():
            yield from _leaves(item, f"{prefix}{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, None if name is None else f"{name}.{index}")
    else:
        yield name, value


def _read_safetensors(source: Source) -> TensorFile:
    package = require("safetensors", wanted_by=".safetensors files")
    try:
        with package.safe_open(source.path, framework="numpy") as file:
            names = tuple(file.offset_keys())
            slices = [file.get_slice(name) for name in names]
            found = [(one.get_dtype(), tuple(one.get_shape())) for one in slices]
    except package.SafetensorError as error:
        raise FormatError(f"not a valid safetensors file: {error}") from error
    # The package checks that the tensors follow the header without gaps.
    position = 8 + int.from_bytes(source.buffer[:8], "little")
    values = []
    for name, (code, shape) in zip(names, found, strict=True):
        if code not in _SAFETENSORS_TYPES:
            raise FormatError(f"tensors of the type {code} are not supported", member=name)
        dtype = numpy_dtype(_SAFETENSORS_TYPES[code])
        size = math.prod(shape) * dtype.itemsize
        data = source.buffer[position : position + size]
        values.append(np.frombuffer(data, dtype).reshape(shape))
        position += size
    return TensorFile(tuple(values), names, ordered=len(names) < 2, path=source.path)


# --------------------------------------------------------------------------------------------
# Writing.


def write_tensor_file(path: PathLike, values: Sequence[Leaf], names: Sequence[str]) -> None:
    """Write arrays and numbers (as arrays without dimensions) to .npz or .safetensors, by the
    suffix of `path`. Skip None. The file appears complete or not at all.

    Raises `UsageError` for another suffix, a value that the format cannot hold, or a duplicate
    name.
    """
    writer = _WRITERS.get(Path(path).suffix.lower())
    if writer is None:
        raise UsageError(
            f"cannot write tensors to {path}: {Path(path).suffix!r} is not the suffix of a format",
            hint="name it .npz or .safetensors",
        )
    if len(set(names)) != len(names) or len(names) != len(values):
        raise UsageError(
            f"{len(values)} values need {len(values)} different names, got {list(names)!r:.200}"
        )
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, value in zip(names, values, strict=True):
        if value is None:
            continue
        array = np.asarray(value)
        if array.dtype.kind not in "biufc" and fits_npz(array.dtype):
            raise UsageError(
                f"cannot write {name}: {type(value).__name__} is not a tensor or number"
            )
        arrays[name] = array
    writer(path, arrays)


def fits_npz(dtype: np.dtype[Any]) -> bool:
    """Return True if numpy's format has the type; it stores types of ml_dtypes as bare bytes."""
    name: str = dtype.name
    return not name.startswith(("bfloat", "float8"))


def suffix_for(values: Iterable[Any]) -> str:
    """Return the suffix of a file that can hold the arrays among the values."""
    arrays = (value for value in values if isinstance(value, np.ndarray))
    return NPZ if all(fits_npz(array.dtype) for array in arrays) else SAFETENSORS


def _write_npz(path: PathLike, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    for name, array in arrays.items():
        if not fits_npz(array.dtype):
            raise UsageError(
                f"cannot write {name} to {path}: NumPy's format lacks {array.dtype.name}",
                hint="write a .safetensors file instead",
            )
        if not name or name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise UsageError(f"cannot write a tensor with the name {name!r} to {path}")
    write_archive(
        (
            NewMember(f"{name}.npy", npy_header(array) + array.tobytes())
            for name, array in arrays.items()
        ),
        path,
    )


def _write_safetensors(path: PathLike, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    package = require("safetensors.numpy", wanted_by=".safetensors files")
    error_type = require("safetensors", wanted_by=".safetensors files").SafetensorError
    dense = {name: array.copy(order="C") for name, array in arrays.items()}
    try:
        content = package.save(dense)
    except error_type as error:
        raise UsageError(f"cannot write {path}: {error}") from error
    with atomic_write(path) as file:
        file.write(content)


_WRITERS = {NPZ: _write_npz, SAFETENSORS: _write_safetensors}
