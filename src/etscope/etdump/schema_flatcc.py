"""The tables of an ETDump: upstream's `executorch.devtools.etdump.schema_flatcc`.

Fields have the names and the order of ExecuTorch's `etdump_schema_flatcc.fbs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from etscope.formats.program.scalar_type import ScalarType

__all__ = [
    "PROFILE_EVENT_ENUM",
    "AllocationEvent",
    "Allocator",
    "Bool",
    "ContainerMetadata",
    "DebugEvent",
    "Double",
    "ETDumpFlatCC",
    "Event",
    "Float",
    "Int",
    "Null",
    "ProfileEvent",
    "RunData",
    "ScalarType",
    "String",
    "Tensor",
    "TensorList",
    "Value",
    "ValueType",
]


@dataclass
class Tensor:
    """A logged tensor. `strides` count elements, `offset` bytes of the debug buffer."""

    scalar_type: ScalarType
    sizes: list[int]
    strides: list[int]
    offset: int | None


@dataclass
class TensorList:
    """Tensors that are one value."""

    tensors: list[Tensor]


@dataclass
class Null:
    """No value."""


@dataclass
class Int:
    """A 64-bit integer."""

    int_val: int


@dataclass
class Bool:
    """True or False."""

    bool_val: bool


@dataclass
class Double:
    """A 64-bit float."""

    double_val: float


@dataclass
class Float:
    """A 32-bit float."""

    float_val: float


@dataclass
class String:
    """A text."""

    string_val: str


@dataclass
class ContainerMetadata:
    """Nesting of a method's inputs and outputs."""

    encoded_inp_str: str
    encoded_out_str: str


class ValueType(Enum):
    """The type of a `Value`, by its name in the schema."""

    NULL = "Null"
    INT = "Int"
    BOOL = "Bool"
    FLOAT = "Float"
    DOUBLE = "Double"
    TENSOR = "Tensor"
    TENSOR_LIST = "TensorList"
    STRING = "String"


@dataclass
class Value:
    """A logged value: the value of a `ValueType`, and the field with its content. `output` is set
    for an output of the program."""

    val: str
    tensor: Tensor | None
    tensor_list: TensorList | None
    int_value: Int | None
    float_value: Float | None
    double_value: Double | None
    bool_value: Bool | None
    output: Bool | None


@dataclass
class DebugEvent:
    """A value that an instruction or a delegate logged."""

    name: str | None
    chain_index: int
    instruction_id: int
    delegate_debug_id_int: int | None
    delegate_debug_id_str: str | None
    debug_entry: Value


class PROFILE_EVENT_ENUM(Enum):  # noqa: N801 - upstream's name
    """Events other than operators, by their names in a dump."""

    RUN_MODEL = "Method::execute"
    OPERATOR_CALL = "OPERATOR_CALL"
    DELEGATE_CALL = "DELEGATE_CALL"
    LOAD_MODEL = "Program::load_method"


@dataclass
class ProfileEvent:
    """A span of time, in ticks of the recorder's clock."""

    name: str | None
    chain_index: int
    instruction_id: int
    delegate_debug_id_int: int | None
    delegate_debug_id_str: str | None
    delegate_debug_metadata: bytes | None
    start_time: int
    end_time: int


@dataclass
class AllocationEvent:
    """Bytes taken from an allocator; allocators count from 1."""

    allocator_id: int
    allocation_size: int


@dataclass
class Allocator:
    """An allocator that a run announced."""

    name: str


@dataclass
class Event:
    """One of a profile event, an allocation and a debug event; the other two are None."""

    profile_event: ProfileEvent | None
    allocation_event: AllocationEvent | None
    debug_event: DebugEvent | None


@dataclass
class RunData:
    """A run, or the loading of a program."""

    name: str
    bundled_input_index: int | None
    allocators: list[Allocator] | None
    events: list[Event] | None


@dataclass
class ETDumpFlatCC:
    """A dump."""

    version: int
    run_data: list[RunData]
