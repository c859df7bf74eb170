"""Build a `Graph` from the JSON of a serialized `ExportedProgram`, without torch.

Nodes have the same names as in ExecuTorch's deserializer. torch's `getitem` nodes become named
outputs of the node that computes them.
"""

from __future__ import annotations

import base64
import builtins
import json
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, overload

from etscope.errors import FormatError, VersionError, reading
from etscope.formats.bytes.files import ParseCache
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordView
from etscope.formats.exported_program.exported_json import (
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    SUPPORTED_MAJOR,
    Json,
    enum_name,
    integer,
    mapping,
    parse_json,
    payload_size,
    sequence,
    text,
    union,
)
from etscope.model.graph import Delegate, Graph, ModuleFrame, Node, Origin, TensorSpec, Value

# -- Arguments (as text) and tensor descriptions (as `TensorSpec`) of a serialized graph.


def tensor_spec(content: object) -> TensorSpec:
    """The description of a tensor value: an entry of `tensor_values`."""
    meta = mapping(content, "a tensor's description")
    meta = mapping(meta.get("meta", meta), "a tensor's description")  # one level more until 2024
    sizes = [_size(size) for size in sequence(meta["sizes"], "sizes")]
    strides = [_size(size)[0] for size in sequence(meta["strides"], "strides")]
    symbolic = any(isinstance(size, str) for size, _ in sizes)
    return TensorSpec(
        dtype=enum_name(DTYPES, meta["dtype"], "dtype"),
        shape=tuple(size for size, _ in sizes),
        strides=tuple(strides),
        device=_device(meta["device"]),
        hints=tuple(hint for _, hint in sizes) if symbolic else (),
    )


def _size(value: object) -> tuple[int | str, int | None]:
    """Return a size or stride with its hint: the number, or the recorded hint of an expression."""
    tag, content = union(value)
    if tag == "as_int":
        number = integer(content, "a size")
        return number, number
    expression = mapping(content, "a symbolic size")
    hint = expression.get("hint")
    known = None if hint is None else union(hint)[1]
    shown = text(expression["expr_str"], "a symbolic size")
    return shown, known if known is None else integer(known, "the hint of a symbolic size")


def _device(value: object) -> str:
    device = mapping(value, "a device")
    kind = text(device["type"], "a device's type")
    index = device.get("index")
    return kind if index is None else f"{kind}:{integer(index, 'the index of a device')}"


class Arguments:
    """Formats arguments of nodes as text, with the names that values have in the graph.

    names: maps a value's name in the file to its name in the graph; it may grow during use.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def text(self, argument: object, used: list[str]) -> str:
        """Return the argument as Python text; add the names of its values to `used`."""
        tag, content = union(argument)
        return self._text(tag, content, used)

    def _text(self, tag: str, content: Any, used: list[str]) -> str:
        if tag in ("as_tensor", "as_custom_obj", "as_graph"):
            return self._use(content["name"], used)
        if tag in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            inner, value = union(content)
            return self._use(value, used) if inner == "as_name" else repr(value)
        if tag == "as_none":
            return "None"
        if tag == "as_scalar_type":
            return "torch." + enum_name(DTYPES, content, "dtype")
        if tag == "as_memory_format":
            return "torch." + enum_name(MEMORY_FORMATS, content, "memory format")
        if tag == "as_layout":
            return "torch." + enum_name(LAYOUTS, content, "layout")
        if tag == "as_device":
            return repr(_device(content))
        if tag in ("as_int", "as_float", "as_bool", "as_string"):
            return repr(content)
        if tag == "as_operator":
            return text(content, "an operator")
        if tag == "as_tensors":
            return self._list((("as_tensor", item) for item in content), used)
        if tag == "as_optional_tensors":
            return self._list(map(union, content), used)
        if tag in ("as_sym_ints", "as_sym_bools", "as_sym_floats"):
            return self._list(((tag[:-1], item) for item in content), used)
        if tag in ("as_ints", "as_floats", "as_bools", "as_strings"):
            return repr(sequence(content, "a list"))
        raise FormatError(f"unknown kind of argument: {tag[:60]}")

    def _list(self, items: Any, used: list[str]) -> str:
        return "[" + ", ".join(self._text(tag, item, used) for tag, item in items) + "]"

    def _use(self, written: object, used: list[str]) -> str:
        name = self._names.get(text(written, "a value's name"))
        if name is None:
            raise FormatError(f"a node uses the value {written!r} before a node computes it")
        used.append(name)
        return name


# -- Names of nodes by the rules of `torch.fx`, so that they equal the names in torch.
#
# A serialized program does not have the names of all nodes: torch makes them when it builds the
# graph, by the rules of `torch.fx.graph._Namespace` (torch 2.1 to 2.13).

_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"([a-zA-Z_][0-9a-zA-Z_]*?)(?:_([0-9]{1,18}))?")
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")
_RESERVED = frozenset(
    {*keyword.kwlist, *dir(builtins), "NoneType", "device", "fx_pytree", "inf", "nan", "pytree"}
    | {"torch"}
)


class Namespace:
    """The names of one graph, each used once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last: dict[str, int] = {}

    def create(self, wanted: str) -> str:
        """Return a new identifier similar to `wanted`."""
        name = _ILLEGAL.sub("_", wanted) or "_unnamed"
        if name[0].isdigit():
            name = "_" + name
        match = _NUMBERED.fullmatch(name)
        base, digits = (match[1], match[2]) if match else (name, None)
        if digits is None or name in self._used:
            number = self._last.get(base, 0)
            if name in _RESERVED:
                number += 1
                name = f"{base}_{number}"
        else:
            number = int(digits)
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        self._last[base] = number
        return name

    def reserve(self, name: str) -> None:
        self._used.add(name)


