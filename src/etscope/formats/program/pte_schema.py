"""Plain values for the content of a .pte file, after ExecuTorch's `schema/program.fbs`.

A program has methods. A method has values, and chains of instructions that name values by index.
All indices are the file's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum

from etscope.formats.bytes.flatbuffer import Span
from etscope.formats.program.scalar_type import ScalarType
from etscope.support.shown import Shown


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


# Lists of indices of values, not of values (an index of -1 is None).
BOXED_LISTS = frozenset({ValueKind.INT_LIST, ValueKind.TENSOR_LIST, ValueKind.OPTIONAL_TENSOR_LIST})


class ShapeDynamism(IntEnum):
    """Meaning of a tensor's sizes: fixed, upper bounds, or unknown until the program runs."""

    STATIC = 0
    DYNAMIC_BOUND = 1
    DYNAMIC_UNBOUND = 2


@dataclass(frozen=True, slots=True)
class Allocation:
    """Planned memory: a buffer of `Method.buffer_sizes`, and a byte offset in it."""

    memory_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor.

    By the schema, a tensor with an allocation is mutable and in planned memory; its initial state
    is in the file if `data_index` is not 0. Without an allocation it is a constant of the file
    (`data_index` not 0), a constant in a .ptd file (`external`, under the key `name`), or gets its
    memory when the program runs.
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
        """True for a weight: it has data, and no instruction writes it."""
        return self.allocation is None and (self.external or self.data_index > 0)

    @property
    def has_data(self) -> bool:
        """True if this file holds its content or initial state."""
        return self.data_index > 0 and not self.external

    @property
    def nbytes(self) -> int | None:
        """Bytes of the tensor, or the upper bound; None without a bound."""
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
    """A number, a text or None. A value that a result will overwrite has a placeholder."""

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
    """Run a delegate. `args` are its inputs, then its outputs; their numbers are not recorded."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """Assign the value `source` to the value `destination`."""

    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Jump to instruction `destination` if the value `condition` is false."""

    condition: int
    destination: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """Free the memory of an unbounded tensor."""

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
    """Instructions that run in order. `traces_at` are the file offsets of their stack traces, in
    the order of the instructions; empty when the program was emitted without them."""

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
        """The name with the overload: "aten::add.out"."""
        return f"{self.name}.{self.overload}" if self.overload else self.name


@dataclass(frozen=True, slots=True)
class CompileSpec:
    """An option for the backend, set when the program was lowered."""

    key: str
    value: bytes

    @property
    def text(self) -> str:
        """The value: a text, or the first 16 bytes in hexadecimal."""
        try:
            text = self.value.rstrip(b"\0").decode()
        except UnicodeDecodeError:
            text = ""
        if text and text.isprintable():
            return text
        size = len(self.value)
        return f"0x{self.value[:16].hex()}" + (f"… ({size:,} bytes)" if size > 16 else "")


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of the method that a backend runs. `blob` is its data in the file."""

    backend_id: str
    blob: Span
    compile_specs: tuple[CompileSpec, ...]


@dataclass(frozen=True, slots=True)
class Method(Shown):
    """An entry point of the program; the schema's `ExecutionPlan`.

    `buffer_sizes[i]` is the size of the planned memory with the id i; 0 is not a buffer.
    `buffer_devices` names the device of each buffer that is not on the CPU. `input_tree` and
    `output_tree` describe the nesting of the flat inputs and outputs (torch.export's pytree text).
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
        """Instructions of the first chain: the only one that ExecuTorch writes. Their indices are
        the instruction ids of an ETDump."""
        return self.chains[0].instructions if self.chains else ()

    def operator_of(self, instruction: Instruction) -> str | None:
        """The operator that an instruction runs ("aten::add.out"), or the backend of its delegate;
        None for a move, a jump or a free."""
        match instruction:
            case KernelCall(operator):
                return self.operators[operator].full_name
            case DelegateCall(delegate):
                return self.delegates[delegate].backend_id
        return None

    def named(self, instruction: Instruction) -> Iterator[int]:
        """The indices of the values that an instruction names, and of the items of lists."""
        match instruction:
            case KernelCall(_, args) | DelegateCall(_, args):
                return self.with_items(args)
            case MoveCall(source, destination):
                return iter((source, destination))
            case JumpFalseCall(condition, _):
                return iter((condition,))
            case FreeCall(value):
                return iter((value,))

    def unread(self) -> list[int]:
        """The indices of values that no instruction names, without inputs and outputs."""
        read = set(self.with_items({*self.inputs, *self.outputs}))
        for chain in self.chains:
            for instruction in chain.instructions:
                read.update(self.named(instruction))
        return [index for index in range(len(self.values)) if index not in read]

    def with_items(self, indices: Iterable[int]) -> Iterator[int]:
        """Yield the indices of values, and for a list also the indices of its items."""
        for index in indices:
            yield index
            value = self.values[index]
            if isinstance(value, ListValue) and value.kind in BOXED_LISTS:
                yield from (int(item) for item in value.items if item >= 0)


@dataclass(frozen=True, slots=True)
class NamedData:
    """A blob that backends ask for by name."""

    key: str
    blob: Span


@dataclass(frozen=True, slots=True)
class ExtendedHeader:
    """The header between the file identifier and the tables of a file with segments.

    `segment_data_size` is 0 if the writer did not record it.
    """

    length: int
    program_size: int
    segment_base_offset: int
    segment_data_size: int
