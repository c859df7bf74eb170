"""Read the tensors of a `torch.save` file, or of a plain pickle, as numpy arrays without torch.

A `torch.save` file is a zip with a pickle, `<root>/data.pkl`, and a member for each storage,
`<root>/data/<key>`. `pickle_reader` reads the pickle without running code. ExecuTorch 1.2 and older
put plain pickles into ETRecords, where each storage is an older `torch.save` file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, reading
from etscope.formats.bytes.zip_archive import ZipArchive, open_archive
from etscope.formats.exported_program.exported_json import (
    DTYPES,
    enum_name,
    mapping,
    parse_json,
    sequence,
    union,
)
from etscope.formats.program.scalar_type import numpy_dtype
from etscope.formats.torch_files.pickle_reader import Functions, Global, PickleReader

KIND = "torch.save file"
MAX_DIMENSIONS = 32  # numpy 1's limit
# Most elements of a view that repeats its storage (an expanded tensor): a copy is below 256 MiB.
MAX_REPETITION = 1 << 24

FAKE_TENSOR = b"_reconstruct_fake_tensor"  # the function that makes one in a pickle

_ZIP_MAGIC = b"PK\x03\x04"
# `MAGIC_NUMBER` and `PROTOCOL_VERSION` of torch/serialization.py.
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001

# torch's storage classes and dtypes -> the type's name in numpy or ml_dtypes
_STORAGES = {
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "BoolStorage": "bool",
    "BFloat16Storage": "bfloat16",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_DTYPES = (
    *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "bool"),
    *("float16", "float32", "float64", "bfloat16", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)


@dataclass(frozen=True, slots=True)
class FakeTensor:
    """A tensor saved without data: ExecuTorch does this for weights that are elsewhere.

    A symbolic size is the text of its expression.
    """

    dtype: str
    shape: tuple[int | str, ...]
    description: Mapping[str, Any]
    is_parameter: bool = False


@dataclass(frozen=True, slots=True)
class _Storage:
    """Bytes, and the element type if the storage has one."""

    data: memoryview
    dtype: np.dtype[Any] | None


def read_tensors(data: memoryview, *, checked: bool = False) -> Any:
    """Return the saved value: numpy arrays (views of `data`), `FakeTensor`s, numbers, text,
    containers.

    checked: `data` is an archive's member with an already checked CRC.

    Types that numpy lacks come from ml_dtypes. Raises `FormatError` for any other value in the
    file, and for tensors that exceed their storages.
    """
    with reading(KIND):
        if bytes(data[:4]) == _ZIP_MAGIC:
            return _read_zip(open_archive(data, KIND, checked=checked))

        def no_storage(pid: Any) -> Any:
            raise FormatError("a plain pickle refers to a storage outside the file")

        return PickleReader(data, _FUNCTIONS, no_storage).load()


def fake_tensors(data: memoryview) -> list[FakeTensor]:
    """Return the tensors without data in a file, in no particular order.

    Does not parse a file that cannot have any. Raises the errors of `read_tensors`.
    """
    with reading(KIND):
        if bytes(data[:4]) == _ZIP_MAGIC:
            archive = open_archive(data, KIND)
            pickles = [archive.read(n) for n in archive.members if n.endswith("data.pkl")]
        else:
            pickles = [data]
        if not any(FAKE_TENSOR in bytes(pickle) for pickle in pickles):
            return []
        found: list[FakeTensor] = []
        todo = [read_tensors(data)]
        while todo:
            value = todo.pop()
            if isinstance(value, FakeTensor):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                todo.extend(value)
            elif isinstance(value, dict):
                todo.extend(value.values())
        return found


def _read_zip(archive: ZipArchive) -> Any:
    pickles = [name for name in archive.members if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise FormatError(f"a {KIND} has one data.pkl, found {len(pickles)}")
    root = pickles[0].removesuffix("data.pkl")
    order = root + "byteorder"
    if order in archive.members and bytes(archive.read(order)) != b"little":
        raise FormatError("the tensors are big-endian, which is not supported", member=order)

    def storage(pid: Any) -> _Storage:
        cls, key, count = _storage_id(pid)
        member = f"{root}data/{key}"
        return _storage_of(archive.read(member), cls, count, member=member)

    return PickleReader(archive.read(pickles[0]), _FUNCTIONS, storage).load()


def _storage_id(pid: Any) -> tuple[Global, str, int]:
    """Class, key and number of elements of `("storage", class, key, device, count, ...)`."""
    if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
        raise FormatError("the pickle refers to an object that is not a storage")
    _, cls, key, _, count = pid[:5]
    if not isinstance(cls, Global) or not isinstance(key, str) or not isinstance(count, int):
        raise FormatError("the pickle refers to a storage in an unknown way")
    return cls, key, count


def _storage_of(
    data: memoryview,
    cls: Global,
    count: int,
    *,
    member: str | None = None,
    offset: int | None = None,
) -> _Storage:
    """Return a storage of `count` elements; `member` and `offset` are for errors."""
    name = _STORAGES.get(cls.name)
    if name is None and cls.name != "UntypedStorage":
        raise FormatError(f"{cls.name} is not a storage class")
    dtype = None if name is None else numpy_dtype(name)
    if dtype is not None and len(data) < count * dtype.itemsize:
        raise FormatError("a storage is shorter than declared", member=member, offset=offset)
    return _Storage(data, dtype)


# --------------------------------------------------------------------------------------------
# Functions that a pickle may call.


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> npt.NDArray[Any]:
    """`_rebuild_tensor_v2`: then come requires_grad, hooks, and metadata."""
    if not isinstance(storage, _Storage) or storage.dtype is None:
        raise FormatError("a tensor without a storage")
    return _view(storage.data, storage.dtype, offset, size, stride)


def _rebuild_tensor_of_dtype(
    storage: Any, offset: Any, size: Any, stride: Any, *rest: Any
) -> npt.NDArray[Any]:
    """`_rebuild_tensor_v3`, for types without a storage class: then come requires_grad, hooks, and
    the dtype."""
    dtype = rest[2]
    if not isinstance(storage, _Storage) or not isinstance(dtype, Global):
        raise FormatError("a tensor without a storage or a type")
    if dtype.name not in _DTYPES:
        raise FormatError(f"a tensor has the unsupported type torch.{dtype.name}")
    return _view(storage.data, numpy_dtype(dtype.name), offset, size, stride)


def _view(
    data: memoryview, dtype: np.dtype[Any], offset: Any, size: Any, stride: Any
) -> npt.NDArray[Any]:
    """View a tensor's elements in their storage, checked to lie within it."""
    numbers = (offset, *size, *stride)
    if any(type(number) is not int or not 0 <= number < 1 << 48 for number in numbers):
        raise FormatError(f"a tensor of impossible size {size!r:.100} or stride {stride!r:.100}")
    if len(size) != len(stride) or len(size) > MAX_DIMENSIONS:
        raise FormatError(f"a tensor of {len(size)} sizes and {len(stride)} strides")
    available = len(data) // dtype.itemsize
    count = 1
    for length in size:
        count *= length
    if count == 0:
        return np.empty(size, dtype)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= available:
        raise FormatError(
            f"a tensor of shape {list(size)} needs element {last:,}, but its storage "
            f"has {available:,}"
        )
    if count > available + MAX_REPETITION:
        raise FormatError(
            f"a tensor of shape {list(size)} has a storage of only {available:,} elements"
        )
    array: npt.NDArray[Any] = np.ndarray(
        tuple(size),
        dtype,
        buffer=data,
        offset=offset * dtype.itemsize,
        strides=tuple(step * dtype.itemsize for step in stride),
    )
    return array


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _rebuild_from_type(function: Any, _type: Any, arguments: Any, _state: Any) -> Any:
    """`_rebuild_from_type_v2`: a tensor or parameter with attributes, which are ignored."""
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        raise FormatError("a tensor that is rebuilt in an unknown way")
    return function.function(*arguments)


