"""Which conditions a target can look at where it runs, so that a run need not stand still for each.

What is found for an expression are tests that hold wherever the expression may: it is looked at
again where one of them does. They need not be as narrow as the expression.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

from etscope.etdb.expressions.expression import CURRENT, Expression
from etscope.etdb.protocol.messages import Condition

Test = tuple[Condition, float]

_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
}
_UPWARD, _DOWNWARD = (ast.Gt, ast.GtE), (ast.Lt, ast.LtE)
_ODD = {"isnan": Condition.NAN, "isinf": Condition.INF}
# numpy compares in the tensor's own type, to which the bound is rounded: bfloat16 has 8 bits.
_ROUNDING = 1.0 / 128


def number_tests(expression: Expression) -> tuple[Test, ...] | None:
    """Tests of the numbers that an operator gives, one of which holds wherever the expression does;
    None where no such are known.

    Known are `$`, `$.max()`, `$.min()` and `$.abs()` or `$.abs().max()` against a number,
    `isnan($)` and `isinf($)`, and those with `and` and `or`.
    """
    return _tests(expression.tree)


def _tests(node: ast.expr) -> tuple[Test, ...] | None:
    if isinstance(node, ast.BoolOp):
        parts = [_tests(part) for part in node.values]
        known = [part for part in parts if part is not None]
        if isinstance(node.op, ast.And):
            return known[0] if known else None
        return tuple(test for part in known for test in part) if len(known) == len(parts) else None
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(node.left, type(node.ops[0]), node.comparators[0])
    return _odd(node)


def _compared(left: ast.expr, op: type[ast.cmpop], right: ast.expr) -> tuple[Test, ...] | None:
    if _constant(left) is not None and op in _MIRRORED:
        left, op, right = right, _MIRRORED[op], left
    bound = _constant(right)
    if bound is None or op not in _MIRRORED:
        return None
    name, of = _reduced(left)
    if not _is_current(of):
        return _of_magnitude(name, of, op, bound)
    # A maximum below a bound says something of all numbers, which no test does.
    if op in _UPWARD and name in ("", "max"):
        return ((Condition.ABOVE, _lower(op, bound)),)
    if op in _DOWNWARD and name in ("", "min"):
        return ((Condition.BELOW, -_lower(op, -bound)),)
    return None


def _of_magnitude(
    name: str, of: ast.expr, op: type[ast.cmpop], bound: float
) -> tuple[Test, ...] | None:
    inner, of = _reduced(of, ("abs",))
    if inner != "abs" or not _is_current(of) or name not in ("", "max") or op not in _UPWARD:
        return None
    lower = _lower(op, bound)
    return (Condition.ABOVE, lower), (Condition.BELOW, -lower)


def _odd(node: ast.expr) -> tuple[Test, ...] | None:
    """Of `isnan($)`, and `.any()` or `.sum()` of it."""
    _, node = _reduced(node, ("any", "sum", "max", "count_nonzero"))
    name, of = _reduced(node, tuple(_ODD))
    return ((_ODD[name], 0.0),) if name and _is_current(of) else None


def _reduced(node: ast.expr, names: tuple[str, ...] = ("max", "min")) -> tuple[str, ast.expr]:
    """The name and the argument of one of the calls, as a method or a function; else ("", node)."""
    if isinstance(node, ast.Call) and not node.keywords:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in names and not node.args:
            return func.attr, func.value
        if isinstance(func, ast.Name) and func.id in names and len(node.args) == 1:
            return func.id, node.args[0]
    return "", node


def _is_current(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == CURRENT


def _constant(node: ast.expr) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        try:
            value = float(node.value)  # type: ignore[arg-type]
        except OverflowError:
            return None
        return value if math.isfinite(value) else None
    return None


def _lower(op: type[ast.cmpop], bound: float) -> float:
    """A bound that is passed by whatever is above, or equal to, the one that is rounded."""
    if op in (ast.GtE, ast.LtE):
        bound = math.nextafter(bound, -math.inf)
    return bound - abs(bound) * _ROUNDING
