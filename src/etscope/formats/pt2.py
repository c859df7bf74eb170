"""Files of `torch.export.save` (.pt2): a zip of a program's JSON, its weights, and sample inputs.

    archive_format                        "pt2"
    models/NAME.json                      the program, of torch's own schema
    data/weights/NAME_weights_config.json where each weight is: a file, type, sizes, strides
    data/weights/weight_0 ...             bytes of a storage
    data/constants/...                    the same for tensors that are no weights
    data/sample_inputs/NAME.pt            example inputs, by `torch.save`

All below a folder of any name. The format lets a file run code in many places: pickled weights and
objects, guards and symbolic sizes that are evaluated, names that become Python source, operators
that are any function of torch, containers that import modules. What is read here has none of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from etscope.errors import FormatError, VersionError, reading
from etscope.formats.exported_json import mapping, parse_json, sequence, text
from etscope.formats.program_safety import check_program
from etscope.formats.symexpr_calls import check_calls
from etscope.formats.zip_archive import ZipArchive, open_archive

KIND = ".pt2 file"
_DO_NOT_TRUST = "the file may be made to run code where it is opened; do not trust it"
_FACTORY = "load it in Python code that you trust, and name a function that returns it"
_OLD = "serialized_exported_program.json"  # PyTorch 2.7 and before
_PAYLOADS = (("data/weights/", "weights"), ("data/constants/", "constants"))


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """A weight or constant: the bytes of its storage, which others may share, and its description
    (`TensorMeta` of torch's schema)."""

    file: str
    data: memoryview
    is_parameter: bool
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Pt2Program:
    """A program that holds nothing to run. `sample_inputs` are a `torch.save` file or empty."""

    name: str
    json: bytes
    weights: Mapping[str, Payload]
    constants: Mapping[str, Payload]
    sample_inputs: memoryview


def is_pt2(data: memoryview) -> bool:
    """Whether it seems to be a file of `torch.export.save`."""
    try:
        archive = open_archive(data, KIND)
    except FormatError:
        return False
    return _OLD in archive.members or _root(archive) is not None


def read_pt2(data: memoryview, path: str | None = None) -> dict[str, Pt2Program]:
    """name -> program of a .pt2 file.

    Raises `FormatError` for what is damaged, or might run code when torch loads it.
    """
    with reading(KIND, path):
        archive = open_archive(data, KIND, path)
        if _OLD in archive.members:
            raise VersionError(
                "written by PyTorch 2.7 or before", hint="save it again with a newer one"
            )
        root = _root(archive)
        if root is None:
            raise FormatError("no archive_format member that says pt2")
        start, end = f"{root}models/", ".json"
        names = [
            member[len(start) : -len(end)]
            for member in archive.members
            if member.startswith(start) and member.endswith(end)
        ]
        if not names:
            raise FormatError("the archive holds no exported program", hint=_FACTORY)
        return {name: _read_program(archive, root, name) for name in names}


def _root(archive: ZipArchive) -> str | None:
    """The folder that all is in, with its slash."""
    for member in archive.members:
        if member.endswith("archive_format") and bytes(archive.read(member)) == b"pt2":
            return member.removesuffix("archive_format")
    return None


def _read_program(archive: ZipArchive, root: str, name: str) -> Pt2Program:
    member = f"{root}models/{name}.json"
    with reading(KIND, archive.path, member=member):
        program = mapping(parse_json(archive.read(member)), "a program")
        # Conditions on inputs, as Python text that torch executes. Inputs are ours: none are lost.
        program["guards_code"] = []
        content = json.dumps(program).encode()
        check_pt2_program(program)
        check_program(memoryview(json.dumps(_without_sizes(program)).encode()), (), strict=True)
    weights, constants = (
        _read_payloads(archive, root, folder, f"{root}{folder}{name}_{kind}_config.json")
        for folder, kind in _PAYLOADS
    )
    sample = f"{root}data/sample_inputs/{name}.pt"
    inputs = archive.read(sample) if sample in archive.members else memoryview(b"")
    return Pt2Program(name, content, weights, constants, inputs)


def _read_payloads(archive: ZipArchive, root: str, folder: str, config: str) -> dict[str, Payload]:
    if config not in archive.members:
        raise VersionError(
            "weights in one pickle, as PyTorch 2.8 and before wrote them",
            member=config,
            hint="save it again with a newer one",
        )
    with reading(KIND, archive.path, member=config):
        entries = mapping(mapping(parse_json(archive.read(config)), "it")["config"], "config")
        return {
            name: _payload(archive, f"{root}{folder}", name, mapping(entry, "an entry"))
            for name, entry in entries.items()
        }


def _payload(archive: ZipArchive, folder: str, name: str, entry: dict[str, Any]) -> Payload:
    file = text(entry["path_name"], "path_name")
    if entry.get("use_pickle") or not file.startswith(("weight_", "tensor_")):
        raise FormatError(
            f"{name} is stored as a pickle, which could run code when it is loaded", hint=_FACTORY
        )
    meta = mapping(entry["tensor_meta"], "tensor_meta")
    return Payload(file, archive.read(folder + file), bool(entry["is_param"]), meta)


# --------------------------------------------------------------------------------------------
# What a program of torch's schema may say, beyond what `program_safety` looks at.

_OPERATOR = re.compile(r"torch\.ops\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)", re.ASCII)
_CONTROL_FLOW = re.compile(r"torch\.ops\.higher_order\.([a-z_]\w*)", re.ASCII)
_FUNCTION = re.compile(r"(_operator|math|torch)\.([a-z_]\w*)", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)

# Libraries of operators that compute, and nothing else. Whether one is there, torch says.
_NAMESPACES = frozenset(
    {"aten", "prims", "quantized_decomposed", "torchao", "torchvision", "dim_order_ops", "llama"}
)
_NOT_COMPUTING = frozenset({"from_file", "save", "_print", "warn"})
_HIGHER_ORDER = frozenset(
    {
        *("cond", "map_impl", "while_loop", "scan", "associative_scan", "invoke_subgraph"),
        *("wrap_with_set_grad_enabled", "wrap_with_autocast"),
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
_CONTAINERS = frozenset({"builtins.tuple", "builtins.list", "builtins.dict"}) | {
    "collections.OrderedDict"
}


def check_pt2_program(program: Any) -> None:
    """Raise `FormatError` unless all operators only compute, all names are plain, and no container
    imports anything."""
    for key, value in _entries(program):
        if key in ("target", "as_operator"):
            _check_target(value)
        elif key in ("name", "as_name"):
            _check_identifier(key, value)
        elif key in ("in_spec", "out_spec"):
            _check_tree(parse_json(text(value, key)))
        elif key == "forward_arg_names":
            for name in sequence(value or [], key):
                _check_identifier("name of an argument", name)
        elif key == "expr_str":
            check_calls(value)
        elif key == "guards_code" and value:
            raise FormatError("a program with guards, which torch executes", hint=_DO_NOT_TRUST)


def _without_sizes(value: Any) -> Any:
    """The same with 0 for symbolic sizes, which were checked by the grammar of this format."""
    if isinstance(value, list):
        return [_without_sizes(item) for item in value]
    if isinstance(value, dict):
        return {
            key: "0" if key == "expr_str" else _without_sizes(item) for key, item in value.items()
        }
    return value


def _entries(root: Any) -> Iterator[tuple[str, Any]]:
    """All entries of objects, of text that is an object too."""
    todo = [root]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo.extend(value)
        elif isinstance(value, dict):
            yield from value.items()
            todo.extend(value.values())


def _check_target(target: object) -> None:
    name = text(target, "the target of a node")
    match = _OPERATOR.fullmatch(name)
    if match:
        namespace, operator, overload = match.groups()
        if overload.startswith("__") or operator.rstrip("_") in _NOT_COMPUTING:
            raise FormatError(f"an operator that does not compute: {name}", hint=_DO_NOT_TRUST)
        if namespace not in _NAMESPACES:
            raise FormatError(
                f"an operator of an unknown library: {name}; it might do anything", hint=_FACTORY
            )
        return
    control = _CONTROL_FLOW.fullmatch(name)
    if control and control[1] in _HIGHER_ORDER:
        return
    function = _FUNCTION.fullmatch(name)
    if function and function[2] in _FUNCTIONS[function[1]]:
        return
    shown = name if len(name) <= 80 else name[:77] + "..."
    raise FormatError(f"not an operator that torch.export writes: {shown!r}", hint=_DO_NOT_TRUST)


def _check_identifier(key: str, name: object) -> None:
    given = "" if name is None else text(name, key)
    if given and not _IDENTIFIER.fullmatch(given):
        raise FormatError(
            f"a {key} is not a name that torch writes: {given[:80]!r}", hint=_DO_NOT_TRUST
        )


def _check_tree(spec: Any) -> None:
    """The structure of inputs and outputs: `[version, tree]`."""
    todo = list(sequence(spec, "a tree of inputs"))[1:]
    while todo:
        node = mapping(todo.pop(), "a tree of inputs")
        kind, context = node["type"], node["context"]
        if kind is not None and kind not in _CONTAINERS:
            raise FormatError(
                f"inputs or outputs in a container of the type {str(kind)[:80]!r}, which torch "
                "builds by code",
                hint=_FACTORY,
            )
        keys = None if context is None else parse_json(text(context, "the keys of a container"))
        if any(isinstance(key, (dict, list)) for key in sequence(keys or [], "keys")):
            raise FormatError("a container with keys that torch builds by code", hint=_DO_NOT_TRUST)
        todo.extend(sequence(node["children_spec"], "children_spec"))
