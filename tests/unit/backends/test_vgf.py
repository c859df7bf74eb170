"""Arm's VGF records, compared with what ExecuTorch's parser makes of them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from etscope import Inspector
from etscope.backends.arm.delegates import (
    VGF_SCHEMA,
    parse_vgf_neural_statistics_delegate_metadata,
    parse_vgf_neural_statistics_metadata,
)
from etscope.errors import FormatError, VersionError
from etscope.formats.etdump.writer import ETDumpWriter


def record(**changes: Any) -> bytes:
    blob = {"available": True, "encoding": "base64", "data": base64.b64encode(b"abc").decode()}
    content = {
        "schema": VGF_SCHEMA,
        "schema_version": 1,
        "segments": [{"index": 0, "statistics_info": blob, "debug_database": {"available": False}}],
    }
    return json.dumps({**content, **changes}).encode()


def test_a_record_is_what_upstream_makes_of_it() -> None:
    upstream = pytest.importorskip("executorch.devtools.inspector.vgf_neural_statistics")
    ours = parse_vgf_neural_statistics_metadata(record())
    assert ours == upstream.parse_vgf_neural_statistics_metadata(record())
    assert ours["segments"][0]["statistics_info"]["raw_data"] == b"abc"


def test_the_inspector_collects_records_and_passes_over_others() -> None:
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    for metadata in (b"\xffnot json", record(), b""):
        writer.log_profiling_delegate("phase", 0, 1, metadata=metadata)
    (found,) = Inspector(etdump_data=writer.finish()).get_vgf_neural_statistics()
    assert found["schema"] == VGF_SCHEMA


def with_statistics(**blob: Any) -> bytes:
    return record(segments=[{"statistics_info": {"available": True, **blob}}])


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (record(schema_version=2), VersionError),
        (record()[:-1], FormatError),
        (record(segments=3), FormatError),
        (with_statistics(encoding="hex"), FormatError),
        (with_statistics(encoding="base64", data="%"), FormatError),
    ],
)
def test_a_broken_record_is_an_error(metadata: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_vgf_neural_statistics_delegate_metadata([metadata])
