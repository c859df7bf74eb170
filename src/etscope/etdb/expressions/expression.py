"""Expressions over tensors, as a person types them: read into a tree of a few known forms.

The text is read by Python's own parser and then held against a list of what is allowed; nothing of
it is ever run as Python. `%12` is the value of the node with debug handle 12, `#5` what instruction
5 gave, `$` what the current stop gave, `$1` its second output, `$NAME` what `set $NAME =` kept.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from etscope.errors import EtscopeError, UsageError
from etscope.etdb.targets.remote_tensor import REDUCED, reduced
from etscope.etdb.targets.target import is_far

_MOST_CHARACTERS = 2000
_DEEPEST = 60

_SIGILS = re.compile(
    r"""(?P<text>"[^"\n]*"|'[^'\n]*')|%(?P<handle>\d{1,9})|\#(?P<instruction>\d{1,9})"""
    r"""|\$(?P<place>\w*)"""
)
HANDLE, INSTRUCTION, CURRENT = "_handle_", "_instruction_", "_dollar_"

_ALLOWED = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd, ast.Not,
    ast.Invert, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow,
    ast.MatMult, ast.BitAnd, ast.BitOr, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt,
    ast.GtE, ast.BoolOp, ast.And, ast.Or, ast.Subscript, ast.Slice, ast.Tuple, ast.List,
    ast.Attribute, ast.Call, ast.keyword,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expression:
    """A text that was read, and its tree."""

    text: str
    tree: ast.expr

    def __str__(self) -> str:
        return self.text

    def names(self) -> Iterator[str]:
        """The names in it, without those of functions."""
        called = {id(n.func) for n in ast.walk(self.tree) if isinstance(n, ast.Call)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and id(node) not in called:
                yield node.id


def parse(text: str) -> Expression:
    """Read an expression. Raises `UsageError` with what is not understood, and where."""
    text = text.strip()
    if not text:
        raise UsageError("an expression is missing")
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"an expression has {_MOST_CHARACTERS} characters at most")
    source = _SIGILS.sub(_plain_name, text).strip()
    if source.count("(") + source.count("[") > _DEEPEST or re.search(
        r"[-+~]{60}|(not\s+){60}", source
    ):
        raise UsageError("the expression is nested too deeply")
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = getattr(error, "offset", None)
        place = f", column {where}" if where else ""
        raise UsageError(f"cannot read {text!r}{place}: it is no expression") from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise UsageError(
                f"{text!r}: {_called(node)} is not part of the language of expressions",
                hint="help expressions",
            )
    return Expression(text, tree)


def _plain_name(match: re.Match[str]) -> str:
    if match["text"] is not None:
        return match[0]
    if match["handle"] is not None:
        return f" {HANDLE}{match['handle']} "
    if match["instruction"] is not None:
        return f" {INSTRUCTION}{match['instruction']} "
    return f" {CURRENT}{match['place']} "


def _called(node: ast.AST) -> str:
    words = {
        "Mod": "'%' between values",
        "Lambda": "a function",
        "Await": "await",
        "IfExp": "if … else",
        "Dict": "a dictionary",
        "ListComp": "a comprehension",
        "GeneratorExp": "a comprehension",
        "JoinedStr": "an f-string",
        "NamedExpr": "':='",
        "Starred": "'*'",
        "In": "'in'",
        "Is": "'is'",
    }
    name = type(node).__name__
    return words.get(name, name)


# The value of an expression: a walk over its tree that knows numpy's arrays and nothing else.
#
# Only what stands in the tables below can be called or looked at. Results are bounded in size.


_MOST_ELEMENTS = 1 << 27
_MOST_EXPONENT = 64

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: np.invert,
}


def _l1(array: Any) -> Any:
    return np.abs(array).sum()


def _l2(array: Any) -> Any:
    return np.linalg.norm(np.asarray(array, dtype=np.float64).ravel())


_MATH: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sign": np.sign,
    "round": np.round,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "sum": np.sum,
    "mean": np.mean,
    "std": np.std,
    "var": np.var,
    "min": np.min,
    "max": np.max,
    "argmin": np.argmin,
    "argmax": np.argmax,
    "any": np.any,
    "all": np.all,
    "median": np.median,
    "count_nonzero": np.count_nonzero,
    "norm": _l2,
    "l1": _l1,
}
# Of an array as methods: those above, and those that give it another form.
_FORMS: Mapping[str, Callable[..., Any]] = {
    "reshape": lambda array, *shape: np.reshape(array, _shape(shape)),
    "flatten": np.ravel,
    "float": lambda array: np.asarray(array, dtype=np.float64),
    "int": lambda array: np.asarray(array, dtype=np.int64),
    "transpose": lambda array, *axes: np.transpose(array, axes or None),
    "item": lambda array: np.asarray(array).item(),
    "numel": np.size,
    "sort": np.sort,
}
_ATTRIBUTES: Mapping[str, Callable[[Any], Any]] = {
    "shape": lambda array: list(np.shape(array)),
    "dtype": lambda array: str(np.asarray(array).dtype),
    "ndim": np.ndim,
    "size": np.size,
    "nbytes": lambda array: np.asarray(array).nbytes,
    "T": np.transpose,
    "strides": lambda array: list(np.asarray(array).strides),
}
_REDUCTIONS = frozenset({
    "sum", "mean", "std", "var", "min", "max", "argmin", "argmax", "any", "all", "median",
    "count_nonzero",
})  # fmt: skip

