"""The parts of delegate data: Vulkan graphs, Vela's blocks, QNN contexts, Core ML packages, Core AI
assets, TensorRT engines, native graphs, MLX; and the backends' compile options.

The layouts come from the backends' own writers and readers: `vulkan_graph_serialize.py` and its
`schema.fbs`, `arm_vela.py`, `QnnCustomProtocol.h`, Core ML's `inmemoryfs` with coremltools' storage
of MIL, Core AI's `preprocess.py`, Torch-TensorRT's `TensorRTBlobHeader.cpp`,
`mlx_graph_serialize.py`, MediaTek's `NeuronPayloadHeader.h`. `xnnpack` reads XNNPACK's data,
`native` that of the native backend. Data of another backend, and of an unknown layout, does not
have parts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from etscope.errors import EtscopeError, FormatError, reading
from etscope.formats.bytes.flatbuffer import INT8, INT32, UINT32, UINT64, FlatBuffer, FlatTable
from etscope.formats.exported_program.exported_json import mapping, parse_json
from etscope.formats.program.native import read_native
from etscope.formats.program.pte_schema import CompileSpec


@dataclass(frozen=True, slots=True)
class DelegatePart:
    """Bytes of a delegate's data, from `offset`; with `key`, bytes of this named data instead.

    name: the backend's name ("cmd_data", "constant 3"). size: 0 if only the named data has it.
    is_weight: True for model parameters. dtype, shape: by torch's names, if the data has them.
    """

    name: str
    offset: int
    size: int
    is_weight: bool = False
    key: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """True for a weight with known type and shape."""
        return self.is_weight and self.dtype is not None and self.shape != ()


def delegate_parts(backend_id: str, data: memoryview) -> tuple[DelegatePart, ...]:
    """Return the parts of a delegate's data; none for an unknown layout and for damaged data."""
    read = _READERS.get(backend_id)
    found: tuple[DelegatePart, ...] = ()
    with suppress(EtscopeError), reading("delegate's data"):
        found = () if read is None else tuple(read(data))
    fits = all(part.offset + part.size <= len(data) for part in found if part.key is None)
    return found if fits else ()


# -- Vulkan

# The data is a header that locates a FlatBuffer (backends/vulkan/serialization/schema.fbs). Its
# `chain` lists the calls of operators, each with the id that the runtime logs.

# After four zero bytes: magic, length of the header, offset and size of tables and of constants.
_VULKAN_HEADER = struct.Struct("<4x4sHIIIQ")
_VULKAN_MAGIC = b"VH00"
_VULKAN_TENSOR = 5  # in the union of values
_VULKAN_NAMED = (1 << 64) - 1  # an offset: the constant is named data
_VULKAN_DTYPES = ("bool", "uint8", "int8", "int32", "float16", "float32", "float64", "int64")


def _vulkan(data: memoryview) -> Iterator[DelegatePart]:
    root = vulkan_graph(data)
    _, _, tables, size, constants, _ = _VULKAN_HEADER.unpack_from(data)
    types: dict[int, tuple[str | None, tuple[int, ...]]] = {}
    for value in root.tables(2):
        number, tensor = value.union(0)
        if number == _VULKAN_TENSOR and tensor is not None:
            kind = tensor.integer(0, INT8)
            dtype = _VULKAN_DTYPES[kind] if 0 <= kind < len(_VULKAN_DTYPES) else None
            types[tensor.integer(2, INT32)] = dtype, tuple(tensor.numbers(1, "I"))
    yield DelegatePart("graph", tables, size)
    for number, table in enumerate(root.tables(5)):
        offset, length = table.integer(0, UINT64), table.integer(1, UINT64)
        dtype, shape = types.get(number, (None, ()))
        if offset != _VULKAN_NAMED:
            place = constants + offset
            yield DelegatePart(f"constant {number}", place, length, True, None, dtype, shape)
        elif dtype is not None:  # else it stays named data
            key = table.string(2) or ""
            yield DelegatePart(f"constant {number}", 0, length, True, key, dtype, shape)


