"""Read pickles of a few kinds of values without importing or running anything of the file.

Python's own unpickler is unsafe even with `find_class` overridden: an index in `LONG_BINPUT` makes
it allocate any amount of memory. This one reads only the opcodes that `torch.save` and
`pickle.dumps` write for tensors, numbers, text and containers, and rejects all others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from etscope.errors import FormatError

# Limits against hostile files, far above real state dicts: a small pickle can expand without end
# by references, and deep nesting ends Python's recursion.
MAX_OPCODES = 10_000_000
MAX_NESTING = 200
MAX_EXPANDED = 20_000_000  # values, with shared containers counted at each use

Functions = Mapping[tuple[str, str], Callable[..., Any]]
_MARK = object()
_KEY_TYPES = (str, int, float, bool, type(None))


_SUBCLASS = ("torch._utils", "_rebuild_wrapper_subclass")


class TensorSubclassError(FormatError):
    """The weights are tensors of a subclass, such as torchao's `quantize_` makes."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name in a pickle that the caller allows, with the function to call for it."""

    module: str
    name: str
    function: Callable[..., Any]


@dataclass(slots=True)
class PickleReader:
    """Reads pickles one after the other from `data`, from `position` on.

    `functions` maps the allowed names in a pickle to the functions that replace them; `persistent`
    makes the object of a persistent id.
    """

    data: memoryview
    functions: Functions
    persistent: Callable[[Any], Any]
    position: int = 0
    _stack: list[Any] = field(default_factory=list)
    _memo: dict[int, Any] = field(default_factory=dict)

    def load(self) -> Any:
        """Return the next pickle's value.

        Raises `FormatError` for forbidden opcodes and names, for too many values, and for values
        that contain themselves.
        """
        self._stack, self._memo = [], {}
        for _ in range(MAX_OPCODES):
            opcode = self._byte()
            if opcode == _STOP:
                value = self._pop()
                _check_tree(value)
                return value
            step = _STEPS.get(opcode)
            if step is None:
                raise self._error(f"the pickle has opcode 0x{opcode:02x}, which is not allowed")
            step(self)
        raise self._error(f"the pickle has more than {MAX_OPCODES:,} opcodes")

    # -- bytes

    def _error(self, message: str) -> FormatError:
        return FormatError(message, offset=self.position)

    def _byte(self) -> int:
        if self.position >= len(self.data):
            raise self._error("the pickle is cut off")
        self.position += 1
        return self.data[self.position - 1]

    def _take(self, size: int) -> memoryview:
        start, end = self.position, self.position + size
        if end > len(self.data):
            raise self._error("the pickle is cut off")
        self.position = end
        return self.data[start:end]

    def _unpack(self, layout: struct.Struct) -> Any:
        return layout.unpack(self._take(layout.size))[0]

    def _line(self) -> str:
        limit = min(len(self.data), self.position + 256)
        line = bytes(self.data[self.position : limit]).partition(b"\n")
        if not line[1]:
            raise self._error("the pickle has a name that does not end")
        self.position += len(line[0]) + 1
        return line[0].decode("utf-8")

    # -- stack

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise self._error("the pickle takes a value from an empty stack")
        return self._stack.pop()

    def _pop_to_mark(self) -> list[Any]:
        for index in range(len(self._stack) - 1, -1, -1):
            if self._stack[index] is _MARK:
                values = self._stack[index + 1 :]
                del self._stack[index:]
                return values
        raise self._error("the pickle ends a group that it did not begin")

    def _pop_tuple(self, size: int) -> tuple[Any, ...]:
        return tuple(reversed([self._pop() for _ in range(size)]))

    def _remember(self, index: int) -> None:
        value = self._pop()
        self._memo[index] = value
        self._push(value)

    def _recall(self, index: int) -> None:
        if index not in self._memo:
            raise self._error(f"the pickle refers to value {index}, which it does not have")
        self._push(self._memo[index])

    def _push_long(self) -> None:
        self._push(int.from_bytes(self._take(self._unpack(_U1)), "little", signed=True))

    # -- containers and calls

    def _set(self, pairs: list[Any]) -> None:
        target = self._pop()
        if not isinstance(target, dict) or len(pairs) % 2:
            raise self._error("the pickle sets items of a value that is not a dictionary")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, _KEY_TYPES):
                raise self._error(f"a dictionary has a key of type {type(key).__name__}")
            target[key] = value
        self._push(target)

    def _append(self, values: list[Any]) -> None:
        target = self._pop()
        if not isinstance(target, list):
            raise self._error("the pickle appends to a value that is not a list")
        target.extend(values)
        self._push(target)

    def _find(self, module: object, name: object) -> None:
        function = self.functions.get((module, name))  # type: ignore[arg-type]
        if (module, name) == _SUBCLASS and function is None:
            raise TensorSubclassError(
                "the weights are a subclass of torch's tensors (for example torchao's), which "
                "etscope does not read from files",
                offset=self.position,
                hint="compare with the edge program, which has plain weights (-X graph=edge)",
            )
        if function is None:
            raise self._error(f"the pickle refers to {module}.{name}, which is not allowed")
        self._push(Global(str(module), str(name), function))

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise self._error("the pickle calls a value that is not a function")
        self._push(function.function(*arguments))

    def _build(self) -> None:
        """Ignore the attributes of an `OrderedDict` (a module's `_metadata`)."""
        self._pop()
        target = self._pop()
        if not isinstance(target, dict):
            raise self._error("the pickle sets attributes of a value that is not a dictionary")
        self._push(target)


