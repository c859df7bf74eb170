"""Compute a graph of a record from the record's JSON.

torch's deserializer makes an `ExportedProgram`: fx nodes, fake tensors for the types of all values,
a module with source code. This takes longer than the run itself, and a plain graph does not need
it. Graphs that are not plain (control flow, delegates, dynamic sizes, state, operators that write)
are left to `bridge.reference.reference`.

Names in the JSON are looked up as torch does, but only as operators of a library: see
`formats.torch_files.program_safety` for what else is refused before.
"""

from __future__ import annotations

import re
from collections.abc import (
    Callable,
    Collection,
    Container,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import Any, ClassVar

import torch

from etscope.bridge.reference.reference import (
    OPERATOR_ERRORS,
    Call,
    GraphNode,
    check_input,
    check_number_of_inputs,
    failed_operator,
    given_values,
    while_running,
)
from etscope.bridge.tensors import StoredWeight, StoredWeights, tensor_from_numpy
from etscope.errors import FormatError
from etscope.formats.exported_program.exported_json import (
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    Json,
    enum_name,
    mapping,
    sequence,
    text,
    union,
)

_OPERATOR = re.compile(
    r"(?:torch\.ops|executorch\.exir\.dialects\.edge\.ops)\.(\w+)\.(\w+)\.(\w+)", re.ASCII
)
# Runs a graph with gradients recorded or not.
_WITHOUT_GRADIENTS = "torch.ops.higher_order.wrap_with_set_grad_enabled"
_WEIGHTS = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}
_OUTPUTS = frozenset({"user_output"})
_NUMBERS: Mapping[str, tuple[type, ...]] = {
    "as_int": (int,),
    "as_float": (float, int),
    "as_bool": (bool,),
    "as_string": (str,),
}
_LISTS = frozenset(
    f"as_{kind}s" for kind in ("int", "float", "bool", "string", "tensor", "sym_int", "sym_bool")
)


def _in_dim_order(copy: Callable[..., torch.Tensor], schema: str) -> tuple[Any, Any]:
    """An operator of ExecuTorch's library "dim_order_ops", which is registered by importing all of
    its exporter, and its schema. copy: does the same without `dim_order`, the dimensions from the
    outermost in memory."""

    def ordered(*arguments: Any, dim_order: Sequence[int] | None = None, **others: Any) -> Any:
        copied = copy(*arguments, **others)
        if dim_order is None:
            return copied
        inverse = sorted(range(len(dim_order)), key=dim_order.__getitem__)
        return copied.permute(tuple(dim_order)).contiguous().permute(inverse)

    return ordered, torch._C.parse_schema(f"dim_order_ops::{schema}")


_DIM_ORDER = {
    "_to_dim_order_copy": _in_dim_order(
        torch.ops.aten._to_copy.default,
        "_to_dim_order_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
        "device=None, bool? pin_memory=None, bool non_blocking=False, int[]? dim_order=None) "
        "-> Tensor",
    ),
    "_clone_dim_order": _in_dim_order(
        torch.ops.aten.clone.default,
        "_clone_dim_order(Tensor self, *, bool non_blocking=False, int[]? dim_order=None) "
        "-> Tensor",
    ),
}


class _NotPlain(Exception):
    """The graph needs torch's deserializer."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A value as an argument, by its name in the JSON."""

    name: str


@dataclass(frozen=True, slots=True)
class _Step:
    """A node's operator with its arguments: an `Operation`.

    results: the name of the value, or of each of its elements. done: values that no later node
    uses.
    """

    name: str
    target: Callable[..., Any]
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    results: str | tuple[str, ...]
    float_type: torch.dtype | None
    done: tuple[str, ...] = ()

    @property
    def operators(self) -> Sequence[Any]:
        return (self.target,)


