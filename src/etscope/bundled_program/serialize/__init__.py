"""Bytes and JSON of bundled programs: `executorch.devtools.bundled_program.serialize` of upstream.

The JSON has `flatc`'s form for the schema, which `write_schema` writes; `flatc` itself never runs.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from etscope.bundled_program import schema
from etscope.bundled_program.core import BundledProgram, with_bytes
from etscope.bundled_program.version import BUNDLED_PROGRAM_SCHEMA_VERSION
from etscope.errors import BundleError, FormatError, UsageError, reading
from etscope.formats.bytes.files import BytesLike, PathLike
from etscope.formats.program.bpte import bundled_parts, read_bundled_schema

__all__ = [
    "BUNDLED_PROGRAM_SCHEMA_NAME",
    "BUNDLED_PROGRAM_SCHEMA_VERSION",
    "SCALAR_TYPE_SCHEMA_NAME",
    "convert_from_flatbuffer",
    "convert_to_flatbuffer",
    "deserialize_from_flatbuffer_to_bundled_program",
    "deserialize_from_json_to_bundled_program",
    "serialize_from_bundled_program_to_flatbuffer",
    "serialize_from_bundled_program_to_json",
    "write_schema",
]

BUNDLED_PROGRAM_SCHEMA_NAME = "bundled_program_schema"
SCALAR_TYPE_SCHEMA_NAME = "scalar_type"
_SCHEMAS = (BUNDLED_PROGRAM_SCHEMA_NAME, SCALAR_TYPE_SCHEMA_NAME)
_JSON = "JSON of a bundled program"


def serialize_from_bundled_program_to_flatbuffer(bundled_program: Any) -> bytes:
    """Return the bytes of a .bpte file from a `BundledProgram` (etscope's or upstream's) or from
    its schema.

    Raises `BundleError` for test cases that do not fit the program (they may have changed since the
    `BundledProgram` was made), and for values that a file cannot contain.
    """
    if isinstance(bundled_program, BundledProgram):
        return bundled_program.to_bytes()
    found = _in_schema(bundled_program)
    return b"".join(bundled_parts(found.method_test_suites, found.program, found.version))


def _in_schema(bundled_program: Any) -> schema.BundledProgram:
    """Return the content in etscope's classes; upstream's have the same attributes."""
    found = bundled_program
    if hasattr(found, "serialize_to_schema"):
        found = found.serialize_to_schema()
    try:
        return schema.BundledProgram(
            version=found.version,
            method_test_suites=[
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
            ],
            program=found.program,
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise BundleError(
            f"a {type(bundled_program).__name__} is not a bundled program ({error})",
            hint="give a BundledProgram",
        ) from error


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


def deserialize_from_flatbuffer_to_bundled_program(
    flatbuffer: BytesLike | PathLike,
) -> schema.BundledProgram:
    """Return the content of a .bpte file (its bytes, or its path) as plain values: a
    `schema.BundledProgram`, the same as upstream, not a `BundledProgram`.

    `etscope.formats.program.bpte.read_bundled` returns arrays instead, without copies. Raises
    `FormatError` for a damaged file and for another format.
    """
    return with_bytes(read_bundled_schema(flatbuffer))


# -- JSON


def serialize_from_bundled_program_to_json(bundled_program: Any) -> str:
    """Return the JSON of a `BundledProgram` (also upstream's) or of its schema, element types by
    number. Raises the errors of `serialize_from_bundled_program_to_flatbuffer`."""
    return json.dumps(_in_schema(bundled_program), default=_plain)


def deserialize_from_json_to_bundled_program(program_json: str | bytes) -> schema.BundledProgram:
    """Return the content of JSON, with element types by name or by number.

    Raises `FormatError` for broken JSON and for JSON of another kind.
    """
    with reading(_JSON):
        found = json.loads(program_json)
        return schema.BundledProgram(
            version=int(found["version"]),
            method_test_suites=[
                schema.BundledMethodTestSuite(
                    method_name=str(suite["method_name"]),
                    test_cases=[
                        schema.BundledMethodTestCase(
                            inputs=[_value_of_json(value) for value in case["inputs"]],
                            expected_outputs=[
                                _value_of_json(value) for value in case["expected_outputs"]
                            ],
                        )
                        for case in suite["test_cases"]
                    ],
                )
                for suite in found["method_test_suites"]
            ],
            program=_bytes_of_json(found["program"]),
        )


def convert_to_flatbuffer(program_json: str | bytes) -> bytes:
    """Return the .bpte file of JSON. Raises `FormatError` for broken JSON and for JSON of another
    kind, `BundleError` for values that a file cannot contain."""
    with reading(_JSON):
        found = deserialize_from_json_to_bundled_program(program_json)
        return serialize_from_bundled_program_to_flatbuffer(found)


def convert_from_flatbuffer(program_flatbuffer: BytesLike | PathLike) -> bytes:
    """Return the JSON of a .bpte file (its bytes, or its path), with element types by name.

    Raises `FormatError` for a damaged file and for another format.
    """

    def plain(value: Any) -> Any:
        found = _plain(value)
        if isinstance(value, schema.Tensor):
            found["scalar_type"] = value.scalar_type.name
        return found

    found = deserialize_from_flatbuffer_to_bundled_program(program_flatbuffer)
    return json.dumps(found, default=plain).encode()


def write_schema(d: PathLike, schema_name: str) -> None:
    """Write a schema to the folder `d`, for use with `flatc`.

    schema_name: `BUNDLED_PROGRAM_SCHEMA_NAME`, or `SCALAR_TYPE_SCHEMA_NAME`, which it includes.
    Raises `UsageError` for another name.
    """
    if schema_name not in _SCHEMAS:
        raise UsageError(
            f"unknown schema {schema_name!r}", hint=f"schemas: {' and '.join(_SCHEMAS)}"
        )
    name = f"{schema_name}.fbs"
    shutil.copyfile(Path(__file__).with_name(name), Path(d) / name)


def _plain(value: Any) -> Any:
    """Convert what `json` cannot write: bytes to a list of numbers, an object to a dict."""
    if not is_dataclass(value):
        return list(memoryview(value))
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, schema.Value):
        found["val_type"] = type(value.val).__name__
    return found


def _value_of_json(value: Any) -> schema.Value:
    kind, found = value["val_type"], value["val"]
    if kind == "Int":
        return schema.Value(schema.Int(int(found["int_val"])))
    if kind == "Bool":
        return schema.Value(schema.Bool(bool(found["bool_val"])))
    if kind == "Double":
        return schema.Value(schema.Double(float(found["double_val"])))
    if kind != "Tensor":
        raise FormatError(f"unknown kind of value {kind!r} in the {_JSON}")
    scalar_type = found["scalar_type"]
    return schema.Value(
        schema.Tensor(
            scalar_type=schema.ScalarType[scalar_type]
            if isinstance(scalar_type, str)
            else schema.ScalarType(scalar_type),
            sizes=[int(size) for size in found["sizes"]],
            data=_bytes_of_json(found["data"]),
            dim_order=[int(dim) for dim in found["dim_order"]],
        )
    )


def _bytes_of_json(numbers: Any) -> bytes:
    if not isinstance(numbers, list):  # bytes(n) of a number is n zeros
        raise FormatError(f"bytes in the {_JSON} are not a list of numbers")
    return bytes(numbers)
