"""Symbolic sizes as .pt2 files write them: what is arithmetic, and what is code."""

from __future__ import annotations

import pytest

from etscope.errors import FormatError
from etscope.formats.exported_program.symexpr import check_calls

S = "Symbol('s77', positive=True, integer=True)"


@pytest.mark.parametrize(
    "expression",
    [
        S,
        "Symbol('u0', integer=True)",
        f"Add({S}, Integer(1))",
        f"Add(Mul(Integer(2), Pow({S}, Integer(2))), Integer(-1))",
        f"Mul(Rational(1, 2), {S})",
        f"Pow({S}, Rational(1, 2))",
        f"Pow({S}, Integer(-1))",
        f"PowByNatural({S}, Integer(3))",
        "Float('2.5', precision=53)",
        "-oo",
        "int_oo",
        "true",
        f"And(StrictLessThan({S}, Integer(4)), Unequality({S}, Integer(1)))",
        f"Piecewise(ExprCondPair({S}, StrictGreaterThan({S}, Integer(1))), "
        "ExprCondPair(Integer(1), true))",
        f"floor(Mul(Rational(1, 2), {S}))",
        f"FloorDiv({S}, Integer(2))",
        "7",
    ],
)
def test_arithmetic(expression: str) -> None:
    check_calls(expression)


def test_what_sympy_writes_passes() -> None:
    sympy = pytest.importorskip("sympy")
    functions = pytest.importorskip("torch.utils._sympy.functions")
    s = sympy.Symbol("s0", integer=True, positive=True)
    for expression in (
        *(s + 1, 2 * s**2 - 1, sympy.Max(1, s), s / 3, sympy.sqrt(s), s >= 3, sympy.Ne(s, 1)),
        *(sympy.oo, -sympy.oo, sympy.true, sympy.Float(2.5), sympy.floor(s / 2), -s),
        *(sympy.Piecewise((s, s > 1), (1, True)), ~(s > 1) | sympy.Eq(s, 2)),
        *(functions.FloorDiv(s + 1, 2), functions.Mod(s, 3), functions.ModularIndexing(s, 2, 3)),
        *(functions.CeilToInt(s / 2), functions.ToFloat(s), functions.IntTrueDiv(s, 3)),
    ):
        check_calls(sympy.srepr(expression))


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "__import__('os')",
        "__import__('os').system('x')",
        "open('x', 'w')",
        "Symbol('__import__')",
        "Symbol('s0; x')",
        "Symbol(open('x'))",
        "Symbol('s0', cls=open('x'))",
        "Symbol('s0', integer=open('x'))",
        "Symbol('s0', 's1')",
        "Integer('5')",
        "Integer(open('x'))",
        "Integer(1, evaluate=open('x'))",
        "Float(open('x'))",
        "Float('nan')",
        "Float('2.5', precision=10**9)",
        "Add.__class__",
        "Add(*[1])",
        "Add(**{})",
        "(lambda: 1)()",
        "[1][0]",
        "'text'",
        "f'{1}'",
        "1 if 1 else 2",
        "1 + 1",
        "9**9**9",
        "Pow(Integer(9), Integer(999999))",
        "Pow(Integer(9), Pow(Integer(9), Integer(9)))",
        "Pow(Pow(Pow(Integer(9), Integer(64)), Integer(64)), Integer(64))",
        "LShift(Integer(1), Integer(999999999))",
        f"LShift(Integer(1), {S})",
        f"Pow(Integer(2), {S})",
        f"Pow({S}, Rational(1, {S}))",
        f"Pow({S}, Integer(64))",
        "Max(" + ", ".join(f"Symbol('s{i}')" for i in range(12)) + ")",
        "floor(" * 20 + f"Mul(Rational(1, 2), {S})" + ")" * 20,
        "PowByNatural(Integer(9), Integer(999999))",
        "1" * 60,
        "Integer(" + "1" * 5000 + ")",
        "Add(" * 60 + "1" + ")" * 60,
        "Add(" * 2000 + "1" + ")" * 2000,
        "x = 1",
        "unknown",
        "unknown(1)",
        "\0",
        "Symbol('s0')" * 1000,
        None,
        5,
    ],
)
def test_the_rest_is_refused(expression: object) -> None:
    with pytest.raises(FormatError, match="not an expression that torch writes"):
        check_calls(expression)
