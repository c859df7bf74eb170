"""Selectors, the language that picks events and nodes: ``op:conv* and not module:head``.

::

    selector := term (("and" | "or") term)*     "and" binds tighter; "not" binds to one term
    term     := "not" term | "(" selector ")" | [key ":"] pattern | number comparison
    comparison := ("<" | "<=" | ">" | ">=") value, all in one word: share>5%

A pattern is a shell glob (``*``, ``?``, ``[abc]``), without regard to case; quotes keep spaces in
it. Without a key it is matched with names. Keys:

- ``op``: operator or op type, whole or without namespace and overload (``op:addmm``)
- ``module``: a module and all below it (``module:blocks.0``)
- ``type``: type of the innermost module (``type:Conv2d``)
- ``file``: source file, whole or its end, with a line or without (``file:model.py:34``)
- ``delegate``: backend (``delegate:Xnn*``); ``delegate:*`` matches everything delegated
- ``handle``: debug handle or a range (``handle:12``, ``handle:3-7``)
- ``id``: instruction id or a range
- ``kind``: kind of the row or node
- ``shape``: sizes of an input or output (``shape:1x64x*``; ``shape:scalar``); of a node an output
- ``dtype``: element type of an input or output (``dtype:int8``); of a node an output
- ``bound``: what bounds it: compute, memory or overhead (``bound:memory``)
- a column that a delegate's backend adds to its events (``compute_unit:GPU``)

Numbers, of the rows of a profile (``flops>1e9``, ``share>5%``, ``peak<=0.1``): ``share`` of the
method's time, ``flops``, ``bytes``, ``intensity``, ``gflops``, ``gbps``, ``peak``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import ge, gt, le, lt
from pathlib import PurePath
from typing import NamedTuple, NoReturn

from etscope.errors import UsageError

# The values of an event or node for each key.
Fields = Mapping[str, Sequence[str]]
KEYS = (
    "name", "op", "module", "type", "file", "delegate", "handle", "id", "kind", "shape", "dtype",
    "bound",
)  # fmt: skip
# Numbers of rows of a profile; all but the share describe their work.
NUMBERS = ("share", "flops", "bytes", "intensity", "gflops", "gbps", "peak")

_TOKEN = re.compile(r"""\s*(?:(?P<paren>[()])|(?P<word>(?:[^\s()"']|"[^"]*"|'[^']*')+))""")
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})")
_COMPARISON = re.compile(r"([a-z_]+)(<=|>=|<|>)(.*)", re.IGNORECASE)
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(%?)", re.IGNORECASE)
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip
_MAX_NESTING = 100  # of parentheses: far below Python's limit of recursion


class Selector:
    """A parsed selector. Raises `UsageError` with the position of a syntax error."""

    def __init__(self, text: str) -> None:
        self.text = text
        parser = _Parser(text)
        self._matches = parser.parse()
        self.keys = frozenset(parser.keys)  # and numbers that it names

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def matches(self, fields: Fields) -> bool:
        """Return True if the selector picks an event or node with these values."""
        return self._matches(fields)


Test = Callable[[Fields], bool]


class _Token(NamedTuple):
    text: str
    at: int


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.next = 0
        self.depth = 0
        self.keys: set[str] = set()

    def _tokens(self) -> Iterator[_Token]:
        position = 0
        while position < len(self.text.rstrip()):
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise UsageError(f"selector {self.text!r}: a quote is not closed")
            token = match["paren"] or match["word"]
            yield _Token(token, match.end() - len(token))
            position = match.end()

    def parse(self) -> Test:
        test = self._any()
        if self.next < len(self.tokens):
            self._fail("expected 'and' or 'or'")
        return test

    @cached_property
    def _words(self) -> list[str]:
        return [token.text.lower() for token in self.tokens]

    def _accept(self, word: str) -> bool:
        if self.next < len(self.tokens) and self._words[self.next] == word:
            self.next += 1
            return True
        return False

    def _any(self) -> Test:
        tests = [self._all()]
        while self._accept("or"):
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda fields: any(t(fields) for t in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._accept("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda fields: all(t(fields) for t in tests)

    def _one(self) -> Test:
        self.depth += 1
        if self.depth > _MAX_NESTING:
            self._fail("nested too deeply")
        try:
            if self._accept("not"):
                test = self._one()
                return lambda fields: not test(fields)
            if self._accept("("):
                test = self._any()
                if not self._accept(")"):
                    self._fail("expected ')'")
                return test
            return self._pattern()
        finally:
            self.depth -= 1

    def _pattern(self) -> Test:
        if self.next >= len(self.tokens) or self._words[self.next] in ("and", "or", ")"):
            self._fail("expected a pattern")
        token = self.tokens[self.next]
        self.next += 1
        comparison = _COMPARISON.fullmatch(token.text)
        if comparison is not None and comparison[1].lower() in NUMBERS:
            return self._comparison(comparison[1].lower(), comparison[2], comparison[3])
        key, colon, pattern = token.text.partition(":")
        if not colon or key.lower() not in KEYS:
            # Names of operators contain colons ("aten::add.out").
            if colon and not pattern.startswith(":") and re.fullmatch(r"[a-z]+", key):
                self.next -= 1
                self._fail(f"unknown key {key!r}: keys are {', '.join(KEYS)}")
            text = token.text.replace('"', "").replace("'", "")
            if not text:
                self._fail("nothing in the quotes")
            # A name, which may have colons; or a column of a backend, if an event has it.
            column, _, part = text.partition(":")
            is_name, is_cell = _glob(text).match, _glob(part).match
            return lambda fields: (
                any(map(is_name, fields.get("name", ())))
                or any(map(is_cell, fields.get(column.lower(), ()) if column not in KEYS else ()))
            )
        pattern = pattern.replace('"', "").replace("'", "")
        if not pattern:
            self._fail(f"nothing after {key}:")
        wanted = key.lower()
        self.keys.add(wanted)
        by = _TESTS.get(wanted)
        test = _glob(pattern).match if by is None else by(pattern)
        return lambda fields: any(map(test, fields.get(wanted, ())))

    def _comparison(self, name: str, sign: str, given: str) -> Test:
        number = _NUMBER.fullmatch(given)
        if number is None:
            self.next -= 1
            self._fail(f"expected a number right after {name}{sign}")
        limit, compared = float(number[1]) / (100 if number[2] else 1), _COMPARED[sign]
        self.keys.add(name)
        return lambda fields: any(compared(float(value), limit) for value in fields.get(name, ()))

    def _fail(self, why: str) -> NoReturn:
        at = self.tokens[self.next].at if self.next < len(self.tokens) else len(self.text)
        hint = _COMPARISONS if re.search(r"[<>=]", self.text) else None
        raise UsageError(f"selector {self.text!r}, column {at + 1}: {why}", hint=hint)


@lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern), re.IGNORECASE)


# A test of a value; the pattern is compiled once.
_Matches = Callable[[str], object]


def _by_op(pattern: str) -> _Matches:
    """Match the whole name, or the name without namespace, without overload, or without both."""
    match = _glob(pattern).match
    return lambda value: any(map(match, _forms(value)))


@lru_cache(maxsize=1024)
def _forms(operator: str) -> frozenset[str]:
    plain = operator.rpartition("::")[2]
    parts = plain.split(".")
    forms = {operator, plain, *parts[:2], ".".join(parts[:2]), ".".join(parts[1:]), parts[0]}
    return frozenset(filter(None, forms))


def _by_module(pattern: str) -> _Matches:
    """Match the module itself or one of its parents."""
    match = _glob(pattern).match
    return lambda value: any(map(match, accumulate(value.split("."), "{}.{}".format)))


def _by_file(pattern: str) -> _Matches:
    """Match "path:line"; the pattern may omit the line, and folders on the left."""
    pattern = pattern.replace("\\", "/")  # as `SourceLine` has paths of Windows
    ways = _glob(pattern).match, _glob(f"*/{pattern}").match
    return lambda value: any(
        match(location) for location in (value, value.rpartition(":")[0]) for match in ways
    )


def _by_number(pattern: str) -> _Matches:
    match, span = _glob(pattern).match, _RANGE.fullmatch(pattern)
    if span is None:
        return match
    numbers = range(int(span[1]), int(span[2]) + 1)
    return lambda value: int(value) in numbers if value.isdigit() else match(value)


_TESTS: Mapping[str, Callable[[str], _Matches]] = {
    "op": _by_op,
    "module": _by_module,
    "file": _by_file,
    "handle": _by_number,
    "id": _by_number,
}


# -- a selector that picks nothing

_COMPARISONS = (
    f"a selector is KEY:PATTERN, of {', '.join(KEYS)}; or a comparison such as flops>1e6 or "
    f"share>=5%, in one word, of {', '.join(NUMBERS)}"
)


def meant(text: str, known: Iterable[Fields]) -> str:
    """Return a hint for a selector that matches none of `known`: the same pattern with a key or
    inside names, or the nearest name. Return "" for several patterns, and without a similar
    name."""
    found_in = (_COMPARISON.fullmatch(word.strip("()")) for word in text.split())
    compared = {one[1].lower() for one in found_in if one is not None} & set(NUMBERS)
    if compared:
        fields = list(known)
        numbers = [float(v) for one in fields for name in compared for v in one.get(name, ())]
        if len(compared) == 1 and numbers:
            return f"{compared.pop()} is {min(numbers):.4g} to {max(numbers):.4g}"
        return (
            ""
            if numbers
            else f"only rows of a profile have numbers; these rows do not have {min(compared)}"
        )
    if re.search(r"[<>=]", text):
        return _COMPARISONS
    if re.search(r"[\s()\"']", text):
        return ""
    fields = list(known)
    key, _, word = text.partition(":")
    if key.lower() not in KEYS:  # names of operators contain colons
        key, word = "", text
    # "*.": below a module that the pattern omits
    keyed = ("op:", "module:", "type:", "file:", "module:*.")
    inside = [f"{key}:"] if key else ["name:", "op:"]
    for ways in (
        [] if key else [f"{one}{word}" for one in keyed],
        [f"{one}*{word}*" for one in inside],
    ):
        found = [way for way in ways if any(map(Selector(way).matches, fields))]
        if found:
            return f"did you mean {' or '.join(found[:2])}?"
    for wanted in (key,) if key else ("name", "op", "module", "type"):
        values = {value for one in fields for value in one.get(wanted, ())}
        if wanted == "module":
            values |= {
                path for value in values for path in accumulate(value.split("."), "{}.{}".format)
            }
        elif wanted == "file":
            values = {PurePath(value.rpartition(":")[0]).name for value in values}
        from difflib import get_close_matches

        close = get_close_matches(word, sorted(values), 1)
        if close:
            return f"did you mean {close[0] if wanted == 'name' else f'{wanted}:{close[0]}'}?"
    return ""