def from_target(target: str) -> str:
    """Return fx's default name for a node of this target."""
    if len(target) > 4 and target.startswith("__") and target.endswith("__"):
        target = target[2:-2]
    return _CAPITAL.sub(r"_\1", target).lower()


# -- Metadata of nodes that a serialized graph stores as text: modules, origins, handle.

_HANDLE = re.compile(r"-?\d{1,18}")


class Origins(Sequence[Origin]):
    """The `from_node` chain of a node, parsed on first access.

    It is JSON within JSON and the larger half of a record's graph, and few tools need it.
    """

    def __init__(self, from_node: str) -> None:
        self._text = from_node

    @cached_property
    def _origins(self) -> tuple[Origin, ...]:
        with reading("ETRecord", member="from_node"):
            content = json.loads(self._text)
            return _origins([] if content is None else content)

    @overload
    def __getitem__(self, index: int) -> Origin: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Origin, ...]: ...
    def __getitem__(self, index: int | slice) -> Origin | tuple[Origin, ...]:
        return self._origins[index]

    def __len__(self) -> int:
        return len(self._origins)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Origins):
            return self._text == other._text or self._origins == other._origins
        return self._origins == other

    def __hash__(self) -> int:
        return hash(self._origins)

    def __repr__(self) -> str:
        return repr(self._origins)


def _origins(content: object) -> tuple[Origin, ...]:
    links = (mapping(link, "an origin") for link in sequence(content, "from_node"))
    return tuple(
        Origin(
            name=text(link["name"], "an origin's name"),
            target=text(link["target"], "an origin's target"),
            graph_id=integer(link["graph_id"], "a graph's id"),
            pass_name=text(link.get("pass_name") or "", "a pass's name"),
            actions=tuple(filter(None, text(link.get("action") or "", "an action").split("+"))),
            origins=_origins(link.get("from_node") or []),
        )
        for link in links
    )


def debug_handle(value: str | None) -> int | None:
    """Return the handle in a node's metadata, a decimal text."""
    if value is None or value == "None":
        return None
    if not _HANDLE.fullmatch(text(value, "a debug handle")):
        raise FormatError(f"a debug handle must be a whole number, found {value[:40]!r}")
    return int(value)


@lru_cache(maxsize=4096)
def module_frames(nn_module_stack: str | None) -> tuple[ModuleFrame, ...]:
    """Return the levels of a module stack, outermost first, from "key,path,type;key,path,type".

    A type may have commas within brackets: `Generic[int, str]`.
    """
    frames = []
    for level in filter(None, (nn_module_stack or "").split(";")):
        parts = level.split(",", 2)
        if "[" in level or "(" in level:
            outside = _split_outside_brackets(level)
            if len(outside) >= 3:  # else a module's name holds half a pair of brackets
                parts = outside
        if len(parts) < 3:
            raise FormatError(f"a module stack's level must be key,path,type: {level[:80]!r}")
        key, path, *type_parts = parts
        frames.append(ModuleFrame(key.strip(), path.strip(), ",".join(type_parts).strip()))
    return tuple(frames)


