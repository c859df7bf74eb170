"""The grammar of symbolic sizes ("2*s6 + 1"), so that text which is code is told from text which
is arithmetic. Nothing is evaluated here.

torch hands such text to `sympy.sympify`, which evaluates it as Python. What passes this check holds
only numbers, symbols, operators and calls of known functions, and no power large enough to hang.

::

    expression := operand (operator operand)*
    operand    := [-+~]* (number | symbol | constant | function "(" list ")" | "(" list ")")
    list       := expression ("," expression)*
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from etscope.errors import FormatError

MAX_LENGTH = 8192
MAX_NESTING = 48
MAX_EXPONENT = 64
MAX_DEGREE = 512

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
        *("ceiling", "floor", "Abs", "sqrt", "exp", "log"),
        *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Xor"),
        *("BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "BitwiseFn_bitwise_xor"),
        *("OpaqueUnaryFn_sqrt", "OpaqueUnaryFn_exp", "OpaqueUnaryFn_log", "OpaqueUnaryFn_log2"),
    }
)
_OPERATORS = frozenset({"+", "-", "*", "/", "//", "%", "==", "!=", "<=", ">=", "<", ">", "&", "|"})


def check_expression(expression: object) -> None:
    """Raise `FormatError` unless the text is arithmetic by the grammar of this module."""
    if not isinstance(expression, str):
        raise FormatError(f"a symbolic expression must be text, found {type(expression).__name__}")
    if len(expression) > MAX_LENGTH:
        raise FormatError(f"a symbolic expression of {len(expression):,} characters is too long")
    _Parser(expression).check()


@dataclass(frozen=True, slots=True)
class _Operand:
    """What counts for powers: the value of a plain number, whether it is a plain symbol, and how
    much its powers multiply to."""

    number: int | None = None
    is_symbol: bool = False
    degree: int = 1


class _Parser:
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

    def _expression(self, nesting: int) -> _Operand:
        if nesting > MAX_NESTING:
            raise self._error("nested too deep")
        operand = self._power(nesting)
        degree = operand.degree
        only = operand
        while self._kind == "operator" and self._token in _OPERATORS:
            self._advance()
            only = _Operand()
            degree += self._power(nesting).degree
            if degree > MAX_LENGTH:
                raise self._error("powers too large")
        return _Operand(only.number, only.is_symbol, degree)

    def _power(self, nesting: int) -> _Operand:
        """An operand with the powers that follow it."""
        base = self._operand(nesting)
        while self._token == "**":
            self._advance()
            exponent = self._operand(nesting)
            if exponent.is_symbol:
                base = _Operand(degree=base.degree)
            elif exponent.number is not None and abs(exponent.number) <= MAX_EXPONENT:
                base = _Operand(degree=base.degree * max(1, abs(exponent.number)))
            else:
                raise self._error("a power that is not a small number")
            if base.degree > MAX_DEGREE or self._token == "**":
                raise self._error("powers too large")
        return base

    def _operand(self, nesting: int) -> _Operand:
        while self._kind == "operator" and self._token in "-+~":
            self._advance()
        kind, token = self._kind, self._token
        if kind == "operator" and token == "(":
            return self._list(nesting)
        if kind not in ("number", "name"):
            raise self._error()
        self._advance()
        if kind == "number":
            return _Operand(number=int(token) if token.isdigit() else None)
        if token in FUNCTIONS:
            if self._token != "(":
                raise self._error("a function without arguments")
            return _Operand(degree=self._list(nesting).degree)
        if token in _CONSTANTS:
            return _Operand()
        if SYMBOL.fullmatch(token):
            return _Operand(is_symbol=True)
        raise self._error(f"unknown name {token!r}")

    def _list(self, nesting: int) -> _Operand:
        """What stands in parentheses: one expression, or several with commas between."""
        self._advance()
        operand = self._expression(nesting + 1)
        while self._token == ",":
            self._advance()
            operand = _Operand(degree=operand.degree + self._expression(nesting + 1).degree)
        if self._token != ")":
            raise self._error()
        self._advance()
        return operand
