"""Upstream's `executorch.devtools.inspector.vgf_neural_statistics`: the VGF backend's records."""

from __future__ import annotations

from etscope.formats.etdump.vgf import (
    SCHEMA,
    parse_vgf_neural_statistics_delegate_metadata,
    parse_vgf_neural_statistics_metadata,
)
from etscope.formats.etdump.vgf import VERSION as SCHEMA_VERSION
from etscope.formats.etdump.vgf import Metadata as DelegateMetadataBytes

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "DelegateMetadataBytes",
    "parse_vgf_neural_statistics_delegate_metadata",
    "parse_vgf_neural_statistics_metadata",
]
