"""Reject serialized programs that would run code when torch rebuilds them.

A file can come from anywhere. torch's deserializers evaluate the text of symbolic sizes, execute
Python source made of names, look up operators as attributes of any module, and import what
containers name. ETRecords and .pt2 files have all of this in the same kind of JSON, with the
programs of delegates inside it; `Rules` has the differences. Reading graphs without torch does not
need these checks, as it does not evaluate anything.
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

DO_NOT_TRUST = "the file may be an attack that runs code on opening; do not trust it"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for one kind of file.

    check_size: raises `FormatError` for a symbolic size that is not arithmetic.
    without_own: None if the file may name operators and containers that the user's code registers;
        otherwise the hint for such a file.
    """

    check_size: Callable[[object], None]
    without_own: str | None


RECORD_RULES = Rules(check_expression, None)
PT2_RULES = Rules(
    check_calls, "load it in Python code that you trust, and name a function that returns it"
)


def check_program(content: memoryview, siblings: Iterable[memoryview], *, strict: bool) -> None:
    """Check the JSON of a program, including the programs and weights of delegates, and its sibling
    members (`torch.save` files: a tensor without data has symbolic sizes, too).

    With `strict`, `torch_archive` must be able to read all pickles: ExecuTorch 1.2 and older
    unpickle everything they find.

    Raises `FormatError` with the forbidden part.
    """
    with reading("ETRecord"):
        for data in siblings:
            _check_tensors(data, strict)
        if strict:  # keep all payloads in the JSON: only their keys show which ones are weights
            for encoded in check_values(parse_json(content), RECORD_RULES):
                _check_tensors(_decoded(encoded.encode()), strict)
            return
        payloads = [bytes(content[run.start : run.end]) for run in find_payloads(content)]
        weights = check_values(parse_json(without_payloads(content)), RECORD_RULES)
        for payload in (*payloads, *(encoded.encode() for encoded in weights)):
            data = _decoded(payload)
            if bytes(data[:2]) == b"PK" or FAKE_TENSOR in bytes(data):
                _check_tensors(data, strict)


def check_plain(program: Json, siblings: Iterable[memoryview]) -> bool:
    """Do `check_program` for parsed JSON without long payloads. Return False if it contains
    programs of delegates nevertheless; these are not checked."""
    with reading("ETRecord"):
        for data in siblings:
            _check_tensors(data, False)
        return not check_values(program, RECORD_RULES)


def _decoded(encoded: bytes) -> memoryview:
    """Decode base64 the way torch does, ignoring other characters. Empty for text that torch
    rejects."""
    try:
        return memoryview(base64.b64decode(encoded))
    except ValueError:
        return memoryview(b"")


def _check_tensors(data: memoryview, strict: bool) -> None:
    if strict and len(data):
        read_tensors(data)
    for tensor in fake_tensors(data):
        check_values(tensor.description, RECORD_RULES)


# --------------------------------------------------------------------------------------------
# The JSON, entry by entry.

# Names that torch writes into the source of a graph: identifiers, with dots between.
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_0-9][A-Za-z0-9_]*)*)?")
# Qualified names of weights: looked up, and written into source between quotes.
_QUALIFIED = re.compile(r"[^\"'\\\x00-\x1f\x7f(){};=]*")
_NAME_PATTERNS = {
    **dict.fromkeys(("name", "as_name"), _NAME),
    **dict.fromkeys(
        (
            *("parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name"),
            *("user_input_name", "fqn", "class_fqn"),
        ),
        _QUALIFIED,
    ),
}
# Objects with names of values as keys. Names can be anything ("target" and "name" are common).
_BY_NAME = frozenset({"tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values"}) | {
    "custom_obj_values"
}
_WEIGHT_KEYS = frozenset({"original_state_dict", "original_constants"})


