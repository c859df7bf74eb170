"""The grammar of symbolic sizes in .pt2 files: "Add(Symbol('s7', integer=True), Integer(1))".

torch evaluates that text as Python. What passes this check holds only calls of functions that make
expressions, numbers, and names of symbols, and no power large enough to hang. Nothing is evaluated
here: Python's parser gives a tree, and each node of it must be one of a few.
"""

from __future__ import annotations

import ast

from etscope.errors import FormatError
from etscope.formats.symexpr import (
    FUNCTIONS,
    MAX_DEGREE,
    MAX_EXPONENT,
    MAX_LENGTH,
    MAX_NESTING,
    SYMBOL,
)

_MAX_NUMBER = 1 << 128
_CONSTANTS = frozenset({"true", "false", "oo", "int_oo", "nan", "zoo"})
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "RShift"})
# What sympy.srepr writes, and the functions of torch.
_MAKERS = (FUNCTIONS - _POWERS) | {
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
        _degree(tree, 0)
    except _NotAllowedError as error:
        raise _error(expression, str(error)) from error


class _NotAllowedError(Exception):
    pass


def _degree(node: ast.expr, nesting: int) -> int:
    """How much the powers in it multiply to; refuses all that is not allowed."""
    if nesting > MAX_NESTING:
        raise _NotAllowedError("nested too deep")
    degree = 1
    match node:
        case ast.Call(ast.Name("Symbol"), [ast.Constant(str(name))], words):
            if not SYMBOL.fullmatch(name) or not all(map(_is_assumption, words)):
                raise _NotAllowedError("an unknown kind of symbol")
        case ast.Call(ast.Name("Float"), [ast.Constant(str(digits))], words):
            if not _is_decimal(digits) or not all(map(_is_precision, words)):
                raise _NotAllowedError("an unknown kind of number")
        case ast.Call(ast.Name(name), [base, exponent], []) if name in _POWERS:
            _degree(exponent, nesting + 1)
            degree = _degree(base, nesting + 1) * _exponent(exponent)
        case ast.Call(ast.Name(name), arguments, []) if name in _MAKERS:
            degree = max(1, sum(_degree(one, nesting + 1) for one in arguments))
        case ast.UnaryOp(ast.USub(), operand):
            degree = _degree(operand, nesting + 1)
        case ast.Name(name) if name in _CONSTANTS:
            pass
        case ast.Constant(int(number) | float(number)) if abs(number) < _MAX_NUMBER:
            pass
        case _:
            raise _NotAllowedError("not allowed")
    if degree > MAX_DEGREE:
        raise _NotAllowedError("powers too large")
    return degree


def _exponent(node: ast.expr) -> int:
    """How large a power is: a number, or 1 for one that is a symbol and stays."""
    if isinstance(node, ast.UnaryOp):
        return _exponent(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        if node.value <= MAX_EXPONENT:
            return max(1, node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "Symbol":
            return 1
        if node.func.id in ("Integer", "Rational") and node.args:
            return max(_exponent(argument) for argument in node.args)
    raise _NotAllowedError("a power that is not a small number")


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