def _split_outside_brackets(level: str) -> list[str]:
    """Return the parts between the commas outside brackets."""
    parts = [""]
    depth = 0
    for piece in re.split(r"([\[\](),])", level):
        if piece == "," and depth == 0:
            parts.append("")
            continue
        depth = max(0, depth + (piece in "[(") - (piece in "])") if piece else depth)
        parts[-1] += piece
    return parts


# -- Names of a method's inputs in the model's source, from a record's graph.


def record_input_names(record: RecordView, method: str) -> tuple[str, ...] | None:
    """Return the names of the user's inputs, in the program's order: nested inputs flat, inputs
    without a tensor included.

    None if the record does not have a graph of the method, or the graph does not name all inputs.
    Raises `FormatError` for a damaged graph.
    """
    graphs = [f"{EDGE}/{method}", f"{EXPORTED}/{method}"]
    if method == "forward" or record.edge_methods == (method,):
        graphs.append(EXPORTED)  # ExecuTorch keeps one exported program, under the bare name
    graph = next((name for name in graphs if name in record.graph_names), None)
    if graph is None:
        return None
    names = []
    with reading("ETRecord", record.path, member=graph):
        module = mapping(record.program_json(graph)["graph_module"], "graph_module")
        signature = mapping(module["signature"], "signature")
        for spec in sequence(signature.get("input_specs") or [], "input_specs"):
            tag, content = union(spec)
            if tag == "constant_input":
                names.append(text(content["name"], "an input's name"))
            elif tag == "user_input":
                _, argument = union(content["arg"])
                name = argument.get("name") or argument.get("as_name") if argument else None
                if name is None:
                    return None
                names.append(text(name, "an input's name"))
    return tuple(names)


_DIALECT_OPS = ("executorch.exir.dialects.edge.ops.", "executorch.exir.dialects.backend.ops.")
_CALL_DELEGATE = "torch.ops.higher_order.executorch_call_delegate"
_HIGHER_ORDER = "torch.ops.higher_order."
# Kinds of inputs with the qualified name of a weight, in the field "<kind>_name".
_WEIGHTS = ("parameter", "buffer", "tensor_constant", "custom_obj")


def graph_from_record(record: RecordView, name: str) -> Graph:
    """Return the graph of that name of a record.

    Raises `MissingDataError` if the record does not have it, `FormatError` if it is damaged.
    """
    graph_id = record.export_graph_ids.get(name)

    def build() -> Graph:
        program = record.program_json(name)
        with reading("ETRecord", record.path, member=name):
            return graph_from_program_json(program, name, graph_id)

    content = record.program_content(name) if name in record.graph_names else None
    return build() if content is None else _GRAPHS.made(content, (name, graph_id), build)


_GRAPHS: ParseCache[Graph] = ParseCache(most=16 << 20)


def graph_from_program_json(program: Json, name: str, graph_id: int | None = None) -> Graph:
    """Build the graph of a parsed program. `graph_id` is the exporting process's id of it.

    Raises `FormatError` (with `name` as its member) for a malformed program, and `VersionError` for
    a schema of a later major version.
    """
    with reading("ETRecord", member=name):
        version = program.get("schema_version", 0)
        major = version.get("major", 0) if isinstance(version, dict) else version
        if integer(major, "schema_version") > SUPPORTED_MAJOR:
            raise VersionError(
                f"the graph has schema version {major}; etscope reads up to {SUPPORTED_MAJOR}",
                hint="a newer etscope may read this graph",
            )
        module = mapping(program["graph_module"], "graph_module")
        signature = mapping(module["signature"], "signature")
        verifiers = sequence(program.get("verifiers") or [], "verifiers")
        dialect = text(verifiers[0] if verifiers else program.get("dialect") or "", "the dialect")
        graph = _GraphBuilder(module["graph"], name, signature).build(dialect, graph_id)
        ranges = mapping(program.get("range_constraints") or {}, "range_constraints")
        limits = {
            symbol: entry["max_val"]
            for symbol, entry in ranges.items()
            if isinstance(entry, dict) and type(entry.get("max_val")) is int
        }
        return replace(graph, limits=limits)


