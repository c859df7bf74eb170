"""The messages of docs/reference/etdb-protocol.md: their values, and readers and writers of bodies.

Frames are not trusted: a length is compared with the bytes that are there before anything is
allocated, and a malformed body raises `FormatError`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from etscope.errors import FormatError, RuntimeFailure, UsageError
from etscope.formats.program.scalar_type import (
    checked_dim_order,
    dim_order_of,
    scalar_type,
    scalar_type_of,
)


class StopReason(IntEnum):
    """Reason why a run stopped."""

    BEGUN = 0
    STOP = 1
    TEST = 2
    MOST_STEPS = 3
    END = 4
    INTERRUPTED = 5
    FAILED = 6
    REACHED = 7


class Condition(IntEnum):
    """A condition that the runner tests on the numbers of a tensor."""

    NAN = 1
    INF = 2
    BELOW = 3
    ABOVE = 4


@dataclass(frozen=True, slots=True)
class NumberTest:
    """A condition on the outputs of instructions. at: bool [instructions], those to test."""

    condition: Condition
    at: npt.NDArray[np.bool_]
    bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """An instruction that gave a different result when it was repeated. value: index of the
    result; None when another instruction ran."""

    step: int
    instruction: int
    value: int | None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The state of a run after a request.

    step: how many instructions were executed since the run began, each pass of a loop counted.
    instruction: the last of them, or the one that failed; None at step 0. ran: int64 indices of the
    instructions that this request executed. test: the index of the request's test that is true, for
    `count` elements of the value `value`.
    """

    why: StopReason
    step: int
    instruction: int | None
    last_ns: int
    total_ns: int
    ran: npt.NDArray[np.int64]
    test: int | None = None
    value: int | None = None
    count: int = 0
    differences: tuple[Difference, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of the runtime without its data. dtype: a type of numpy or ml_dtypes. dim_order: the
    dimensions in the order in memory, outermost first. nbytes: its size in memory.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a tensor. The fields from least to deviation (population) use only finite
    numbers, and are NaN if there are none.
    """

    elements: int
    nan: int
    plus_inf: int
    minus_inf: int
    least: float
    greatest: float
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Core:
    """ETDump and debug buffer of a run up to its current step, or to the crash."""

    etdump: bytes
    debug_buffer: bytes
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """The program that a server was started with."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """Version and architecture of a runner. program: None when it was started without one."""

    executorch: str
    architecture: str
    program: ProgramInfo | None = None


class RunnerDied(RuntimeFailure):
    """The program killed the runner's process at an instruction. core: its last dump, if the run
    was traced."""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        step: int = 0,
        instruction: int | None = None,
        core: Core | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason, self.step, self.instruction, self.core = reason, step, instruction, core


@dataclass(slots=True)
class ValueInfo:
    """A value of the runtime: `tensor` for a tensor, `items` for a list, else `scalar`."""

    tensor: TensorInfo | None = None
    items: list[ValueInfo] | None = None
    scalar: Any = None


MAGIC = b"etscope\n"
VERSION = 1
HEADER = struct.Struct("<IHHI")  # length of the body, kind, 0, number of the request
MOST_BODY = 64 << 20  # bytes
MOST_DIMS = 16  # ExecuTorch's limit for tensors
MOST_TEXT = 1 << 20  # bytes
ANSWER = 0x8000
ERROR = 0xFFFF

_NOWHERE = 0xFFFFFFFF
_MOST_BYTES = 1 << 62  # of a tensor; more overflows in numpy
_T = TypeVar("_T")
_REASONS = frozenset(StopReason)


class Kind(IntEnum):
    """The kinds of requests."""

    HELLO = 1
    UPLOAD = 2
    LOAD = 3
    INPUTS = 4
    BEGIN = 5
    GO = 6
    GOTO = 7
    DESCRIBE = 8
    STATISTICS = 9
    READ = 10
    WRITE = 11
    CORE = 12
    FETCH = 13
    INTERRUPT = 14
    BYE = 15


class Event(IntEnum):
    """Messages that the server sends without a request: the program killed the process."""

    DIED = 0x4001
    CORE_PART = 0x4002
    CORE_END = 0x4003


class Code(IntEnum):
    """Error codes of a server."""

    PROTOCOL = 1
    VERSION = 2
    TOKEN = 3
    STATE = 4
    PROGRAM = 5
    INPUTS = 6
    VALUE = 7
    RUNTIME = 8
    LIMIT = 9


class Tag(IntEnum):
    """Tags that mark the kind of a value."""

    NONE = 0
    INT = 1
    DOUBLE = 2
    BOOL = 3
    STRING = 4
    TENSOR = 5
    LIST = 6
    SHAPE = 7  # a tensor without data
    STAGED = 8  # a tensor with uploaded data


class Writer:
    """Writes the body of a message, field by field."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []

    def pack(self, form: str, *numbers: float) -> Writer:
        """Write numbers in the codes of `struct`, little-endian."""
        self._parts.append(struct.pack(f"<{form}", *numbers))
        return self

    def raw(self, data: bytes | memoryview) -> Writer:
        """Write bytes without a count."""
        self._parts.append(data)
        return self

    def text(self, text: str) -> Writer:
        """Write a string. Raises `UsageError` for more than 1 MiB."""
        data = text.encode(errors="surrogateescape")
        if len(data) > MOST_TEXT:
            raise UsageError(f"a text of {len(data):,} bytes; the server takes {MOST_TEXT:,}")
        return self.pack("I", len(data)).raw(data)

    def blob(self, data: bytes | memoryview) -> Writer:
        return self.pack("Q", len(data)).raw(data)

    def bits(self, flags: npt.NDArray[np.bool_]) -> Writer:
        """Write one bit per flag, starting at the lowest of the first byte."""
        return self.blob(np.packbits(flags, bitorder="little").tobytes())

    def lists(self, rows: Sequence[Sequence[int]]) -> Writer:
        """Write a list<list<u32>>."""
        self.pack("I", len(rows))
        for row in rows:
            self.pack(f"I{len(row)}I", len(row), *row)
        return self

    def tests(self, tests: Sequence[NumberTest]) -> Writer:
        self.pack("I", len(tests))
        for test in tests:
            self.pack("Bd", test.condition, test.bound).bits(test.at)
        return self

    def value(self, value: Any, staged: int | None = None) -> Writer:
        """Write a number, a string, None, an array, or a list of them. staged: offset in the
        staging area of the array's data, dense in its order of dimensions; None to send it here.

        Raises `UsageError` for a value that a program cannot take."""
        match value:
            case None:
                return self.pack("B", Tag.NONE)
            case bool() | np.bool_():
                return self.pack("BB", Tag.BOOL, bool(value))
            case np.ndarray():
                return self._tensor(value, staged)
            case int() | np.integer() if -(1 << 63) <= int(value) < 1 << 63:
                return self.pack("Bq", Tag.INT, int(value))
            case float() | np.floating():
                return self.pack("Bd", Tag.DOUBLE, float(value))
            case str():
                return self.pack("B", Tag.STRING).text(value)
            case list() | tuple():
                if any(isinstance(item, (list, tuple)) for item in value):
                    raise UsageError("a program cannot take a nested list")
                self.pack("BI", Tag.LIST, len(value))
                for item in value:
                    self.value(item)
                return self
        large = f"{value} (too large)" if isinstance(value, int) else type(value).__name__
        raise UsageError(f"a program cannot take {large}")

    def _tensor(self, array: npt.NDArray[Any], staged: int | None) -> Writer:
        if array.ndim > MOST_DIMS:
            raise UsageError(f"a tensor of {array.ndim} dimensions; the server takes {MOST_DIMS}")
        kind, order = scalar_type_of(array.dtype), dim_order_of(array)
        tag = Tag.TENSOR if staged is None else Tag.STAGED
        self.pack("BBB", tag, kind, array.ndim)
        self.pack(f"{array.ndim}I{array.ndim}B", *array.shape, *order)
        return self.blob(in_memory(array)) if staged is None else self.pack("Q", staged)

    def body(self) -> bytes:
        return b"".join(self._parts)


class Reader:
    """Reads the fields of a message's body, in order."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = memoryview(data)
        self._what = what
        self._at = 0

    def fail(self, message: str) -> FormatError:
        return FormatError(f"{self._what}: {message}", path="etdb-server's answer", offset=self._at)

    def unpack(self, form: str) -> tuple[Any, ...]:
        """Read numbers in the codes of `struct`."""
        return struct.unpack(f"<{form}", self.raw(struct.calcsize(f"<{form}")))

    def number(self, form: str) -> Any:
        return self.unpack(form)[0]

    def raw(self, size: int) -> memoryview:
        left = len(self._data) - self._at
        if size > left:
            raise self.fail(f"{size:,} bytes are announced, {left:,} are there")
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        size = self.number("I")
        if size > MOST_TEXT:
            raise self.fail(f"a text of {size:,} bytes")
        return bytes(self.raw(size)).decode(errors="replace")

    def blob(self) -> memoryview:
        return self.raw(self.number("Q"))

    def list_of(self, read: Callable[[], _T], least: int) -> list[_T]:
        """Read a list. least: bytes that each element takes at least."""
        count = self.number("I")
        left = len(self._data) - self._at
        if count * least > left:
            raise self.fail(f"a list of {count:,} is announced, {left:,} bytes are there")
        return [read() for _ in range(count)]

    def flag(self) -> bool:
        number: int = self.number("B")
        if number > 1:
            raise self.fail(f"a flag must be 0 or 1, not {number}")
        return number == 1

    def end(self) -> None:
        """Raise `FormatError` if bytes are left."""
        left = len(self._data) - self._at
        if left:
            raise self.fail(f"{left:,} bytes too many")

    # -- messages

    def hello(self) -> tuple[int, RunnerInfo]:
        """Version of the protocol, and the runner."""
        version: int = self.number("H")
        executorch, architecture = self.text(), self.text()
        program = None
        if self.flag():
            size, crc32 = self.unpack("QI")
            program = ProgramInfo(self.text(), size, crc32)
        return version, RunnerInfo(executorch, architecture, program)

    def described(self, *, inside: bool = False) -> ValueInfo:
        """A value without the data of tensors."""
        tag = self.number("B")
        match tag:
            case Tag.NONE:
                return ValueInfo()
            case Tag.INT:
                return ValueInfo(scalar=self.number("q"))
            case Tag.DOUBLE:
                return ValueInfo(scalar=self.number("d"))
            case Tag.BOOL:
                return ValueInfo(scalar=self.flag())
            case Tag.STRING:
                return ValueInfo(scalar=self.text())
            case Tag.SHAPE:
                return ValueInfo(tensor=self._tensor())
            case Tag.LIST if not inside:
                return ValueInfo(items=self.list_of(lambda: self.described(inside=True), 1))
        raise self.fail(f"a value with the unknown tag {tag}")

    def statistics(self) -> Statistics:
        return Statistics(*self.unpack("4Q4d"))

    def stopped(self, instructions: int, most: int, tests: int) -> Stopped:
        """Read the state of a run. instructions: the number of instructions in chain 0. most: how
        many instructions can have run since the request. tests: how many tests the request has."""
        reason = self.number("B")
        if reason not in _REASONS:
            raise self.fail(f"a stop for the unknown reason {reason}")
        step: int = self.number("Q")
        instruction = self.location(instructions)
        last_ns, total_ns = self.unpack("QQ")
        ran = self._ran(instructions, most)
        test, value, count = self.unpack("iIQ")
        if reason == StopReason.TEST and not 0 <= test < tests:
            raise self.fail(f"test {test} of {tests}")
        differences = tuple(self.differences())
        return Stopped(
            why=StopReason(reason),
            step=step,
            instruction=instruction,
            last_ns=last_ns,
            total_ns=total_ns,
            ran=ran,
            test=test if reason == StopReason.TEST else None,
            value=value if reason == StopReason.TEST else None,
            count=count if reason == StopReason.TEST else 0,
            differences=differences,
            error=self.text(),
        )

    def location(self, instructions: int) -> int | None:
        """Read an instruction of chain 0; None at step 0 and for other chains."""
        chain, instruction = self.unpack("II")
        if chain != 0:
            return None
        if instruction >= instructions:
            raise self.fail(f"instruction {instruction} of {instructions}")
        return int(instruction)

    def differences(self) -> list[Difference]:
        def difference() -> Difference:
            step, _, instruction, value = self.unpack("QIII")
            return Difference(step, instruction, None if value == _NOWHERE else value)

        return self.list_of(difference, 20)

    def _ran(self, instructions: int, most: int) -> npt.NDArray[np.int64]:
        """Expand the ranges of chain 0 to instructions."""
        count = self.number("I")
        packed = self.raw(count * 12)
        ranges = np.frombuffer(packed, "<u4").reshape(count, 3).astype(np.int64)
        ranges = ranges[ranges[:, 0] == 0]
        if len(ranges) == 1:  # as in most runs
            (_, first, total) = ranges[0].tolist()
            last = first + total
        else:
            firsts, counts = ranges[:, 1], ranges[:, 2]
            total, last = int(counts.sum()), int((firsts + counts).max(initial=0))
        if last > instructions:
            raise self.fail(f"instructions ran that do not exist: the method has {instructions}")
        if total > most:
            raise self.fail(f"{total:,} instructions ran, {most:,} could at most")
        if len(ranges) == 1:
            return np.arange(first, last)
        before = np.cumsum(counts) - counts  # number of instructions before each range
        ran: npt.NDArray[np.int64] = np.arange(total) + np.repeat(firsts - before, counts)
        return ran

    def _tensor(self) -> TensorInfo:
        number, dims = self.unpack("BB")
        kind = scalar_type(number, offset=self._at)
        if dims > MOST_DIMS:
            raise self.fail(f"a tensor of {dims} dimensions")
        shape, order = self.unpack(f"{dims}I"), self.unpack(f"{dims}B")
        checked_dim_order(order, dims, offset=self._at)
        nbytes = self.number("Q")
        whole = kind.nbytes(math.prod(max(size, 1) for size in shape))
        if nbytes != kind.nbytes(math.prod(shape)) or whole > _MOST_BYTES:
            raise self.fail(f"a tensor of {kind.torch_name} {list(shape)} in {nbytes:,} bytes")
        return TensorInfo(kind.numpy_dtype, shape, order, nbytes)


def in_memory(array: npt.NDArray[Any]) -> memoryview:
    """The bytes of an array, dense, in its order of dimensions in memory."""
    dense = np.ascontiguousarray(array.transpose(dim_order_of(array)))
    return dense.reshape(-1).view(np.uint8).data
