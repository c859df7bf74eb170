"""Patches of a model's lines: what the user wrote, and the same in operators that a backend takes.

The record has the text of each line, so no source file is read. A line that has a part of a
statement only, or another form, gets no patch.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from etscope.analysis.graphs.run_graph import RunGraph, spec_of, written_as
from etscope.analysis.program.source_location import short_lines, user_line
from etscope.model.graph import Node, SourceLine, stem

_LINES = 3  # in a patch: others are alike
_SIMPLE = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Call:
    """A call in a line, of a function or of a method of a tensor.

    whole: its text. values: texts of the arguments by position, with the tensor of a method first.
    named: of those by keyword.
    """

    whole: str
    values: Sequence[str]
    named: Mapping[str, str]

    def given(self, at: int, name: str) -> str | None:
        """The text of an argument; None if it is left out."""
        return self.values[at] if at < len(self.values) else self.named.get(name)

    def number(self, at: int, name: str) -> object:
        """The value of an argument; None if it is left out, or computed."""
        try:
            return ast.literal_eval(self.given(at, name) or "None")
        except ValueError:
            return None


Change = Callable[[ast.expr, Callable[[ast.AST], str]], str | None]


def patch(nodes: Iterable[Node], change: Callable[[Node], Change]) -> str:
    """Return the lines where nodes are written, each with its new text below; "" where it cannot
    be changed. A line that its nodes would change differently stays: it runs with several shapes.
    So does one with more such expressions than nodes: some are of another kind.
    """
    lines: dict[SourceLine, dict[str, list[Node]]] = {}
    for node in nodes:
        if (line := user_line(node.stack_trace)) is not None:
            lines.setdefault(line, {}).setdefault(stem(node.op), []).append(node)
    found: dict[SourceLine, str] = {}
    for line, operators in lines.items():
        text = line.text
        for alike in operators.values():
            texts = {_changed(text, change(node), len(alike)) for node in alike}
            text = texts.pop() or text if len(texts) == 1 else text
        if text != line.text and len(found) < _LINES:
            found[line] = text
    return _written(found)


def _written(found: Mapping[SourceLine, str]) -> str:
    """The patch of lines; without those that are a part of a statement, or would become one."""
    lines = (
        (short_lines((line,)), line.text, text)
        for line, text in found.items()
        if _statement(line.text) is not None and _statement(text) is not None
    )
    return "\n".join(f"# {where}\n- {old}\n+ {new}" for where, old, new in lines)


def _statement(text: str) -> ast.stmt | None:
    """The statement that a line has; None for a part of one.

    A line of a longer statement may look like an expression. Only calls such as `x.add_(y)` are
    statements by themselves.
    """
    try:
        (found,) = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if isinstance(found, ast.Expr):
        called = found.value.func if isinstance(found.value, ast.Call) else None
        if not isinstance(called, ast.Attribute) or not called.attr.endswith("_"):
            return None
    return found


def _changed(text: str, change: Change, most: int = 1) -> str | None:
    """Return a line with its outermost fitting expressions changed; None without any, or with more
    than `most`."""
    tree = _statement(text)
    if tree is None:
        return None
    edits: list[tuple[int, int, str]] = []

    def source(node: ast.AST) -> str:
        return ast.get_source_segment(text, node) or ""

    waiting: list[ast.AST] = [tree]  # no recursion: Python 3.10 parses lines that are deeper
    while waiting:
        node = waiting.pop()
        new = change(node, source) if isinstance(node, ast.expr) else None
        if new is not None and isinstance(node, ast.expr):
            edits.append((node.col_offset, node.end_col_offset or 0, new))
        else:
            waiting += ast.iter_child_nodes(node)
    encoded = text.encode()
    for begin, end, new in sorted(edits, reverse=True):
        encoded = encoded[:begin] + new.encode() + encoded[end:]
    return encoded.decode() if 0 < len(edits) <= most else None


def call_of(
    node: ast.expr, source: Callable[[ast.AST], str], names: Collection[str]
) -> Call | None:
    """Return an expression as a call of one of these functions; None if it is something else."""
    if not isinstance(node, ast.Call):
        return None
    function, values = source(node.func), [_whole(one, source) for one in node.args]
    owner, _, name = function.rpartition(".")
    if name not in names or any(isinstance(one, ast.Starred) for one in node.args):
        return None
    is_method = isinstance(node.func, ast.Attribute) and owner not in ("torch", "torch.linalg", "F")
    if is_method and not owner.endswith("functional"):
        values.insert(0, owner)
    named = {one.arg: _whole(one.value, source) for one in node.keywords if one.arg is not None}
    return Call(source(node), values, named)


# Expressions that bind more closely than what a change writes around them.
_CLOSED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.Tuple, ast.List)


def _whole(node: ast.expr, source: Callable[[ast.AST], str]) -> str:
    return source(node) if isinstance(node, _CLOSED) else f"({source(node)})"


def in_call(make: Callable[[Node, Call], str | None], *names: str) -> Callable[[Node], Change]:
    """Make a change of calls of functions."""

    def change(node: Node, expression: ast.expr, source: Callable[[ast.AST], str]) -> str | None:
        call = call_of(expression, source, names)
        return None if call is None else make(node, call)

    return lambda node: partial(change, node)


def _twice(value: str, name: str = "value") -> tuple[str, str]:
    """A value for its first and for later uses: a name for what is computed."""
    return (value, value) if _SIMPLE.fullmatch(value) else (f"({name} := {value})", name)


def _part(axis: int, part: str) -> str:
    """Indices that take a part of one dimension."""
    after = ", :" * (-axis - 1)
    return f"[{':, ' * axis}{part}]" if axis >= 0 else f"[..., {part}{after}]"


def _integers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"-?\d+", text)]


def _argument(node: Node, name: str) -> str:
    return dict(node.arguments).get(name, "")


def _shape(node: Node) -> list[int] | None:
    """The sizes of a node's value; None if they vary."""
    spec = spec_of(node)
    sizes = () if spec is None else spec.shape
    known = [size for size in sizes if isinstance(size, int)]
    return known if spec is not None and len(known) == len(sizes) else None


