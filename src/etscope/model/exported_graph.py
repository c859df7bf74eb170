"""`Graph` of a serialized `ExportedProgram`, from its JSON alone, without torch.

The names of nodes are those that ExecuTorch's deserializer gives. What torch shows as `getitem`
nodes are here the named outputs of the node that makes them.
"""

from __future__ import annotations

import base64
from typing import Any

from etscope.errors import VersionError, reading
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.exported_program.exported_json import (
    SUPPORTED_MAJOR,
    Json,
    integer,
    mapping,
    parse_json,
    payload_size,
    sequence,
    text,
    union,
)
from etscope.model.exported_values import Arguments, tensor_spec
from etscope.model.fx_names import Namespace, from_target
from etscope.model.graph import Delegate, Graph, Node, Value
from etscope.model.node_metadata import debug_handle, module_frames, origins

_DIALECT_OPS = ("executorch.exir.dialects.edge.ops.", "executorch.exir.dialects.backend.ops.")
_CALL_DELEGATE = "torch.ops.higher_order.executorch_call_delegate"
_HIGHER_ORDER = "torch.ops.higher_order."


def graph_from_record(record: RecordView, name: str) -> Graph:
    """The graph of that name of a record.

    Raises `MissingDataError` if the record has no such graph, `FormatError` if it is broken.
    """
    program = record.program_json(name)
    with reading("ETRecord", record.path, member=name):
        return graph_from_program_json(program, name, record.export_graph_ids.get(name))


def graph_from_program_json(program: Json, name: str, graph_id: int | None = None) -> Graph:
    """The graph of a parsed program. `graph_id` is the exporting process's id of it, if known.

    Raises `FormatError` (with `name` as its member) if the program is not what it should be, and
    `VersionError` for a schema of a later major version.
    """
    with reading("ETRecord", member=name):
        _check_version(program)
        module = mapping(program["graph_module"], "graph_module")
        signature = mapping(module["signature"], "signature")
        return _GraphBuilder(module["graph"], name, signature).build(_dialect(program), graph_id)


def _check_version(program: Json) -> None:
    version = program.get("schema_version", 0)
    major = version.get("major", 0) if isinstance(version, dict) else version
    if integer(major, "schema_version") > SUPPORTED_MAJOR:
        raise VersionError(
            f"the graph is of schema version {major}; etscope reads up to {SUPPORTED_MAJOR}",
            hint="a newer etscope may read it",
        )


def _dialect(program: Json) -> str:
    verifiers = sequence(program.get("verifiers") or [], "verifiers")
    return text(verifiers[0] if verifiers else program.get("dialect") or "", "the dialect")


class _GraphBuilder:
    """Builds one graph: in the order of the file, as torch would, so that names come out equal."""

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
            spec = union(specs[index]) if index < len(specs) else ("", None)
            placeholder = self._placeholder(value, spec)
            inputs.append(placeholder.name)
            if (weight := _weight(spec)) is not None:
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
        )

    # -- nodes of the graph's frame

    def _placeholder(self, value: object, spec: tuple[str, Any]) -> Node:
        tag, content = union(value)
        if tag in ("as_tensor", "as_sym_int", "as_sym_bool", "as_custom_obj"):
            written = text(content.get("name") or content.get("as_name"), "an input's name")
            self._namespace.create(from_target(written))
            name = written  # fx keeps the file's name here, whatever it is
            self._namespace.reserve(name)
            self._values[written] = name
        else:
            name = self._namespace.create(from_target(_constant_name(spec)))
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
        metadata = _metadata(node)
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
                origins=origins(metadata.pop("from_node", None)),
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
        """The values of one element of a node with several: of `getitem` nodes in torch."""
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


def _metadata(node: Json) -> dict[str, str]:
    """A copy of a node's metadata: texts by name."""
    metadata = mapping(node.get("metadata") or {}, "a node's metadata")
    return {key: text(value, f"a node's {key}") for key, value in metadata.items()}


def _wanted_name(target: str, node: Json, outputs: list[Any]) -> str:
    """What torch asks fx to call the node: see ExecuTorch's `exir/serde/serialize.py`."""
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


def _constant_name(spec: tuple[str, Any]) -> str:
    kind, content = spec
    if kind == "constant_input":
        return text(content["name"], "an input's name")
    return ""


def _weight(spec: tuple[str, Any]) -> str | None:
    """The qualified name of what an input stands for, None for an input of the user."""
    kind, content = spec
    key = {
        "parameter": "parameter_name",
        "buffer": "buffer_name",
        "tensor_constant": "tensor_constant_name",
        "custom_obj": "custom_obj_name",
    }.get(kind)
    return None if key is None else text(content[key], f"a {kind}'s name")
