"""Check that the text of a symbolic size is arithmetic and not code, without evaluating it.

torch evaluates the text of symbolic sizes as Python: `sympy.sympify` for sizes in ETRecords
("2*s6 + 1"), torch itself for sizes in .pt2 files ("Add(Symbol('s7', integer=True), Integer(1))").
Text that passes `check_expression` or `check_calls` has only numbers, symbols, operators and calls
of known functions, and is cheap to compute.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

from etscope.errors import FormatError

MAX_LENGTH = 8192  # characters
MAX_NESTING = 48  # of parentheses

# Names of symbols in torch: a kind (size, unbacked, float, index...) and a number.
SYMBOL = re.compile(r"[a-z]{1,8}[0-9]{1,20}")
POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "RShift"})
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


class _NotAllowedError(Exception):
    """Names the part of an expression that is forbidden, or too expensive to compute."""


def _rejected(expression: object, why: object) -> FormatError:
    shown = str(expression)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return FormatError(
        f"a symbolic size is not an expression that torch writes ({why}): {shown!r}",
        hint="the file may be an attack that runs code on opening; do not trust it",
    )


# --------------------------------------------------------------------------------------------
# Sizes of ETRecords.
#
#     expression := operand (operator operand)*
#     operand    := [-+~]* (number | symbol | constant | function "(" list ")" | "(" list ")")
#     list       := expression ("," expression)*

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,2})?|\.\d{1,40})"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]{0,63})"
    r"|(?P<operator>\*\*|//|==|!=|<=|>=|[-+*/%<>&|~(),]))"
)
_CONSTANTS = frozenset({"True", "False", "oo", "int_oo", "nan", "zoo"})
# Operators by precedence, lowest first.
_COMPARISONS = frozenset({"==", "!=", "<=", ">=", "<", ">", "&", "|"})
_SUMS = frozenset({"+", "-"})
_PRODUCTS = frozenset({"*", "/", "//", "%"})
_ROUNDED = frozenset({"//", "%"})


def check_expression(expression: object) -> None:
    """Raise `FormatError` unless the text is arithmetic by the grammar above."""
    if not isinstance(expression, str):
        raise FormatError(f"a symbolic expression must be text, found {type(expression).__name__}")
    if len(expression) > MAX_LENGTH:
        raise FormatError(f"a symbolic expression of {len(expression):,} characters is too long")
    try:
        _Parser(expression).check()
    except _NotAllowedError as error:
        raise _rejected(expression, error) from error


class _Parser:
    """A recursive descent that returns the bound of each part."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._end = len(expression.rstrip())
        self._position = 0
        self._kind = ""
        self._token = ""
        self._advance()

    def check(self) -> None:
        self._expression(0)
        if self._kind:
            raise _NotAllowedError("not arithmetic")

    def _advance(self) -> None:
        if self._position >= self._end:
            self._kind = self._token = ""
            return
        match = _TOKEN.match(self._text, self._position)
        if match is None or match.lastgroup is None:
            raise _NotAllowedError("not arithmetic")
        self._kind, self._token = match.lastgroup, match[match.lastgroup]
        self._position = match.end()

    def _accept(self, operators: frozenset[str]) -> str:
        """Consume and return the next operator if it is one of `operators`; else return ""."""
        token = self._token
        if self._kind != "operator" or token not in operators:
            return ""
        self._advance()
        return token

    def _expression(self, nesting: int) -> Bound:
        if nesting > MAX_NESTING:
            raise _NotAllowedError("nested too deep")
        parts = [self._sum(nesting)]
        while self._accept(_COMPARISONS):
            parts.append(self._sum(nesting))
        return parts[0] if len(parts) == 1 else sum_bound(parts)

    def _sum(self, nesting: int) -> Bound:
        parts = [self._product(nesting)]
        while self._accept(_SUMS):
            parts.append(self._product(nesting))
        return parts[0] if len(parts) == 1 else sum_bound(parts)

    def _product(self, nesting: int) -> Bound:
        parts = [self._power(nesting)]
        while operator := self._accept(_PRODUCTS):
            factor = self._power(nesting)
            if operator in _ROUNDED:
                parts = [call_bound(operator, [_product_of(parts), factor])]
            else:
                parts.append(factor)
        return _product_of(parts)

    def _power(self, nesting: int) -> Bound:
        """An operand with the powers that follow it."""
        base = self._operand(nesting)
        while self._token == "**":
            self._advance()
            base = power_bound(base, self._operand(nesting).number)
            if self._token == "**":
                raise _NotAllowedError("powers too large")
        return base

    def _operand(self, nesting: int) -> Bound:
        while self._kind == "operator" and self._token in "-+~":
            self._advance()
        kind, token = self._kind, self._token
        if kind == "operator" and token == "(":
            parts = self._list(nesting)
            return parts[0] if len(parts) == 1 else sum_bound(parts)
        if kind not in ("number", "name"):
            raise _NotAllowedError("not arithmetic")
        self._advance()
        if kind == "number":
            return number_bound(int(token) if token.isdigit() else float(token))
        if token in FUNCTIONS:
            if self._token != "(":
                raise _NotAllowedError("a function without arguments")
            arguments = self._list(nesting)
            if token not in POWERS:
                return call_bound(token, arguments)
            if len(arguments) != 2:
                raise _NotAllowedError("a power needs two arguments")
            base, exponent = arguments
            return power_bound(replace(base, bits=base.bits + 1), exponent.number)
        if token in _CONSTANTS:
            return Bound()
        if SYMBOL.fullmatch(token):
            return _SYMBOL_BOUND
        raise _NotAllowedError(f"unknown name {token!r}")

    def _list(self, nesting: int) -> list[Bound]:
        """The expressions between parentheses, with commas between them."""
        self._advance()
        parts = [self._expression(nesting + 1)]
        while self._token == ",":
            self._advance()
            parts.append(self._expression(nesting + 1))
        if self._token != ")":
            raise _NotAllowedError("not arithmetic")
        self._advance()
        return parts


