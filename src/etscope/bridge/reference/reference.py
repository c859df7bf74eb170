"""A reference run: an exported program computed by PyTorch, node by node.

Each value is yielded as soon as it is computed and kept only while a later node needs it, so a run
takes the memory of the values that are alive at one time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx.node import Node, map_arg
from torch.utils import _pytree as pytree

from etscope.bridge.fx import is_operation
from etscope.bridge.tensors import StoredWeight, StoredWeights, numpy_from_tensor, torch_values
from etscope.errors import EtscopeError, FormatError, NumericGapError, ReferenceFailure
from etscope.formats.program.input_validation import InputProblem

INPUTS_HINT = (
    "give inputs= (--inputs), or put them into the record: "
    "record.update_representative_inputs([...]) before it is saved, as `etscope export` does"
)

# Runs a graph: yields (name, value) of its nodes, is sent a replacement of the value or None, and
# returns the outputs of the graph.
_Values = Generator[tuple[str, Any], Any, Any]


class Operation(Protocol):
    """A node that is about to be computed."""

    @property
    def name(self) -> str:
        """The reference graph's name of the node."""

    @property
    def target(self) -> Any:
        """The callable that takes the arguments."""

    @property
    def operators(self) -> Sequence[Any]:
        """Return the operators that compute: the target, and operators that it calls."""

    @property
    def float_type(self) -> torch.dtype | None:
        """The dtype of the first tensor of floats that the node reads, as exported; None without
        one."""


@dataclass(eq=False)
class GraphNode:
    """A node of a graph that can be run, or an input or weight, with its neighbours.

    name: the name in the reference graph. operator: a name such as "aten.add.Tensor"; "" for inputs
    and weights. args, kwargs: the operator's arguments, with nodes in place of their values. users:
    the nodes that read it. shape: the shape of its value, None if unknown. weight: a function that
    reads the weight, None for other nodes.
    """

    name: str
    operator: str = ""
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    users: list[GraphNode] = field(default_factory=list)
    shape: tuple[int, ...] | None = None
    weight: Callable[[], torch.Tensor] | None = None


def operator_name(target: Any) -> str:
    """Return the name of an operator ("aten.add.Tensor"). Those of the edge dialect wrap
    PyTorch's, and have the same names."""
    is_own = isinstance(target, torch._ops.OpOverload)
    return str(target if is_own else getattr(target, "_op", target))


# Computes a node from its arguments.
Call = Callable[[Operation, tuple[Any, ...], dict[str, Any]], Any]


class ReferenceGraph(Protocol):
    """A graph that can be run, and names its nodes as the reference graph does."""

    @property
    def keeps_state(self) -> bool:
        """True if a run changes the state that the next run starts from."""

    @property
    def own_memory(self) -> Collection[int] | None:
        """The addresses of the weights, for a graph with nodes that write to values; None for any
        other."""

    @property
    def is_plain(self) -> bool:
        """True if each node is computed once, from values that nothing writes to: the graph keeps
        no state, and has no loops, branches and delegates."""

    def nodes(self) -> Collection[GraphNode]:
        """The nodes that compute, without those in branches, loops and delegates."""

    def run(
        self, inputs: Any, state: dict[str, torch.Tensor], *, call: Call | None = None
    ) -> _Values:
        """Run the graph: see `run_reference`."""


class NamedProgram(NamedTuple):
    """A program, and the names that the reference graph has for its nodes, where they differ."""

    program: ExportedProgram
    names: Mapping[str, str]

    def name(self, node: Node) -> str:
        """The reference graph's name of a node."""
        return self.names.get(node.name, node.name)

    @property
    def keeps_state(self) -> bool:
        return keeps_state(self.program)

    @property
    def own_memory(self) -> Collection[int] | None:
        if not writes_in_place(self.program.graph_module):
            return None
        return {
            inner.untyped_storage().data_ptr()
            for tensor in self.program.state_dict.values()
            for inner in plain_tensors(tensor)
        }

    @property
    def is_plain(self) -> bool:
        nodes = self.program.graph.nodes
        return not (
            self.keeps_state
            or writes_in_place(self.program.graph_module)
            or any(str(node.target) in _CONTROL for node in nodes)
        )

    def nodes(self) -> Collection[GraphNode]:
        signature = self.program.graph_signature
        held = {**self.program.constants, **self.program.state_dict}
        weights = {
            name: partial(held.__getitem__, target)
            for name, target in (
                *signature.inputs_to_parameters.items(),
                *signature.inputs_to_buffers.items(),
                *signature.inputs_to_lifted_tensor_constants.items(),
            )
            if target in held
        }
        found: dict[Node, GraphNode] = {}
        for node in self.program.graph.nodes:
            if node.op == "call_function" and node.target is operator.getitem:
                found[node] = found[node.args[0]]
                continue
            value = node.meta.get("val")
            found[node] = one = GraphNode(
                self.name(node),
                operator=operator_name(node.target) if is_operation(node) else "",
                args=cast("Sequence[Any]", map_arg(node.args, found.__getitem__)),
                kwargs=cast("Mapping[str, Any]", map_arg(node.kwargs, found.__getitem__)),
                shape=tuple(value.shape) if isinstance(value, torch.Tensor) else None,
                weight=weights.get(node.name),
            )
            for used in dict.fromkeys(found[used] for used in node.all_input_nodes):
                used.users.append(one)
        return [one for node, one in found.items() if is_operation(node)]

    def run(
        self, inputs: Any, state: dict[str, torch.Tensor], *, call: Call | None = None
    ) -> _Values:
        return run_reference(self.program, inputs, state, call=call, names=self.names)


