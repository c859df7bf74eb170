"""Expressions over tensors: parsing and evaluation.

The text is parsed by Python's own parser and restricted to a list of allowed forms; it is never run
as Python. Only the functions, methods and attributes in the tables below can be used, and the size
of results is bounded. `%12` is the value of the node with debug handle 12, `#5` the value of
instruction 5, `$` the current stop's value, `$1` its second output, `$all` all of its outputs,
`$NAME` what `set $NAME =` stored, `nan` and `inf` those numbers.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from etscope.errors import EtscopeError, UsageError
from etscope.etdb.targets.remote_tensor import REDUCTIONS, RemoteTensor, reduce_remotely

HANDLE, INSTRUCTION, CURRENT = "_handle_", "_instruction_", "_dollar_"  # prefixes of names

_MOST_CHARACTERS = 2000  # bounds the work of the parser for hostile lines
_DEEPEST = 60  # brackets and signs: Python's parser and `evaluate` recurse
_MOST_ELEMENTS = 1 << 27  # 1 GiB of float64
_MOST_EXPONENT = 64  # more is a slip: it gives 0 or infinity for nearly all numbers

_SIGILS = re.compile(
    r"""(?P<text>"[^"\n]*"|'[^'\n]*')|%(?P<handle>\d{1,9})|\#(?P<instruction>\d{1,9})"""
    r"""|\$(?P<place>\w*)"""
)
_ALLOWED = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd, ast.Not,
    ast.Invert, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Pow,
    ast.MatMult, ast.BitAnd, ast.BitOr, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt,
    ast.GtE, ast.BoolOp, ast.And, ast.Or, ast.Subscript, ast.Slice, ast.Tuple, ast.List,
    ast.Attribute, ast.Call, ast.keyword,
)  # fmt: skip
CALL = "call"  # the name of the number of the run
_NUMBERS: Mapping[str, float] = {"nan": math.nan, "inf": math.inf}
_FORBIDDEN_NAMES = {
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


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression as text and as a tree."""

    text: str
    tree: ast.expr

    def __str__(self) -> str:
        return self.text

    def names(self) -> Iterator[str]:
        """Yield names in the expression, without functions and numbers."""
        called = {id(n.func) for n in ast.walk(self.tree) if isinstance(n, ast.Call)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and not (
                id(node) in called or node.id in _NUMBERS or node.id == CALL
            ):
                yield node.id

    @property
    def names_call(self) -> bool:
        """True if the expression depends on the number of the run."""
        return any(isinstance(n, ast.Name) and n.id == CALL for n in ast.walk(self.tree))


def parse(text: str) -> Expression:
    """Parse an expression. Raises `UsageError` with the part that is not allowed."""
    text = text.strip()
    if not text:
        raise UsageError("an expression is missing")
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"an expression has {_MOST_CHARACTERS} characters at most")

    def name_of_sigil(match: re.Match[str]) -> str:
        if match["text"] is not None:
            return match[0]
        if match["handle"] is not None:
            return f" {HANDLE}{match['handle']} "
        if match["instruction"] is not None:
            return f" {INSTRUCTION}{match['instruction']} "
        return f" {CURRENT}{match['place']} "

    source = _SIGILS.sub(name_of_sigil, text).strip()
    brackets = source.count("(") + source.count("[")
    if brackets > _DEEPEST or re.search(r"[-+~]{60}|(not\s+){60}", source):
        raise UsageError("the expression is nested too deeply")
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = getattr(error, "offset", None)
        column = f", column {where}" if where else ""
        raise UsageError(f"cannot read {text!r}{column}: it is not an expression") from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            kind = type(node).__name__
            raise UsageError(
                f"{text!r}: {_FORBIDDEN_NAMES.get(kind, kind)} is not part of the language of "
                "expressions",
                hint="help expressions",
            )
    return Expression(text, tree)


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
    "norm": lambda array: np.linalg.norm(np.asarray(array, dtype=np.float64).ravel()),
    "l1": lambda array: np.abs(array).sum(),
}
# Methods of an array: those above, and these.
_FORMS: Mapping[str, Callable[..., Any]] = {
    "reshape": lambda array, *shape: np.reshape(array, [_whole(n) for n in np.ravel(shape)]),
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
    "dtype": lambda array: str(_tensor(array).dtype),
    "ndim": np.ndim,
    "size": np.size,
    "nbytes": lambda array: _tensor(array).nbytes,
    "T": np.transpose,
    "strides": lambda array: list(np.asarray(array).strides),
}
_WITH_AXIS = frozenset({
    "sum", "mean", "std", "var", "min", "max", "argmin", "argmax", "any", "all", "median",
    "count_nonzero",
})  # fmt: skip
_REDUCING = _WITH_AXIS | {"norm", "l1", "numel"}
# numpy would write its result into a further array.
_MOST_ARGUMENTS = {"round": 2, "reshape": 9, "transpose": 9, **dict.fromkeys(_WITH_AXIS, 2)}

_WHERE = "where"
FUNCTIONS = (*_MATH, _WHERE)
METHODS = (*_MATH, *_FORMS)
ATTRIBUTES = tuple(_ATTRIBUTES)


class Scope(Protocol):
    """Values of names, and functions of the debugger."""

    def value(self, name: str) -> Any:
        """Value of a name. Raises an `EtscopeError` if there is none."""
        ...

    def function(self, name: str) -> Callable[..., Any] | None:
        """A function of the debugger. Arguments that are names are passed as `Name`."""
        ...


class Outputs(list[Any]):
    """The outputs of an operator that has several. counted: the indices of those that a number of
    all of them and a condition are about: not indices beside values, nor what nothing reads."""

    def __init__(self, values: Iterable[Any], counted: Sequence[int]) -> None:
        super().__init__(values)
        self.counted = counted

    @property
    def main(self) -> list[Any]:
        return [self[index] for index in self.counted]


class ValueMisfit(UsageError):
    """An expression that is right in itself does not fit the value that it has here."""


class Name(str):
    """A bare name, passed to a function of the scope unevaluated."""


def evaluate(expression: Expression, scope: Scope) -> Any:
    """Evaluate an expression to an array, a number, a bool, a string, or a list of those.

    Raises `UsageError` when a part of it cannot be computed; errors of `scope` pass through.
    """
    try:
        with np.errstate(all="ignore"):
            return _value(expression.tree, scope)
    except EtscopeError:
        raise
    except (ArithmeticError, TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueMisfit(f"cannot compute {expression.text!r}: {reason}") from error
    except (MemoryError, RecursionError) as error:
        raise UsageError(f"{expression.text!r} is too large to compute") from error


def replaced_part(suffix: str, value: Any, part: Any, scope: Scope) -> Any:
    """A copy of a tensor with other elements; of several outputs a list with that of one, and None
    for the others. suffix: the index, "[0, :4]" or "[0][1]"."""
    node: ast.expr = parse(f"nan{suffix}").tree
    indices: list[Any] = []
    while isinstance(node, ast.Subscript):
        found = _index(node.slice, scope)
        indices[:0] = found if isinstance(found, tuple) else (found,)
        node = node.value
    if isinstance(value, (list, tuple)):
        which, *rest = indices
        if not isinstance(which, int) or not 0 <= which < len(value) or value[which] is None:
            raise UsageError(f"{suffix} is not of one output", hint="set $1[0, :4] = EXPR")
        copies: list[Any] = [None] * len(value)
        copies[which] = _with_part(suffix, value[which], tuple(rest), part)
        return copies
    return _with_part(suffix, value, tuple(indices), part)


def _with_part(suffix: str, value: Any, index: tuple[Any, ...], part: Any) -> Any:
    copy = np.array(value)
    try:
        copy[index] = np.asarray(part)
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(f"{suffix} cannot be set: {error}") from error
    return copy


def is_true(value: Any) -> bool:
    """True if a condition holds; for an array, anywhere in it."""
    value = value.main if isinstance(value, Outputs) else value
    if isinstance(value, (list, tuple)):
        return any(map(is_true, value))
    return bool(np.any(value))


def _value(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.Constant(value=constant):
            is_plain = constant is None or isinstance(constant, (bool, float, str))
            if is_plain or (isinstance(constant, int) and abs(constant) < 1 << 63):
                return constant
            raise UsageError(f"{str(constant)[:30]} is not a supported number")
        case ast.Name(id=name):
            return _NUMBERS[name] if name in _NUMBERS else scope.value(name)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_value(item, scope) for item in items]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not is_true(_value(operand, scope))
        case ast.UnaryOp(op=unary, operand=operand):
            apply = _UNARY[type(unary)]
            return _by_output(lambda one: apply(_number(one)), _value(operand, scope))
        case ast.BinOp():
            return _binary(node, scope)
        case ast.BoolOp(op=op, values=parts):
            wanted = isinstance(op, ast.Or)
            return any(is_true(_value(part, scope)) is wanted for part in parts) is wanted
        case ast.Compare():
            return _compare(node, scope)
        case ast.Subscript(value=inner, slice=key):
            return _subscript(_value(inner, scope), _index(key, scope))
        case ast.Attribute(value=inner, attr=name):
            return _attribute(name, _value(inner, scope))
        case ast.Call():
            return _call(node, scope)
    raise UsageError(f"{type(node).__name__} has no value")


def _by_output(function: Callable[..., Any], *values: Any) -> Any:
    """Apply a function; to the outputs of an operator that has several, one by one. None stands for
    an output that is not there."""
    several = [value for value in values if _is_several(value)]
    if not several:
        return function(*values)
    count = len(several[0])
    if any(len(value) != count for value in several):
        raise UsageError("these are outputs of operators with different numbers of outputs")
    spread = [value if _is_several(value) else [value] * count for value in values]
    found = [
        None if any(one is None for one in each) else function(*each)
        for each in zip(*spread, strict=True)
    ]
    marked = next((value for value in several if isinstance(value, Outputs)), None)
    return found if marked is None else Outputs(found, marked.counted)


def _is_several(value: Any) -> bool:
    """True for a list of outputs; a list of numbers is one value."""
    return isinstance(value, (list, tuple)) and any(
        isinstance(item, (np.ndarray, RemoteTensor)) for item in value
    )


def _binary(node: ast.BinOp, scope: Scope) -> Any:
    def apply(left: Any, right: Any) -> Any:
        left, right = _number(left), _number(right)
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

    return _by_output(apply, _value(node.left, scope), _value(node.right, scope))


def _compare(node: ast.Compare, scope: Scope) -> Any:
    """Evaluate a chain of comparisons: of strings and lists as a whole, of arrays by element."""

    def apply(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        sides = [np.asarray(s) if isinstance(s, RemoteTensor) else s for s in (left, right)]
        if any(isinstance(side, (str, list)) or side is None for side in sides):
            sides = [s.tolist() if isinstance(s, np.ndarray) else s for s in sides]
        else:
            _check_size(np.broadcast_shapes(*map(np.shape, sides)))
        return compare(*sides)

    values = [_value(part, scope) for part in (node.left, *node.comparators)]
    result: Any = True
    for op, left, right in zip(node.ops, values, values[1:], strict=False):
        one = _by_output(partial(apply, _COMPARE[type(op)]), left, right)
        result = one if result is True else _by_output(np.logical_and, result, one)
    return result


def _index(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_index(part, scope) for part in node.elts)
    if isinstance(node, ast.Slice):
        bounds = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else _whole(_value(part, scope)) for part in bounds))
    if isinstance(node, ast.Constant) and (node.value is Ellipsis or node.value is None):
        return node.value
    value = _value(node, scope)
    return value if isinstance(value, np.ndarray) else _whole(value)


def _whole(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or int(value) != value:
        raise UsageError("an index is a whole number, a slice or an array")
    return int(value)


def _subscript(value: Any, index: Any) -> Any:
    if isinstance(value, (list, str)):
        if not isinstance(index, (int, slice)):
            several = _is_several(value)
            raise ValueMisfit(
                f"these are {len(value)} outputs" if several else "a list has one index",
                hint="index one of them: $0[…] is the first" if several else None,
            )
        return value[index]
    parts = index if isinstance(index, tuple) else (index,)
    if isinstance(value, RemoteTensor) and all(isinstance(part, (int, slice)) for part in parts):
        return value[index]
    return np.asarray(value)[index]


def _attribute(name: str, value: Any) -> Any:
    if name not in _ATTRIBUTES:
        kind = "a method: write it with ()" if name in METHODS else "not known"
        raise UsageError(f".{name} is {kind}", hint="known are: " + ", ".join(ATTRIBUTES))
    if _is_several(value):
        return _by_output(partial(_attribute, name), value)
    is_known = isinstance(value, RemoteTensor) and name not in ("T", "strides")  # unfetched
    return _ATTRIBUTES[name](value if is_known else _number(value))


def _tensor(value: Any) -> Any:
    return value if isinstance(value, RemoteTensor) else np.asarray(value)


def _call(node: ast.Call, scope: Scope) -> Any:
    options = {
        {"dim": "axis"}.get(keyword.arg or "", keyword.arg or ""): _value(keyword.value, scope)
        for keyword in node.keywords
    }
    if isinstance(node.func, ast.Attribute):
        name = node.func.attr
        function = _MATH.get(name) or _FORMS.get(name)
        if function is None:
            raise UsageError(f".{name}() is not known", hint="methods are: " + ", ".join(METHODS))
        values = [_value(one, scope) for one in (node.func.value, *node.args)]
        return _apply(name, function, values, options)
    if not isinstance(node.func, ast.Name):
        raise UsageError("only functions that have a name can be called")
    name = node.func.id
    own = scope.function(name)
    if own is not None:
        if options:
            raise UsageError(f"{name}() takes no arguments by keyword")
        return own(
            *(
                Name(argument.id) if isinstance(argument, ast.Name) else _value(argument, scope)
                for argument in node.args
            )
        )
    if name not in FUNCTIONS:
        raise UsageError(f"{name}() is not known", hint="functions are: " + ", ".join(FUNCTIONS))
    values = [_value(one, scope) for one in node.args]
    if name == _WHERE:
        if len(values) != 3 or options:
            raise UsageError("where takes three arguments", hint="where(CONDITION, YES, NO)")
        return _by_output(_where, *values)
    return _apply(name, _MATH[name], values, options)


def _where(*values: Any) -> Any:
    condition, yes, no = map(_number, values)
    _check_size(np.broadcast_shapes(*map(np.shape, values)))
    return np.where(condition, yes, no)


def _apply(
    name: str, function: Callable[..., Any], arguments: list[Any], options: dict[str, Any]
) -> Any:
    """Call a function. A reduction without an axis is over the outputs of an operator together
    (`Outputs.main`), anything else is applied to each of them."""
    is_whole = name in _REDUCING and len(arguments) == 1 and not options
    if arguments and _is_several(arguments[0]) and not is_whole:
        first, *rest = arguments
        return _by_output(lambda one: _apply(name, function, [one, *rest], dict(options)), first)
    if is_whole and isinstance(arguments[0], Outputs):
        main = arguments[0].main
        arguments[0] = main[0] if len(main) == 1 else main
    if is_whole and isinstance(arguments[0], RemoteTensor):
        if name == "numel":
            return arguments[0].size
        if name in REDUCTIONS and (found := reduce_remotely(name, arguments[0])) is not None:
            return found
    arguments = list(map(_number, arguments))
    for option in options:
        if option != "axis" or name not in _WITH_AXIS:
            raise UsageError(f"{name}() has no argument {option!r}")
    if len(arguments) > _MOST_ARGUMENTS.get(name, 1):
        raise UsageError(f"{name}() takes fewer arguments")
    if name in _WITH_AXIS and len(arguments) == 2:
        options["axis"] = arguments.pop()
    if "axis" in options:
        axis = options["axis"]
        is_list = isinstance(axis, (list, np.ndarray)) and np.ndim(axis) > 0
        options["axis"] = tuple(map(_whole, axis)) if is_list else _whole(axis)
    if name in ("sum", "mean", "std", "var"):
        array = arguments[0]
        if isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.dtype.itemsize < 8:
            options["dtype"] = np.float64
    return function(*arguments, **options)


def _number(value: Any) -> Any:
    """Convert a value to one that numpy computes with. Outputs of different shapes are
    concatenated; types of a few bits are widened, since numpy cannot sum them."""
    if isinstance(value, str) or value is None:
        raise UsageError(f"{value!r} is not a number")
    if isinstance(value, (list, tuple)):
        parts = [np.asarray(_number(item)) for item in value if item is not None]
        if len({part.shape for part in parts}) > 1:
            return np.concatenate([part.ravel() for part in parts])
        return np.asarray(parts)
    if isinstance(value, RemoteTensor):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "V":
        return value.astype(np.float32)
    return value


def _check_size(shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    if size > _MOST_ELEMENTS:
        raise UsageError(f"a result of {size:,} elements is too large")
