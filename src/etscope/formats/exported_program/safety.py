"""Refuses programs of ETRecords that would run code when torch rebuilds them.

A record can come from anywhere. What its programs may say is in `program_rules`; here is where they
are: JSON in the record, and in it those of delegates, with their weights, as text. Reading graphs
without torch needs none of this: nothing is evaluated there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from etscope.errors import FormatError, reading
from etscope.formats.exported_program.exported_json import (
    Json,
    find_payloads,
    mapping,
    parse_json,
    sequence,
    text,
    without_payloads,
)
from etscope.formats.exported_program.symexpr import check_calls, check_expression
from etscope.formats.torch_files.torch_archive import FAKE_TENSOR, fake_tensors, read_tensors

# Which operators a serialized program may name: those that compute, and do nothing else.
#
# torch and ExecuTorch resolve such a name by looking up one attribute after the other, from
# `torch`, so that any function of any module below is reached (`torch.os.system`), and is called
# when the rebuilt graph is run, if only as an argument of one that calls its arguments.


DO_NOT_TRUST = "the file may be made to run code where it is opened; do not trust it"

_OPERATOR = re.compile(
    r"(?:torch\.ops|executorch\.exir\.dialects\.(?:edge|backend)\.ops)"
    r"\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)",
    re.ASCII,
)
_CONTROL_FLOW = re.compile(r"torch\.ops\.higher_order\.([a-z_]\w*)", re.ASCII)
_FUNCTION = re.compile(r"(_operator|math|torch)\.([a-z_]\w*)", re.ASCII)

# Libraries of operators that compute, and nothing else. Whether one is there, torch says.
_NAMESPACES = frozenset(
    {
        *("aten", "prims", "quantized_decomposed", "quantized", "torchao", "torchvision"),
        *("dim_order_ops", "executorch_prim", "et_copy", "llama", "cadence", "cortex_m", "tosa"),
    }
)
_NOT_COMPUTING = frozenset({"from_file", "save", "_print", "warn"})
# Not libraries, but attributes of torch.ops.
_NOT_LIBRARIES = re.compile(r"_.*|import_module|load_library|loaded_libraries|higher_order|name|op")
# What calls other operators calls only graphs, and operators that are checked as well.
_HIGHER_ORDER = frozenset(
    {
        *("cond", "map_impl", "while_loop", "scan", "associative_scan", "invoke_subgraph"),
        *("wrap_with_set_grad_enabled", "wrap_with_autocast", "strict_mode", "hints_wrapper"),
        *("out_dtype", "auto_functionalized", "auto_functionalized_v2", "with_effects"),
        "executorch_call_delegate",
    }
)
_FUNCTIONS = {
    "_operator": frozenset(
        {
            *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs"),
            *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "not_", "inv"),
            *("lshift", "rshift", "getitem"),
        }
    ),
    "math": frozenset({"ceil", "floor", "trunc", "sqrt"}),
    "torch": frozenset(
        {
            *("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum"),
            *("sym_sqrt", "_sym_sqrt"),
        }
    ),
}
# Memory of ExecuTorch's own graphs; not looked up, but known to its deserializer.
_MEMORY = frozenset({"memory.alloc", *(f"executorch.exir.memory.{n}" for n in ("view", "free"))})
_TEXTS = ("as_string", "as_strings", "as_operator", "as_custom_obj")


def check_operator(name: str, *, hint: str) -> None:
    """Raise `FormatError` unless it is known to compute, and nothing else.

    `hint` is what to do about an operator of a library that is not known.
    """
    library = _check_form(name)
    if library not in _NAMESPACES | {""}:
        raise FormatError(
            f"an operator of an unknown library: {_shown(name)}; it might do anything", hint=hint
        )


def check_call(name: str, inputs: Any, *, hint: str) -> None:
    """As `check_operator`, of a node with these inputs; one's own operators are allowed.

    Those are there only if one's own code has registered them, and so are all others that this
    process has loaded, some of which read or write files. So they get tensors and numbers, and no
    text that could be a path.
    """
    library = _check_form(name)
    if library not in _NAMESPACES | {""} and any(tag in _TEXTS for tag in _tags(inputs)):
        raise FormatError(
            f"an operator of an unknown library is given text: {_shown(name)}; it might do "
            "anything with it",
            hint=hint,
        )


def _check_form(name: str) -> str:
    """The library of an operator; empty for what is no operator of a library, but allowed."""
    if match := _OPERATOR.fullmatch(name):
        library, operator, overload = match.groups()
        if overload.startswith("__") or (
            library == "aten" and operator.rstrip("_") in _NOT_COMPUTING
        ):
            raise FormatError(
                f"an operator that does not compute: {_shown(name)}", hint=DO_NOT_TRUST
            )
        if not _NOT_LIBRARIES.fullmatch(library):
            return library
    control = _CONTROL_FLOW.fullmatch(name)
    function = _FUNCTION.fullmatch(name)
    if (
        (control and control[1] in _HIGHER_ORDER)
        or (function and function[2] in _FUNCTIONS[function[1]])
        or name in _MEMORY
    ):
        return ""
    raise FormatError(
        f"not an operator that torch.export writes: {_shown(name)}", hint=DO_NOT_TRUST
    )


def _tags(inputs: Any) -> Iterator[str]:
    """The tags of the unions that the inputs of a node are, where they hold something."""
    for item in inputs if isinstance(inputs, list) else ():
        argument = item.get("arg") if isinstance(item, dict) else None
        if isinstance(argument, dict):
            yield from (tag for tag, content in argument.items() if content is not None)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:77] + "...")


# The trees of inputs and outputs in a serialized program, `[version, tree]` as JSON in a text.
#
# Each node is a container: a type by name, what it was made of (its context), its children. torch
# imports the modules that enumerations and default dictionaries name, and makes Python source of
# the names of keyword inputs.


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


# What a serialized program may say, so that torch runs nothing when it rebuilds it.
#
# torch's deserializers evaluate the text of symbolic sizes, make Python source of names, which they
# execute, look up operators as attributes of any module, and import what containers name. All of it
# is in one kind of JSON, of ETRecords and of .pt2 files; what differs is in `Rules`.


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
            for text in check_values(parse_json(content), RECORD_RULES):
                _check_tensors(_decoded(text.encode()), strict)
            return
        payloads = [bytes(content[run.start : run.end]) for run in find_payloads(content)]
        weights = check_values(parse_json(without_payloads(content)), RECORD_RULES)
        for encoded in (*payloads, *(text.encode() for text in weights)):
            data = _decoded(encoded)
            if bytes(data[:2]) == b"PK" or FAKE_TENSOR in bytes(data):
                _check_tensors(data, strict)


def check_plain(program: Json, siblings: Iterable[memoryview]) -> bool:
    """As `check_program`, of JSON that is parsed and has no long payloads. False if there are
    programs of delegates in it all the same, which are not checked."""
    with reading("ETRecord"):
        for data in siblings:
            _check_tensors(data, False)
        return not check_values(program, RECORD_RULES)


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
        check_values(tensor.description, RECORD_RULES)
