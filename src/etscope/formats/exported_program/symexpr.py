"""The grammar of symbolic sizes ("2*s6 + 1"), so that text which is code is told from text which
is arithmetic. Nothing is evaluated here.

torch hands such text to `sympy.sympify`, which evaluates it as Python. What passes this check holds
only numbers, symbols, operators and calls of known functions, and is not too much to compute.

::

    expression := operand (operator operand)*
    operand    := [-+~]* (number | symbol | constant | function "(" list ")" | "(" list ")")
    list       := expression ("," expression)*
"""

from __future__ import annotations

import ast
import re

from etscope.errors import FormatError
from etscope.formats.exported_program import symexpr_bounds as bounds
from etscope.formats.exported_program.symexpr_bounds import (
    MAX_LENGTH,
    MAX_NESTING,
    POWERS,
    Bound,
    TooMuchError,
)

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,2})?|\.\d{1,40})"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]{0,63})"
    r"|(?P<operator>\*\*|//|==|!=|<=|>=|[-+*/%<>&|~(),]))"
)
# Names of symbols in torch: a kind (size, unbacked, float, index...) and a number.
SYMBOL = re.compile(r"[a-z]{1,8}[0-9]{1,20}")
_CONSTANTS = frozenset({"True", "False", "oo", "int_oo", "nan", "zoo"})
# What torch.utils._sympy (2.1 to 2.13) and sympy print for sizes and guards.
FUNCTIONS = frozenset(
    {
        *("Max", "Min", "Mod", "PythonMod", "FloorDiv", "CleanDiv", "CeilDiv", "IntTrueDiv"),
        *("FloatTrueDiv", "TrueDiv", "FloatPow", "PowByNatural", "LShift", "RShift"),
        *("CeilToInt", "FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "RoundDecimal"),
        *("ToFloat", "Identity", "ModularIndexing", "Where", "Piecewise", "ITE"),
        *("ceiling", "floor", "Abs", "sqrt"),
        *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Xor"),
        *("BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "BitwiseFn_bitwise_xor"),
        *("OpaqueUnaryFn_sqrt", "OpaqueUnaryFn_exp", "OpaqueUnaryFn_log", "OpaqueUnaryFn_log2"),
    }
)
# How they bind, loosest first.
_COMPARISONS = frozenset({"==", "!=", "<=", ">=", "<", ">", "&", "|"})
_SUMS = frozenset({"+", "-"})
_PRODUCTS = frozenset({"*", "/", "//", "%"})
_ROUNDED = frozenset({"//", "%"})


def check_expression(expression: object) -> None:
    """Raise `FormatError` unless the text is arithmetic by the grammar of this module."""
    if not isinstance(expression, str):
        raise FormatError(f"a symbolic expression must be text, found {type(expression).__name__}")
    if len(expression) > MAX_LENGTH:
        raise FormatError(f"a symbolic expression of {len(expression):,} characters is too long")
    _Parser(expression).check()


class _Parser:
    def __init__(self, expression: str) -> None:
        self._text = expression
        self._end = len(expression.rstrip())
        self._position = 0
        self._kind = ""
        self._token = ""
        self._advance()

    def check(self) -> None:
        try:
            self._expression(0)
        except TooMuchError as error:
            raise self._error(str(error)) from error
        if self._kind:
            raise self._error()

    def _error(self, why: str = "not arithmetic") -> FormatError:
        shown = self._text if len(self._text) <= 80 else self._text[:77] + "..."
        return FormatError(
            f"a symbolic size is not an expression that torch writes ({why}): {shown!r}",
            hint="the file may be made to run code where it is opened; do not trust it",
        )

    def _advance(self) -> None:
        if self._position >= self._end:
            self._kind = self._token = ""
            return
        match = _TOKEN.match(self._text, self._position)
        if match is None or match.lastgroup is None:
            raise self._error()
        self._kind, self._token = match.lastgroup, match[match.lastgroup]
        self._position = match.end()

    def _expression(self, nesting: int) -> Bound:
        if nesting > MAX_NESTING:
            raise self._error("nested too deep")
        parts = [self._sum(nesting)]
        while self._advance_over(_COMPARISONS):
            parts.append(self._sum(nesting))
        return parts[0] if len(parts) == 1 else bounds.added(parts)

    def _sum(self, nesting: int) -> Bound:
        parts = [self._product(nesting)]
        while self._advance_over(_SUMS):
            parts.append(self._product(nesting))
        return parts[0] if len(parts) == 1 else bounds.added(parts)

    def _product(self, nesting: int) -> Bound:
        parts = [self._power(nesting)]
        while operator := self._advance_over(_PRODUCTS):
            parts.append(self._power(nesting))
            if operator in _ROUNDED:
                parts = [bounds.called(operator, [_product_of(parts[:-1]), parts[-1]])]
        return _product_of(parts)

    def _advance_over(self, operators: frozenset[str]) -> str:
        """The operator that is next, if it is one of these; it is passed over."""
        token = self._token
        if self._kind != "operator" or token not in operators:
            return ""
        self._advance()
        return token

    def _power(self, nesting: int) -> Bound:
        """An operand with the powers that follow it."""
        base = self._operand(nesting)
        while self._token == "**":
            self._advance()
            base = bounds.power(base, self._operand(nesting).number)
            if self._token == "**":
                raise self._error("powers too large")
        return base

    def _operand(self, nesting: int) -> Bound:
        while self._kind == "operator" and self._token in "-+~":
            self._advance()
        kind, token = self._kind, self._token
        if kind == "operator" and token == "(":
            parts = self._list(nesting)
            return parts[0] if len(parts) == 1 else bounds.added(parts)
        if kind not in ("number", "name"):
            raise self._error()
        self._advance()
        if kind == "number":
            return bounds.number(int(token) if token.isdigit() else float(token))
        if token in FUNCTIONS:
            if self._token != "(":
                raise self._error("a function without arguments")
            arguments = self._list(nesting)
            return (bounds.raised if token in POWERS else bounds.called)(token, arguments)
        if token in _CONSTANTS:
            return Bound()
        if SYMBOL.fullmatch(token):
            return bounds.SYMBOL
        raise self._error(f"unknown name {token!r}")

    def _list(self, nesting: int) -> list[Bound]:
        """What stands in parentheses: one expression, or several with commas between."""
        self._advance()
        parts = [self._expression(nesting + 1)]
        while self._token == ",":
            self._advance()
            parts.append(self._expression(nesting + 1))
        if self._token != ")":
            raise self._error()
        self._advance()
        return parts


def _product_of(parts: list[Bound]) -> Bound:
    return parts[0] if len(parts) == 1 else bounds.multiplied(parts)


# The grammar of symbolic sizes in .pt2 files: "Add(Symbol('s7', integer=True), Integer(1))".
#
# torch evaluates that text as Python. What passes this check holds only calls of functions that
# make expressions, numbers, and names of symbols, and is not too much to compute. Nothing is
# evaluated here: Python's parser gives a tree, and each node of it must be one of a few.


_MAX_NUMBER = 1 << 128
_CONSTANTS_of_symexpr_calls = frozenset({"true", "false", "oo", "int_oo", "nan", "zoo"})
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
        case ast.Name(name) if name in _CONSTANTS_of_symexpr_calls:
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
