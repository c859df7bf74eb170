"""The trees of inputs and outputs in a serialized program, `[version, tree]` as JSON in a text.

Each node is a container: a type by name, what it was made of (its context), its children. torch
imports the modules that enumerations and default dictionaries name, and makes Python source of the
names of keyword inputs.
"""

from __future__ import annotations

import re
from typing import Any

from etscope.errors import FormatError
from etscope.formats.exported_program.exported_json import mapping, parse_json, sequence, text
from etscope.formats.exported_program.operators import DO_NOT_TRUST

_SEQUENCES = frozenset({"builtins.tuple", "builtins.list", "torch.Size"}) | {
    "torch.fx.immutable_collections.immutable_list"
}
_DICTIONARIES = frozenset({"builtins.dict", "collections.OrderedDict"}) | {
    "torch.fx.immutable_collections.immutable_dict"
}
_DEFAULT_DICTIONARY = "collections.defaultdict"
_PLAIN = _SEQUENCES | _DICTIONARIES | {"collections.deque", _DEFAULT_DICTIONARY}
_FACTORIES = frozenset({"bool", "dict", "float", "int", "list", "set", "str", "tuple"})
# Classes without a name for files are all registered under this one.
_NAMELESS = "NO_SERIALIZED_TYPE_NAME_FOUND"
_JSON = re.compile(r"\s*(?:[\[{\"\-0-9]|(?:null|true|false|NaN|Infinity)\s*\Z)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def check_tree(spec: object, *, hint: str | None, of_inputs: bool) -> None:
    """Raise `FormatError` unless torch can build it from types that are there, importing nothing.

    With `hint`, only from its own types; it says what to do about others.
    """
    root = sequence(parse_json(text(spec, "a tree of inputs")), "a tree of inputs")
    todo = root[1:]
    if of_inputs and todo:
        _check_keywords(mapping(todo[0], "a tree of inputs"))
    while todo:
        node = mapping(todo.pop(), "a tree of inputs")
        kind = node["type"]
        if kind is not None:
            _check_container(text(kind, "the type of a container"), node["context"], hint)
        elif node["context"] is not None:
            raise _error("a container without a type")
        todo.extend(sequence(node["children_spec"], "children_spec"))


def check_identifier(what: str, name: object) -> None:
    """Raise `FormatError` unless it is a name that may stand in Python source as it is."""
    given = "" if name is None else text(name, what)
    if given and not _IDENTIFIER.fullmatch(given):
        raise _error(f"a {what} is not a name that torch writes: {given[:80]!r}")


def _check_container(kind: str, context: object, hint: str | None) -> None:
    if kind == _DEFAULT_DICTIONARY:
        _check_default_dictionary(mapping(context, "the context of a default dictionary"))
    elif kind in _PLAIN:
        keys = parse_json(text(context, "the keys of a container")) if context is not None else None
        if kind in _DICTIONARIES:
            _check_keys(sequence(keys, "the keys of a container"))
        elif isinstance(keys, (dict, list)):
            raise _error(f"a {kind} with what it cannot have: {keys!s:.80}")
    elif kind == _NAMELESS or hint is not None:
        raise FormatError(
            f"inputs or outputs in a container of the type {kind[:80]!r}, which torch builds by "
            "code",
            hint=hint or DO_NOT_TRUST,
        )
    else:
        _check_context(context)


def _check_default_dictionary(context: dict[str, Any]) -> None:
    """Its factory is imported, and called for keys that are not there."""
    module, name = context["default_factory_module"], context["default_factory_name"]
    if module != "builtins" or name not in _FACTORIES:
        raise _error(f"a default dictionary of {module!s:.40}.{name!s:.40}")
    _check_keys(sequence(context["dict_context"], "the keys of a container"))


def _check_keys(keys: list[Any]) -> None:
    if any(isinstance(key, (dict, list)) for key in keys):
        raise _error("a container with keys that torch builds by code")


def _check_context(context: Any) -> None:
    """What a container of one's own was made of: JSON as a text, which torch reads, or anything
    that the code of the container reads."""
    todo = [context]
    if isinstance(context, str) and _JSON.match(context):
        todo = [parse_json(context)]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            if "__enum__" in value:
                raise _error("an enumeration in a container, whose module torch imports")
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)


def _check_keywords(tree: dict[str, Any]) -> None:
    """The keys of the second child, in a tree of positional and keyword inputs."""
    children = sequence(tree["children_spec"], "children_spec")
    if len(children) < 2:
        return
    context = mapping(children[1], "a tree of inputs")["context"]
    names = parse_json(context) if isinstance(context, str) else context
    for name in names if isinstance(names, list) else ():
        check_identifier("keyword input", str(name))


def _error(message: str) -> FormatError:
    return FormatError(message, hint=DO_NOT_TRUST)