@dataclass(frozen=True, slots=True)
class VulkanCall:
    """A call of an operator. name: "aten.sigmoid.default", or an operator that only Vulkan has
    ("et_vk.…"). shape: the shape of its output; None unless the output is one tensor. arguments:
    indices of its values, the output last.
    """

    node_id: int
    name: str
    shape: tuple[int, ...] | None
    arguments: tuple[int, ...] = ()


def read_vulkan(data: memoryview) -> tuple[VulkanCall, ...]:
    """Return the calls. Raises `FormatError` for other data."""
    root = vulkan_graph(data)
    values = root.tables(2)
    calls: list[VulkanCall] = []
    for call in root.tables(1):
        arguments = call.numbers(2, "i")
        shape = None
        if arguments:
            output = arguments[-1]
            if not 0 <= output < len(values):
                raise FormatError(
                    f"a Vulkan call writes value {output}, but there are {len(values)}"
                )
            kind, tensor = values[output].union(0)
            if kind == _VULKAN_TENSOR and tensor is not None:
                shape = tuple(tensor.numbers(1, "I"))
        number, name = call.integer(0, UINT32), call.string(1) or ""
        calls.append(VulkanCall(number, name, shape, tuple(arguments)))
    return tuple(calls)


def vulkan_graph(data: memoryview) -> FlatTable:
    """Return the tables of the data. Raises `FormatError` for other data."""
    if len(data) < _VULKAN_HEADER.size:
        raise FormatError("not the data of a Vulkan delegate: it is too short")
    magic, _, tables, size, _, _ = _VULKAN_HEADER.unpack_from(data)
    if magic != _VULKAN_MAGIC or tables + size > len(data):
        raise FormatError("not the data of a Vulkan delegate")
    return FlatBuffer(data[tables : tables + size]).root()


# -- Ethos-U

# Name, size, whether the block holds the key of named data: a SHA-256 in hexadecimal.
_VELA_BLOCK = struct.Struct("<16sIB11x")
_VELA_ALIGNMENT = 16  # arm_vela.py pads each block


