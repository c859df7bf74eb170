"""What a .bpte file says, as plain values, under the names of `bundled_program_schema.fbs`.

The classes and their attributes are called as ExecuTorch's, so that what reads one reads the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from etscope.formats.bytes.source import BytesLike
from etscope.formats.program.scalar_type import ScalarType


@dataclass(slots=True)
class Tensor:
    """A tensor. `data` are its elements as they lie in memory, densely; `dim_order` names the
    dimensions from the outermost in memory to the innermost."""

    scalar_type: ScalarType
    sizes: list[int]
    data: BytesLike
    dim_order: list[int]


@dataclass(slots=True)
class Int:
    int_val: int


@dataclass(slots=True)
class Bool:
    bool_val: bool


@dataclass(slots=True)
class Double:
    double_val: float


ValueUnion: TypeAlias = Tensor | Int | Double | Bool


@dataclass(slots=True)
class Value:
    """An input or an output."""

    val: ValueUnion


@dataclass(slots=True)
class BundledMethodTestCase:
    """Inputs of a method, flattened, and the outputs to expect; [] when none were recorded."""

    inputs: list[Value]
    expected_outputs: list[Value]


@dataclass(slots=True)
class BundledMethodTestSuite:
    """The cases of one method of the program."""

    method_name: str
    test_cases: list[BundledMethodTestCase]


@dataclass(slots=True)
class BundledProgram:
    """A program (the bytes of a .pte file) and its test cases."""

    version: int
    method_test_suites: list[BundledMethodTestSuite]
    program: BytesLike