def _floats(node: Node) -> list[int] | None:
    """The sizes of a value of float32; None for others, and if they vary."""
    spec = spec_of(node)
    return None if spec is None or spec.dtype != "float32" else _shape(node)


# -- functions that have the same in other operators


def _rolled(node: Node, call: Call) -> str | None:
    shifts = _integers(call.given(1, "shifts") or "")
    axes = _integers(call.given(2, "dims") or "")
    value = call.given(0, "input") or ""
    if not shifts or len(shifts) != len(axes) or not all(shifts):
        return None
    for number, (shift, axis) in enumerate(zip(shifts, axes, strict=True)):
        first, later = _twice(value, f"rolled_{number}")
        value = (
            f"torch.cat([{first}{_part(axis, f'{-shift}:')}, {later}{_part(axis, f':{-shift}')}], "
            f"{axis})"
        )
    return value


def _length(run: RunGraph, node: Node, call: Call) -> str | None:
    """The length of vectors, of a value of three dimensions: by their mean of squares."""
    giver, axis = next(run.givers(node), None), call.number(2, "dim")
    shape = [] if giver is None else _shape(giver) or []
    is_square = call.number(1, "ord") in (None, 2) and "p" not in call.named
    if len(shape) != 3 or axis not in (-1, 2) or not is_square:
        return None
    first, later = _twice(call.values[0])
    end = "squeeze(-1)" if call.number(3, "keepdim") else "flatten(1)"
    means = f"({first} * {later}).unsqueeze(-1).mean((2, 3), keepdim=True).{end}"
    return f"torch.sqrt({means} * {float(shape[-1])})"


