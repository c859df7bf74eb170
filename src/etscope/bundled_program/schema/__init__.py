"""The content of a .bpte file: upstream's `executorch.devtools.bundled_program.schema`."""

from __future__ import annotations

from etscope.formats.program.bpte import (
    Bool,
    BundledMethodTestCase,
    BundledMethodTestSuite,
    BundledProgram,
    Double,
    Int,
    Tensor,
    Value,
    ValueUnion,
)
from etscope.formats.program.scalar_type import ScalarType

__all__ = [
    "Bool",
    "BundledMethodTestCase",
    "BundledMethodTestSuite",
    "BundledProgram",
    "Double",
    "Int",
    "ScalarType",
    "Tensor",
    "Value",
    "ValueUnion",
]