def _product_of(parts: list[Bound]) -> Bound:
    return parts[0] if len(parts) == 1 else product_bound(parts)


# --------------------------------------------------------------------------------------------
# Sizes of .pt2 files: calls of functions that make expressions, in the form of `sympy.srepr`.
# Python's parser gives a tree, and each node of it must have one of a few types.

_MAX_NUMBER = 1 << 128  # more than any size; larger texts are slow to parse
_CALL_CONSTANTS = frozenset({"true", "false", "oo", "int_oo", "nan", "zoo"})
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
    """Raise `FormatError` unless the text is a size in the form of .pt2 files."""
    if not isinstance(expression, str) or len(expression) > MAX_LENGTH:
        raise _rejected(expression, "not a text, or a text that is too long")
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _rejected(expression, "not an expression") from error
    try:
        _bound_of(tree, 0)
    except _NotAllowedError as error:
        raise _rejected(expression, error) from error


def _bound_of(node: ast.expr, nesting: int) -> Bound:
    if nesting > MAX_NESTING:
        raise _NotAllowedError("nested too deep")
    match node:
        case ast.Call(ast.Name("Symbol"), [ast.Constant(str(name))], keywords):
            if not SYMBOL.fullmatch(name) or not all(
                word.arg in _ASSUMPTIONS and isinstance(getattr(word.value, "value", None), bool)
                for word in keywords
            ):
                raise _NotAllowedError("an unknown kind of symbol")
            return _SYMBOL_BOUND
        case ast.Call(ast.Name("Float"), [ast.Constant(str(digits))], keywords):
            is_decimal = len(digits) <= 40 and digits.lstrip("-").replace(".", "", 1).isdecimal()
            if not is_decimal or not all(
                word.arg == "precision" and getattr(word.value, "value", None) in (24, 53)
                for word in keywords
            ):
                raise _NotAllowedError("an unknown kind of number")
            return number_bound(float(digits))
        case ast.Call(ast.Name(name), [base, exponent], []) if name in POWERS:
            _bound_of(exponent, nesting + 1)
            return power_bound(_bound_of(base, nesting + 1), _exponent(exponent))
        case ast.Call(ast.Name(name), arguments, []) if name in _MAKERS:
            parts = [_bound_of(argument, nesting + 1) for argument in arguments]
            if name == "Integer" and len(parts) == 1:
                return parts[0]
            if parts and name == "Mul":
                return product_bound(parts)
            if parts and name in ("Add", "Rational", "ExprCondPair"):
                return sum_bound(parts)
            return call_bound(name, parts)
        case ast.UnaryOp(ast.USub(), operand):
            bound = _bound_of(operand, nesting + 1)
            return replace(bound, number=None if bound.number is None else -bound.number)
        case ast.Name(name) if name in _CALL_CONSTANTS:
            return Bound()
        case ast.Constant(int(number) | float(number)) if abs(number) < _MAX_NUMBER:
            return number_bound(number)
    raise _NotAllowedError("not allowed")


