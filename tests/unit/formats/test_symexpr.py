"""The grammar of symbolic sizes: what torch prints passes, what is code does not."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import FormatError
from etscope.formats.exported_program.symexpr import check_expression

GOOD = [
    "s0",
    "s77",
    "u0",
    "zuf3",
    "2*s6",
    "s77 + 1",
    "-s0",
    "(s0//2)",
    "(s0 // 2) + Max(1, u0)",
    "8*s1**2 - 3*s1 + 1",
    "s0**(-1)",
    "2**60",
    "Mod(s0, 3)",
    "FloorDiv(s0 + 1, 2)",
    "CeilToInt(IntTrueDiv(s0, 2))",
    "TruncToInt(0.5*ToFloat(s0))",
    "PowByNatural(u1, 2)",
    "LShift(s0, 3)",
    "8*((((s0 - 1)//2)//2)//2 + 1)*((((s1 - 1)//2)//2)//2 + 1)",
    "s0*s1*s2*(s3//2)*(s4//2)",
    "Max(1, Min(s0, Max(2, Min(s1, s2))))",
    "Piecewise((1, Eq(s0, 1)), (s1, True))",
    "Eq(s0, 1) & (s1 > 3) | ~Ne(u0, 2)",
    "s0 <= 9223372036854775807",
    "1.0e-3*s0 + .5",
    "int_oo",
    "-oo",
    "ceiling(s0/2)",
    "Min(4, Max(s0, s1), u0)",
    "((((((s0))))))",
]

BAD = [
    "",
    " ",
    "__import__('os').system('true')",
    "__import__",
    "s0.__class__",
    "s0.foo",
    "s0 if s1 else s2",
    "lambda: 1",
    "[s0]",
    "{s0}",
    "s0[0]",
    "s0(1)",
    "(s0)(1)",
    "Max",
    "Max.x(1)",
    "Max(1)(2)",
    "eval(1)",
    "exec(1)",
    "print(s0)",
    "Symbol(s0)",
    "sympify(s0)",
    "lambdify(s0)",
    "'s0'",
    '"s0"',
    "s0; s1",
    "s0\ns1",
    "s0 s1",
    "s0 = 1",
    "s0 := 1",
    "a",
    "S",
    "os",
    "open",
    "_s0",
    "s_0",
    "ſ0",  # noqa: RUF001
    "s٠",  # noqa: RUF001
    "1_000",
    "0x10",
    "1j",
    "@s0",
    "s0!",
    "`s0`",
    "s0 # comment",
    "s0 +",
    "* s0",
    "(s0",
    "s0)",
    "Max(",
    "Max(s0,",
    "Max(,s0)",
    "Max()",
    "f's0'",
    "9**9**9",
    "(9**9)**9**9",
    "(((9**60)**60)**60)",
    "2**(s0 - s0 + 1000000000)",
    "2**1000000000",
    "2**Max(1000000000, s0)",
    "2**0.5e9",
    "exp(s0)",
    "floor(exp(99999999))",
    "1" * 41,
    "s0" + "0" * 30,
    "(" * 100 + "s0" + ")" * 100,
    "s0+" * 4000 + "s0",
]


@pytest.mark.parametrize("expression", GOOD)
def test_what_torch_prints(expression: str) -> None:
    check_expression(expression)


@pytest.mark.parametrize("expression", BAD, ids=lambda text: text[:30])
def test_what_is_not_arithmetic(expression: str) -> None:
    with pytest.raises(FormatError):
        check_expression(expression)


TOO_MUCH = [
    "LShift(1, 999999999999)",
    "LShift(s0, 999999999999)",
    "RShift(1, 999999999999)",
    "LShift(1, s0)",  # torch puts the value of s0 in its place, and that is in the file
    "2**s0",
    "s0**s0",
    "2**(s0)",
    "PowByNatural(2, u1)",
    "PowByNatural(2, 10**9)",
    "FloatPow(2.0, 1000000000)",
    "2**(60*60)",
    "2**(2**60)",
    "LShift(1, 2**60)",
    "LShift(1, 60, 60)",
    "((2**64)**64)**64",
    "((2**64*2**64)**64)",
    "LShift(LShift(LShift(1, 64)**64, 64)**64, 64)",
    "s0**64",
    "(s0 + s1 + s2 + s3)**8",
    "(s0//3)**32",
    "*".join(f"s{i}" for i in range(14)),
    "*".join(f"(s{i} + s{i + 1})" for i in range(7)),
    "+".join(f"s{i}" for i in range(200)),
    "Max(" + ",".join(f"s{i}" for i in range(12)) + ")",
    "Max(" + ",".join(f"Min(s{i}, s{i + 1}, 3)" for i in range(5)) + ")",
    "And(" + ",".join(f"s{i} > 3" for i in range(12)) + ")",
    "&".join(f"(s{i} > 3)" for i in range(200)),
    "(" * 20 + "s0" + "//2)" * 20,
    "ceiling(" * 20 + "s0" + "/2)" * 20,
    "+".join("(" * 8 + f"s{i}" + "//2)" * 8 for i in range(9)),
]


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


EXPRESSIONS = st.recursive(
    st.sampled_from(["s0", "u12", "3", "0.5", "True"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "<=", "&"]), inner).map(
            " ".join
        ),
        inner.map("({})".format),
        st.tuples(st.sampled_from(["Max", "Mod", "FloorDiv"]), inner, inner).map(
            lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"
        ),
        inner.map("({})*2".format),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_arithmetic_passes(expression: str) -> None:
    check_expression(expression)


def test_real_expressions_of_sympy() -> None:
    sympy = pytest.importorskip("sympy")
    a, b = sympy.symbols("s0 s1", integer=True)
    for expression in (a * b + 1, (a + b) ** 3, sympy.Max(a, 2), sympy.Mod(a, 4), a // 3, a / 2):
        check_expression(str(expression))