def _mean(run: RunGraph, node: Node, call: Call) -> str | None:
    giver = next(run.givers(node), None)
    shape = None if giver is None else _shape(giver)
    rank, value = len(shape or ()), call.given(0, "input")
    if not rank:
        return None
    axes = sorted(axis % rank for axis in _integers(_argument(node, "dim")))
    keeps = _argument(node, "keepdim") == "True"
    if axes != sorted(axis % rank for axis in _integers(call.given(1, "dim") or "")):
        return None  # another call of the line
    if rank == 4 and axes == [2, 3] and not keeps:
        return f"{value}.mean((2, 3), keepdim=True).flatten(1)"
    if rank == 3 and axes == [2]:
        end = "squeeze(-1)" if keeps else "flatten(1)"
        return f"{value}.unsqueeze(-1).mean((2, 3), keepdim=True).{end}"
    if rank == 3 and axes == [1] and not keeps:
        return f"{value}.transpose(1, 2).unsqueeze(-1).mean((2, 3), keepdim=True).flatten(1)"
    return None


def _split(node: Node, call: Call) -> str | None:
    sizes, axis = _integers(_argument(node, "split_sizes")), _integers(_argument(node, "dim"))
    value, begin, parts = call.given(0, "input") or "", 0, []
    for number, size in enumerate(sizes):
        given = _twice(value)[bool(number)]
        parts.append(f"{given}{_part((axis or [0])[0], f'{begin}:{begin + size}')}")
        begin += size
    return f"({', '.join(parts)})" if len(parts) > 1 else None


def _softmax(node: Node, call: Call) -> str | None:
    axis, value = call.number(1, "dim"), call.given(0, "input")
    if not isinstance(axis, int):
        return None
    return f"torch.softmax({value}.transpose({axis}, -1), -1).transpose({axis}, -1)"


def _without_alpha(node: Node, call: Call) -> str | None:
    if "alpha" not in call.named or len(call.values) < 2:
        return None
    return f"({call.values[0]} + {call.named['alpha']} * {call.values[1]})"


# Of a value in its first and its later places, in operators of XNNPACK.
_SOFTPLUS = "(torch.relu({}) + torch.log(torch.exp(-torch.abs({})) + 1.0))"


def _softplus(node: Node, call: Call) -> str | None:
    return None if len(call.values) != 1 else _SOFTPLUS.format(*_twice(call.values[0]))


def _masked(run: RunGraph, node: Node, call: Call) -> str | None:
    """A mask that does not depend on the inputs, as a sum of products."""
    condition = next(run.givers(node), node)
    is_constant = id(condition) in run.constant or run.is_weight(condition)
    number = call.number(2, "value")
    is_finite = isinstance(number, (int, float)) and math.isfinite(number)
    if not is_constant or not is_finite or _floats(node) is None:
        return None
    value, (first, later) = call.values[0], _twice(f"{call.given(1, 'mask')}.float()", "as_float")
    return f"({value} * (1.0 - {first}) + {later} * {number})"


def _summed(node: Node, call: Call) -> str | None:
    """A running sum, as a product with a triangle of ones."""
    shape, axis, value = _floats(node), call.number(1, "dim"), call.values[0]
    if shape is None or not isinstance(axis, int) or shape[axis] > _SUMMED:
        return None
    ones = f"torch.tril(torch.ones({shape[axis]}, {shape[axis]}))"
    if axis in (-1, len(shape) - 1):
        return f"torch.nn.functional.linear({value}, {ones})"
    moved = f"torch.nn.functional.linear({value}.transpose({axis}, -1), {ones})"
    return f"{moved}.transpose({axis}, -1)"


_SUMMED = 128  # elements: of 32 the product takes 0.54 of the time, and it grows with the square