@dataclass(frozen=True, slots=True)
class RecordedGraphInterpreter:
    """Runs a graph: a `ReferenceGraph` without state; its nodes do not write to values.

    inputs: name -> type (a tensor on torch's meta device). weights: all other inputs of the graph,
    by their names there.
    """

    steps: tuple[_Step, ...]
    inputs: Mapping[str, torch.Tensor]
    weights: Mapping[str, torch.Tensor | StoredWeight]
    outputs: Sequence[Any]

    keeps_state: ClassVar[bool] = False
    own_memory: ClassVar[None] = None
    is_plain: ClassVar[bool] = True

    def nodes(self) -> Collection[GraphNode]:
        found = {name: GraphNode(name) for name in self.inputs}
        for name, weight in self.weights.items():
            read = weight.read if isinstance(weight, StoredWeight) else partial(_read, weight, {})
            found[name] = GraphNode(name, shape=tuple(weight.shape), weight=read)
        computing = []
        for step in self.steps:
            node = GraphNode(
                step.name,
                operator=str(step.target),
                args=[_read(argument, found) for argument in step.arguments],
                kwargs={key: _read(argument, found) for key, argument in step.keywords.items()},
            )
            for used in dict.fromkeys(_nodes_in([*node.args, *node.kwargs.values()])):
                used.users.append(node)
            results = (step.results,) if isinstance(step.results, str) else step.results
            found.update(dict.fromkeys(results, node))
            computing.append(node)
        last = GraphNode("output", args=[_read(output, found) for output in self.outputs])
        for used in dict.fromkeys(_nodes_in(last.args)):
            used.users.append(last)
        return computing

    @while_running(torch.inference_mode())
    def run(
        self,
        inputs: Any,
        state: dict[str, torch.Tensor] | None = None,
        *,
        call: Call | None = None,
        wanted: Container[str] | None = None,
    ) -> Generator[tuple[str, Any], Any, Any]:
        """Run the graph: see `run_reference`. wanted: the nodes to yield, by default all.

        Raises `NumericGapError` for inputs that are absent or do not fit the graph.
        """
        given = given_values(inputs)
        check_number_of_inputs(given, len(self.inputs))
        values: dict[str, Any] = dict(self.weights)
        for (name, expected), value in zip(self.inputs.items(), given or (), strict=True):
            check_input(name, expected, value)
            values[name] = value
        yield from _computed(self.steps, values, call, wanted)
        return [_read(output, values) for output in self.outputs]


@dataclass(frozen=True, slots=True)
class _Subgraph:
    """A graph within the graph that is run as it stands, as the body of a `with torch.no_grad()`
    is: the whole run is without gradients. Called with the operator's arguments."""

    inputs: tuple[str, ...]
    steps: tuple[_Step, ...]
    outputs: tuple[_Use, ...]

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        values = dict(zip(self.inputs, arguments, strict=True))
        for _ in _computed(self.steps, values, None):
            pass
        return tuple(values[output.name] for output in self.outputs)


def _computed(
    steps: Iterable[_Step],
    values: dict[str, Any],
    call: Call | None,
    wanted: Container[str] | None = None,
) -> Generator[tuple[str, Any], Any, None]:
    """Compute the nodes, and yield the value of each wanted one; those that are done with leave
    `values`."""
    for step in steps:
        arguments = [_read(argument, values) for argument in step.arguments]
        keywords = {key: _read(argument, values) for key, argument in step.keywords.items()}
        try:
            if call is None:
                value = step.target(*arguments, **keywords)
            else:
                value = call(step, tuple(arguments), keywords)
        except OPERATOR_ERRORS as error:
            raise failed_operator(step.name, error) from error
        del arguments, keywords
        instead = None
        if wanted is None or step.name in wanted:
            instead = yield step.name, value
        if instead is not None:
            value = instead
        if isinstance(step.results, str):
            values[step.results] = value
        else:
            values.update(zip(step.results, value or (), strict=True))
        del value, instead
        for name in step.done:
            del values[name]


def _nodes_in(arguments: Iterable[Any]) -> Iterator[GraphNode]:
    for argument in arguments:
        if isinstance(argument, GraphNode):
            yield argument
        elif isinstance(argument, list):
            yield from _nodes_in(argument)