class _GraphBuilder:
    """Builds one graph in the order of the file, like torch, so that names are equal."""

    def __init__(self, content: object, name: str, signature: Json | None = None) -> None:
        self._json = mapping(content, "graph")
        self._name = name
        self._signature = signature or {}
        self._namespace = Namespace()
        self._values: dict[str, str] = {}  # a value's name in the file -> in the graph
        self._arguments = Arguments(self._values)
        self._nodes: list[Node] = []

    def build(self, dialect: str = "", graph_id: int | None = None) -> Graph:
        specs = sequence(self._signature.get("input_specs") or [], "input_specs")
        parameters: dict[str, str] = {}
        inputs = []
        for index, value in enumerate(sequence(self._json["inputs"], "inputs")):
            kind, content = union(specs[index]) if index < len(specs) else ("", {})
            placeholder = self._placeholder(value, kind, content)
            inputs.append(placeholder.name)
            if kind in _WEIGHTS:
                weight = text(content[f"{kind}_name"], f"a {kind}'s name")
                parameters[placeholder.name] = weight
            self._nodes.append(placeholder)
        for node in sequence(self._json["nodes"], "nodes"):
            self._add(mapping(node, "a node"))
        outputs = self._output()
        return Graph(
            name=self._name,
            nodes=tuple(self._nodes),
            dialect=dialect,
            inputs=tuple(inputs),
            outputs=outputs,
            parameters=parameters,
            graph_id=graph_id,
            state=frozenset(self._written_back(parameters)),
        )

    def _written_back(self, parameters: Mapping[str, str]) -> Iterator[str]:
        """Yield the placeholders of buffers that the graph writes."""
        placeholders = {weight: name for name, weight in parameters.items()}
        for spec in sequence(self._signature.get("output_specs") or [], "output_specs"):
            kind, content = union(spec)
            if kind == "buffer_mutation":
                weight = text(content["buffer_name"], "a buffer's name")
                if weight in placeholders:
                    yield placeholders[weight]

    # -- nodes of the graph's frame

    def _placeholder(self, value: object, kind: str, constant: Any) -> Node:
        tag, content = union(value)
        if tag in ("as_tensor", "as_sym_int", "as_sym_bool", "as_custom_obj"):
            written = text(content.get("name") or content.get("as_name"), "an input's name")
            self._namespace.create(from_target(written))
            name = written  # fx keeps the file's name here, whatever it is
            self._namespace.reserve(name)
            self._values[written] = name
        else:
            named = text(constant["name"], "an input's name") if kind == "constant_input" else ""
            name = self._namespace.create(from_target(named))
        return Node(name, "placeholder", name, "", outputs=(self._value(name, name),))

    def _output(self) -> tuple[str, ...]:
        used: list[str] = []
        outputs = sequence(self._json["outputs"], "outputs")
        shown = [("", self._arguments.text(output, used)) for output in outputs]
        name = self._namespace.create("output")
        self._nodes.append(Node(name, "output", "output", "", tuple(used), tuple(shown)))
        return tuple(used)

    # -- nodes that call

    def _add(self, node: Json) -> None:
        target = text(node["target"], "a node's target")
        inputs = sequence(node["inputs"], "a node's inputs")
        outputs = sequence(node["outputs"], "a node's outputs")
        metadata = {
            key: text(value, f"a node's {key}")
            for key, value in mapping(node.get("metadata") or {}, "a node's metadata").items()
        }
        delegate = None
        if target == _CALL_DELEGATE and inputs:
            delegate, inputs = self._delegate(inputs[0]), inputs[1:]
        subgraphs = self._subgraphs(inputs)
        used = [] if delegate is None else [delegate.name]
        arguments = [] if delegate is None else [("", delegate.name)]
        for entry in inputs:
            argument = mapping(entry, "an argument")
            shown = self._arguments.text(argument["arg"], used)
            arguments.append((text(argument.get("name") or "", "an argument's name"), shown))
        from_node = metadata.pop("from_node", None)
        name = self._namespace.create(_wanted_name(target, node, outputs))
        self._nodes.append(
            Node(
                name=name,
                kind="call_function",
                target=target,
                op=_op(target),
                inputs=tuple(used),
                arguments=tuple(arguments),
                outputs=self._outputs(name, outputs),
                debug_handle=debug_handle(metadata.pop("debug_handle", None)),
                stack_trace=metadata.pop("stack_trace", None),
                modules=module_frames(metadata.pop("nn_module_stack", None)),
                origins=Origins(from_node) if from_node else (),
                metadata=metadata,
                delegate=delegate,
                subgraphs=subgraphs,
            )
        )

    def _get_attr(self, target: str) -> str:
        name = self._namespace.create(from_target(target))
        self._nodes.append(Node(name, "get_attr", target, ""))
        return name

    def _subgraphs(self, inputs: list[Any]) -> tuple[Graph, ...]:
        graphs = []
        for entry in inputs:
            tag, content = union(mapping(entry, "an argument")["arg"])
            if tag == "as_graph":
                name = text(content["name"], "a sub-graph's name")
                graphs.append(_GraphBuilder(content["graph"], f"{self._name}/{name}").build())
                self._values[name] = self._get_attr(name)
        return tuple(graphs)

    def _delegate(self, argument: object) -> Delegate:
        entry = mapping(argument, "a delegate's module")
        name = text(entry["name"], "a delegate's name")
        tag, content = union(entry["arg"])
        module = mapping(parse_json(text(content, f"a delegate's {tag}")), "a delegate's module")
        specs = sequence(module.get("compile_specs") or [], "compile_specs")
        return Delegate(
            backend_id=text(module["backend_id"], "backend_id"),
            name=self._get_attr(name),
            graph=graph_from_program_json(module["original_module"], f"{self._name}/{name}"),
            processed_bytes=payload_size(module["processed_bytes"]),
            compile_specs={
                text(spec["key"], "a compile spec's key"): base64.b64decode(
                    text(spec["value"], "a compile spec's value")
                )
                for spec in specs
            },
        )

    def _outputs(self, node: str, outputs: list[Any]) -> tuple[Value, ...]:
        tags = [union(output) for output in outputs]
        if len(tags) == 1 and tags[0][0] in ("as_tensor", "as_sym_int", "as_sym_bool"):
            content = tags[0][1]
            written = text(content.get("name") or content.get("as_name"), "an output's name")
            self._values[written] = node
            return (self._value(written, node),)
        if len(tags) == 1 and tags[0][0] == "as_tensors":
            tags = [("as_tensor", element) for element in tags[0][1]]
        values: list[Value] = []
        for tag, content in tags:
            self._elements(tag, content, values)
        return tuple(values)

    def _elements(self, tag: str, content: Any, values: list[Value]) -> None:
        """Add the values of one element of a node with several: torch's `getitem` nodes."""
        if tag == "as_tensors":
            self._namespace.create("getitem")
            for element in content:
                self._elements("as_tensor", element, values)
        elif tag in ("as_tensor", "as_sym_int", "as_sym_bool"):
            written = text(content.get("name") or content.get("as_name"), "an output's name")
            name = self._namespace.create(written)
            self._values[written] = name
            values.append(self._value(written, name))

    def _value(self, written: str, name: str) -> Value:
        spec = self._json["tensor_values"].get(written)
        return Value(name, None if spec is None else tensor_spec(spec))


def _wanted_name(target: str, node: Json, outputs: list[Any]) -> str:
    """Return the name that torch requests from fx: see ExecuTorch's `exir/serde/serialize.py`."""
    written = node.get("name")
    tag, content = union(outputs[0]) if len(outputs) == 1 else ("", None)
    if target == "memory.alloc":
        return "alloc"
    if not written or target == _CALL_DELEGATE or target.startswith(_DIALECT_OPS):
        if tag == "as_tensor" and content:
            return text(content["name"], "an output's name")
    elif target.startswith(("torch.", "_operator.")):
        return text(written, "a node's name")
    return from_target(_op(target))


def _op(target: str) -> str:
    """`__name__` of the operator: "aten.add.Tensor" in the edge dialect, else "add.Tensor"."""
    for prefix in _DIALECT_OPS:
        if target.startswith(prefix):
            return target[len(prefix) :]
    if target.startswith(_HIGHER_ORDER):
        return target[len(_HIGHER_ORDER) :]
    if target.startswith("torch.ops."):
        return target.split(".", 3)[-1]
    return target.rpartition(".")[2]
