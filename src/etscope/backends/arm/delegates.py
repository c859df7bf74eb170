"""Export for Arm's backends, and decode what their delegates log.

Ethos-U, VGF and TOSA itself all lower to TOSA. They need `executorch.backends.arm` and Arm's
packages tosa-tools, ethos-u-vela and ai-ml-sdk-model-converter.

Ethos-U logs phases of the call on the runtime's clock, without an identifier.
"EthosUBackend::execute()" holds "+EthosUBackend::execute()handles.input.memcpy()" for each input,
and "+EthosUBackend::execute()NPU", where the host waits for the NPU
(backends/arm/runtime/EthosUBackend.cpp). The log does not show what the NPU does meanwhile.

VGF logs nested phases of the call and of its initialization on the runtime's clock
(backends/arm/runtime/VGFBackend.cpp, VGFSetup.cpp). "VGF_NEURAL_STATISTICS" is not a phase: it
marks the time when the delegate read the statistics in its metadata (VGFNeuralStatistics.h).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from etscope.backends.common.logged import LoggedCall, nested
from etscope.errors import EtscopeError, FormatError, VersionError, reading
from etscope.model.event_table import Meaning, Quantity

TARGET = "ethos-u55-128"
TOSA = "TOSA-1.0+FP+INT+int16+int4"  # the default of upstream's VGF: takes float and int8


def ethos_u_partitioners(
    *,
    target: str = TARGET,
    system_config: str | None = None,
    memory_mode: str | None = None,
    config_ini: str | None = None,
    extra_flags: tuple[str, ...] = (),
) -> list[Any]:
    """Make the partitioner of Ethos-U.

    target: the NPU and its number of MACs: "ethos-u55-128", "ethos-u65-256", "ethos-u85-256", …
    system_config, memory_mode, config_ini, extra_flags: Vela's options.
    """
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner

    spec = EthosUCompileSpec(target, system_config, memory_mode, list(extra_flags), config_ini)
    return [EthosUPartitioner(spec)]


def ethos_u_quantizer(*, target: str = TARGET, per_channel: bool = True) -> Any:
    """Make the quantizer of Ethos-U: int8 weights and activations."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec
    from executorch.backends.arm.quantizer import EthosUQuantizer

    return _configured(EthosUQuantizer(EthosUCompileSpec(target)), per_channel)


def tosa_partitioners(*, tosa_spec: str = TOSA) -> list[Any]:
    """Make the partitioner of TOSA. tosa_spec: version, profiles and extensions."""
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner

    return [TOSAPartitioner(TosaCompileSpec(tosa_spec))]


def tosa_quantizer(*, tosa_spec: str = TOSA, per_channel: bool = True) -> Any:
    """Make the quantizer of TOSA: int8 weights and activations."""
    from executorch.backends.arm.quantizer import TOSAQuantizer
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec

    return _configured(TOSAQuantizer(TosaCompileSpec(tosa_spec)), per_channel)


def vgf_partitioners(*, tosa_spec: str = TOSA) -> list[Any]:
    """Make the partitioner of VGF."""
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner

    return [VgfPartitioner(VgfCompileSpec(tosa_spec))]


def vgf_quantizer(*, tosa_spec: str = TOSA, per_channel: bool = True) -> Any:
    """Make the quantizer of VGF: int8 weights and activations."""
    from executorch.backends.arm.quantizer import VgfQuantizer
    from executorch.backends.arm.vgf import VgfCompileSpec

    return _configured(VgfQuantizer(VgfCompileSpec(tosa_spec)), per_channel)


def _configured(quantizer: Any, per_channel: bool) -> Any:
    from executorch.backends.arm.quantizer import get_symmetric_quantization_config

    config = get_symmetric_quantization_config(is_per_channel=per_channel)
    return quantizer.set_global(config)


# -- events of Ethos-U

_ETHOS_U_PHASE = re.compile(r"\+?EthosUBackend::(?P<function>\w+\(\))(?P<step>.*)", re.DOTALL)


def is_ethos_u(call: LoggedCall) -> bool:
    """True for names of the delegate's phases."""
    return any(_ETHOS_U_PHASE.fullmatch(name) for name in call.names)


def decode_ethos_u(call: LoggedCall) -> list[Meaning]:
    """Return phases, nested by time."""
    found: list[Meaning] = []
    for meaning in nested(call):
        name, parts = meaning.name, _ETHOS_U_PHASE.fullmatch(meaning.name)
        if parts is not None:  # "+EthosUBackend::execute()NPU" becomes "NPU"
            name = parts["step"] or f"EthosUBackend::{parts['function']}"
        found.append(replace(meaning, name=name, identifier=None))
    return found


# -- events of VGF

_VGF_PHASE = "VGF_"
_STATISTICS = "VGF_NEURAL_STATISTICS"