def _normed(node: Node, expression: ast.expr, source: Callable[[ast.AST], str]) -> str | None:
    """The call of a module of instance norm."""
    if not isinstance(expression, ast.Call) or len(expression.args) != 1:
        return None
    norm, value = source(expression.func), _whole(expression.args[0], source)
    if not _SIMPLE.fullmatch(norm) or norm.startswith(("torch.", "F.")):
        return None
    spread = f"torch.rsqrt((centred * centred).mean((2, 3), keepdim=True) + {norm}.eps)"
    affine = f" * {norm}.weight[:, None, None] + {norm}.bias[:, None, None]"
    centred = f"(centred := {value} - {value}.mean((2, 3), keepdim=True))"
    return f"({centred} * {spread}{affine if len(node.inputs) > 1 else ''})"


def _looked_up(expression: ast.expr, source: Callable[[ast.AST], str]) -> str | None:
    """A product of a matrix with rows of which one element is 1, as a look-up."""
    if not isinstance(expression, ast.BinOp) or not isinstance(expression.op, ast.MatMult):
        return None
    found = re.fullmatch(
        r"(?:torch\.nn\.functional|F)\.one_hot\((.+), [\w.]+\)\.(?:float\(\)|to\([\w.]+\))",
        source(expression.left),
    )
    table = _whole(expression.right, source)
    return None if found is None else f"torch.nn.functional.embedding({found[1]}, {table})"


def _never_dropped(node: Node, call: Call) -> str | None:
    if len(call.values) > 2 or "training" in call.named:
        return None
    return f"{call.whole[:-1]}, training=False)"


def _bilinear(node: Node, call: Call) -> str | None:
    mode = call.named.get("mode", "")
    return call.whole.replace(mode, '"bilinear"') if "bicubic" in mode else None


# Arguments of avg_pool2d with which padding before it is another function.
_POOLED = frozenset({"ceil_mode", "count_include_pad", "divisor_override"})


def _padded_before(node: Node, call: Call) -> str | None:
    if len(call.values) > 4 or not _POOLED.isdisjoint(call.named):
        return None
    sides = _integers(call.given(3, "padding") or "0")
    rows, columns = sides[0], sides[-1]
    value, size = call.given(0, "input"), call.given(1, "kernel_size")
    stride = call.given(2, "stride")
    if not rows and not columns:
        return None
    padded = f"torch.nn.functional.pad({value}, ({columns}, {columns}, {rows}, {rows}))"
    more = f", {stride}" if stride else ""
    return f"torch.nn.functional.avg_pool2d({padded}, {size}{more})"


def _leaky(node: Node, call: Call) -> str | None:
    """where(x > 0, x, x * k), with a constant k."""
    if len(call.values) != 3:
        return None
    condition, kept, scaled = (re.sub(r"\s|\.0+(?=\b)|^\(|\)$", "", one) for one in call.values)
    found = re.fullmatch(
        rf"(?:{re.escape(kept)}\*([\d.e-]+)|([\d.e-]+)\*{re.escape(kept)})", scaled
    )
    if condition not in (f"{kept}>0", f"{kept}>=0") or found is None:
        return None
    return f"torch.nn.functional.leaky_relu({call.values[1]}, {found[1] or found[2]})"


def _maximum(run: RunGraph, node: Node, call: Call) -> str | None:
    giver = next(run.givers(node), None)
    shape = None if giver is None else _shape(giver)
    axes = sorted(axis % len(shape) for axis in _integers(_argument(node, "dim"))) if shape else []
    if shape is None or len(shape) != 4 or axes != [2, 3]:
        return None
    end = "" if _argument(node, "keepdim") == "True" else ".flatten(1)"
    first, later = _twice(call.given(0, "input") or "")
    return f"torch.nn.functional.max_pool2d({first}, {later}.shape[2:]){end}"


