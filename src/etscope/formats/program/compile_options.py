"""Compile options of backends in plain words.

A program stores each option as bytes. Most backends write text. Vulkan writes little-endian numbers
(backends/vulkan/partitioner/vulkan_partitioner.py, `parse_compile_options`), QNN one flatbuffer of
all options (backends/qualcomm/serialization/qc_compiler_spec.fbs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from etscope.errors import EtscopeError, reading
from etscope.formats.bytes.flatbuffer import INT32, FlatBuffer, FlatTable
from etscope.formats.program.pte_schema import CompileSpec


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
                return dict(_qnn(FlatBuffer(memoryview(value)).root(), _QNN))
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


def _qnn(
    table: FlatTable, fields: tuple[_Number | _Flag | _Inner, ...]
) -> Iterator[tuple[str, str]]:
    """Yield the fields that are set, and all numbers: 0 has a name, too."""
    for field in fields:
        if isinstance(field, _Inner):
            inner = table.table(field.slot)
            if inner is not None:
                yield from _qnn(inner, field.fields)
        elif isinstance(field, _Number):
            number = table.integer(field.slot, INT32)
            yield field.name, field.names.get(number, str(number))
        elif table.flag(field.slot):
            yield field.name, "true"
