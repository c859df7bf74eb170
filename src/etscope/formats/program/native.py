"""ExecuTorch's native backend: graphs in a delegate's data, and the package ``.ptn``.

A graph is a FlatBuffer "NPTG" (backends/native/serialization/native_graph.fbs, which only grows at
the end): the nodes of an fx graph in order, with values by name, and references to constants by
key. In a program the constants are named data. A ``.ptn`` (exir/_serialize/_ptn.py) is a zip with
the graphs (program.ptg), the constants (program.safetensors) and the keys of equal constants
(aliases.json).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from etscope.errors import FormatError, reading
from etscope.formats.bytes.files import PathLike, open_source
from etscope.formats.bytes.flatbuffer import INT8, INT32, INT64, FlatBuffer, FlatTable, Span
from etscope.formats.bytes.zip_archive import ZipArchive, open_archive
from etscope.formats.exported_program.exported_json import mapping, parse_json
from etscope.formats.program.scalar_type import ScalarType

NATIVE = b"NPTG"
GRAPHS, TENSORS, ALIASES = "program.ptg", "program.safetensors", "aliases.json"
# Up to bfloat16, the numbers are as in ExecuTorch's other files.
_TYPES = {kind.value: kind for kind in ScalarType if kind <= ScalarType.BFLOAT16}
_KINDS = ("call_function", "placeholder", "output")
_DYNAMIC = "?"
_AFFINE, _PACKED = 1, 2  # members of the union of quantizations


@dataclass(frozen=True, slots=True)
class NativeType:
    """The type of a tensor. dtype: torch's name, None for a packed or unknown one. shape: a range
    of sizes as text. keys: of the constants with its scales and zero points. quantized: how the
    tensor is quantized, as text."""

    dtype: str | None
    shape: tuple[int | str, ...]
    keys: tuple[str, ...] = ()
    quantized: str | None = None

    def __str__(self) -> str:
        return f"{self.quantized or self.dtype or 'unknown'}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class NativeConstant:
    """A constant. name: its placeholder in the graph. key: its fully qualified name."""

    name: str
    key: str
    type: NativeType
    is_mutated: bool

    @property
    def size(self) -> int:
        """Bytes of a plain constant of known shape, else 0."""
        sizes = [size for size in self.type.shape if isinstance(size, int)]
        if self.type.dtype is None or len(sizes) < len(self.type.shape):
            return 0
        kind = next(one for one in _TYPES.values() if one.torch_name == self.type.dtype)
        return kind.nbytes(math.prod(sizes))


@dataclass(frozen=True, slots=True)
class NativeNode:
    """A node. op: "aten.add.Tensor". inputs: names of the values it reads. outputs: its values."""

    name: str
    kind: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NativeMethod:
    """A method: its nodes outside of branches, the types of its values, its constants, and
    the buffers that begin as zeros, by fully qualified name."""

    name: str
    nodes: tuple[NativeNode, ...]
    types: Mapping[str, NativeType]
    constants: tuple[NativeConstant, ...]
    buffers: tuple[str, ...]


def read_native(data: memoryview) -> tuple[NativeMethod, ...]:
    """Return the methods in native graphs. Raises `FormatError` for other or damaged data."""
    if bytes(data[4:8]) != NATIVE:
        raise FormatError("not a graph of ExecuTorch's native backend")
    with reading("native graph"):
        return tuple(_method(table) for table in FlatBuffer(data).root().tables(1))


def _method(table: FlatTable) -> NativeMethod:
    graph = table.table(1)
    if graph is None:
        raise FormatError("a native method does not have a graph", offset=table.position)
    return NativeMethod(
        name=table.string(0) or "",
        nodes=tuple(_node(node) for node in graph.tables(0)),
        types={one.string(0) or "": _type(one.table(1)) for one in graph.tables(3)},
        constants=tuple(
            NativeConstant(
                one.string(0) or "", one.string(1) or "", _type(one.table(2)), one.flag(4)
            )
            for one in table.tables(2)
        ),
        buffers=tuple(one.string(1) or "" for one in table.tables(4)),
    )


def _node(table: FlatTable) -> NativeNode:
    kind = table.integer(1, INT8)
    outputs: list[str] = []
    for output in table.tables(4):
        outputs += output.strings(3) or (output.string(0) or "",)
    return NativeNode(
        name=table.string(0) or "",
        kind=_KINDS[kind] if 0 <= kind < len(_KINDS) else f"kind {kind}",
        op=(table.string(2) or "").removeprefix("torch.ops."),
        inputs=tuple(name for given in table.tables(3) for name in _read_by(given.table(1))),
        outputs=tuple(outputs),
    )


# Slots of names of values in the members of the union of arguments: tensors, ints, floats, bools.
_NAMED = {1: 0, 3: 1, 4: 1, 5: 1}
_NAMES = {8: 1, 11: 0, 12: 0}  # lists of ints, of tensors, of optional tensors


def _read_by(argument: FlatTable | None) -> Iterator[str]:
    member, value = (0, None) if argument is None else argument.union(0)
    if value is not None and member in _NAMED:
        found: tuple[str, ...] = (value.string(_NAMED[member]) or "",)
    elif value is not None and member in _NAMES:
        found = value.strings(_NAMES[member])
    else:
        found = ()
    yield from filter(None, found)


def _type(table: FlatTable | None) -> NativeType:
    if table is None:
        return NativeType(None, ())
    shape: list[int | str] = []
    for dim in table.tables(1):
        low, high = dim.integer(0, INT64), dim.integer(1, INT64, -1)
        shape.append(low if low == high else f"{low}..{_DYNAMIC if high < 0 else high}")
    quantization = table.table(3)
    if quantization is not None:
        member, scheme = quantization.union(0)
        keys: tuple[str, ...] = ()
        text = f"quantization {member}"
        if scheme is not None and member == _AFFINE:
            keys = tuple(filter(None, (scheme.string(0), scheme.string(5))))
            group = scheme.integer(4, INT32)
            low, high = scheme.integer(2, INT32), scheme.integer(3, INT32)
            text = f"{low}..{high} by {f'groups of {group}' if group else 'channel'} "
        elif scheme is not None and member == _PACKED:
            text = f"{scheme.string(0)} "
        return NativeType(None, tuple(shape), keys, text)
    kind = _TYPES.get(table.integer(0, INT8))
    return NativeType(None if kind is None else kind.torch_name, tuple(shape))


# -- the package


@dataclass(frozen=True, slots=True)
class NativePackage:
    """A ``.ptn``. tensors: the bytes of each constant in the file, by key. aliases: keys of
    constants that are equal to another, with that one's key."""

    archive: ZipArchive
    methods: tuple[NativeMethod, ...]
    tensors: Mapping[str, Span]
    aliases: Mapping[str, str]


