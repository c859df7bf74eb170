"""Bytes of bundled programs: upstream's `executorch.devtools.bundled_program.serialize`."""

from __future__ import annotations

from typing import Any

from etscope.bundled_program import schema
from etscope.bundled_program.core import BundledProgram
from etscope.bundled_program.version import BUNDLED_PROGRAM_SCHEMA_VERSION
from etscope.errors import BundleError
from etscope.formats.bytes.files import BytesLike, PathLike
from etscope.formats.program.bpte import bundled_parts, read_bundled_schema

__all__ = [
    "BUNDLED_PROGRAM_SCHEMA_VERSION",
    "deserialize_from_flatbuffer_to_bundled_program",
    "serialize_from_bundled_program_to_flatbuffer",
]


def serialize_from_bundled_program_to_flatbuffer(bundled_program: Any) -> bytes:
    """Return the bytes of a .bpte file: of a `BundledProgram` (also upstream's) or of its schema.

    Raises `BundleError` for test cases that do not fit the program (they may have changed since
    the `BundledProgram` was made), and for values that a file has no place for.
    """
    if isinstance(bundled_program, BundledProgram):
        return bundled_program.to_bytes()
    found = bundled_program
    if hasattr(found, "serialize_to_schema"):
        found = found.serialize_to_schema()
    try:
        suites = [  # in our own classes; upstream's have the same attributes
            schema.BundledMethodTestSuite(
                method_name=suite.method_name,
                test_cases=[
                    schema.BundledMethodTestCase(
                        inputs=[_value(value) for value in case.inputs],
                        expected_outputs=[_value(value) for value in case.expected_outputs],
                    )
                    for case in suite.test_cases
                ],
            )
            for suite in found.method_test_suites
        ]
        program, version = found.program, found.version
    except (AttributeError, TypeError, ValueError) as error:
        raise BundleError(
            f"a {type(bundled_program).__name__} is not a bundled program ({error})",
            hint="give a BundledProgram",
        ) from error
    return b"".join(bundled_parts(suites, program, version))


def deserialize_from_flatbuffer_to_bundled_program(
    flatbuffer: BytesLike | PathLike,
) -> schema.BundledProgram:
    """Return the content of a .bpte file (its bytes, or its path) as plain values: not a
    `BundledProgram` but `schema.BundledProgram`, as upstream has it.

    `etscope.formats.program.bpte.read_bundled` gives arrays instead, and copies nothing. Raises
    `FormatError` for a file that is damaged or not a bundled program.
    """
    found = read_bundled_schema(flatbuffer)
    found.program = bytes(found.program)
    for suite in found.method_test_suites:
        for case in suite.test_cases:
            for value in (*case.inputs, *case.expected_outputs):
                if isinstance(value.val, schema.Tensor):
                    value.val.data = bytes(value.val.data)
    return found


def _value(value: Any) -> schema.Value:
    found = value.val
    if hasattr(found, "int_val"):
        return schema.Value(schema.Int(found.int_val))
    if hasattr(found, "bool_val"):
        return schema.Value(schema.Bool(found.bool_val))
    if hasattr(found, "double_val"):
        return schema.Value(schema.Double(found.double_val))
    return schema.Value(
        schema.Tensor(
            scalar_type=schema.ScalarType(found.scalar_type),
            sizes=list(found.sizes),
            data=found.data,
            dim_order=list(found.dim_order),
        )
    )
