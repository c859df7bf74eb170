"""The grammar of symbolic sizes in .pt2 files: "Add(Symbol('s7', integer=True), Integer(1))".

torch evaluates that text as Python. What passes this check holds only calls of functions that make
expressions, numbers, and names of symbols, and is not too much to compute. Nothing is evaluated
here: Python's parser gives a tree, and each node of it must be one of a few.
"""

from __future__ import annotations

import ast

from etscope.errors import FormatError
from etscope.formats.exported_program import symexpr_bounds as bounds
from etscope.formats.exported_program.symexpr import FUNCTIONS, SYMBOL
from etscope.formats.exported_program.symexpr_bounds import (
    MAX_LENGTH,
    MAX_NESTING,
    POWERS,
    Bound,
    TooMuchError,
)

_MAX_NUMBER = 1 << 128
_CONSTANTS = frozenset({"true", "false", "oo", "int_oo", "nan", "zoo"})
# What sympy.srepr writes, and the functions of torch.
_MAKERS = (FUNCTIONS - POWERS) | {
    *("Integer", "Rational", "Add", "Mul", "ExprCondPair"),
    *("Equality", "Unequality", "LessThan", "GreaterThan", "StrictLessThan"),
    *("StrictGreaterThan", "BooleanTrue", "BooleanFalse"),
}
_ASSUMPTIONS = frozenset(
    {"integer", "positive", "nonnegative", "negative", "nonpositive", "zero", "real", "finite"}
)


def check_calls(expression: object) -> None:
    """Raise `FormatError` unless the text is an expression by the grammar of this module."""
    if not isinstance(expression, str) or len(expression) > MAX_LENGTH:
        raise _error(expression, "not text of a sensible length")
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _error(expression, "not an expression") from error
    try:
        _bound(tree, 0)
    except (_NotAllowedError, TooMuchError) as error:
        raise _error(expression, str(error)) from error


class _NotAllowedError(Exception):
    pass


def _bound(node: ast.expr, nesting: int) -> Bound:
    """How much it is to compute; refuses all that is not allowed."""
    if nesting > MAX_NESTING:
        raise _NotAllowedError("nested too deep")
    match node:
        case ast.Call(ast.Name("Symbol"), [ast.Constant(str(name))], words):
            if not SYMBOL.fullmatch(name) or not all(map(_is_assumption, words)):
                raise _NotAllowedError("an unknown kind of symbol")
            return bounds.SYMBOL
        case ast.Call(ast.Name("Float"), [ast.Constant(str(digits))], words):
            if not _is_decimal(digits) or not all(map(_is_precision, words)):
                raise _NotAllowedError("an unknown kind of number")
            return bounds.number(float(digits))
        case ast.Call(ast.Name(name), [base, exponent], []) if name in POWERS:
            _bound(exponent, nesting + 1)
            return bounds.power(_bound(base, nesting + 1), _exponent(exponent))
        case ast.Call(ast.Name(name), arguments, []) if name in _MAKERS:
            return _call(name, [_bound(one, nesting + 1) for one in arguments])
        case ast.UnaryOp(ast.USub(), operand):
            return bounds.negative(_bound(operand, nesting + 1))
        case ast.Name(name) if name in _CONSTANTS:
            return Bound()
        case ast.Constant(int(number) | float(number)) if abs(number) < _MAX_NUMBER:
            return bounds.number(number)
    raise _NotAllowedError("not allowed")


def _call(name: str, arguments: list[Bound]) -> Bound:
    if name == "Integer" and len(arguments) == 1:
        return arguments[0]
    if not arguments or name not in ("Add", "Mul", "Rational", "ExprCondPair"):
        return bounds.called(name, arguments)
    return (bounds.multiplied if name == "Mul" else bounds.added)(arguments)


def _exponent(node: ast.expr) -> int | None:
    """How large a power is, if that is a plain number; of a fraction, the larger part."""
    match node:
        case ast.UnaryOp(_, operand):
            return _exponent(operand)
        case ast.Constant(int(number)):
            return abs(number)
        case ast.Call(ast.Name("Integer" | "Rational"), [_, *_] as parts):
            sizes = [size for part in parts if (size := _exponent(part)) is not None]
            return max(sizes) if len(sizes) == len(parts) else None
    return None


def _is_assumption(word: ast.keyword) -> bool:
    return word.arg in _ASSUMPTIONS and isinstance(getattr(word.value, "value", None), bool)


def _is_precision(word: ast.keyword) -> bool:
    return word.arg == "precision" and getattr(word.value, "value", None) in (24, 53)


def _is_decimal(digits: str) -> bool:
    return len(digits) <= 40 and digits.lstrip("-").replace(".", "", 1).isdecimal()


def _error(expression: object, why: str) -> FormatError:
    shown = str(expression)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return FormatError(
        f"a symbolic size is not an expression that torch writes ({why}): {shown!r}",
        hint="the file may be made to run code where it is opened; do not trust it",
    )