def _check_tree(root: Any) -> None:
    """Reject self-references, deep nesting and exponential sharing of containers."""
    sizes: dict[int, int] = {}
    open_ids: set[int] = set()
    todo: list[tuple[Any, bool]] = [(root, False)]
    while todo:
        value, is_done = todo.pop()
        if not isinstance(value, (list, tuple, dict)) or (id(value) in sizes and not is_done):
            continue
        children = list(value.values()) if isinstance(value, dict) else value
        if is_done:
            open_ids.discard(id(value))
            sizes[id(value)] = 1 + sum(sizes.get(id(child), 1) for child in children)
            if sizes[id(value)] > MAX_EXPANDED:
                raise FormatError(f"the pickle has more than {MAX_EXPANDED:,} values")
            continue
        if id(value) in open_ids:
            raise FormatError("the pickle has a value that contains itself")
        open_ids.add(id(value))
        if len(open_ids) > MAX_NESTING:
            raise FormatError(f"the pickle is nested deeper than {MAX_NESTING} levels")
        todo.append((value, True))
        todo.extend((child, False) for child in children)


_U1, _U2, _I4 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<i")
_U4, _U8, _DOUBLE = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct(">d")
_STOP = ord(".")


def _constant(value: Any) -> Callable[[PickleReader], None]:
    return lambda reader: reader._push(value)


def _skip(size: int) -> Callable[[PickleReader], None]:
    def step(reader: PickleReader) -> None:
        reader._take(size)

    return step


def _number(layout: struct.Struct) -> Callable[[PickleReader], None]:
    return lambda reader: reader._push(reader._unpack(layout))


def _text(layout: struct.Struct) -> Callable[[PickleReader], None]:
    def step(reader: PickleReader) -> None:
        reader._push(bytes(reader._take(reader._unpack(layout))).decode("utf-8"))

    return step


def _bytes(layout: struct.Struct) -> Callable[[PickleReader], None]:
    return lambda reader: reader._push(reader._take(reader._unpack(layout)))


def _tuple(size: int) -> Callable[[PickleReader], None]:
    return lambda reader: reader._push(reader._pop_tuple(size))


def _put(layout: struct.Struct) -> Callable[[PickleReader], None]:
    return lambda reader: reader._remember(reader._unpack(layout))


def _get(layout: struct.Struct) -> Callable[[PickleReader], None]:
    return lambda reader: reader._recall(reader._unpack(layout))


# The steps of opcodes, by their byte; see `pickletools`.
_STEPS: dict[int, Callable[[PickleReader], None]] = {
    0x80: _skip(1),  # PROTO
    0x95: _skip(8),  # FRAME
    ord("("): _constant(_MARK),
    ord("N"): _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    ord("J"): _number(_I4),
    ord("K"): _number(_U1),
    ord("M"): _number(_U2),
    ord("G"): _number(_DOUBLE),
    0x8A: lambda reader: reader._push_long(),
    ord("X"): _text(_U4),
    0x8C: _text(_U1),
    0x8D: _text(_U8),
    ord("B"): _bytes(_U4),
    ord("C"): _bytes(_U1),
    0x8E: _bytes(_U8),
    ord(")"): lambda reader: reader._push(()),
    ord("]"): lambda reader: reader._push([]),
    ord("}"): lambda reader: reader._push({}),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("t"): lambda reader: reader._push(tuple(reader._pop_to_mark())),
    ord("a"): lambda reader: reader._append([reader._pop()]),
    ord("e"): lambda reader: reader._append(reader._pop_to_mark()),
    ord("s"): lambda reader: reader._set(list(reader._pop_tuple(2))),
    ord("u"): lambda reader: reader._set(reader._pop_to_mark()),
    ord("q"): _put(_U1),
    ord("r"): _put(_U4),
    0x94: lambda reader: reader._remember(len(reader._memo)),
    ord("h"): _get(_U1),
    ord("j"): _get(_U4),
    ord("c"): lambda reader: reader._find(reader._line(), reader._line()),
    0x93: lambda reader: reader._find(*reader._pop_tuple(2)),
    ord("R"): lambda reader: reader._reduce(),
    ord("b"): lambda reader: reader._build(),
    ord("Q"): lambda reader: reader._push(reader.persistent(reader._pop())),
}
