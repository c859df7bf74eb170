"""Symbolic sizes as torch prints them and .pt2 files write them: arithmetic passes, code not."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import FormatError
from etscope.formats.exported_program.symexpr import check_calls, check_expression

# -- as torch prints them

GOOD = [
    *("s0", "s77", "u0", "zuf3", "2*s6", "s77 + 1", "-s0", "(s0//2)", "((((((s0))))))"),
    *("(s0 // 2) + Max(1, u0)", "8*s1**2 - 3*s1 + 1", "s0**(-1)", "2**60", "Mod(s0, 3)"),
    *("FloorDiv(s0 + 1, 2)", "CeilToInt(IntTrueDiv(s0, 2))", "TruncToInt(0.5*ToFloat(s0))"),
    *("PowByNatural(u1, 2)", "LShift(s0, 3)", "s0*s1*s2*(s3//2)*(s4//2)", "1.0e-3*s0 + .5"),
    "8*((((s0 - 1)//2)//2)//2 + 1)*((((s1 - 1)//2)//2)//2 + 1)",
    *("Max(1, Min(s0, Max(2, Min(s1, s2))))", "Min(4, Max(s0, s1), u0)", "ceiling(s0/2)"),
    *("Piecewise((1, Eq(s0, 1)), (s1, True))", "Eq(s0, 1) & (s1 > 3) | ~Ne(u0, 2)"),
    *("s0 <= 9223372036854775807", "int_oo", "-oo"),
]
CODE = [
    *("", " ", "__import__('os').system('true')", "__import__", "s0.__class__", "s0.foo"),
    *("s0 if s1 else s2", "lambda: 1", "[s0]", "{s0}", "s0[0]", "s0(1)", "(s0)(1)"),
    *("Max", "Max.x(1)", "Max(1)(2)", "Max(", "Max(s0,", "Max(,s0)", "Max()"),
    *("eval(1)", "exec(1)", "print(s0)", "Symbol(s0)", "sympify(s0)", "lambdify(s0)"),
    *("'s0'", '"s0"', "f's0'", "s0; s1", "s0\ns1", "s0 s1", "s0 = 1", "s0 := 1"),
    *("a", "S", "os", "open", "_s0", "s_0", "ſ0", "s٠", "1_000", "0x10", "1j"),  # noqa: RUF001
    *("@s0", "s0!", "`s0`", "s0 # comment", "s0 +", "* s0", "(s0", "s0)"),
    *("9**9**9", "(9**9)**9**9", "(((9**60)**60)**60)", "2**(s0 - s0 + 1000000000)"),
    *("2**1000000000", "2**Max(1000000000, s0)", "2**0.5e9", "exp(s0)", "floor(exp(99999999))"),
    *("1" * 41, "s0" + "0" * 30, "(" * 100 + "s0" + ")" * 100, "s0+" * 4000 + "s0"),
]
TOO_MUCH = [
    *("LShift(1, 999999999999)", "LShift(s0, 999999999999)", "RShift(1, 999999999999)"),
    "LShift(1, s0)",  # torch puts the value of s0 in its place, and that is in the file
    *("2**s0", "s0**s0", "2**(s0)", "2**(60*60)", "2**(2**60)", "s0**64", "(s0//3)**32"),
    *("PowByNatural(2, u1)", "PowByNatural(2, 10**9)", "FloatPow(2.0, 1000000000)"),
    *("LShift(1, 2**60)", "LShift(1, 60, 60)", "((2**64)**64)**64", "((2**64*2**64)**64)"),
    *("LShift(LShift(LShift(1, 64)**64, 64)**64, 64)", "(s0 + s1 + s2 + s3)**8"),
    "*".join(f"s{i}" for i in range(14)),
    "*".join(f"(s{i} + s{i + 1})" for i in range(7)),
    "+".join(f"s{i}" for i in range(200)),
    "Max(" + ",".join(f"s{i}" for i in range(12)) + ")",
    "Max(" + ",".join(f"Min(s{i}, s{i + 1}, 3)" for i in range(5)) + ")",
    "And(" + ",".join(f"s{i} > 3" for i in range(12)) + ")",
    "&".join(f"(s{i} > 3)" for i in range(200)),
    *("(" * 20 + "s0" + "//2)" * 20, "ceiling(" * 20 + "s0" + "/2)" * 20),
    "+".join("(" * 8 + f"s{i}" + "//2)" * 8 for i in range(9)),
]


@pytest.mark.parametrize("expression", GOOD)
def test_what_torch_prints(expression: str) -> None:
    check_expression(expression)


@pytest.mark.parametrize("expression", CODE, ids=lambda text: text[:30])
def test_what_is_not_arithmetic(expression: str) -> None:
    with pytest.raises(FormatError):
        check_expression(expression)


@pytest.mark.parametrize("expression", TOO_MUCH, ids=lambda text: text[:30])
def test_what_is_too_much_to_compute(expression: str) -> None:
    with pytest.raises(FormatError, match=r"too (much|large)|not a small number|two arguments"):
        check_expression(expression)


@pytest.mark.parametrize("value", [None, 3, ["s0"], {"a": 1}, b"s0"])
def test_what_is_not_text(value: object) -> None:
    with pytest.raises(FormatError, match="must be text"):
        check_expression(value)


ARITHMETIC = {*string.ascii_letters, *string.digits, *"+-*/%<>=!&|~(),._ \t\n\r\x0b\x0c"}


@given(st.one_of(st.text(max_size=40), st.text("s0123 +-*/(),.Max<=&_'[", max_size=30)))
def test_any_text_ends_in_a_verdict(expression: str) -> None:
    try:
        check_expression(expression)
    except FormatError:
        return
    assert set(expression) <= ARITHMETIC


OPERATORS = st.sampled_from(["+", "-", "*", "//", "%", "<=", "&"])
CALLS = st.sampled_from(["Max({}, {})", "Mod({}, {})", "FloorDiv({}, {})"])
EXPRESSIONS = st.recursive(
    st.sampled_from(["s0", "u12", "3", "0.5", "True"]),
    lambda inner: st.one_of(
        st.tuples(inner, OPERATORS, inner).map(" ".join),
        st.builds(str.format, CALLS, inner, inner),
        st.builds(str.format, st.sampled_from(["({})", "({})*2"]), inner),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_arithmetic_passes(expression: str) -> None:
    check_expression(expression)


# -- as .pt2 files write them: calls of sympy's functions

S = "Symbol('s77', positive=True, integer=True)"
HALF = f"Mul(Rational(1, 2), {S})"
GOOD_CALLS = [
    *(S, "Symbol('u0', integer=True)", "-oo", "int_oo", "true", "7", "Float('2.5', precision=53)"),
    *(HALF, f"floor({HALF})", f"FloorDiv({S}, Integer(2))", f"Add({S}, Integer(1))"),
    f"Add(Mul(Integer(2), Pow({S}, Integer(2))), Integer(-1))",
    *(f"Pow({S}, Rational(1, 2))", f"Pow({S}, Integer(-1))", f"PowByNatural({S}, Integer(3))"),
    f"And(StrictLessThan({S}, Integer(4)), Unequality({S}, Integer(1)))",
    f"Piecewise(ExprCondPair({S}, StrictGreaterThan({S}, Integer(1))), "
    "ExprCondPair(Integer(1), true))",
]
BAD_CALLS = [
    *("", "\0", None, 5, "x = 1", "unknown", "unknown(1)", "'text'", "f'{1}'", "[1][0]"),
    *("__import__('os')", "__import__('os').system('x')", "open('x', 'w')", "(lambda: 1)()"),
    *("1 if 1 else 2", "1 + 1", "9**9**9", "Add.__class__", "Add(*[1])", "Add(**{})"),
    *("Symbol('__import__')", "Symbol('s0; x')", "Symbol(open('x'))", "Symbol('s0', 's1')"),
    *("Symbol('s0', cls=open('x'))", "Symbol('s0', integer=open('x'))", "Symbol('s0')" * 1000),
    *("Integer('5')", "Integer(open('x'))", "Integer(1, evaluate=open('x'))"),
    *("Float(open('x'))", "Float('nan')", "Float('2.5', precision=10**9)"),
    *("Pow(Integer(9), Integer(999999))", "PowByNatural(Integer(9), Integer(999999))"),
    "Pow(Integer(9), Pow(Integer(9), Integer(9)))",
    "Pow(Pow(Pow(Integer(9), Integer(64)), Integer(64)), Integer(64))",
    *("LShift(Integer(1), Integer(999999999))", f"LShift(Integer(1), {S})"),
    *(f"Pow(Integer(2), {S})", f"Pow({S}, Rational(1, {S}))", f"Pow({S}, Integer(64))"),
    "Max(" + ", ".join(f"Symbol('s{i}')" for i in range(12)) + ")",
    *("floor(" * 20 + HALF + ")" * 20, "1" * 60, "Integer(" + "1" * 5000 + ")"),
    *("Add(" * 60 + "1" + ")" * 60, "Add(" * 2000 + "1" + ")" * 2000),
]


@pytest.mark.parametrize("expression", GOOD_CALLS)
def test_calls_that_are_arithmetic(expression: str) -> None:
    check_calls(expression)


@pytest.mark.parametrize("expression", BAD_CALLS, ids=lambda text: str(text)[:30])
def test_all_other_calls_are_refused(expression: object) -> None:
    with pytest.raises(FormatError, match="not an expression that torch writes"):
        check_calls(expression)


def test_what_sympy_writes_passes() -> None:
    sympy = pytest.importorskip("sympy")
    functions = pytest.importorskip("torch.utils._sympy.functions")
    a, b = sympy.symbols("s0 s1", integer=True)
    for expression in (a * b + 1, (a + b) ** 3, sympy.Max(a, 2), sympy.Mod(a, 4), a // 3, a / 2):
        check_expression(str(expression))
    s = sympy.Symbol("s0", integer=True, positive=True)
    for expression in (
        *(s + 1, 2 * s**2 - 1, sympy.Max(1, s), s / 3, sympy.sqrt(s), s >= 3, sympy.Ne(s, 1)),
        *(sympy.oo, -sympy.oo, sympy.true, sympy.Float(2.5), sympy.floor(s / 2), -s),
        *(sympy.Piecewise((s, s > 1), (1, True)), ~(s > 1) | sympy.Eq(s, 2)),
        *(functions.FloorDiv(s + 1, 2), functions.Mod(s, 3), functions.ModularIndexing(s, 2, 3)),
        *(functions.CeilToInt(s / 2), functions.ToFloat(s), functions.IntTrueDiv(s, 3)),
    ):
        check_calls(sympy.srepr(expression))