def _vela(data: memoryview) -> Iterator[DelegatePart]:
    if bytes(data[:16]).rstrip(b"\0") != b"vela_bin_stream":
        raise FormatError("not the data of an Ethos-U delegate")
    position = 0
    while position < len(data):
        name, size, is_named = _VELA_BLOCK.unpack_from(data, position)
        text, start = name.rstrip(b"\0").decode(), position + _VELA_BLOCK.size
        is_weight = text == "weight_data"
        dtype = "int8" if is_weight else None
        if is_named:
            key = bytes(data[start : start + size]).decode()
            yield DelegatePart(f"key of {text}", start, size)
            yield DelegatePart(text, 0, 0, is_weight, key, dtype)
        elif size:
            yield DelegatePart(text, start, size, is_weight, None, dtype)
        position = start + -(-size // _VELA_ALIGNMENT) * _VELA_ALIGNMENT
        if text == "vela_end_stream":
            return


# -- QNN

_QNN_HEADER = struct.Struct("<IqQ")  # magic, signature, size of the context binary
_QNN_MAGIC = 0x5678ABCD
_QNN_ALIGNMENT = 256  # before the first release of 2026 there was no padding


def _qnn(data: memoryview) -> Iterator[DelegatePart]:
    magic, _, size = _QNN_HEADER.unpack_from(data)
    if magic != _QNN_MAGIC:
        raise FormatError("not a QNN context")
    start = next((at for at in (_QNN_ALIGNMENT, _QNN_HEADER.size) if at + size == len(data)), None)
    if start is None:
        raise FormatError("a QNN context of another size than its header says")
    yield DelegatePart("context binary", start, size)


# -- Core ML: files one after the other, then a JSON that lists them, written backwards.

_COREML_LIST = 4 << 20  # bytes; the list of a package has some hundreds
_COREML_FILE = 0  # kind of a node


def _coreml(data: memoryview) -> Iterator[DelegatePart]:
    listed = bytes(data[-_COREML_LIST:])[::-1].lstrip(b"\0").decode("utf-8", "replace")
    for node in json.JSONDecoder().raw_decode(listed)[0]["nodes"]:
        if node["kind"] == _COREML_FILE:
            name, place = str(node["name"]), node["dataRegion"]
            offset, size = int(place["offset"]), int(place["size"])
            if offset < 0 or size < 0:
                raise FormatError(f"the file {name!r} begins at a negative offset")
            tensors: tuple[DelegatePart, ...] = ()
            if name == "weight.bin":
                tensors = tuple(_coreml_weights(data[offset : offset + size], offset))
            yield from tensors
            # One part around the tensors: the bytes between them are headers and padding.
            yield DelegatePart(name, offset, size, name == "weight.bin" and not tensors)


# Storage of MIL: a header of 64 bytes, then for each tensor 64 bytes about it and its data.
_MIL_HEADER = struct.Struct("<II56x")  # number of tensors, version
_MIL_TENSOR = struct.Struct("<IIQQ40x")  # magic, type, size, offset of the data
_MIL_VERSION, _MIL_MAGIC, _MIL_ALIGNMENT = 2, 0xDEADBEEF, 64
_MIL_DTYPES = {1: ("float16", 2), 2: ("float32", 4), 3: ("uint8", 1), 4: ("int8", 1),
               5: ("bfloat16", 2), 6: ("int16", 2), 14: ("int32", 4)}  # fmt: skip


def _coreml_weights(data: memoryview, start: int) -> Iterator[DelegatePart]:
    """Yield the tensors of a `weight.bin` that begins at `start`. Types smaller than a byte become
    flat bytes. Each tensor gets one dimension: only the model has the shapes."""
    count, version = _MIL_HEADER.unpack_from(data)
    if version != _MIL_VERSION:
        return
    position = _MIL_HEADER.size
    for number in range(count):
        magic, kind, size, offset = _MIL_TENSOR.unpack_from(data, position)
        first = position + _MIL_TENSOR.size
        if magic != _MIL_MAGIC or offset < first or offset + size > len(data):
            raise FormatError(f"weight {number} of a Core ML model is damaged")
        dtype, itemsize = _MIL_DTYPES.get(kind, ("bits8", 1))
        yield DelegatePart(
            f"weight {number}", start + offset, size, True, None, dtype, (size // itemsize,)
        )
        position = -(-(offset + size) // _MIL_ALIGNMENT) * _MIL_ALIGNMENT


# -- MLX and MediaTek

_MLX_HEADER = struct.Struct("<4x4sQQ")  # magic, offset and size of the constants
_NEURON_HEADER = struct.Struct("<BIII")  # version, numbers of inputs and outputs, bytes


def _mlx(data: memoryview) -> Iterator[DelegatePart]:
    magic, offset, size = _MLX_HEADER.unpack_from(data)
    if magic != b"MLX0" or offset < _MLX_HEADER.size:
        raise FormatError("not the data of an MLX delegate")
    yield DelegatePart("graph", _MLX_HEADER.size, offset - _MLX_HEADER.size)
    if size:
        yield DelegatePart("constants", offset, size, True)


def _neuron(data: memoryview) -> Iterator[DelegatePart]:
    _, _, _, size = _NEURON_HEADER.unpack_from(data)
    if _NEURON_HEADER.size + size != len(data):
        raise FormatError("not a compiled network of MediaTek's Neuron")
    yield DelegatePart("compiled network", _NEURON_HEADER.size, size)


# -- Core AI: a JSON that lists files. They are named data, or lie in a folder beside the program.


def _coreai(data: memoryview) -> Iterator[DelegatePart]:
    manifest = mapping(parse_json(data), "a manifest of Core AI")
    yield DelegatePart("manifest", 0, len(data))
    for file in manifest.get("files", ()):
        yield DelegatePart(str(file), 0, 0, False, f"coreai/{manifest['hash']}/{file}")


# -- TensorRT

# Magic, offset and size of a JSON, offset and size of the engine. "TR02": outputs share inputs.
_TENSORRT_HEADER = struct.Struct("<4sIIIQ8x")
_TENSORRT_MAGICS = (b"TR01", b"TR02")


def _tensorrt(data: memoryview) -> Iterator[DelegatePart]:
    magic, offset, size, engine, length = _TENSORRT_HEADER.unpack_from(data)
    if magic not in _TENSORRT_MAGICS or offset < _TENSORRT_HEADER.size or offset + size > engine:
        raise FormatError("not the data of a TensorRT delegate")
    yield DelegatePart("metadata", offset, size)
    yield DelegatePart("engine", engine, length)


# -- the native backend


def _native(data: memoryview) -> Iterator[DelegatePart]:
    methods = read_native(data)
    yield DelegatePart("graph", 0, len(data))
    for constant in (one for method in methods for one in method.constants):
        kind, shape = constant.type, constant.type.shape
        sizes = tuple(size for size in shape if isinstance(size, int))
        dtype = kind.dtype if len(sizes) == len(shape) else None
        yield DelegatePart(constant.key, 0, constant.size, True, constant.key, dtype, sizes)
        for key in kind.keys:
            yield DelegatePart(key, 0, 0, True, key)


_READERS: Mapping[str, Callable[[memoryview], Iterator[DelegatePart]]] = {
    "VulkanBackend": _vulkan,
    "EthosUBackend": _vela,
    "QnnBackend": _qnn,
    "CoreMLBackend": _coreml,
    "MLXBackend": _mlx,
    "NeuropilotBackend": _neuron,
    "CoreAIBackend": _coreai,
    "TensorRTBackend": _tensorrt,
    "NativeBackend": _native,
}


def delegate_words(backend_id: str, data: memoryview) -> Mapping[str, str]:
    """Return what a delegate's data says of itself, by name: the delivery of Core AI's asset, the
    inputs, outputs and device of a TensorRT engine, the numbers of a native graph. Names that
    etscope does not know are kept. {} for other backends and for damaged data."""
    found: dict[str, str] = {}
    with suppress(EtscopeError), reading("delegate's data"):
        if backend_id == "NativeBackend":
            methods = read_native(data)
            nodes = sum(node.kind == "call_function" for one in methods for node in one.nodes)
            found = {"nodes": str(nodes), "constants": str(sum(len(m.constants) for m in methods))}
        elif backend_id == "CoreAIBackend":
            content = mapping(parse_json(data), "a manifest of Core AI")
            found = {k: _said(v) for k, v in content.items() if k not in ("files", "hash")}
        elif backend_id == "TensorRTBackend":
            part = next(_tensorrt(data))
            content = mapping(parse_json(data[part.offset :][: part.size]), "metadata of TensorRT")
            for name, is_input in (("inputs", True), ("outputs", False)):
                tensors = [one for one in content["io_bindings"] if one["is_input"] is is_input]
                found[name] = ", ".join(str(one["name"]) for one in tensors)
            skipped = ("io_bindings", "serialized_metadata")  # the second is a pickle
            found |= {k: _said(v) for k, v in content.items() if k not in skipped}
    return {name: text for name, text in found.items() if text}


def _said(value: object) -> str:
    if value is None or value in ("", [], {}):
        return ""
    return value if isinstance(value, str) else json.dumps(value)


# -- Compile options. A program stores each as bytes. Most backends write text. Vulkan writes
# little-endian numbers (`parse_compile_options` of vulkan_partitioner.py), QNN one FlatBuffer with
# all options (backends/qualcomm/serialization/qc_compiler_spec.fbs).


def option_texts(backend: str, key: str, value: bytes) -> dict[str, str]:
    """Return the values in a backend's option by name; QNN's single option has several. An unknown
    option is text or hexadecimal, as in `CompileSpec.text`."""
    if backend == "VulkanBackend" and len(value) in (1, 4, 8):
        names = {0: "false", 1: "true"} if len(value) == 1 else _VULKAN_NAMES.get(key, {})
        number = int.from_bytes(value, "little")
        return {key: names.get(number, str(number))}
    if backend == "QnnBackend":
        try:
            with reading("options of QNN"):
                return dict(_qnn_options(FlatBuffer(memoryview(value)).root(), _QNN))
        except EtscopeError:
            pass
    return {key: CompileSpec(key, value).text}


_VULKAN_NAMES: Mapping[str, Mapping[int, str]] = {
    "storage_type_override": {
        0: "BUFFER", 1: "TEXTURE_3D", 2: "TEXTURE_2D", 255: "DEFAULT_STORAGE",
    },
    "memory_layout_override": {
        0: "TENSOR_WIDTH_PACKED", 1: "TENSOR_HEIGHT_PACKED", 2: "TENSOR_CHANNELS_PACKED",
        3: "PACKED_INT8_4W4C", 4: "PACKED_INT8_4H4W", 5: "PACKED_INT8_4W", 6: "PACKED_INT8_4C",
        8: "PACKED_INT8_4C1W", 9: "PACKED_INT8_CONV2D", 255: "DEFAULT_LAYOUT",
    },
}  # fmt: skip


class _Number(NamedTuple):
    """A number of a flatbuffer, shown by name if it has one."""

    slot: int
    name: str
    names: Mapping[int, str]


class _Flag(NamedTuple):
    slot: int
    name: str


class _Inner(NamedTuple):
    slot: int
    fields: tuple[_Number | _Flag | _Inner, ...]


def _numbered(*names: str) -> dict[int, str]:
    return dict(enumerate(names))


_SOC = {
    39: "SA8295", 72: "SA8797", 30: "SM8350", 36: "SM8450", 42: "SM8475", 43: "SM8550",
    57: "SM8650", 69: "SM8750", 87: "SM8850", 46: "SSG2115P", 58: "SSG2125P", 45: "SXR1230P",
    53: "SXR2230P", 75: "SXR2330P", 77: "QCS9100", 95: "SAR2230P", 52: "SA8255", 96: "SW6100",
    93: "QCM6490", 97: "SM8845",
}  # fmt: skip
_HTP = (
    _Number(
        1,
        "htp_performance_mode",
        _numbered(
            "default", "sustained high performance", "burst", "high performance", "power saver",
            "low power saver", "high power saver", "low balanced", "balanced",
        ),
    ),
    _Number(2, "htp_precision", _numbered("quantized", "fp16")),
    _Flag(4, "use_conv_hmx"),
    _Flag(5, "use_dlbc"),
    _Flag(6, "use_fold_relu"),
    _Flag(7, "use_multi_contexts"),
    _Flag(8, "use_weight_sharing"),
    _Flag(9, "use_slc_allocator"),
)  # fmt: skip
_GPU = (
    _Number(0, "gpu_performance_mode", _numbered("high", "normal", "low")),
    _Number(1, "gpu_precision", _numbered("fp32", "fp16", "hybrid", "user provided")),
    _Flag(5, "use_weight_sharing"),
)
_QNN = (
    _Inner(0, (_Number(0, "soc_model", _SOC),)),
    _Inner(
        1,
        (
            _Number(0, "backend_type", _numbered("undefined", "GPU", "HTP", "DSP", "LPAI")),
            _Inner(1, _HTP),
            _Inner(2, _GPU),
        ),
    ),
    _Flag(4, "online_prepare"),
    _Flag(5, "dump_intermediate_outputs"),
    _Number(6, "profile_level", _numbered("off", "basic", "detailed", "optrace")),
    _Flag(7, "shared_buffer"),
    _Flag(8, "is_from_context_binary"),
    _Flag(12, "use_mha2sha"),
)


def _qnn_options(
    table: FlatTable, fields: tuple[_Number | _Flag | _Inner, ...]
) -> Iterator[tuple[str, str]]:
    """Yield the fields that are set, and all numbers: 0 has a name, too."""
    for field in fields:
        if isinstance(field, _Inner):
            inner = table.table(field.slot)
            if inner is not None:
                yield from _qnn_options(inner, field.fields)
        elif isinstance(field, _Number):
            number = table.integer(field.slot, INT32)
            yield field.name, field.names.get(number, str(number))
        elif table.flag(field.slot):
            yield field.name, "true"