def is_vgf(call: LoggedCall) -> bool:
    """True for the names of VGF's phases."""
    return any(name.startswith(_VGF_PHASE) for name in call.names)


def decode_vgf(call: LoggedCall) -> list[Meaning]:
    """Return phases, nested by time, and the sizes of the statistics."""
    found: list[Meaning] = []
    for number, meaning in enumerate(nested(call)):
        one = replace(meaning, identifier=None) if meaning.name.startswith(_VGF_PHASE) else meaning
        if meaning.name == _STATISTICS:
            columns = _statistics(call.metadata_of(number))
            one = replace(one, quantity=Quantity.INSTANT, columns=columns)
        found.append(one)
    return found


def _statistics(metadata: bytes) -> dict[str, str | float]:
    """Return the bytes of each kind of statistics, over all segments of the graph, and why a kind
    is missing."""
    try:
        segments = parse_vgf_neural_statistics_metadata(metadata)["segments"]
    except EtscopeError as error:
        return {"statistics": f"unreadable: {error}"}
    sizes: dict[str, int] = {}
    missing: dict[str, None] = {}
    for segment in segments:
        for name, blob in segment.items():
            if isinstance(blob, dict) and "raw_data" in blob:
                column = f"{name}_bytes"
                sizes[column] = sizes.get(column, 0) + len(blob["raw_data"])
                if not blob.get("available", False):
                    missing[f"{name}: {blob.get('reason') or 'not available'}"] = None
    problems = {"statistics": "; ".join(missing)} if missing else {}
    return {"segments": len(segments), **sizes, **problems}


# -- Parse the neural statistics that Arm's VGF backend attaches to its events in an ETDump.
#
# A record is JSON: ``{"schema": "executorch.vgf.neural_statistics", "schema_version": 1,
# "segments": [{"debug_database": blob, "statistics_info": blob, "statistics_memory": blob, …}]}``;
# a blob is ``{"available": bool, "encoding": "base64", "data": text}`` (ExecuTorch 1.4 and later).


VGF_SCHEMA = "executorch.vgf.neural_statistics"
VGF_VERSION = 1
_VGF_RECORD = "VGF neural statistics record"
_VGF_BLOBS = ("debug_database", "statistics_info", "statistics_memory")

VgfMetadata = bytes | bytearray | str


def parse_vgf_neural_statistics_metadata(metadata: VgfMetadata) -> dict[str, Any]:
    """Parse one record. Each blob gets the key `raw_data`, its bytes (b"" if unavailable).

    Raises `FormatError` for data that is not such a record, `VersionError` for another version.
    """
    with reading(_VGF_RECORD):
        try:
            record = json.loads(_as_bytes(metadata))
        except ValueError as error:
            raise FormatError(
                f"Malformed VGF neural statistics delegate metadata: broken JSON ({error})"
            ) from error
        if not isinstance(record, dict) or record.get("schema") != VGF_SCHEMA:
            raise FormatError(f"not a {_VGF_RECORD}: it does not have the schema {VGF_SCHEMA!r}")
        if record.get("schema_version") != VGF_VERSION:
            raise VersionError(
                "Unsupported VGF neural statistics metadata schema version: "
                f"{record.get('schema_version')!r}, not {VGF_VERSION}"
            )
        segments = [dict(segment) for segment in record.get("segments", [])]
        for segment in segments:
            for name in _VGF_BLOBS:
                blob = segment.get(name)
                if isinstance(blob, dict):
                    segment[name] = {**blob, "raw_data": _decoded_blob(blob)}
        return {**record, "segments": segments}


def _decoded_blob(blob: dict[str, Any]) -> bytes:
    if not blob.get("available", False):
        return b""
    if blob.get("encoding") != "base64":
        raise FormatError(
            f"a blob of a {_VGF_RECORD} is encoded as {blob.get('encoding')!r}, not base64"
        )
    try:
        return base64.b64decode(blob.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise FormatError("Malformed base64 data in VGF neural statistics blob") from error


def parse_vgf_neural_statistics_delegate_metadata(
    delegate_metadata_list: Sequence[VgfMetadata | None],
) -> list[dict[str, Any]]:
    """Parse the VGF records in the metadata of an event; skip metadata of other backends.

    Raises the errors of `parse_vgf_neural_statistics_metadata` for metadata that names the schema.
    """
    return [
        parse_vgf_neural_statistics_metadata(metadata)
        for metadata in delegate_metadata_list
        if isinstance(metadata, (bytes, bytearray, str))
        and VGF_SCHEMA.encode() in _as_bytes(metadata)
    ]


def _as_bytes(metadata: VgfMetadata) -> bytes:
    return metadata.encode() if isinstance(metadata, str) else bytes(metadata)