def check_values(root: object, rules: Rules) -> list[str]:
    """Check everything in the JSON, also programs of delegates; return the base64 text of the
    weights in it.

    Raises `FormatError` for forbidden content.
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
                target = value["target"]
                if not isinstance(target, str):
                    raise FormatError(
                        f"the target of a node must be text, found {type(target).__name__}"
                    )
                if rules.without_own is None:
                    check_call(target, value.get("inputs"), hint=DO_NOT_TRUST)
                else:
                    check_operator(target, hint=rules.without_own)
            for key, content in value.items():
                todo.extend(_check_entry(key, content, rules))
    return weights


def _check_entry(key: str, content: Any, rules: Rules) -> Iterator[Any]:
    """Check one entry of an object; yield the values in it that need a check."""
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
    elif not isinstance(content, str):
        return
    elif key in _NAME_PATTERNS:
        if not _NAME_PATTERNS[key].fullmatch(content):
            raise FormatError(
                f"a {key} is not a name that torch writes: {_shown(content)}", hint=DO_NOT_TRUST
            )
    elif key == "as_operator":
        check_operator(content, hint=rules.without_own or DO_NOT_TRUST)
    elif key == "as_string" and content.lstrip()[:1] == "{":
        # The program that a delegate runs is JSON in a text.
        try:
            module = json.loads(content)
        except ValueError:
            return
        if isinstance(module, dict) and "original_module" in module:
            yield module


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:77] + "...")


# --------------------------------------------------------------------------------------------
# Operators that a serialized program may name: those that only compute.
#
# torch and ExecuTorch resolve such a name attribute by attribute, from `torch`. This reaches any
# function of any module below it (`torch.os.system`). The rebuilt graph calls the function when it
# runs, if only as an argument of an operator that calls its arguments.

_OPERATOR = re.compile(
    r"(?:torch\.ops|executorch\.exir\.dialects\.(?:edge|backend)\.ops)"
    r"\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)",
    re.ASCII,
)
_CONTROL_FLOW = re.compile(r"torch\.ops\.higher_order\.([a-z_]\w*)", re.ASCII)
_FUNCTION = re.compile(r"(_operator|math|torch)\.([a-z_]\w*)", re.ASCII)

# Libraries of operators that only compute. torch knows which of them are loaded.
_NAMESPACES = frozenset(
    {
        *("aten", "prims", "quantized_decomposed", "quantized", "torchao", "torchvision"),
        *("dim_order_ops", "executorch_prim", "et_copy", "llama", "cadence", "cortex_m", "tosa"),
    }
)
_NOT_COMPUTING = frozenset({"from_file", "save", "_print", "warn"})
# Attributes of torch.ops that are not libraries.
_NOT_LIBRARIES = re.compile(r"_.*|import_module|load_library|loaded_libraries|higher_order|name|op")
# Operators that call others: only graphs and operators that are checked, too.
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
# The tensor in an attribute of a tensor subclass (a quantized weight): torch checks that it is one.
# The name of the attribute is its only text.
_TENSOR_PARTS = "torch.ops.export.access_subclass_inner_tensor.default"
# Memory of ExecuTorch's own graphs; not looked up, but known to its deserializer.
_MEMORY = frozenset({"memory.alloc", *(f"executorch.exir.memory.{n}" for n in ("view", "free"))})
_TEXTS = ("as_string", "as_strings", "as_operator", "as_custom_obj")


def check_operator(name: str, *, hint: str) -> None:
    """Raise `FormatError` unless the operator is known to compute only.

    `hint` is the fix for an operator of an unknown library.
    """
    if not _is_known(_library(name)):
        raise FormatError(
            f"an operator of an unknown library: {_shown(name)}; it could do anything", hint=hint
        )


def check_call(name: str, inputs: Any, *, hint: str) -> None:
    """Do `check_operator` for a node with these inputs; allow the user's own operators.

    The user's code has registered these. But this process may have loaded other operators, too,
    and some read or write files. So all may get tensors and numbers, but not a text that could be a
    path.
    """
    if _is_known(_library(name)):
        return
    for item in inputs if isinstance(inputs, list) else ():
        argument = item.get("arg") if isinstance(item, dict) else None
        if isinstance(argument, dict) and any(argument.get(tag) is not None for tag in _TEXTS):
            raise FormatError(
                f"an operator of an unknown library gets text: {_shown(name)}; it could do "
                "anything with it",
                hint=hint,
            )


def _is_known(library: str) -> bool:
    return library == "" or library in _NAMESPACES


def _library(name: str) -> str:
    """The library of an operator; "" for an allowed function that is not in a library."""
    if name == _TENSOR_PARTS:
        return ""
    if match := _OPERATOR.fullmatch(name):
        library, operator, overload = match.groups()
        if overload.startswith("__") or (
            library == "aten" and operator.rstrip("_") in _NOT_COMPUTING
        ):
            raise FormatError(
                f"the program calls an operator that does more than compute: {_shown(name)}",
                hint=DO_NOT_TRUST,
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


# --------------------------------------------------------------------------------------------
# The trees of inputs and outputs in a serialized program, `[version, tree]` as JSON in a text.
#
# Each node is a container: the name of its type, its context, its children. torch imports the
# modules that enumerations and default dictionaries name, and makes Python source of the names of
# keyword inputs.

_SEQUENCES = frozenset({"builtins.tuple", "builtins.list", "torch.Size"}) | {
    "torch.fx.immutable_collections.immutable_list"
}
_DICTIONARIES = frozenset({"builtins.dict", "collections.OrderedDict"}) | {
    "torch.fx.immutable_collections.immutable_dict"
}
_DEFAULT_DICTIONARY = "collections.defaultdict"
_PLAIN = _SEQUENCES | _DICTIONARIES | {"collections.deque", _DEFAULT_DICTIONARY}
_FACTORIES = frozenset({"bool", "dict", "float", "int", "list", "set", "str", "tuple"})
# All classes without a name for files are registered under this one.
_NAMELESS = "NO_SERIALIZED_TYPE_NAME_FOUND"
_JSON = re.compile(r"\s*(?:[\[{\"\-0-9]|(?:null|true|false|NaN|Infinity)\s*\Z)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def check_tree(spec: object, *, hint: str | None, of_inputs: bool) -> None:
    """Raise `FormatError` unless torch can build the tree from loaded types, without imports.

    With `hint`, allow only torch's own types; it is the fix for others.
    """
    root = sequence(parse_json(text(spec, "a tree of inputs")), "a tree of inputs")
    todo = root[1:]
    if of_inputs and todo:
        # A pair of positional and keyword inputs: the context of the latter are their names.
        pair = mapping(todo[0], "a tree of inputs")
        children = sequence(pair["children_spec"], "children_spec")
        if len(children) > 1:
            context = mapping(children[1], "a tree of inputs")["context"]
            names = parse_json(context) if isinstance(context, str) else context
            for name in names if isinstance(names, list) else ():
                check_identifier("keyword input", str(name))
    while todo:
        node = mapping(todo.pop(), "a tree of inputs")
        kind = node["type"]
        if kind is not None:
            _check_container(text(kind, "the type of a container"), node["context"], hint)
        elif node["context"] is not None:
            raise FormatError("a container without a type", hint=DO_NOT_TRUST)
        todo.extend(sequence(node["children_spec"], "children_spec"))


def check_identifier(what: str, name: object) -> None:
    """Raise `FormatError` unless the name is safe in Python source."""
    given = "" if name is None else text(name, what)
    if given and not _IDENTIFIER.fullmatch(given):
        raise FormatError(
            f"a {what} is not a name that torch writes: {given[:80]!r}", hint=DO_NOT_TRUST
        )


def _check_container(kind: str, context: object, hint: str | None) -> None:
    if kind == _DEFAULT_DICTIONARY:
        # Its factory is imported, and called for missing keys.
        about = mapping(context, "the context of a default dictionary")
        module, name = about["default_factory_module"], about["default_factory_name"]
        if module != "builtins" or name not in _FACTORIES:
            raise FormatError(
                f"a default dictionary of {module!s:.40}.{name!s:.40}", hint=DO_NOT_TRUST
            )
        _check_keys(about["dict_context"])
    elif kind in _PLAIN:
        keys = parse_json(text(context, "the keys of a container")) if context is not None else None
        if kind in _DICTIONARIES:
            _check_keys(keys)
        elif isinstance(keys, (dict, list)):
            raise FormatError(f"a {kind} cannot have a context: {keys!s:.80}", hint=DO_NOT_TRUST)
    elif kind == _NAMELESS or hint is not None:
        raise FormatError(
            f"inputs or outputs in a container of the type {kind[:80]!r}, which torch builds with "
            "code",
            hint=hint or DO_NOT_TRUST,
        )
    else:
        # The user's own container: JSON as a text, which torch reads, or anything that the code of
        # the container reads.
        todo = [context]
        if isinstance(context, str) and _JSON.match(context):
            todo = [parse_json(context)]
        while todo:
            value = todo.pop()
            if isinstance(value, dict):
                if "__enum__" in value:
                    raise FormatError(
                        "an enumeration in a container: torch would import its module",
                        hint=DO_NOT_TRUST,
                    )
                todo.extend(value.values())
            elif isinstance(value, list):
                todo.extend(value)


def _check_keys(keys: object) -> None:
    if any(isinstance(key, (dict, list)) for key in sequence(keys, "the keys of a container")):
        raise FormatError("a container with keys that torch builds with code", hint=DO_NOT_TRUST)
