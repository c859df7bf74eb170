"""Scopes and variables: what an editor shows of a stop, made when it is expanded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from etscope.errors import EtscopeError, MissingDataError
from etscope.etdb.debugger import Debugger
from etscope.etdb.expression import evaluate, parse
from etscope.etdb.output import tensor_statistics, value_lines
from etscope.etdb.scope import DebuggerScope
from etscope.etdb.targets.remote_tensor import RemoteTensor

_MOST_ROWS = 1000  # of a tensor without a page asked for
# A variable: its name, and the expression that it is the value of.
Listed = Sequence[tuple[str, str]]


class Variables:
    """The variables of one stop by the numbers that the client has for them. A new stop makes them
    all invalid."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._children: list[Callable[[int, int | None, str], list[dict[str, Any]]]] = []
        self._names: list[dict[str, str]] = []  # of the settable children: their expressions

    def scopes(self) -> list[dict[str, Any]]:
        """The scopes of the current stop."""
        debugger = self._debugger
        nodes = debugger.here().nodes
        reads = list(dict.fromkeys(name for node in nodes for name in node.inputs))
        own = {node.name for node in nodes}
        placeholders = self._placeholders()
        inside = [name for name in reads if name not in own]
        found: dict[str, tuple[str, Listed]] = {
            "Output": ("locals", [("$", "$")]),
            "Inputs": ("arguments", [(n, n) for n in inside if n not in placeholders]),
            "Weights and state": ("", [(n, n) for n in inside if n in placeholders]),
        }
        if debugger.can_compare:
            found["Reference"] = ("", [("ref($)", "ref()"), ("gap(sqnr)", "gap(sqnr)"),
                                       ("gap(max_abs)", "gap(max_abs)")])  # fmt: skip
        found["Model inputs"] = ("", [(n, n) for n in self._model_inputs()])
        return [
            {
                "name": name,
                "variablesReference": self._listing(listed),
                "namedVariables": len(listed),
                "expensive": name not in ("Output", "Inputs"),
                **({"presentationHint": hint} if hint else {}),
            }
            for name, (hint, listed) in found.items()
            if listed
        ]

    def children(
        self, reference: int, start: int = 0, count: int | None = None, kind: str = ""
    ) -> list[dict[str, Any]]:
        """The children of a variable or scope. Raises `MissingDataError` for one of an earlier
        stop."""
        return self._children[self._place(reference)](start, count, kind)

    def expression_of(self, reference: int, name: str) -> str:
        """The expression of a child that can be set. Raises `MissingDataError` for others."""
        found = self._names[self._place(reference)].get(name)
        if found is None:
            raise MissingDataError(f"{name!r} cannot be set here")
        return found

    def _place(self, reference: int) -> int:
        if not 1 <= reference <= len(self._children):
            raise MissingDataError("this variable is of an earlier stop")
        return reference - 1

    def described(self, value: Any, expression: str) -> dict[str, Any]:
        """A value as a variable or result: its text, type and children."""
        text = value_lines(value)[0]
        described: dict[str, Any] = {"value": text, "variablesReference": 0}
        if isinstance(value, (list, tuple)) and any(
            np.ndim(one) for one in value if one is not None
        ):
            parts = [(f"[{n}]", f"{expression}[{n}]", one) for n, one in enumerate(value)]
            described["value"] = f"{len(value)} outputs"
            described["variablesReference"] = self._values(parts)
            described["namedVariables"] = len(parts)
        elif isinstance(value, (np.ndarray, RemoteTensor)) and value.ndim:
            described["type"] = f"{value.dtype}{list(value.shape)}"
            facts = _facts(value)
            described["variablesReference"] = self._tensor(value, expression, facts)
            described["namedVariables"] = len(facts)
            described["indexedVariables"] = value.shape[0]
        else:
            described["type"] = type(value).__name__
        return described

    # -- kinds of parents

    def _added(
        self,
        children: Callable[[int, int | None, str], list[dict[str, Any]]],
        names: dict[str, str],
    ) -> int:
        self._children.append(children)
        self._names.append(names)
        return len(self._children)

    def _listing(self, listed: Listed) -> int:
        """Expressions, each evaluated when the scope is expanded."""

        def children(start: int, count: int | None, kind: str) -> list[dict[str, Any]]:
            return [] if kind == "indexed" else [self._one(*one) for one in listed]

        return self._added(children, {name: text for name, text in listed if "(" not in text})

    def _one(self, name: str, expression: str) -> dict[str, Any]:
        scope = DebuggerScope(self._debugger)
        try:
            value = evaluate(parse(expression), scope)
        except EtscopeError as error:
            return {"name": name, "value": f"({error.message})", "variablesReference": 0}
        settable = "(" not in expression and not self._debugger.some_target().is_past
        hint = {} if settable else {"presentationHint": {"attributes": ["readOnly"]}}
        described = self.described(value, expression)
        return {"name": name, "evaluateName": expression, **described, **hint}

    def _values(self, parts: Sequence[tuple[str, str, Any]]) -> int:
        def children(start: int, count: int | None, kind: str) -> list[dict[str, Any]]:
            return [
                {"name": name, "evaluateName": expression, **self.described(value, expression)}
                for name, expression, value in parts
            ]

        return self._added(children, {})

    def _tensor(self, tensor: Any, expression: str, facts: dict[str, str]) -> int:
        """Statistics first, then the elements or rows by index, a page at a time."""

        def children(start: int, count: int | None, kind: str) -> list[dict[str, Any]]:
            found = []
            if kind != "indexed" and not start:
                found = [
                    {"name": name, "value": text, "variablesReference": 0,
                     "presentationHint": {"kind": "virtual", "attributes": ["readOnly"]}}
                    for name, text in facts.items()
                ]  # fmt: skip
            if kind == "named":
                return found
            last = min(tensor.shape[0], start + (count or _MOST_ROWS))
            rows = tensor[start:last] if last > start else []
            for number, row in enumerate(rows, start):
                part = f"{expression}[{number}]"
                value = (
                    row.item()
                    if isinstance(row, (np.ndarray, np.generic)) and not row.ndim
                    else row
                )
                described = self.described(value, part)
                found.append({"name": f"[{number}]", "evaluateName": part, **described})
            return found

        page = range(min(tensor.shape[0], 1 << 20))
        return self._added(children, _Indices(expression, len(page)))

    def _placeholders(self) -> set[str]:
        if self._debugger.record is None:
            return set()
        return set(self._debugger.edge(self._debugger.method).graph.parameters)

    def _model_inputs(self) -> list[str]:
        if self._debugger.record is None:
            return []
        graph = self._debugger.edge(self._debugger.method).graph
        return [name for name in graph.inputs if name not in graph.parameters]


class _Indices(dict[str, str]):
    """The expressions of the rows or elements of a tensor, by "[12]"."""

    def __init__(self, expression: str, count: int) -> None:
        super().__init__()
        self._expression, self._count = expression, count

    def get(self, name: str, default: Any = None) -> Any:
        inner = name[1:-1]
        known = name[:1] == "[" and inner.isdecimal() and int(inner) < self._count
        return f"{self._expression}{name}" if known else default


def _facts(tensor: Any) -> dict[str, str]:
    """Statistics of a tensor, by name."""
    if tensor.dtype.kind not in "biufV" or not tensor.size:
        return {"elements": str(tensor.size)}
    one = tensor_statistics(tensor)
    numbers = {"min": one.least, "max": one.greatest, "mean": one.mean, "std": one.deviation}
    facts = {name: f"{number:.6g}" for name, number in numbers.items()}
    return {**facts, "NaN": str(one.nan), "Inf": str(one.plus_inf + one.minus_inf)}
