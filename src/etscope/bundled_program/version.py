"""Upstream's `executorch.devtools.bundled_program.version`."""

from __future__ import annotations

from etscope.formats.program.bpte import SCHEMA_VERSION

__all__ = ["BUNDLED_PROGRAM_SCHEMA_VERSION"]

BUNDLED_PROGRAM_SCHEMA_VERSION = SCHEMA_VERSION