def _joined(node: Node, call: Call) -> str | None:
    """Several concatenations of at most five."""
    axis = call.given(1, "dim") or "0"
    try:
        parts = ast.parse(call.values[0], mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(parts, (ast.List, ast.Tuple)) or len(parts.elts) <= _JOINED:
        return None
    texts = [ast.unparse(one) for one in parts.elts]
    while len(texts) > _JOINED:
        texts = [
            f"torch.cat([{', '.join(texts[at : at + _JOINED])}], {axis})"
            for at in range(0, len(texts), _JOINED)
        ]
    return f"torch.cat([{', '.join(texts)}], {axis})"


_JOINED = 5  # values that XNNPACK concatenates at once


def _in_float32(node: Node, call: Call) -> str | None:
    if call.whole.endswith(".double()") or call.given(1, "dtype") in (
        "torch.float64",
        "torch.double",
    ):
        return call.values[0]
    return None


def edit_of(run: RunGraph, node: Node) -> Callable[[Node], Change] | None:
    """Return the change of lines with a node's operator; None without one."""
    edits: Mapping[str, Callable[[Node], Change]] = {
        "add": in_call(_without_alpha, "add"),
        "amax": in_call(partial(_maximum, run), "amax"),
        "avg_pool2d": in_call(_padded_before, "avg_pool2d"),
        "cat": in_call(_joined, "cat", "concat"),
        "cumsum": in_call(_summed, "cumsum"),
        "index": in_call(_bilinear, "interpolate"),
        "index_select": in_call(_rolled, "roll"),
        "mean": in_call(partial(_mean, run), "mean"),
        "native_dropout": in_call(_never_dropped, "dropout"),
        "pow": lambda _: _as_product,
        "roll": in_call(_rolled, "roll"),
        "select": lambda node: partial(_as_slice, node),
        "softmax": in_call(_softmax, "softmax"),
        "split_with_sizes": in_call(_split, "split", "chunk", "tensor_split", "split_with_sizes"),
        "upsample_bicubic2d": in_call(_bilinear, "interpolate"),
        "where": in_call(_leaky, "where"),
        # What a decomposition made is known by what the model has.
        "InstanceNorm2d": lambda node: partial(_normed, node),
        "linalg_vector_norm": in_call(partial(_length, run), "norm", "vector_norm"),
        "masked_fill": in_call(partial(_masked, run), "masked_fill"),
        "one_hot": lambda _: _looked_up,
        "softplus": in_call(_softplus, "softplus"),
    }
    return edits.get((written_as(node) or "").removeprefix("nn.").removeprefix("F.")) or edits.get(
        stem(node.op)
    )


def patch_of(run: RunGraph, nodes: Sequence[Node]) -> str:
    """The patch that writes nodes in operators that XNNPACK takes; "" without one."""
    wanted = {(user_line(node.stack_trace), stem(node.op)) for node in nodes}
    every = run.partition.linked.graph.operators.values()
    alike = [node for node in every if (user_line(node.stack_trace), stem(node.op)) in wanted]
    known = [node for node in alike if edit_of(run, node) is not None]
    return patch(known, lambda node: edit_of(run, node)(node))  # type: ignore[misc]


def in_float32(nodes: Sequence[Node]) -> str:
    """The patch that leaves out conversions to float64."""
    return patch(nodes, in_call(_in_float32, "double", "to"))


# -- expressions other than calls


def _as_product(expression: ast.expr, source: Callable[[ast.AST], str]) -> str | None:
    """A power as products, and a root as `torch.sqrt`."""
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Pow):
        value, text = source(expression.left), source(expression.right)
    elif (call := call_of(expression, source, ("pow",))) is not None and len(call.values) == 2:
        value, text = call.values
    else:
        return None
    try:
        power = float(ast.literal_eval(text))
    except (ValueError, TypeError):
        return None
    if power == 0.5:
        return f"torch.sqrt({value})"
    if power not in (3.0, 4.0):
        return None
    first, later = _twice(value)
    return f"({' * '.join([first, *[later] * (int(power) - 1)])})"


