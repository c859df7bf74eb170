"""Upstream's `executorch.devtools.inspector.vgf_neural_statistics`: the VGF backend's records."""

from __future__ import annotations

from etscope.backends.arm.delegates import VGF_SCHEMA as SCHEMA
from etscope.backends.arm.delegates import VGF_VERSION as SCHEMA_VERSION
from etscope.backends.arm.delegates import VgfMetadata as DelegateMetadataBytes
from etscope.backends.arm.delegates import (
    parse_vgf_neural_statistics_delegate_metadata,
    parse_vgf_neural_statistics_metadata,
)

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "DelegateMetadataBytes",
    "parse_vgf_neural_statistics_delegate_metadata",
    "parse_vgf_neural_statistics_metadata",
]
