"""The interfaces of web/src/document.ts, read from its text, and a document held against them.

Only the TypeScript that this file uses is known: interfaces, type aliases, unions, arrays, tuples,
`Record<string, T>`, literals and inline objects. Anything else is an error of the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCUMENT_TS = Path(__file__).parents[3] / "web" / "src" / "document.ts"

Type = tuple[Any, ...]
_TOKEN = re.compile(r'\s*("[^"]*"|[A-Za-z_]\w*|-?\d+|[{}\[\]()<>|,;:?])')


class Contract:
    """The types by name."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        self.constants = dict(re.findall(r"export const (\w+) = (\"[^\"]*\");", text))
        self.types: dict[str, Type] = {}
        interface = re.compile(r"export interface (\w+) (?:extends (\w+) )?(\{.*?\n\})", re.DOTALL)
        bodies: dict[str, str] = {}
        for name, above, body in interface.findall(text):  # what it extends stands above it
            bodies[name] = body if not above else bodies[above].rstrip("}") + body.lstrip("{")
            self.types[name] = _Parser(bodies[name]).type()
        for name, body in re.findall(r"export type (\w+) =(.*?);\n", text, re.DOTALL):
            self.types[name] = _Parser(body).type()

    def faults(self, value: Any, name: str) -> list[str]:
        """Where a value is not of the type, as "path: what is wrong"."""
        return list(self._faults(value, self.types[name], name))

    def _faults(self, value: Any, wanted: Type, path: str) -> Iterator[str]:
        kind, *rest = wanted
        if kind == "name" and rest[0] in self.types:
            yield from self._faults(value, self.types[rest[0]], path)
        elif kind == "name":
            if not _is_primitive(value, rest[0]):
                yield f"{path}: {value!r} is no {rest[0]}"
        elif kind == "typeof":
            if value != self.constants[rest[0]].strip('"'):
                yield f"{path}: {value!r} is not {rest[0]}"
        elif kind == "literal":
            if value != rest[0]:
                yield f"{path}: {value!r} is not {rest[0]!r}"
        elif kind == "union":
            tried = [list(self._faults(value, option, path)) for option in rest[0]]
            if all(tried):
                yield min(tried, key=lambda faults: (-_depth(faults[0]), len(faults)))[0]
        elif kind == "array":
            yield from self._items(value, rest[0], path)
        elif kind == "tuple":
            if not isinstance(value, list) or len(value) != len(rest[0]):
                yield f"{path}: {value!r} is no tuple of {len(rest[0])}"
            else:
                for number, (item, of) in enumerate(zip(value, rest[0], strict=True)):
                    yield from self._faults(item, of, f"{path}[{number}]")
        elif kind == "record":
            yield from self._record(value, rest[0], path)
        else:
            yield from self._object(value, rest[0], path)

    def _items(self, value: Any, of: Type, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{path}: {type(value).__name__} is no array"
            return
        for number, item in enumerate(value):
            yield from self._faults(item, of, f"{path}[{number}]")

    def _record(self, value: Any, of: Type, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path}: {type(value).__name__} is no object"
            return
        for key, item in value.items():
            yield from self._faults(item, of, f"{path}[{key!r}]")

    def _object(self, value: Any, fields: dict[str, tuple[bool, Type]], path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path}: {type(value).__name__} is no object"
            return
        for key in value.keys() - fields.keys():
            yield f"{path}: unknown member {key!r}"
        for key, (is_optional, of) in fields.items():
            if key in value:
                yield from self._faults(value[key], of, f"{path}.{key}")
            elif not is_optional:
                yield f"{path}: no member {key!r}"


def _depth(fault: str) -> int:
    return fault.count(".") + fault.count("[")


def _is_primitive(value: Any, name: str) -> bool:
    if name == "string":
        return isinstance(value, str)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "boolean":
        return isinstance(value, bool)
    if name == "null":
        return value is None
    raise AssertionError(f"document.ts uses the type {name}, which this test does not know")


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        understood = re.sub(r"\s", "", "".join(self._tokens))
        assert understood == re.sub(r"\s", "", text), f"not understood: {text[:200]}"
        self._at = 0

    def type(self) -> Type:
        self._take("|")
        options = [self._array()]
        while self._take("|"):
            options.append(self._array())
        return options[0] if len(options) == 1 else ("union", options)

    def _array(self) -> Type:
        found = self._single()
        while self._peek() == "[" and self._tokens[self._at + 1] == "]":
            self._at += 2
            found = ("array", found)
        return found

    def _single(self) -> Type:
        token = self._next()
        if token == "(":
            found = self.type()
            self._expect(")")
            return found
        if token == "[":
            items = [self.type()]
            while self._take(","):
                items.append(self.type())
            self._expect("]")
            return ("tuple", items)
        if token == "{":
            return ("object", dict(self._fields()))
        if token == "typeof":
            return ("typeof", self._next())
        if token == "Record":
            for expected in ("<", "string", ","):
                self._expect(expected)
            found = self.type()
            self._expect(">")
            return ("record", found)
        if token.startswith('"'):
            return ("literal", token.strip('"'))
        return ("name", token)

    def _fields(self) -> Iterator[tuple[str, tuple[bool, Type]]]:
        while not self._take("}"):
            name = self._next()
            is_optional = self._take("?")
            self._expect(":")
            yield name, (is_optional, self.type())
            self._take(";")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, token: str) -> bool:
        found = self._peek() == token
        self._at += found
        return found

    def _expect(self, token: str) -> None:
        assert self._next() == token, f"expected {token} before {self._tokens[self._at :][:9]}"