_FAR_ATTRIBUTES = frozenset({"shape", "dtype", "ndim", "size", "nbytes"})

FUNCTIONS = tuple(_MATH)
METHODS = (*_MATH, *_FORMS)
ATTRIBUTES = tuple(_ATTRIBUTES)


class Scope(Protocol):
    """What names mean."""

    def value(self, name: str) -> Any:
        """The value behind a name. Raises an `EtscopeError` when there is none."""
        ...

    def function(self, name: str) -> Callable[..., Any] | None:
        """A function of the debugger's own. Its arguments that are names come as `Name`."""
        ...


class Name(str):
    """An argument that is a bare name, given to a function of the scope unevaluated."""


def evaluate(expression: Expression, scope: Scope) -> Any:
    """The value: an array, a number, a truth, a text, or a list of those.

    Raises `UsageError` when a part of it cannot be computed; errors of `scope` pass through.
    """
    try:
        with np.errstate(all="ignore"):
            return _value(expression.tree, scope)
    except EtscopeError:
        raise
    except (ArithmeticError, TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"cannot compute {expression.text!r}: {reason}") from error
    except (MemoryError, RecursionError) as error:
        raise UsageError(f"{expression.text!r} is too large to compute") from error


def is_true(value: Any) -> bool:
    """Whether a condition holds: for an array, anywhere in it."""
    if isinstance(value, (list, tuple)):
        return any(map(is_true, value))
    return bool(np.any(value))


def _value(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.Constant):
        return _constant(node)
    if isinstance(node, ast.Name):
        return scope.value(node.id)
    if isinstance(node, (ast.Tuple, ast.List)):
        return [_value(item, scope) for item in node.elts]
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, scope)
        return (
            not is_true(operand)
            if isinstance(node.op, ast.Not)
            else _UNARY[type(node.op)](_number(operand))
        )
    if isinstance(node, ast.BinOp):
        return _binary(node, scope)
    if isinstance(node, ast.BoolOp):
        return _logical(node, scope)
    if isinstance(node, ast.Compare):
        return _compared(node, scope)
    if isinstance(node, ast.Subscript):
        return _taken(_value(node.value, scope), _index(node.slice, scope))
    if isinstance(node, ast.Attribute):
        return _attribute(node, _value(node.value, scope))
    if isinstance(node, ast.Call):
        return _called_of_evaluate(node, scope)
    raise UsageError(f"{type(node).__name__} has no value")


def _constant(node: ast.Constant) -> Any:
    if node.value is None or isinstance(node.value, (bool, float, str)):
        return node.value
    if isinstance(node.value, int) and abs(node.value) < 1 << 63:
        return node.value
    raise UsageError(f"{str(node.value)[:30]} is no number that is known here")


def _binary(node: ast.BinOp, scope: Scope) -> Any:
    left, right = (_number(_value(side, scope)) for side in (node.left, node.right))
    if isinstance(node.op, ast.Pow):
        if np.ndim(right) or abs(right) > _MOST_EXPONENT:
            raise UsageError(f"an exponent is a number up to {_MOST_EXPONENT}")
        return np.float_power(left, right)
    if isinstance(node.op, ast.MatMult):
        _check_size(np.shape(left)[:-1] + np.shape(right)[-1:])
    else:
        _check_size(np.broadcast_shapes(np.shape(left), np.shape(right)))
    if isinstance(left, int) and isinstance(right, int) and isinstance(node.op, ast.Mult):
        return float(left) * right if abs(left * right) >= 1 << 63 else left * right
    return _BINARY[type(node.op)](left, right)


def _logical(node: ast.BoolOp, scope: Scope) -> bool:
    wanted = isinstance(node.op, ast.Or)
    return any(is_true(_value(part, scope)) is wanted for part in node.values) is wanted


def _compared(node: ast.Compare, scope: Scope) -> Any:
    left = _value(node.left, scope)
    left = np.asarray(left) if is_far(left) else left
    result: Any = True
    for op, part in zip(node.ops, node.comparators, strict=True):
        right = _value(part, scope)
        right = np.asarray(right) if is_far(right) else right
        one = _pair_compared(_COMPARE[type(op)], left, right)
        result = one if result is True else np.logical_and(result, one)
        left = right
    return result


def _pair_compared(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if any(isinstance(side, (str, list)) or side is None for side in (left, right)):
        plain = [side.tolist() if isinstance(side, np.ndarray) else side for side in (left, right)]
        return compare(*plain)
    _check_size(np.broadcast_shapes(np.shape(left), np.shape(right)))
    return compare(left, right)


def _index(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_index(part, scope) for part in node.elts)
    if isinstance(node, ast.Slice):
        bounds = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else _whole(_value(part, scope)) for part in bounds))
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        return Ellipsis
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    value = _value(node, scope)
    return value if isinstance(value, np.ndarray) else _whole(value)