def _read(argument: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(argument, _Use):
        value = values[argument.name]
        return value.read() if isinstance(value, StoredWeight) else value
    if isinstance(argument, list):
        return [_read(item, values) for item in argument]
    return argument


@dataclass(frozen=True, slots=True)
class PlainGraph:
    """A graph without its weights. weights: qualified names by names in the graph."""

    steps: tuple[_Step, ...]
    inputs: Mapping[str, torch.Tensor]
    weights: Mapping[str, str]
    outputs: Sequence[Any]

    def with_weights(
        self, weights: Mapping[str, Any], constants: Mapping[str, Any]
    ) -> RecordedGraphInterpreter | None:
        """Return an interpreter; None if a weight is absent. weights, constants: numpy arrays by
        qualified name."""
        lazily = StoredWeights(weights)
        stored: dict[str, torch.Tensor | StoredWeight] = {}
        for name, target in self.weights.items():
            if not hasattr(weights.get(target, constants.get(target)), "dtype"):
                return None  # there is none, or a tensor without data
            stored[name] = (
                StoredWeight(lazily, target, shared=True)
                if target in weights
                else tensor_from_numpy(constants[target])
            )
        return RecordedGraphInterpreter(self.steps, self.inputs, stored, self.outputs)


def plain_graph(program: Json, names: Sequence[str]) -> PlainGraph | None:
    """Compile the recorded JSON of a program that was checked to be safe; None if it is not plain.
    names: the nodes that compute something, in the order that a run yields them.
    """
    try:
        module = mapping(program["graph_module"], "graph_module")
        graph = mapping(module["graph"], "a graph")
        signature = mapping(module["signature"], "signature")
        if any(union(s)[0] not in _OUTPUTS for s in sequence(signature["output_specs"], "outputs")):
            return None
        inputs, weights = _inputs(graph, signature)
        used: list[str] = []
        outputs = [
            _argument(*union(output), used) for output in sequence(graph["outputs"], "outputs")
        ]
        steps = _steps(graph, {*inputs, *weights}, names, kept=used)
        return PlainGraph(steps, inputs, weights, outputs)
    except (_NotPlain, FormatError, LookupError, TypeError, ValueError):
        return None  # torch's deserializer reports what is wrong, if anything is


def _inputs(graph: Json, signature: Json) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    inputs: dict[str, torch.Tensor] = {}
    weights: dict[str, str] = {}
    specs = sequence(signature["input_specs"], "input_specs")
    for value, spec in zip(sequence(graph["inputs"], "inputs"), specs, strict=True):
        tag, content = union(value)
        kind, target = union(spec)
        if tag != "as_tensor":
            raise _NotPlain
        name = text(content["name"], "an input's name")
        if kind != "user_input":
            weights[name] = text(target[_WEIGHTS[kind]], "a weight's name")
            continue
        meta = graph["tensor_values"][name]
        sizes = [union(size) for size in sequence(meta["sizes"], "sizes")]
        if any(kind != "as_int" for kind, _ in sizes):
            raise _NotPlain
        shape = [size for _, size in sizes]
        inputs[name] = torch.empty(shape, dtype=_dtype(meta["dtype"]), device="meta")
    return inputs, weights


# -- nodes


def _steps(
    graph: Json, known: set[str], names: Iterable[str], kept: Iterable[str]
) -> tuple[_Step, ...]:
    """Compile all nodes; `known` are the names of the graph's inputs. kept: values that are wanted
    when all is computed."""
    compiled: list[tuple[_Step, list[str]]] = []
    types = mapping(graph["tensor_values"], "tensor_values")
    for node, name in zip(sequence(graph["nodes"], "nodes"), names, strict=True):
        used: list[str] = []
        function, arguments, keywords = _called(node, used)
        if not known.issuperset(used):
            raise _NotPlain
        results = _results(node)
        known.update((results,) if isinstance(results, str) else results)
        floats = (_dtype(types[value]["dtype"]) for value in used)
        float_type = next((dtype for dtype in floats if dtype.is_floating_point), None)
        compiled.append((_Step(name, function, arguments, keywords, results, float_type), used))
    steps: list[_Step] = []
    needed = set(kept)
    for step, used in reversed(compiled):
        own = (step.results,) if isinstance(step.results, str) else step.results
        done = tuple(dict.fromkeys(value for value in (*used, *own) if value not in needed))
        needed.update(done)
        steps.append(replace(step, done=done))
    return tuple(reversed(steps))


def _called(node: Json, used: list[str]) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return what a node calls, with its arguments by position and by name, as torch's deserializer
    distributes them. Adds the values that it uses to `used`."""
    target = text(node["target"], "a node's target")
    entries = [
        (text(entry["name"], "an argument's name"), union(entry["arg"]))
        for entry in sequence(node["inputs"], "a node's inputs")
    ]
    if target == _WITHOUT_GRADIENTS:
        (_, (_, content)), *operands = entries[1:]
        graph = _subgraph(mapping(content["graph"], "a graph"))
        return graph, [_argument(*operand, used) for _, operand in operands], {}
    given = {name: _argument(*argument, used) for name, argument in entries}
    function, schema = _operator(target)
    arguments: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument in schema.arguments:
        if not argument.kwarg_only and not argument.has_default_value():
            arguments.append(given[argument.name])
        elif argument.name in given:
            keywords[argument.name] = given[argument.name]
    return function, arguments, keywords


def _subgraph(graph: Json) -> _Subgraph:
    names: list[list[str]] = [[], []]
    for found, part in zip(names, ("inputs", "outputs"), strict=True):
        for tag, content in map(union, sequence(graph[part], part)):
            if tag != "as_tensor":
                raise _NotPlain
            found.append(text(content["name"], "a value's name"))
    inputs, outputs = names
    unseen = repeat("", len(graph["nodes"]))
    steps = _steps(graph, set(inputs), unseen, kept={*inputs, *outputs})
    return _Subgraph(tuple(inputs), steps, tuple(map(_Use, outputs)))


def _operator(target: str) -> tuple[Callable[..., Any], Any]:
    """Return an operator and its schema."""
    match = _OPERATOR.fullmatch(target)
    library, *names = match.groups() if match else ("",)
    if library == "dim_order_ops" and names[0] in _DIM_ORDER:
        return _DIM_ORDER[names[0]]
    if library == "quantized_decomposed":
        # Registers the library, which torch does not load by itself.
        import_module("torch.ao.quantization.fx._decomposed")
    operator: Any = getattr(torch.ops, library, None) if match else None
    for name in names:
        operator = getattr(operator, name, None)
    if (
        not isinstance(operator, torch._ops.OpOverload)
        or operator._schema.is_mutable
        or not torch._C._dispatch_has_kernel(operator.name())
    ):
        raise _NotPlain
    return operator, operator._schema


def _results(node: Json) -> str | tuple[str, ...]:
    """The name of the node's value, or the names of its elements."""
    outputs = [union(output) for output in sequence(node["outputs"], "a node's outputs")]
    if len(outputs) == 1 and outputs[0][0] == "as_tensor":
        return text(outputs[0][1]["name"], "an output's name")
    elements = outputs
    if len(outputs) == 1 and outputs[0][0] == "as_tensors":
        elements = [("as_tensor", element) for element in outputs[0][1]]
    if any(tag != "as_tensor" for tag, _ in elements):
        raise _NotPlain
    return tuple(text(content["name"], "an output's name") for _, content in elements)


# -- arguments


def _argument(tag: str, content: Any, used: list[str]) -> Any:
    if tag == "as_none":
        return None
    if tag == "as_tensor":
        used.append(text(content["name"], "a value's name"))
        return _Use(used[-1])
    if tag in _NUMBERS:
        if type(content) not in _NUMBERS[tag]:
            raise _NotPlain
        return content
    if tag in ("as_sym_int", "as_sym_bool"):
        inner, number = union(content)
        if inner not in ("as_int", "as_bool"):
            raise _NotPlain
        return _argument(inner, number, used)
    if tag in _LISTS:
        return [_argument(tag[:-1], item, used) for item in sequence(content, "a list")]
    if tag == "as_optional_tensors":
        return [_argument(*union(item), used) for item in sequence(content, "a list")]
    if tag == "as_scalar_type":
        return _dtype(content)
    if tag == "as_memory_format":
        return _of_torch(enum_name(MEMORY_FORMATS, content, "memory format"))
    if tag == "as_layout":
        return _of_torch(enum_name(LAYOUTS, content, "layout"))
    if tag == "as_device" and content["type"] == "cpu":
        return torch.device("cpu")
    raise _NotPlain


def _dtype(number: Any) -> torch.dtype:
    found: torch.dtype = _of_torch(enum_name(DTYPES, number, "dtype"))
    return found


def _of_torch(name: str) -> Any:
    if name == "unknown":
        raise _NotPlain
    return getattr(torch, name)
