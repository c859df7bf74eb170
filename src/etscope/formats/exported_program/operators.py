"""Which operators a serialized program may name: those that compute, and do nothing else.

torch and ExecuTorch resolve such a name by looking up one attribute after the other, from `torch`,
so that any function of any module below is reached (`torch.os.system`), and is called when the
rebuilt graph is run, if only as an argument of one that calls its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from etscope.errors import FormatError

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
