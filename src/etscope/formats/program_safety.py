"""Refuses serialized programs that would run code when torch rebuilds them.

torch's deserializer evaluates the text of symbolic sizes, and makes Python source of the names of
inputs, sub-modules and operators, which it then executes. A record can come from anywhere, so both
are held against a strict grammar before torch sees the program. Reading graphs without torch needs
none of this: nothing is evaluated there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from etscope.errors import FormatError, reading
from etscope.formats.exported_json import find_payloads, parse_json, without_payloads
from etscope.formats.symexpr import check_expression
from etscope.formats.torch_archive import FAKE_TENSOR, fake_tensors, read_tensors

# Names that torch writes into the source of a graph: identifiers, with dots between.
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_0-9][A-Za-z0-9_]*)*)?")
# Qualified names of weights: looked up, and written into source between quotes.
_QUALIFIED = re.compile(r"[^\"'\\\x00-\x1f\x7f(){};=]*")
_NAME_KEYS = frozenset({"name", "as_name", "target", "as_operator"})
_QUALIFIED_KEYS = frozenset(
    {
        *("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name"),
        *("user_input_name", "fqn", "class_fqn"),
    }
)
_WEIGHT_KEYS = frozenset({"original_state_dict", "original_constants"})


def check_program(content: memoryview, siblings: Iterable[memoryview], *, strict: bool) -> None:
    """Check the JSON of a program with the programs and weights of delegates in it, and the
    members beside it (`torch.save` files: a tensor without data has symbolic sizes of its own).

    With `strict`, all pickles must be such that `torch_archive` reads them, for releases of
    ExecuTorch (1.2 and before) that unpickle whatever they find.

    Raises `FormatError` that names what is not allowed.
    """
    with reading("ETRecord"):
        for data in siblings:
            _check_tensors(data, strict)
        if strict:  # nothing is cut out: which payloads are weights is told by their keys alone
            for text in _check_json(parse_json(content)):
                _check_tensors(_decoded(text.encode()), strict)
            return
        payloads = [bytes(content[run.start : run.end]) for run in find_payloads(content)]
        weights = _check_json(parse_json(without_payloads(content)))
        for encoded in (*payloads, *(text.encode() for text in weights)):
            data = _decoded(encoded)
            if bytes(data[:2]) == b"PK" or FAKE_TENSOR in bytes(data):
                _check_tensors(data, strict)


def _decoded(encoded: bytes) -> memoryview:
    """What base64 stands for, decoded as torch does: other characters are passed over. Nothing for
    what torch refuses."""
    try:
        return memoryview(base64.b64decode(encoded))
    except ValueError:
        return memoryview(b"")


def _check_tensors(data: memoryview, strict: bool) -> None:
    if strict and len(data):
        read_tensors(data)
    for tensor in fake_tensors(data):
        _check_json(tensor.description)


def _check_json(root: object) -> list[str]:
    """Check all of it; returns the base64 text of weights that are in it."""
    weights: list[str] = []
    todo: list[Any] = [root]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo.extend(value)
        elif isinstance(value, dict):
            weights += (
                value[key] for key in _WEIGHT_KEYS & value.keys() if isinstance(value[key], str)
            )
            for key, content in value.items():
                todo.extend(_check_entry(key, content))
    return weights


def _check_entry(key: str, content: Any) -> Iterator[Any]:
    """Check one entry of an object; yields what has to be looked into further."""
    if key == "expr_str":
        check_expression(content)
    elif key == "range_constraints" and isinstance(content, dict):
        for expression in content:
            check_expression(expression)
    elif isinstance(content, (dict, list)):
        yield content
    elif isinstance(content, str):
        if key in _NAME_KEYS:
            _check_name(_NAME, key, content)
        elif key in _QUALIFIED_KEYS:
            _check_name(_QUALIFIED, key, content)
        elif key == "in_spec":
            _check_input_names(content)
        elif key == "as_string" and content.lstrip()[:1] == "{":
            yield _json_or_none(content)


def _check_name(pattern: re.Pattern[str], key: str, name: str) -> None:
    if not pattern.fullmatch(name):
        shown = name if len(name) <= 80 else name[:77] + "..."
        raise FormatError(
            f"a {key} is not a name that torch writes: {shown!r}",
            hint="the file may be made to run code where it is opened; do not trust it",
        )


def _check_input_names(spec: str) -> None:
    """The names of keyword inputs, in the second child of a tree of positional and keyword ones."""
    tree = _json_or_none(spec)
    children = tree[1]["children_spec"] if tree is not None else []
    if len(children) > 1:
        for name in _json_or_none(children[1]["context"] or "null") or ():
            _check_name(_NAME, "keyword input", str(name))


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