def read_ptn(path: PathLike) -> NativePackage:
    """Read a package. Raises `FormatError` for another or a damaged file, `MissingFileError`."""
    source = open_source(path, "native package")
    archive = open_archive(source.buffer, "native package", source.path)
    methods = read_native(archive.read(GRAPHS))
    tensors, aliases = {}, {}
    with reading("native package", source.path):
        if TENSORS in archive.members:
            tensors = dict(_tensors(archive))
        if ALIASES in archive.members:
            aliases = mapping(parse_json(archive.read(ALIASES)), ALIASES)
    return NativePackage(archive, methods, tensors, aliases)


def _tensors(archive: ZipArchive) -> Iterator[tuple[str, Span]]:
    """Yield the place of each tensor of the safetensors member in the file."""
    data, span = archive.read(TENSORS), archive.stored_span(archive.members[TENSORS])
    (size,) = struct.unpack_from("<Q", data)
    if size > len(data) - 8:
        raise FormatError("the list of constants is longer than their file")
    listed = mapping(parse_json(data[8 : 8 + size]), "the list of constants")
    for key, entry in listed.items():
        if key != "__metadata__":
            start, end = map(int, entry["data_offsets"])
            if not 0 <= start <= end <= len(data) - 8 - size:
                raise FormatError(f"the constant {key!r} is outside of the file")
            yield key, Span(span.offset + 8 + size + start, end - start)
