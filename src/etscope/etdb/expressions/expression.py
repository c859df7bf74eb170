"""Expressions over tensors, as a person types them: read into a tree of a few known forms.

The text is read by Python's own parser and then held against a list of what is allowed; nothing of
it is ever run as Python. `%12` is the value of the node with debug handle 12, `#5` what instruction
5 gave, `$` what the current stop gave, `$1` its second output, `$NAME` what `set $NAME =` kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from etscope.errors import UsageError

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
