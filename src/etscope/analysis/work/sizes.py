"""The sizes of a run's tensors: symbolic sizes of a graph with the values that symbols had."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from etscope.analysis.work.operation import UnfitError
from etscope.errors import FormatError
from etscope.formats.exported_program.symexpr import SYMBOL, check_expression
from etscope.model.graph import Graph, TensorSpec

_Number = int | float
_BINARY: Mapping[type[ast.operator], Callable[[_Number, _Number], _Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: Mapping[str, Callable[..., _Number]] = {
    "Max": max,
    "Min": min,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "IntTrueDiv": operator.truediv,
    "ceiling": math.ceil,
    "CeilToInt": math.ceil,
    "floor": math.floor,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "ToFloat": float,
    "Identity": lambda value: value,
}


@dataclass(frozen=True)
class Sizes:
    """The values of a graph's symbols in a run: "s6" -> 5.

    position: of the first token of a language model's call in its context, or the mean of several
    calls; None if not known. bounds: the symbols with the largest values that the program
    allows, because the run's are unknown.
    """

    symbols: Mapping[str, int] = field(default_factory=dict)
    position: float | None = None
    bounds: frozenset[str] = frozenset()

    def size(self, size: int | str) -> int:
        """A size as a number. Raises `UnfitError` for a symbol without a value."""
        if isinstance(size, int):
            return size
        if size in self.symbols:
            return self.symbols[size]
        try:
            value = _value(_parsed(size).body, self.symbols)
            whole = int(value)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise UnfitError(f"the size {size}: {error}") from error
        if value != whole or whole < 0:
            raise UnfitError(f"the size {size} is {value}")
        return whole

    def shape(self, spec: TensorSpec) -> tuple[int, ...]:
        """The sizes of a tensor. Raises `UnfitError` for a symbol without a value."""
        return tuple(map(self.size, spec.shape))

    def is_bound(self, spec: TensorSpec) -> bool:
        """Return True if a size of the tensor is only a bound."""
        return any(
            not self.bounds.isdisjoint(SYMBOL.findall(size))
            for size in spec.shape
            if isinstance(size, str)
        )


@lru_cache(maxsize=4096)
def _parsed(expression: str) -> ast.Expression:
    try:
        check_expression(expression)
        return ast.parse(expression, mode="eval")
    except (FormatError, SyntaxError, ValueError) as error:
        raise UnfitError(f"the size {expression[:80]} is not arithmetic") from error


def _value(node: ast.expr, symbols: Mapping[str, int]) -> _Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in symbols:
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, symbols)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, symbols), _value(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(one, symbols) for one in arguments))
    raise UnfitError(f"the value of {ast.unparse(node)[:80]} is not known")


def symbols_of(graph: Graph) -> frozenset[str]:
    """The symbols in the sizes of a graph's inputs."""
    found: set[str] = set()
    for name in graph.inputs:
        for value in graph.by_name[name].outputs if name in graph.by_name else ():
            for size in () if value.tensor is None else value.tensor.shape:
                if isinstance(size, str):
                    found.update(SYMBOL.findall(size))
    return frozenset(found)


def largest(graph: Graph) -> Sizes:
    """The largest sizes that the program was exported for; symbols without a limit have none."""
    return Sizes(dict(graph.limits), bounds=frozenset(graph.limits))


def solved(pairs: Iterable[tuple[TensorSpec, tuple[int, ...]]]) -> dict[str, int]:
    """The values of symbols that stand alone as a size of a tensor, from the tensor's sizes."""
    found: dict[str, int] = {}
    for spec, sizes in pairs:
        if len(spec.shape) == len(sizes):
            for symbol, size in zip(spec.shape, sizes, strict=True):
                if isinstance(symbol, str) and SYMBOL.fullmatch(symbol):
                    found.setdefault(symbol, size)
    return found
