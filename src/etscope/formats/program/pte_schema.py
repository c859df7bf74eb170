"""What a .pte file says, as plain values. The facts are from ExecuTorch's `schema/program.fbs`.

A program has methods; a method has values, and chains of instructions that name values by index.
All indices are kept as they are in the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, IntEnum

from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.scalar_type import ScalarType


class ValueKind(Enum):
    """The kinds of a value, by their names in the schema's union `KernelTypes`."""

    NULL = "Null"
    INT = "Int"
    BOOL = "Bool"
    DOUBLE = "Double"
    TENSOR = "Tensor"
    STRING = "String"
    INT_LIST = "IntList"
    DOUBLE_LIST = "DoubleList"
    BOOL_LIST = "BoolList"
    TENSOR_LIST = "TensorList"
    OPTIONAL_TENSOR_LIST = "OptionalTensorList"


# Lists whose items are not values but indices of values (an index of -1 is None).
BOXED_LISTS = frozenset({ValueKind.INT_LIST, ValueKind.TENSOR_LIST, ValueKind.OPTIONAL_TENSOR_LIST})


class ShapeDynamism(IntEnum):
    """Whether a tensor's sizes are fixed, bounds, or unknown until the program runs."""

    STATIC = 0
    DYNAMIC_BOUND = 1
    DYNAMIC_UNBOUND = 2


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where the memory plan puts a tensor: a buffer of `Method.buffer_sizes`, a byte in it."""

    memory_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor.

    Its data, by the schema: with an allocation it is mutable and lives in planned memory, with an
    initial state in the file if `data_index` is not 0; without one it is a constant of the file
    (`data_index` not 0), a constant beside the file (`external`, under the key `name`), or gets
    its memory when the program runs.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: ShapeDynamism = ShapeDynamism.STATIC
    data_index: int = 0
    allocation: Allocation | None = None
    name: str | None = None
    external: bool = False
    mutable_segment: int = 0
    device: str = "cpu"
    storage_offset: int = 0
    requires_grad: bool = False
    layout: int = 0

    @property
    def kind(self) -> ValueKind:
        return ValueKind.TENSOR

    @property
    def is_constant(self) -> bool:
        """Whether the tensor is a weight: it has data, and no instruction writes it."""
        return self.allocation is None and (self.external or self.data_index > 0)

    @property
    def has_data(self) -> bool:
        """Whether this file holds its content or initial state."""
        return self.data_index > 0 and not self.external

    @property
    def nbytes(self) -> int | None:
        """Bytes of the tensor, or the most it can have; None when there is no bound."""
        if self.dynamism is ShapeDynamism.DYNAMIC_UNBOUND:
            return None
        return self.scalar_type.nbytes(math.prod(self.sizes))

    def __str__(self) -> str:
        """Type and shape: "float32[2, 3]", with "<=" where the sizes are bounds."""
        sizes = ", ".join(map(str, self.sizes))
        bound = ("", "<=", "?")[self.dynamism]
        return f"{self.scalar_type.torch_name}[{bound}{sizes}]"


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A number, a text or nothing. What a result will overwrite is there with a placeholder."""

    kind: ValueKind
    value: int | bool | float | str | None


@dataclass(frozen=True, slots=True)
class ListValue:
    """A list. The items of `BOXED_LISTS` are indices of the method's values."""

    kind: ValueKind
    items: tuple[int, ...] | tuple[bool, ...] | tuple[float, ...]


Value = TensorValue | ScalarValue | ListValue


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Run an operator. `args` are its arguments in the order of its schema, then its result."""

    operator: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Run a delegate. `args` are its inputs, then its outputs; where they part is not recorded."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """Let the value `destination` be the value `source`."""

    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Go on at instruction `destination` if the value `condition` is false."""

    condition: int
    destination: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """Give back the memory of an unbounded tensor."""

    value: int


Instruction = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a stack trace stored with an instruction. `lineno` counts from 1."""

    filename: str
    lineno: int
    name: str
    context: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Instructions run in order. `traces_at` are the file offsets of their stack traces, in the
    order of the instructions; empty when the program was emitted without."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    traces_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator by name ("aten::add") and overload ("out"; empty for the default one)."""

    name: str
    overload: str

    @property
    def full_name(self) -> str:
        """ "aten::add.out"."""
        return f"{self.name}.{self.overload}" if self.overload else self.name


@dataclass(frozen=True, slots=True)
class CompileSpec:
    """An option that the backend was given when the delegate was made."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of the method handed to a backend, and where its data is in the file."""

    backend_id: str
    blob: Span
    compile_specs: tuple[CompileSpec, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """An entry point of the program; the schema's `ExecutionPlan`.

    `buffer_sizes[i]` is the size of the planned memory with the id i; 0 is not a buffer.
    `buffer_devices` names the device of each of them that is not on the CPU. `input_tree` and
    `output_tree` tell how flat inputs and outputs nest (torch.export's pytree text).
    """

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    chains: tuple[Chain, ...]
    operators: tuple[Operator, ...]
    delegates: tuple[Delegate, ...]
    buffer_sizes: tuple[int, ...]
    buffer_devices: tuple[tuple[int, str], ...] = ()
    input_tree: str = ""
    output_tree: str = ""

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Those of the first chain: the only one that ExecuTorch writes, and the one whose
        indices an ETDump gives as instruction ids."""
        return self.chains[0].instructions if self.chains else ()


@dataclass(frozen=True, slots=True)
class NamedData:
    """A blob that backends ask for by name."""

    key: str
    blob: Span


@dataclass(frozen=True, slots=True)
class ExtendedHeader:
    """What stands between the file identifier and the tables when the file has segments.

    `segment_data_size` is 0 in files of writers that did not give it.
    """

    length: int
    program_size: int
    segment_base_offset: int
    segment_data_size: int
