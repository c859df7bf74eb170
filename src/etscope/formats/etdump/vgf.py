"""Parse the neural statistics that Arm's VGF backend attaches to its events in an ETDump.

A record is JSON: ``{"schema": "executorch.vgf.neural_statistics", "schema_version": 1,
"segments": [{"debug_database": blob, "statistics_info": blob, "statistics_memory": blob, …}]}``;
a blob is ``{"available": bool, "encoding": "base64", "data": text}`` (ExecuTorch 1.4 and later).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from etscope.errors import FormatError, VersionError, reading

SCHEMA = "executorch.vgf.neural_statistics"
VERSION = 1
_KIND = "VGF neural statistics record"
_BLOBS = ("debug_database", "statistics_info", "statistics_memory")

Metadata = bytes | bytearray | str


def parse_vgf_neural_statistics_metadata(metadata: Metadata) -> dict[str, Any]:
    """Parse one record. Each blob gets the key `raw_data`, its bytes (b"" if unavailable).

    Raises `FormatError` for data that is not such a record, `VersionError` for another version.
    """
    with reading(_KIND):
        try:
            record = json.loads(_as_bytes(metadata))
        except ValueError as error:
            raise FormatError(
                f"Malformed VGF neural statistics delegate metadata: broken JSON ({error})"
            ) from error
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise FormatError(f"not a {_KIND}: it does not have the schema {SCHEMA!r}")
        if record.get("schema_version") != VERSION:
            raise VersionError(
                "Unsupported VGF neural statistics metadata schema version: "
                f"{record.get('schema_version')!r}, not {VERSION}"
            )
        segments = [dict(segment) for segment in record.get("segments", [])]
        for segment in segments:
            for name in _BLOBS:
                blob = segment.get(name)
                if isinstance(blob, dict):
                    segment[name] = {**blob, "raw_data": _decoded(blob)}
        return {**record, "segments": segments}


def _decoded(blob: dict[str, Any]) -> bytes:
    if not blob.get("available", False):
        return b""
    if blob.get("encoding") != "base64":
        raise FormatError(f"a blob of a {_KIND} is encoded as {blob.get('encoding')!r}, not base64")
    try:
        return base64.b64decode(blob.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise FormatError("Malformed base64 data in VGF neural statistics blob") from error


def parse_vgf_neural_statistics_delegate_metadata(
    delegate_metadata_list: Sequence[Metadata | None],
) -> list[dict[str, Any]]:
    """Parse the VGF records in the metadata of an event; skip metadata of other backends.

    Raises the errors of `parse_vgf_neural_statistics_metadata` for metadata that names the schema.
    """
    return [
        parse_vgf_neural_statistics_metadata(metadata)
        for metadata in delegate_metadata_list
        if isinstance(metadata, (bytes, bytearray, str)) and SCHEMA.encode() in _as_bytes(metadata)
    ]


def _as_bytes(metadata: Metadata) -> bytes:
    return metadata.encode() if isinstance(metadata, str) else bytes(metadata)