def _as_slice(node: Node, expression: ast.expr, source: Callable[[ast.AST], str]) -> str | None:
    """One element of a dimension as a slice of one."""
    shape = _shape(node)
    if shape is None or not isinstance(expression, ast.Subscript):
        return None
    indices = (
        expression.slice.elts if isinstance(expression.slice, ast.Tuple) else [expression.slice]
    )
    texts, chosen = [source(one) for one in indices], 0
    for at, text in enumerate(texts):
        if re.fullmatch(r"-?\d+", text):
            texts[at] = f"{text}:{int(text) + 1 or ''}"
            chosen += 1
    if chosen != 1 or "None" in texts:
        return None
    return f"{source(expression.value)}[{', '.join(texts)}].reshape({', '.join(map(str, shape))})"


def _number(node: ast.expr, known: Mapping[str, ast.expr], x: float) -> float:
    """The value of arithmetic with one variable. known: expressions of names; others are x."""

    def of(one: ast.expr) -> float:
        return _number(one, known, x)

    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return of(known[name]) if name in known else x
        case ast.Attribute(value=ast.Name(id="math"), attr="pi"):
            return math.pi
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -of(operand)
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](of(left), of(right))
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=values, keywords=named):
            is_module = ast.unparse(owner) in ("F", "math", "torch", "torch.nn.functional")
            values = [*(() if is_module else (owner,)), *values, *(one.value for one in named)]
            return _FUNCTIONS[name](*map(of, values))
    raise ValueError


_OPERATIONS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.Pow: math.pow,
}  # fmt: skip


def _clamped(x: float, low: float = 0.0, high: float = 6.0) -> float:
    return min(max(x, low), high)


_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "clamp": _clamped, "clip": _clamped, "erf": math.erf, "hardtanh": _clamped, "pow": math.pow,
    "relu6": _clamped, "sqrt": math.sqrt, "tanh": math.tanh,
}  # fmt: skip
_PLACES = (-4.0, -1.3, -0.2, 0.7, 3.6)  # where an expression must be the function
_MOST_NAMES = 8  # that lines of one function assign
_NEAR = 1e-4  # of constants that are written with a few digits


def whole_function(nodes: Sequence[Node], function: str, of: Callable[[float], float]) -> str:
    """The patch that calls a function of one value in place of the products and sums that compute
    it. function: its call, with {} for the value. of: its values."""
    lines = dict.fromkeys(filter(None, (user_line(node.stack_trace) for node in nodes)))
    assigned = [
        (one.targets[0].id, one.value)
        for line in lines
        if isinstance(one := _statement(line.text), ast.Assign)
        if isinstance(one.targets[0], ast.Name)
    ]
    known = dict(assigned)
    if len(known) < len(assigned) or len(known) > _MOST_NAMES:
        known = {}  # which value a name has is not known

    def free(expression: ast.expr) -> set[str]:
        """The names that an expression reads, and that no other line of it computes."""
        names = {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}
        names -= {"F", "math", "torch"}
        return (names - set(known)).union(*(free(known[name]) for name in names & set(known)))

    def change(expression: ast.expr, source: Callable[[ast.AST], str]) -> str | None:
        if not isinstance(expression, ast.BinOp):
            return None
        try:
            (name,) = free(expression)
            is_it = all(abs(_number(expression, known, x) - of(x)) < _NEAR for x in _PLACES)
        except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
            return None
        return function.format(name) if is_it else None

    return patch(nodes, lambda _: change)


