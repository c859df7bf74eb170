"""What a serialized program may say, so that torch runs nothing when it rebuilds it.

torch's deserializers evaluate the text of symbolic sizes, make Python source of names, which they
execute, look up operators as attributes of any module, and import what containers name. All of it
is in one kind of JSON, of ETRecords and of .pt2 files; what differs is in `Rules`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from etscope.errors import FormatError
from etscope.formats.exported_program.exported_json import sequence
from etscope.formats.exported_program.operators import DO_NOT_TRUST, check_call, check_operator
from etscope.formats.exported_program.symexpr import check_expression
from etscope.formats.exported_program.symexpr_calls import check_calls
from etscope.formats.exported_program.trees import check_identifier, check_tree


@dataclass(frozen=True, slots=True)
class Rules:
    """How a kind of file writes sizes, and whether it may name operators and containers that are
    there because the user's own code has registered them: else, what to do instead."""

    check_size: Callable[[object], None]
    without_own: str | None


RECORD_RULES = Rules(check_expression, None)
PT2_RULES = Rules(
    check_calls, "load it in Python code that you trust, and name a function that returns it"
)

# Names that torch writes into the source of a graph: identifiers, with dots between.
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_0-9][A-Za-z0-9_]*)*)?")
# Qualified names of weights: looked up, and written into source between quotes.
_QUALIFIED = re.compile(r"[^\"'\\\x00-\x1f\x7f(){};=]*")
_NAME_KEYS = frozenset({"name", "as_name"})
_QUALIFIED_KEYS = frozenset(
    {
        *("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name"),
        *("user_input_name", "fqn", "class_fqn"),
    }
)
# Objects whose keys are the names of values, which may be any ("target" and "name" are common).
_BY_NAME = frozenset({"tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values"}) | {
    "custom_obj_values"
}
_WEIGHT_KEYS = frozenset({"original_state_dict", "original_constants"})


def check_values(root: object, rules: Rules) -> list[str]:
    """Check all that is in the JSON, programs of delegates too; returns the base64 text of weights
    that are in it.

    Raises `FormatError` for what is not allowed.
    """
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
            if "target" in value:
                _check_node(value, rules)
            for key, content in value.items():
                todo.extend(_check_entry(key, content, rules))
    return weights


def _check_node(node: dict[str, Any], rules: Rules) -> None:
    target = node["target"]
    if not isinstance(target, str):
        raise FormatError(f"the target of a node must be text, found {type(target).__name__}")
    if rules.without_own is None:
        check_call(target, node.get("inputs"), hint=DO_NOT_TRUST)
    else:
        check_operator(target, hint=rules.without_own)


def _check_entry(key: str, content: Any, rules: Rules) -> Iterator[Any]:
    """Check one entry of an object; yields what has to be looked into further."""
    if key == "expr_str":
        rules.check_size(content)
    elif key == "range_constraints" and isinstance(content, dict):
        for expression in content:
            check_expression(expression)
    elif key in ("in_spec", "out_spec"):
        check_tree(content, hint=rules.without_own, of_inputs=key == "in_spec")
    elif key == "forward_arg_names":
        for name in sequence(content or [], key):
            check_identifier("name of an argument", name)
    elif key == "guards_code" and content:
        raise FormatError("a program with guards, which torch executes", hint=DO_NOT_TRUST)
    elif key in _BY_NAME and isinstance(content, dict):
        yield from content.values()
    elif isinstance(content, (dict, list)):
        yield content
    elif isinstance(content, str):
        yield from _check_text(key, content, rules)


def _check_text(key: str, content: str, rules: Rules) -> Iterator[Any]:
    if key in _NAME_KEYS:
        _check_name(_NAME, key, content)
    elif key in _QUALIFIED_KEYS:
        _check_name(_QUALIFIED, key, content)
    elif key == "as_operator":
        check_operator(content, hint=rules.without_own or DO_NOT_TRUST)
    elif key == "as_string" and content.lstrip()[:1] == "{":
        yield _lowered_module(content)


def _check_name(pattern: re.Pattern[str], key: str, name: str) -> None:
    if not pattern.fullmatch(name):
        shown = name if len(name) <= 80 else name[:77] + "..."
        raise FormatError(f"a {key} is not a name that torch writes: {shown!r}", hint=DO_NOT_TRUST)


def _lowered_module(text: str) -> Any:
    """What a delegate runs, which is JSON in a text, the program in it; None for all other text."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) and "original_module" in content else None
