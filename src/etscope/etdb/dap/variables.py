"""Scopes and variables: what an editor shows of a stop, made when it is expanded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from etscope.errors import EtscopeError, MissingDataError
from etscope.etdb.commands.values import MOST_FETCHED
from etscope.etdb.debugger import Debugger
from etscope.etdb.expression import evaluate, parse
from etscope.etdb.output import duration_text, tensor_statistics, value_lines
from etscope.etdb.python_code import python_names
from etscope.etdb.scope import DebuggerScope
from etscope.etdb.targets.remote_tensor import RemoteTensor
from etscope.etdb.targets.target import Stop
from etscope.units import format_bytes

_MOST_ROWS = 1000  # of a tensor without a page asked for
_MOST_DESCRIBED = 100  # rows whose numbers describe them: a page of VS Code
_MOST_SENT = 4 << 20  # bytes of these rows
_READ_AT_ONCE = ("Output", "Locals", "Inputs", "Model outputs")  # scopes
# A variable: its name, and the expression that it is the value of.
Listed = Sequence[tuple[str, str]]
Children = Callable[[int, int | None, str], list[dict[str, Any]]]


class Variables:
    """The variables of one stop by the numbers that the client has for them. A new stop makes them
    all invalid."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._children: list[Children] = []
        self._expressions: list[Callable[[str], str | None]] = []  # of settable children, by name

    def scopes(self, other: str, frame: int) -> list[dict[str, Any]]:
        """The scopes of the current stop, or of the run's end. other: the function of expressions
        that gives the values of the other side, "ref" or "device"; "" for the run's. frame:
        of the stack."""
        debugger = self._debugger
        stop = debugger.stop
        found = {} if stop is None else self._scopes_at(stop, other, frame)
        if debugger.record is not None:
            graph = debugger.edge(debugger.method).graph
            if stop is None:
                found["Model outputs"] = (
                    "returnValue",
                    _named(dict.fromkeys(graph.outputs), other),
                )
            inputs = [name for name in graph.inputs if name not in graph.parameters]
            found["Model inputs"] = ("", _named(inputs, other))
        times = [] if stop is None or stop.ticks is None or other else [self._time()]
        return [
            {
                "name": name,
                "variablesReference": self._listing(listed),
                "namedVariables": len(listed),
                "expensive": name not in _READ_AT_ONCE or other == "ref",
                **({"presentationHint": hint} if hint else {}),
            }
            for name, (hint, listed) in found.items()
            if listed
        ] + times

    def _scopes_at(self, stop: Stop, other: str, frame: int) -> dict[str, tuple[str, Listed]]:
        """The hint and the content of each scope of an operator."""
        debugger = self._debugger
        own = {node.name for node in stop.nodes}
        reads = dict.fromkeys(name for node in stop.nodes for name in node.inputs)
        inside = [name for name in reads if name not in own]
        placeholders = set[str]()
        if debugger.record is not None:
            placeholders = set(debugger.edge(debugger.method).graph.parameters)
        found: dict[str, tuple[str, Listed]] = {
            "Output": ("returnValue", [("$", f"{other}()" if other else "$")]),
            "Locals": ("locals", [
                (name, f"{other}({node})" if other else node)
                for name, node in python_names(debugger, frame).items()
            ]),
            "Inputs": ("arguments", _named([n for n in inside if n not in placeholders], other)),
            "Weights and state": ("", _named([n for n in inside if n in placeholders], other)),
        }  # fmt: skip
        if debugger.can_compare and not other:
            found["Reference"] = ("", [("ref($)", "ref()"), ("gap(sqnr)", "gap(sqnr)"),
                                       ("gap(max_abs)", "gap(max_abs)")])  # fmt: skip
        return found

    def _time(self) -> dict[str, Any]:
        """The scope of the operator's time."""
        text = duration_text(self._debugger, self._debugger.here().ticks or 0)
        one = {"name": "time", "value": text, "variablesReference": 0}
        number = self._added(lambda *page: [one])
        return {"name": "Time", "variablesReference": number, "expensive": False}

    def children(
        self, reference: int, start: int = 0, count: int | None = None, kind: str = ""
    ) -> list[dict[str, Any]]:
        """The children of a variable or scope. Raises `MissingDataError` for one of an earlier
        stop."""
        return self._children[self._place(reference)](start, count, kind)

    def expression_of(self, reference: int, name: str) -> str:
        """The expression of a child that can be set. Raises `MissingDataError` for others."""
        found = self._expressions[self._place(reference)](name)
        if found is None:
            raise MissingDataError(f"{name!r} cannot be set here")
        return found

    def _place(self, reference: int) -> int:
        if not 1 <= reference <= len(self._children):
            raise MissingDataError("this variable is of an earlier stop")
        return reference - 1

    def described(self, value: Any, expression: str) -> dict[str, Any]:
        """A value as a variable or result: its text, type and children."""
        if isinstance(value, (list, tuple)) and any(
            np.ndim(one) for one in value if one is not None
        ):
            parts = [(f"[{n}]", f"{expression}[{n}]", one) for n, one in enumerate(value)]
            return {
                "value": f"{len(value)} outputs",
                "variablesReference": self._added(lambda start, count, kind: [
                    {"name": name, "evaluateName": text, **self.described(one, text)}
                    for name, text, one in parts
                ]),
                "namedVariables": len(parts),
            }  # fmt: skip
        if isinstance(value, (np.ndarray, RemoteTensor)) and value.ndim:
            return self._tensor(value, expression, part=value)
        kind = type(value).__name__
        return {"value": value_lines(value)[0], "type": kind, "variablesReference": 0}

    # -- kinds of parents

    def _added(
        self, children: Children, expression_of: Callable[[str], str | None] = lambda name: None
    ) -> int:
        self._children.append(children)
        self._expressions.append(expression_of)
        return len(self._children)

    def _listing(self, listed: Listed) -> int:
        """Expressions, each evaluated when the scope is expanded."""

        def children(start: int, count: int | None, kind: str) -> list[dict[str, Any]]:
            return [] if kind == "indexed" else [self._one(*one) for one in listed]

        return self._added(children, {n: text for n, text in listed if "(" not in text}.get)

    def _one(self, name: str, expression: str) -> dict[str, Any]:
        scope = DebuggerScope(self._debugger)
        try:
            if expression.startswith("gap("):
                size = getattr(evaluate(parse("$"), scope), "nbytes", 0)
                if size > MOST_FETCHED:
                    raise MissingDataError(f"evaluate {expression} to read {format_bytes(size)}")
            value = evaluate(parse(expression), scope)
        except EtscopeError as error:
            return {"name": name, "value": f"({error.message})", "variablesReference": 0}
        settable = "(" not in expression and not self._debugger.some_target().is_past
        hint = {} if settable else {"presentationHint": {"attributes": ["readOnly"]}}
        described = self.described(value, expression)
        return {"name": name, "evaluateName": expression, **described, **hint}

    def _tensor(
        self, whole: Any, expression: str, at: tuple[int, ...] = (), part: Any = None
    ) -> dict[str, Any]:
        """A tensor, or its part at leading indices: statistics first, then the elements or rows by
        index, a page at a time. part: its numbers; None for a part that is too large to be read."""
        shape = whole.shape[len(at) :]
        size = math.prod(shape) * whole.nbytes // max(whole.size, 1)
        is_large = part is None or size > MOST_FETCHED
        named = 6 if not is_large and _is_numeric(whole) else 1
        described: dict[str, Any] = {
            "value": f"{whole.dtype}{list(shape)}, {format_bytes(size)}"
            if is_large
            else value_lines(part)[0],
            "type": f"{whole.dtype}{list(shape)}",
            "memoryReference": _place(expression, at),
            "namedVariables": 0 if part is None else named,
            "indexedVariables": shape[0],
        }

        def children(start: int, count: int | None, kind: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            if kind != "indexed" and not start and part is not None:
                if is_large:
                    number = self._added(lambda *page: _statistics(part))
                    found = [{"name": "statistics", "value": "", "variablesReference": number}]
                else:
                    found = _statistics(part)
            if kind == "named":
                return found
            last = min(shape[0], start + (_MOST_ROWS if count is None else count))
            numbers = range(start, last)
            rows: Any = [None] * len(numbers)
            sent = size // max(shape[0], 1) * len(numbers)
            if len(shape) == 1 or (sent <= _MOST_SENT and len(numbers) <= _MOST_DESCRIBED):
                page = (*(at if part is None else ()), slice(start, last))
                rows = np.asarray((whole if part is None else part)[page]) if numbers else ()
            for number, row in zip(numbers, rows, strict=True):
                inner = (*at, number)
                if len(shape) == 1:
                    one = self.described(row.item() if isinstance(row, np.generic) else row, "")
                else:
                    one = self._tensor(whole, expression, inner, row)
                place = _place(expression, inner)
                found.append({"name": f"[{number}]", "evaluateName": place, **one})
            return found

        def expression_of(name: str) -> str | None:
            number = name[1:-1]
            known = name[:1] == "[" and number.isdecimal() and int(number) < shape[0]
            return _place(expression, (*at, int(number))) if known else None

        return {**described, "variablesReference": self._added(children, expression_of)}


def _named(names: Iterable[str], other: str) -> Listed:
    """Nodes, each with the expression of its value on a side; see `Variables.scopes`."""
    return [(name, f"{other}({name})" if other else name) for name in names]


def _place(expression: str, at: tuple[int, ...]) -> str:
    """The expression of a part: "$[3, 0]"."""
    return f"{expression}[{', '.join(map(str, at))}]" if at else expression


def _is_numeric(tensor: Any) -> bool:
    return tensor.dtype.kind in "biufV" and tensor.size > 0


def _statistics(tensor: Any) -> list[dict[str, Any]]:
    """Statistics of a tensor as variables."""
    facts = {"elements": str(tensor.size)}
    if _is_numeric(tensor):
        one = tensor_statistics(tensor)
        numbers = {"min": one.least, "max": one.greatest, "mean": one.mean, "std": one.deviation}
        facts = {name: f"{number:.6g}" for name, number in numbers.items()}
        facts |= {"NaN": str(one.nan), "Inf": str(one.plus_inf + one.minus_inf)}
    hint = {"kind": "virtual", "attributes": ["readOnly"]}
    return [
        {"name": name, "value": text, "variablesReference": 0, "presentationHint": hint}
        for name, text in facts.items()
    ]
