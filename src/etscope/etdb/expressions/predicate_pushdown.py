"""Predicate pushdown: conditions that the target can test itself, so that it need not stop at each
operator.

The tests found for an expression are necessary conditions: where one holds, the full expression is
evaluated. They may be wider than the expression.
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
_NON_FINITE = {"isnan": Condition.NAN, "isinf": Condition.INF}
# numpy compares in the tensor's own type, to which the bound is rounded: bfloat16 has 8 bits.
_ROUNDING = 1.0 / 128


def number_tests(expression: Expression) -> tuple[Test, ...] | None:
    """Return tests of an operator's output; where the expression holds, at least one of them does.
    None if none are known.

    Supported are `$`, `$.max()`, `$.min()` and `$.abs()` or `$.abs().max()` against a number,
    `isnan($)` and `isinf($)`, and combinations with `and` and `or`.
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
        return _comparison(node.left, type(node.ops[0]), node.comparators[0])
    # `isnan($)`, and `.any()` or `.sum()` of it
    _, node = _unwrap(node, ("any", "sum", "max", "count_nonzero"))
    name, of = _unwrap(node, tuple(_NON_FINITE))
    return ((_NON_FINITE[name], 0.0),) if name and _is_current(of) else None


def _comparison(left: ast.expr, op: type[ast.cmpop], right: ast.expr) -> tuple[Test, ...] | None:
    if _constant(left) is not None and op in _MIRRORED:
        left, op, right = right, _MIRRORED[op], left
    bound = _constant(right)
    if bound is None or op not in _MIRRORED:
        return None
    # Widen the bound, so that rounding it never loses a number.
    if op in (ast.GtE, ast.LtE):
        bound = math.nextafter(bound, -math.inf if op is ast.GtE else math.inf)
    slack = abs(bound) * _ROUNDING
    name, of = _unwrap(left, ("max", "min"))
    if _is_current(of):
        # `$.max() < 3` is a condition on all numbers, which no test covers.
        if op in _UPWARD and name in ("", "max"):
            return ((Condition.ABOVE, bound - slack),)
        if op in _DOWNWARD and name in ("", "min"):
            return ((Condition.BELOW, bound + slack),)
        return None
    inner, of = _unwrap(of, ("abs",))
    if inner == "abs" and _is_current(of) and name in ("", "max") and op in _UPWARD:
        return (Condition.ABOVE, bound - slack), (Condition.BELOW, slack - bound)
    return None


def _unwrap(node: ast.expr, names: tuple[str, ...]) -> tuple[str, ast.expr]:
    """Name and argument of a call of one of `names`, as a method or a function; else ("", node)."""
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
