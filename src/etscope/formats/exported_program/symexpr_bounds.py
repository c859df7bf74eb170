"""How much work a symbolic size may be for sympy and torch. Nothing is evaluated here.

A short text can ask for more than a machine has: `9**9**9`, `LShift(1, 999999999999)`, a product
of sums that is multiplied out, nested roundings, whose conditions double with each level. Both
grammars of sizes (`symexpr`, `symexpr_calls`) build a `Bound` from the bottom up and refuse what is
too much. The weights were found by timing torch on random expressions: what passes takes it some
seconds at the worst, and what models have takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import comb

MAX_LENGTH = 8192  # characters
MAX_NESTING = 48  # of parentheses
MAX_EXPONENT = 64
MAX_BITS = 4096  # of a number
MAX_WORK = 1024
_SYMBOL_BITS = 64
# Calls in calls of these are one call with all the arguments, compared in pairs.
_MERGING = frozenset({"Max", "Min", "And", "Or", "Xor", "Not", "ITE", "Piecewise", "Where"})
POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "RShift"})


class TooMuchError(Exception):
    """Says what is too much."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What an expression may become when it is evaluated: a polynomial of so many terms, of this
    degree, with numbers of so many bits; functions nested so deep; so many merged arguments."""

    terms: int = 1
    degree: int = 0
    bits: int = 1
    nesting: int = 0
    arguments: int = 1
    work: int = 1
    number: int | None = None  # the value, where it is a plain number


SYMBOL = Bound(degree=1, bits=_SYMBOL_BITS)


def number(value: float) -> Bound:
    """A plain number."""
    whole = value if isinstance(value, int) else None
    return Bound(bits=64 if whole is None else max(1, whole.bit_length()), number=whole)


def negative(one: Bound) -> Bound:
    """The same with another sign."""
    return replace(one, number=None if one.number is None else -one.number)


def added(parts: Sequence[Bound]) -> Bound:
    """A sum; or conditions joined, which are as many."""
    terms = sum(one.terms for one in parts)
    return _allowed(
        Bound(
            terms=terms,
            degree=max(one.degree for one in parts),
            bits=max(one.bits for one in parts) + len(parts).bit_length(),
            nesting=max(one.nesting for one in parts),
            work=sum(one.work for one in parts) + terms * terms // 8,
        )
    )


def multiplied(parts: Sequence[Bound]) -> Bound:
    """A product, multiplied out; a quotient is as much."""
    terms, degree = 1, sum(one.degree for one in parts)
    for one in parts:
        terms *= one.terms
    return _allowed(
        Bound(
            terms=terms,
            degree=degree,
            bits=sum(one.bits for one in parts),
            nesting=max(one.nesting for one in parts),
            work=sum(one.work for one in parts) + (terms << min(degree, 32)),
        )
    )


def power(base: Bound, exponent: int | None) -> Bound:
    """A power to a plain number: None is what else stands as an exponent, which has no bound."""
    if exponent is None or abs(exponent) > MAX_EXPONENT:
        raise TooMuchError("a power that is not a small number")
    times = max(1, abs(exponent))
    degree = base.degree * times
    terms = comb(base.terms + times - 1, times) if degree else 1
    work = base.work * times + (terms << min(degree, 32))
    return _allowed(Bound(terms, degree, base.bits * times, base.nesting, work=work))


def called(name: str, arguments: Sequence[Bound]) -> Bound:
    """A call of a function that is no power; its result is one term."""
    nesting = max((one.nesting for one in arguments), default=0) + 1
    if name in _MERGING:
        merged = sum(one.arguments for one in arguments)
        work = 2 * merged**3 * max((one.terms for one in arguments), default=1)
    else:
        merged = 1
        work = 1 << min(nesting - 1, 32)
        if len(arguments) > 1:  # most are a kind of quotient, whose parts are multiplied out
            arguments = [multiplied(arguments)]
    return _allowed(
        Bound(
            degree=1,
            bits=_bits(arguments),
            nesting=nesting,
            arguments=merged,
            work=work + sum(one.work for one in arguments),
        )
    )


def raised(name: str, arguments: Sequence[Bound]) -> Bound:
    """A call of one of `POWERS`."""
    if len(arguments) != 2:
        raise TooMuchError("a power needs two arguments")
    return power(replace(arguments[0], bits=arguments[0].bits + 1), arguments[1].number)


def _bits(arguments: Iterable[Bound]) -> int:
    return 1 + sum(one.bits for one in arguments)


def _allowed(bound: Bound) -> Bound:
    if bound.bits > MAX_BITS:
        raise TooMuchError("numbers too large")
    if bound.work > MAX_WORK:
        raise TooMuchError("too much to compute")
    return bound