def _ordered_dict(pairs: Any = ()) -> dict[Any, Any]:
    if pairs not in ((), []):
        raise FormatError("an OrderedDict made of pairs")
    return {}


def _encode(content: Any, encoding: Any) -> bytes:
    """`_codecs.encode`: the form of bytes in the pickles of `torch.save`."""
    if not isinstance(content, str) or encoding != "latin1":
        raise FormatError("bytes in an unknown encoding")
    return content.encode("latin1")


def _reconstruct_fake_tensor(meta: Any, is_parameter: Any) -> FakeTensor:
    if not isinstance(meta, (bytes, memoryview)):
        raise FormatError("a fake tensor without a description")
    description = mapping(parse_json(meta), "a fake tensor")
    shape = []
    for size in sequence(description["sizes"], "sizes"):
        tag, content = union(size)
        shape.append(content if tag == "as_int" else str(content["expr_str"]))
    return FakeTensor(
        enum_name(DTYPES, description["dtype"], "dtype"),
        tuple(shape),
        description,
        bool(is_parameter),
    )


def _load_legacy_storage(data: Any) -> _Storage:
    """`torch.storage._load_from_bytes`: a storage as an older `torch.save` file in a pickle.

    Five pickles (magic number, version, properties of the machine, value, keys of the storages),
    then each storage as its number of elements and its bytes.
    """
    if not isinstance(data, (bytes, memoryview)):
        raise FormatError("a storage without bytes")
    wanted: list[tuple[Global, str, int]] = []

    def storage(pid: Any) -> Global:
        wanted.append(_storage_id(pid))
        return wanted[-1][0]

    reader = PickleReader(memoryview(data), _FUNCTIONS, storage)
    if reader.load() != _LEGACY_MAGIC or reader.load() != _LEGACY_PROTOCOL:
        raise FormatError("not a storage of torch.save")
    if mapping(reader.load(), "the machine's properties").get("little_endian") is not True:
        raise FormatError("the tensors are big-endian, which is not supported")
    reader.load()
    if reader.load() != [key for _, key, _ in wanted] or len(wanted) != 1:
        raise FormatError("a pickled storage must be the only one in its file")
    cls, _, count = wanted[0]
    # 8 bytes before the elements are their number.
    return _storage_of(reader.data[reader.position + 8 :], cls, count, offset=reader.position)


def _not_callable(*_: Any) -> Any:
    raise FormatError("the pickle calls a type")


_FUNCTIONS: Functions = {
    ("collections", "OrderedDict"): _ordered_dict,
    ("_codecs", "encode"): _encode,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_tensor_of_dtype,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type,
    ("torch", "Tensor"): _not_callable,
    ("torch.nn.parameter", "Parameter"): _not_callable,
    ("torch.nn.parameter", "Buffer"): _not_callable,
    ("torch.storage", "_load_from_bytes"): _load_legacy_storage,
    ("torch.storage", "UntypedStorage"): _not_callable,
    ("torch", "UntypedStorage"): _not_callable,
    ("executorch.exir.serde.export_serialize", FAKE_TENSOR.decode()): _reconstruct_fake_tensor,
    **{("torch", name): _not_callable for name in (*_STORAGES, *_DTYPES)},
}