class _NodeOperation(NamedTuple):
    """The `Operation` of an fx node."""

    name: str
    node: Node

    @property
    def target(self) -> Any:
        return self.node.target

    @property
    def operators(self) -> Sequence[Any]:
        return [self.node.target, *(one for one in self.node.args if callable(one))]

    @property
    def float_type(self) -> torch.dtype | None:
        for used in self.node.all_input_nodes:
            value = used.meta.get("val")
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                return value.dtype
        return None


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def while_running(
    mode: Any,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Return a decorator of generator functions: a mode of torch (`torch.no_grad()`) holds while
    the generator runs, the caller's between its values. A `with` around a yield would leave the
    caller in the mode of the run."""
    return cast(Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]], mode)


@while_running(torch.no_grad())
def run_reference(
    program: ExportedProgram,
    inputs: Any,
    state: dict[str, torch.Tensor] | None = None,
    *,
    call: Call | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Generator[tuple[str, Any], Any, Any]:
    """Run a program of any dialect, and yield the name and the value of each node that computes
    something, in order of execution.

    inputs: the user's inputs, flat or nested as the model takes them, of torch or numpy.
    state: buffers by name that replace the program's own; updated when the run ends. For a model
        with state, pass the same dict to each run.
    call: computes a node that runs no graph; by default its operator.
    names: names for nodes, where they should differ from the program's names.

    A value sent to the generator replaces the one yielded last, for all later nodes.

    Values are torch values: a tensor, a number, or a tuple or list of them; its elements
    (`getitem`) are not yielded again. A node of a branch, a loop's body or a delegate is called
    "<name of the sub-graph>/<name>"; a loop's nodes come once for each pass. Later nodes may write
    to a yielded value: use it before the next one.

    The generator returns the program's outputs, flat. Only `state` of the arguments is changed.

    Raises `NumericGapError` for inputs that are absent or do not fit the program, `FormatError`
    for a program without its weights, `ReferenceFailure` for an operator that fails.
    """
    values = given_values(inputs)
    state = {} if state is None else state
    results = []
    bound = _bound(program, values, state)

    def compute(name: str, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operation = _NodeOperation(names.get(name, name), node)
        try:
            if call is None:
                return operation.target(*args, **kwargs)
            return call(operation, args, kwargs)
        except OPERATOR_ERRORS as error:
            raise failed_operator(operation.name, error) from error

    run = _run(program.graph_module, bound, "", compute)
    try:
        name, value = next(run)
        while True:
            instead = yield names.get(name, name), value
            del value  # it may be the last use
            name, value = run.send(instead)
    except StopIteration as end:
        outputs = end.value
    for spec, value in zip(program.graph_signature.output_specs, outputs, strict=True):
        if spec.kind is OutputKind.BUFFER_MUTATION and spec.target is not None:
            state[spec.target] = value
        elif spec.kind is OutputKind.USER_OUTPUT:
            results.append(value)
    return results


# That torch's operators raise for their arguments.
OPERATOR_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)


def failed_operator(name: str, error: Exception) -> EtscopeError:
    """Return the error for an operator that failed."""
    if isinstance(error, EtscopeError):
        return error
    return ReferenceFailure(name, str(error).split("\n", 1)[0] or type(error).__name__)


def run_outputs(
    program: ExportedProgram, inputs: Any, state: dict[str, torch.Tensor] | None = None
) -> list[Any]:
    """Run as `run_reference`, and return the program's outputs, flat."""
    return list(finished(run_reference(program, inputs, state)))


def finished(run: Generator[Any, Any, _Result]) -> _Result:
    """Go on to the end of a run, and return its outputs."""
    try:
        while True:
            next(run)
    except StopIteration as end:
        return cast(_Result, end.value)


def reference_arrays(
    program: ExportedProgram, inputs: Any, state: dict[str, torch.Tensor] | None = None
) -> Iterator[tuple[str, Any]]:
    """Run as `run_reference`, and yield numpy arrays that share the tensors' memory."""
    for name, value in run_reference(program, inputs, state):
        yield name, arrays_of(value)


def arrays_of(value: Any) -> Any:
    """A value with its tensors as arrays that share their memory."""
    if isinstance(value, torch.Tensor):
        return numpy_from_tensor(value)
    return pytree.tree_map_only(torch.Tensor, numpy_from_tensor, value)


def given_values(inputs: Any) -> list[Any] | None:
    """The user's inputs as a flat list, arrays as tensors; None for none."""
    if inputs is None:
        return None
    return torch_values(pytree.tree_leaves(inputs))


def keeps_state(program: ExportedProgram) -> bool:
    """True if a run changes the state that the next run starts from."""
    kinds = {spec.kind for spec in program.graph_signature.output_specs}
    if OutputKind.BUFFER_MUTATION in kinds:
        return True
    buffers = any(spec.kind is InputKind.BUFFER for spec in program.graph_signature.input_specs)
    return buffers and writes_in_place(program.graph_module)


def state_after(
    program: ExportedProgram, runs: Iterable[Any], state: dict[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Run a program on the inputs of each of `runs`, and return the state that they leave: buffers
    by name. state: what they start from, which is updated; None: what the program starts from."""
    state = {} if state is None else state
    for inputs in runs:
        finished(run_reference(program, inputs, state))
    return state


def call_names(program: ExportedProgram) -> list[str]:
    """The names under which `run_reference` yields the nodes of the program's own graph."""
    return [node.name for node in program.graph.nodes if is_operation(node)]


def _bound(
    program: ExportedProgram,
    values: list[Any] | None,
    state: dict[str, torch.Tensor],
    *,
    check: bool = True,
) -> list[Any]:
    """The values of the placeholders of the program's graph, in order."""
    specs = program.graph_signature.input_specs
    users = [spec for spec in specs if spec.kind is InputKind.USER_INPUT]
    values = check_number_of_inputs(values, len(users))
    writes = writes_in_place(program.graph_module)
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    given = iter(values)
    bound: list[Any] = []
    for spec, node in zip(specs, placeholders, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            value = next(given)
            if check and not isinstance(spec.arg, ConstantArgument):
                check_input(node.name, node.meta.get("val"), value)
        else:
            value = _stored(program, spec, state, lazily=not writes)
        if writes and isinstance(value, torch.Tensor) and spec.kind is not InputKind.PARAMETER:
            value = value.clone()
            if spec.kind is InputKind.BUFFER and spec.target is not None:
                state[spec.target] = value
        bound.append(value)
    return bound


def _stored(
    program: ExportedProgram, spec: Any, state: Mapping[str, torch.Tensor], *, lazily: bool
) -> Any:
    """A parameter, buffer or constant of the program; lazily: one in a file is not read yet."""
    for held in (state, program.state_dict, program.constants):
        if spec.target in held:
            if lazily and isinstance(held, StoredWeights):
                return StoredWeight(held, spec.target)
            return held[spec.target]
    if spec.kind is InputKind.TOKEN:
        return None
    raise FormatError(
        f"the program lacks the values of {spec.target!r}",
        hint="a slimmed record has no weights: pass the full record",
    )


def check_number_of_inputs(values: list[Any] | None, wanted: int) -> list[Any]:
    """Return `values`; raise `NumericGapError` if there are none, or if their number is not the
    number of inputs that the graph takes.
    """
    if values is None:
        raise NumericGapError("no inputs to run the reference graph on", hint=INPUTS_HINT)
    if len(values) != wanted:
        raise NumericGapError(
            f"the reference graph takes {wanted} inputs, not {len(values)}",
            hint=INPUTS_HINT,
        )
    return values


def check_input(name: str, expected: Any, value: Any) -> None:
    """Raise `NumericGapError` unless a value has the type that the input was exported with: dtype
    and sizes of the (fake) tensor `expected`, without symbolic sizes."""
    if isinstance(expected, torch.Tensor):
        fits = (
            isinstance(value, torch.Tensor)
            and value.dtype == expected.dtype
            and value.dim() == expected.dim()
            and all(
                not isinstance(size, int) or size == given
                for size, given in zip(expected.shape, value.shape, strict=True)
            )
        )
    else:
        fits = not isinstance(value, torch.Tensor)
    if not fits:
        is_tensor = isinstance(expected, torch.Tensor)
        problem = InputProblem(_described(value), _described(expected) if is_tensor else "a number")
        raise NumericGapError(
            f"input {name!r} of the reference graph: {problem.text}", hint=INPUTS_HINT
        )


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype}[{', '.join(str(size) for size in value.shape)}]"


def writes_in_place(module: torch.fx.GraphModule) -> bool:
    """True if a node of the graph, or of a sub-graph, writes to its arguments."""
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.is_mutable:
                return True
    return False


# -- graphs

# Computes a node from its name and its arguments.
_Compute = Callable[[str, Node, tuple[Any, ...], dict[str, Any]], Any]


def _run(
    module: torch.fx.GraphModule, arguments: Iterable[Any], prefix: str, call: _Compute
) -> _Values:
    values: dict[Node, Any] = {}
    given = iter(arguments)

    def read(node: Node) -> Any:
        value = values[node]
        return value.read() if isinstance(value, StoredWeight) else value

    done_after: dict[Node, list[Node]] = {}  # the nodes that no node after this one uses
    seen: set[Node] = set()
    for node in reversed(module.graph.nodes):
        for used in (*node.all_input_nodes, node):
            if used not in seen:
                seen.add(used)
                done_after.setdefault(node, []).append(used)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "get_attr":
            values[node] = operator.attrgetter(node.target)(module)
        elif node.op == "output":
            return map_arg(node.args[0], read)
        else:
            args, kwargs = map_arg((node.args, node.kwargs), read)
            control = _CONTROL.get(str(node.target))
            if control is None:
                value = call(prefix + node.name, node, args, kwargs)
            else:
                names = [
                    str(argument.target)
                    for argument in node.args
                    if isinstance(argument, Node) and argument.op == "get_attr"
                ]
                value = yield from control(args, [f"{prefix}{name}/" for name in names], call)
            if is_operation(node):
                instead = yield prefix + node.name, value
                value = value if instead is None else instead
            values[node] = value
            del value, args, kwargs
        for used in done_after.get(node, ()):
            del values[used]
    return ()


# -- operators that run graphs

_Control = Callable[[Sequence[Any], Sequence[str], _Compute], _Values]
# By the operator's name: some of them exist only when ExecuTorch or a part of torch is imported.
_CONTROL: dict[str, _Control] = {}


def _runs(operator: str) -> Callable[[_Control], _Control]:
    """Return a decorator of the function that runs the graphs of an operator."""

    def noted(function: _Control) -> _Control:
        return _CONTROL.setdefault(operator, function)

    return noted


@_runs("cond")
def _cond(args: Sequence[Any], prefixes: Sequence[str], call: _Compute) -> _Values:
    condition, then, otherwise, operands = args
    taken = 0 if bool(condition) else 1
    result = yield from _run((then, otherwise)[taken], operands, prefixes[taken], call)
    return result


@_runs("map_impl")
def _map(args: Sequence[Any], prefixes: Sequence[str], call: _Compute) -> _Values:
    body, mapped, others = args
    rows = []
    for row in zip(*(tensor.unbind(0) for tensor in mapped), strict=True):
        result = yield from _run(body, chain(row, others), prefixes[0], call)
        rows.append(result)
    return _stacked(rows)


@_runs("scan")
def _scan(args: Sequence[Any], prefixes: Sequence[str], call: _Compute) -> _Values:
    body, carried, scanned, others = args
    count = len(carried)
    rows = []
    for row in zip(*(tensor.unbind(0) for tensor in scanned), strict=True):
        result = yield from _run(body, chain(carried, row, others), prefixes[0], call)
        carried = result[:count]
        rows.append(result[count:])
    return (*carried, *_stacked(rows))


@_runs("while_loop")
def _while(args: Sequence[Any], prefixes: Sequence[str], call: _Compute) -> _Values:
    condition, body, carried, others = args
    while bool((yield from _run(condition, chain(carried, others), prefixes[0], call))[0]):
        carried = yield from _run(body, chain(carried, others), prefixes[1], call)
    return tuple(carried)


@_runs("executorch_call_delegate")
def _delegate(args: Sequence[Any], prefixes: Sequence[str], call: _Compute) -> _Values:
    lowered, *inputs = args
    program = lowered.original_module
    bound = _bound(program, inputs, {}, check=False)  # `call` may compute in other types
    result = yield from _run(program.graph_module, bound, prefixes[0], call)
    return result


def _stacked(rows: Sequence[Sequence[torch.Tensor]]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def plain_tensors(tensor: Any) -> Iterator[Any]:
    """Yield the tensors with memory that a tensor is made of: itself, or the parts of a subclass
    without memory, such as torchao's quantized tensors."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
    else:
        for name in flatten()[0]:
            yield from plain_tensors(getattr(tensor, name))