def softmax(nodes: Sequence[Node]) -> str:
    """The patch that calls softmax in place of the quotient of exponentials and their sum, of one
    line or of two."""
    axes = {_argument(node, "dim") for node in nodes if stem(node.op) == "sum"}
    if len(axes) != 1 or len(axis := _integers(axes.pop())) != 1:
        return ""
    given = {line for node in nodes if (line := user_line(node.stack_trace)) is not None}
    raised: dict[str, tuple[SourceLine, str]] = {}  # lines that raise, by the name of the value
    found: dict[SourceLine, str] = {}

    def of_exp(expression: ast.expr, source: Callable[[ast.AST], str]) -> str | None:
        call = call_of(expression, source, ("exp",))
        if call is None:
            return None
        value = call.values[0]
        match ast.parse(value, mode="eval").body:  # without the largest, which softmax subtracts
            case ast.BinOp(left=kept, op=ast.Sub(), right=right):
                right = right.value if isinstance(right, ast.Attribute | ast.Subscript) else right
                largest = call_of(right, ast.unparse, ("amax", "max"))
                of_kept = largest is not None and largest.values[0] == ast.unparse(kept)
                if largest is not None and of_kept and largest.number(1, "dim") == axis[0]:
                    value = ast.unparse(kept)
        return f"torch.softmax({value}, {axis[0]})"

    def divided(expression: ast.expr, source: Callable[[ast.AST], str]) -> str | None:
        if not isinstance(expression, ast.BinOp) or not isinstance(expression.op, ast.Div):
            return None
        total, value = call_of(expression.right, source, ("sum",)), source(expression.left)
        if total is None or total.values[0] != value:
            return None
        if value not in raised:
            return of_exp(expression.left, source)
        line, text = raised[value]
        found[line] = text
        return value

    for line in sorted(given, key=lambda one: (one.file, one.line)):
        one, text = _statement(line.text), _changed(line.text, of_exp)
        if (new := _changed(line.text, divided)) is not None:
            found[line] = new
        elif isinstance(one, ast.Assign) and text and of_exp(one.value, ast.unparse) is not None:
            raised[ast.unparse(one.targets[0])] = line, text
    return _written(found)


_ASSIGNED = re.compile(r"([\w.]+)\[((?:\s*:\s*,)*)\s*([\w.]+)\s*(?:,\s*:\s*)*\] = (.+)")


def in_place(nodes: Sequence[Node]) -> str:
    """The patch that writes rows of a buffer with `index_copy_`."""
    lines = dict.fromkeys(filter(None, (user_line(node.stack_trace) for node in nodes)))
    found: dict[SourceLine, str] = {}
    for line in list(lines)[:_LINES]:
        if (assigned := _ASSIGNED.fullmatch(line.text)) is not None:
            buffer, before, position, value = assigned.groups()
            found[line] = f"{buffer}.index_copy_({before.count(',')}, {position}, {value})"
    return _written(found)


def chosen(nodes: Sequence[Node], run: RunGraph) -> str:
    """The patch that writes a row of a buffer by its position, in place of
    `where(arange == position, new, buffer)`."""
    for node in nodes:
        line, shape = user_line(node.stack_trace), _shape(node)
        condition = next(run.givers(node), node)
        while stem(condition.op) in ("unsqueeze", "view", "squeeze"):
            condition = next(run.givers(condition), node)
        compared = user_line(condition.stack_trace)
        if stem(node.op) != "where" or stem(condition.op) != "eq" or not line or not compared:
            continue
        choice = re.search(r"([\w.]+)\.copy_\(torch\.where\(.+, ([\w.]+), \1\)\)", line.text)
        position = re.search(r"torch\.arange\(.*\) == ([\w.]+)", compared.text)
        axes = [at for at, size in enumerate(shape or ()) if [size] == _shape(condition)]
        if choice is not None and position is not None and len(axes) == 1:
            new = f"{choice[1]}.index_copy_({axes[0]}, {position[1]}, {choice[2]})"
            return _written({line: line.text.replace(choice[0], new)})
    return ""


def gelu(nodes: Sequence[Node]) -> str:
    """The patch that calls `gelu`."""
    call = "torch.nn.functional.gelu({}{})"
    if any(stem(node.op) == "tanh" for node in nodes):
        return whole_function(
            nodes,
            call.format("{}", ', approximate="tanh"'),
            lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        )
    return whole_function(
        nodes, call.format("{}", ""), lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
    )


def hardswish(nodes: Sequence[Node]) -> str:
    """The patch that calls `hardswish`."""
    call = "torch.nn.functional.hardswish({})"
    return whole_function(nodes, call, lambda x: x * _clamped(x + 3) / 6)