def _whole(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or int(value) != value:
        raise UsageError("an index is a whole number, a slice or an array")
    return int(value)


def _taken(value: Any, index: Any) -> Any:
    if isinstance(value, (list, str)):
        if not isinstance(index, (int, slice)):
            raise UsageError("a list has one index")
        return value[index]
    if is_far(value) and _is_basic(index):
        return value[index]
    return np.asarray(value)[index]


def _is_basic(index: Any) -> bool:
    """Whether an index picks a range of each dimension, so that not all has to be fetched."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(isinstance(part, (int, slice)) for part in parts)


def _attribute(node: ast.Attribute, value: Any) -> Any:
    if node.attr not in _ATTRIBUTES:
        kind = "a method: write it with ()" if node.attr in METHODS else "not known"
        raise UsageError(f".{node.attr} is {kind}", hint="known are: " + ", ".join(ATTRIBUTES))
    if is_far(value) and node.attr in _FAR_ATTRIBUTES:
        found = getattr(value, node.attr)
        return (
            list(found) if node.attr == "shape" else str(found) if node.attr == "dtype" else found
        )
    return _ATTRIBUTES[node.attr](_number(value))


def _called_of_evaluate(node: ast.Call, scope: Scope) -> Any:
    options = {
        {"dim": "axis"}.get(keyword.arg or "", keyword.arg or ""): _value(keyword.value, scope)
        for keyword in node.keywords
    }
    if isinstance(node.func, ast.Attribute):
        name = node.func.attr
        known = {**_MATH, **_FORMS}
        if name not in known:
            raise UsageError(f".{name}() is not known", hint="methods are: " + ", ".join(METHODS))
        arguments = [_kept(_value(node.func.value, scope))]
        arguments += [_value(argument, scope) for argument in node.args]
        return _applied(name, known[name], arguments, options)
    if not isinstance(node.func, ast.Name):
        raise UsageError("only functions that have a name can be called")
    name = node.func.id
    own = scope.function(name)
    if own is not None:
        if options:
            raise UsageError(f"{name}() takes no arguments by keyword")
        return own(*(_bare(argument, scope) for argument in node.args))
    if name not in _MATH:
        raise UsageError(f"{name}() is not known", hint="functions are: " + ", ".join(FUNCTIONS))
    arguments = [_kept(_value(argument, scope)) for argument in node.args]
    return _applied(name, _MATH[name], arguments, options)


def _bare(node: ast.expr, scope: Scope) -> Any:
    return Name(node.id) if isinstance(node, ast.Name) else _value(node, scope)


def _applied(
    name: str, function: Callable[..., Any], arguments: list[Any], options: dict[str, Any]
) -> Any:
    if len(arguments) == 1 and not options and is_far(arguments[0]):
        if name == "numel":
            return arguments[0].size
        if name in REDUCED and (told := reduced(name, arguments[0])) is not None:
            return told
    arguments = [_number(one) if is_far(one) else one for one in arguments]
    allowed = {"axis"} if name in _REDUCTIONS else set()
    for option in options:
        if option not in allowed:
            raise UsageError(f"{name}() has no argument {option!r}")
    if "axis" in options:
        axis = options["axis"]
        options["axis"] = tuple(map(_whole, axis)) if isinstance(axis, list) else _whole(axis)
    # numpy would write its result into a second array.
    most = {"round": 2, "reshape": 9, "transpose": 9}.get(name, 2 if name in _REDUCTIONS else 1)
    if len(arguments) > most:
        raise UsageError(f"{name}() takes fewer arguments")
    if name in _REDUCTIONS and len(arguments) == 2:
        options["axis"] = _whole(arguments.pop())
    if name in ("sum", "mean", "std", "var") and _is_narrow(arguments[0]):
        options["dtype"] = np.float64
    return function(*arguments, **options)


def _is_narrow(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.dtype.itemsize < 8


def _shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    parts = shape[0] if len(shape) == 1 and isinstance(shape[0], list) else shape
    return tuple(map(_whole, parts))


def _kept(value: Any) -> Any:
    return value if is_far(value) else _number(value)


def _number(value: Any) -> Any:
    """What can be computed with. Several outputs of different shapes are their numbers in a row;
    types of a few bits are widened, since numpy has no sums of them."""
    if isinstance(value, str) or value is None:
        raise UsageError(f"{value!r} is no number")
    if isinstance(value, (list, tuple)):
        parts = [np.asarray(_number(item)) for item in value]
        if len({part.shape for part in parts}) > 1:
            return np.concatenate([part.ravel() for part in parts])
        return np.asarray(parts)
    if is_far(value):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "V":
        return value.astype(np.float32)
    return value


def _check_size(shape: tuple[int, ...]) -> None:
    size = 1
    for length in shape:
        size *= length
    if size > _MOST_ELEMENTS:
        raise UsageError(f"a result of {size:,} elements is too large")