def _exponent(node: ast.expr) -> int | None:
    """The size of an exponent that is a plain number; for a fraction, of its larger part."""
    match node:
        case ast.UnaryOp(_, operand):
            return _exponent(operand)
        case ast.Constant(int(number)):
            return abs(number)
        case ast.Call(ast.Name("Integer" | "Rational"), [_, *_] as parts):
            sizes = [size for part in parts if (size := _exponent(part)) is not None]
            return max(sizes) if len(sizes) == len(parts) else None
    return None


# --------------------------------------------------------------------------------------------
# Bounds on the work of an expression for sympy and torch.
#
# A short text can exhaust a machine: `9**9**9`, `LShift(1, 999999999999)`, a product of sums that
# is multiplied out, nested roundings (conditions double with each level). Both grammars build a
# `Bound` from the bottom up and reject an excess. The weights come from timing torch on random
# expressions: an accepted one takes some seconds at worst, and those of real models milliseconds.

MAX_EXPONENT = 64  # of a power: sizes have 64 bits
MAX_BITS = 4096  # of a number
MAX_WORK = 1024  # in the units of the weights: some seconds of torch's time
# Nested calls of these become one call with all the arguments, compared in pairs.
_MERGING = frozenset({"Max", "Min", "And", "Or", "Xor", "Not", "ITE", "Piecewise", "Where"})


@dataclass(frozen=True, slots=True)
class Bound:
    """Upper bounds for an evaluated expression, as a polynomial of `terms` terms of a `degree`.

    bits: size of its numbers. nesting: depth of function calls. arguments: number of arguments of
    merged calls. work: estimated cost. number: the value of a plain whole number, else None.
    """

    terms: int = 1
    degree: int = 0
    bits: int = 1
    nesting: int = 0
    arguments: int = 1
    work: int = 1
    number: int | None = None

    def __post_init__(self) -> None:
        if self.bits > MAX_BITS:
            raise _NotAllowedError("numbers too large")
        if self.work > MAX_WORK:
            raise _NotAllowedError("too much to compute")


_SYMBOL_BOUND = Bound(degree=1, bits=64)


def number_bound(value: float) -> Bound:
    """The bound of a plain number."""
    whole = value if isinstance(value, int) else None
    return Bound(bits=64 if whole is None else max(1, whole.bit_length()), number=whole)


def sum_bound(parts: Sequence[Bound]) -> Bound:
    """The bound of a sum, or of as many conditions that are joined."""
    terms = sum(part.terms for part in parts)
    return Bound(
        terms=terms,
        degree=max(part.degree for part in parts),
        bits=max(part.bits for part in parts) + len(parts).bit_length(),
        nesting=max(part.nesting for part in parts),
        work=sum(part.work for part in parts) + terms * terms // 8,
    )


def product_bound(parts: Sequence[Bound]) -> Bound:
    """The bound of a product that is multiplied out, or of a quotient."""
    terms, degree = 1, sum(part.degree for part in parts)
    for part in parts:
        terms *= part.terms
    return Bound(
        terms=terms,
        degree=degree,
        bits=sum(part.bits for part in parts),
        nesting=max(part.nesting for part in parts),
        work=sum(part.work for part in parts) + (terms << min(degree, 32)),
    )


def power_bound(base: Bound, exponent: int | None) -> Bound:
    """Return the bound of a power. An `exponent` of None is not a plain number: such a power does
    not have a bound and is rejected."""
    if exponent is None or abs(exponent) > MAX_EXPONENT:
        raise _NotAllowedError("a power that is not a small number")
    times = max(1, abs(exponent))
    degree = base.degree * times
    terms = comb(base.terms + times - 1, times) if degree else 1
    work = base.work * times + (terms << min(degree, 32))
    return Bound(terms, degree, base.bits * times, base.nesting, work=work)


def call_bound(name: str, arguments: Sequence[Bound]) -> Bound:
    """The bound of a call of a function that is not a power; its result is one term."""
    nesting = max((argument.nesting for argument in arguments), default=0) + 1
    if name in _MERGING:
        merged = sum(argument.arguments for argument in arguments)
        work = 2 * merged**3 * max((argument.terms for argument in arguments), default=1)
    else:
        merged = 1
        work = 1 << min(nesting - 1, 32)
        if len(arguments) > 1:  # most are like a quotient: its parts are multiplied out
            arguments = [product_bound(arguments)]
    return Bound(
        degree=1,
        bits=1 + sum(argument.bits for argument in arguments),
        nesting=nesting,
        arguments=merged,
        work=work + sum(argument.work for argument in arguments),
    )
