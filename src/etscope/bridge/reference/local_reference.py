"""Recompute each operator from the device's own values.

Three runs of one graph go side by side: the plain reference; the same graph with the device's
logged values in place of the computed ones; and the second again in float64, which shows how
much of a difference is rounding. Of a plain graph, float64 is computed only for values that a
caller reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from etscope.analysis.numerics.diagnose import Recomputed
from etscope.bridge.reference.backends import PLAIN, Arithmetic
from etscope.bridge.reference.cancellation import CANCELLING
from etscope.bridge.reference.reference import (
    Call,
    NamedProgram,
    Operation,
    ReferenceGraph,
    arrays_of,
    operator_name,
)
from etscope.bridge.reference.ties import Local, nearness, rounded_away
from etscope.bridge.tensors import numpy_from_tensor, tensor_from_numpy, tensor_sharing

# -- Values of a second run of a graph that are computed when they are asked for.
#
# The second run computes in another way from the same values. Its nodes are noted while the first
# one goes on. Where a value of the first run is replaced by a recorded one, the second run goes on
# from that, too, so that one value takes the few nodes since the last recorded ones.


# Computes a node in the second run, by what it was in the first.
WideCall = Callable[[Operation, tuple[Any, ...], dict[str, Any], Local], Any]

_KEPT_BYTES = 64 << 20  # of values that another one may be computed from


@dataclass(frozen=True, slots=True, eq=False)
class _Noted:
    """A node that was computed in the first run. arguments, keywords: with an `_Element` in place
    of each tensor that another noted node made. number: in order of execution. local: what the
    second run needs of the node."""

    number: int
    operation: Operation
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    local: Local


@dataclass(frozen=True, slots=True, eq=False)
class _Element:
    """A tensor that a node made. index: among its results; None for the only one."""

    node: _Noted
    index: int | None


class LazyValues:
    """The values of a graph's second run, each computed when it is needed; nodes must not write
    to values.

    call: computes a node in the second run. Call `note` for each node of the first run; a tensor
    that no noted node made is used unchanged.
    """

    def __init__(self, call: WideCall) -> None:
        self._call = call
        self._made_by = WeakTensorKeyDictionary()
        self._count = 0
        self._kept: OrderedDict[_Noted, Any] = OrderedDict()
        self._bytes = 0

    def note(
        self,
        operation: Operation,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        value: Any,
        local: Local,
    ) -> None:
        """Note a node, its arguments and its value in the first run."""
        self._count += 1
        node = _Noted(self._count, operation, self._linked(args), self._linked(kwargs), local)
        results = list(enumerate(value)) if isinstance(value, (tuple, list)) else [(None, value)]
        given = {id(tensor) for tensor in _tensors((args, kwargs))}
        for index, result in results:
            if isinstance(result, torch.Tensor) and id(result) not in given:
                self._made_by[result] = _Element(node, index)

    def arrays_of(self, value: Any) -> Any:
        """Compute the second run's counterpart of a value of the first run, as arrays."""
        linked = self._linked(value)
        with torch.inference_mode():
            values = self._computed([one.node for one in _elements(linked)])
            found = _mapped(linked, _Element, lambda one: _picked(values[one.node], one.index))
            return arrays_of(found)

    def _linked(self, arguments: Any) -> Any:
        return _mapped(arguments, torch.Tensor, lambda one: self._made_by.get(one, one))

    def _computed(self, wanted: list[_Noted]) -> dict[_Noted, Any]:
        """The values of nodes, each dropped after its last use."""
        needed: dict[_Noted, int] = dict.fromkeys(wanted, 1)  # by how many
        waiting = list(needed)
        while waiting:
            node = waiting.pop()
            if node in self._kept:
                continue
            for one in _elements((node.arguments, node.keywords)):
                if one.node not in needed:
                    needed[one.node] = 0
                    waiting.append(one.node)
                needed[one.node] += 1
        values = {node: self._kept[node] for node in needed if node in self._kept}
        for node in sorted(needed, key=lambda one: one.number):
            if node in values:
                continue
            args, kwargs = _mapped(
                (node.arguments, node.keywords),
                _Element,
                lambda one: _picked(values[one.node], one.index),
            )
            values[node] = self._call(node.operation, args, kwargs, node.local)
            del args, kwargs
            for one in _elements((node.arguments, node.keywords)):
                needed[one.node] -= 1
                if not needed[one.node]:
                    self._keep(one.node, values.pop(one.node))
        for node in wanted:
            self._keep(node, values[node])
        return values

    def _keep(self, node: _Noted, value: Any) -> None:
        """Keep a value for others that are computed from it, in place of the oldest."""
        if node in self._kept:
            return
        self._kept[node] = value
        self._bytes += _bytes(value)
        while self._bytes > _KEPT_BYTES:
            self._bytes -= _bytes(self._kept.popitem(last=False)[1])


def _picked(value: Any, index: int | None) -> Any:
    return value if index is None else value[index]


def _bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return _leaves(value, torch.Tensor)


def _elements(value: Any) -> Iterator[_Element]:
    return _leaves(value, _Element)


def _leaves(value: Any, kind: type) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _leaves(one, kind)
    elif isinstance(value, Mapping):
        yield from _leaves(list(value.values()), kind)


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The value with each `kind` in it changed, through tuples, lists and dicts."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (tuple, list)):
        changed = [_mapped(one, kind, change) for one in value]
        return changed if isinstance(value, list) else tuple(changed)
    if isinstance(value, dict):
        return {key: _mapped(one, kind, change) for key, one in value.items()}
    return value


_JITTER_SEED = 0
# Of the largest number of a tensor, in units of the last place: as near as this to the middle
# between two steps, a backend may round to the other side.
_NEAR = 16
_MOST_STEPS = 1024  # from 0 to the largest number that counts: those beyond the range are cut off

# The logged values of a node at a pass of its loop, as (element or None, array).
DeviceValues = Callable[[str, int], Collection[tuple[int | None, Any]]]


@dataclass(slots=True)
class Memory:
    """The model's state between runs: buffers by name, for each of the three runs and for the float
    graph of a quantized model. Also the outputs of the last reference run and of the float graph's,
    flat, as arrays and numbers.

    The state of `local` is the device's, as far as it follows from logged values.
    """

    reference: dict[str, torch.Tensor] = field(default_factory=dict)
    local: dict[str, torch.Tensor] = field(default_factory=dict)
    wide: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    float_state: dict[str, torch.Tensor] = field(default_factory=dict)
    float_outputs: list[Any] | None = None

    def take_device_state(self, state: Mapping[str, Any]) -> None:
        """Replace the device's state by known values: arrays by buffer."""
        for name, value in state.items():
            found = tensor_from_numpy(np.array(value))
            before = self.wide.get(name, found)
            self.local[name], self.wide[name] = found, found.to(before.dtype, copy=True)


def recompute(
    graph: ReferenceGraph,
    inputs: Any,
    device: DeviceValues,
    wanted: Collection[str],
    memory: Memory | None = None,
    arithmetic: Arithmetic = PLAIN,
) -> Iterator[Recomputed]:
    """Run a graph together with the device's values, and yield the `wanted` nodes in order.

    inputs: the graph's inputs, as for `run_reference`. `device`, `wanted` and `arithmetic` use the
    reference graph's names. memory: the state from earlier runs, by default the initial state; it
    is updated when everything is yielded. arithmetic: how the device computes; `reference` alone
    does not show it.

    Each operator runs in float64, or in the types that it supports. Numbers that are then quantized
    are shifted as rounding may shift them: a number next to the middle between two steps goes to
    the step that it does not have in float32. In a backend with unknown arithmetic, which may also
    round within an operator, the shift is up to half a step.
    """
    designs = arithmetic.by_design
    computes = {name: one.compute for name, one in designs.items() if one.compute is not None}

    def designed(operation: Operation, args: tuple[Any, ...]) -> tuple[Any, ...]:
        design = designs.get(operation.name)
        return args if design is None else design.change(args)

    def locally(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        compute = computes.get(operation.name)
        if compute is not None:
            return compute(operation.target, args, kwargs, None)
        return operation.target(*designed(operation, args), **kwargs)

    def local_of(operation: Operation, args: tuple[Any, ...], value: Any) -> Local:
        design = designs.get(operation.name)
        if design is not None and design.compute is not None:
            return design.local_of(args, value)
        return Local(args) if _is_quantizing(operation.target) else Local()

    def widely(
        operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], local: Local
    ) -> Any:
        compute = computes.get(operation.name)
        if compute is not None:
            return compute(operation.target, args, kwargs, local)
        jitter = None
        if operation.name in arithmetic.unknown:
            seed = _JITTER_SEED + crc32(operation.name.encode())
            jitter = torch.Generator().manual_seed(seed)
        return _wide_call(operation, designed(operation, args), kwargs, local, jitter)

    calls, memory = (locally, local_of, widely), Memory() if memory is None else memory
    if graph.is_plain and not (memory.reference or memory.local or memory.wide):
        outputs = yield from _two_runs(graph, inputs, device, wanted, calls, designs)
    else:
        outputs = yield from _three_runs(graph, inputs, device, wanted, memory, calls)
    memory.outputs = own_arrays(outputs)


# How the second run computes a node; what the third needs of that; and how the third computes.
_Calls = tuple[Call, Callable[[Operation, tuple[Any, ...], Any], Local], WideCall]


def _three_runs(
    graph: ReferenceGraph,
    inputs: Any,
    device: DeviceValues,
    wanted: Collection[str],
    memory: Memory,
    calls: _Calls,
) -> Generator[Recomputed, None, list[Any]]:
    """`recompute` any graph; returns the outputs of the reference."""
    kept = graph.own_memory
    call, local_of, wide_call = calls
    noted: dict[str, Local] = {}  # of nodes that the third run is about to compute

    def locally(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = call(operation, args, kwargs)
        noted[operation.name] = local_of(operation, args, value)
        return value

    def widely(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return wide_call(operation, args, kwargs, noted.pop(operation.name, Local()))

    local = _Run(graph.run(inputs, memory.local, call=locally))
    plain = _Run(graph.run(inputs, memory.reference))
    wide = _Run(graph.run(inputs, memory.wide, call=widely))
    while local.current is not None:
        name, loop_pass, value = local.current
        reference, exact = (run.reach(name, loop_pass) for run in (plain, wide))
        if name in wanted:
            yield Recomputed(
                name, loop_pass, arrays_of(reference), arrays_of(value), partial(arrays_of, exact)
            )
        given = device(name, loop_pass)
        if reference is not None:
            plain.go_on(None)
        if exact is not None:
            wide.go_on(replaced(exact, given, kept) if given else None)
        local.go_on(replaced(value, given, kept) if given else None)
    for run in (plain, wide):
        run.finish()
    return plain.outputs


def _two_runs(
    graph: ReferenceGraph,
    inputs: Any,
    device: DeviceValues,
    wanted: Collection[str],
    calls: _Calls,
    own: Collection[str],
) -> Generator[Recomputed, None, list[Any]]:
    """`recompute` a plain graph, as `_three_runs`, with float64 on demand.

    own: the nodes that the second run computes otherwise than the reference. Others are computed
    once where both have the same arguments, as before the first value of the device.
    """
    call, local_of, wide_call = calls
    wide = LazyValues(wide_call)
    last: list[Any] = ["", None, None]  # of the reference: name, arguments, value

    def plainly(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = operation.target(*args, **kwargs)
        last[:] = operation.name, (args, kwargs), value
        return value

    def locally(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        is_last = operation.name == last[0] and operation.name not in own
        if is_last and _are_same(last[1], (args, kwargs)):
            value = last[2]
        else:
            value = call(operation, args, kwargs)
        wide.note(operation, args, kwargs, value, local_of(operation, args, value))
        return value

    plain = _Run(graph.run(inputs, {}, call=plainly))
    local = _Run(graph.run(inputs, {}, call=locally))
    while local.current is not None and plain.current is not None:
        name, loop_pass, value = local.current
        if name in wanted:
            reference = arrays_of(plain.current[2])
            exact = partial(wide.arrays_of, value)
            yield Recomputed(name, loop_pass, reference, arrays_of(value), exact)
        given = device(name, loop_pass)
        plain.go_on(None)
        local.go_on(replaced(value, given, None) if given else None)
    return plain.outputs


def _are_same(one: Any, other: Any) -> bool:
    """True for equal arguments with tensors in the same memory."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one is other or (
            one.data_ptr() == other.data_ptr()
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.stride() == other.stride()
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_are_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_same(one[key], other[key]) for key in one)
    return bool(one == other)


def own_arrays(outputs: Iterable[Any]) -> list[Any]:
    """The outputs as arrays and numbers; copies, since an output may be a buffer that the next run
    writes to."""
    return [
        np.array(numpy_from_tensor(value)) if isinstance(value, torch.Tensor) else value
        for value in outputs
    ]


def flat_inputs(inputs: Any) -> list[Any]:
    """The inputs one by one, as arrays and numbers."""
    return [arrays_of(value) for value in pytree.tree_leaves(inputs)]


class _Run:
    """A run, paused at the value that it computed last."""

    def __init__(self, run: Generator[tuple[str, Any], Any, Any]) -> None:
        self._run = run
        self._passes: dict[str, int] = {}
        self.current: tuple[str, int, Any] | None = None
        self.outputs: list[Any] = []
        self.go_on(None)

    def reach(self, name: str, loop_pass: int) -> Any:
        """Advance to a value; None if this run took another branch."""
        while self.current is not None and self.current[:2] != (name, loop_pass):
            if "/" in name and "/" not in self.current[0]:
                return None  # past the end of the branch or loop
            self.go_on(None)
        return None if self.current is None else self.current[2]

    def finish(self) -> None:
        """Advance to the end."""
        while self.current is not None:
            self.go_on(None)

    def go_on(self, instead: Any) -> None:
        """Advance to the next value; `instead` replaces the current one unless it is None."""
        try:
            name, value = self._run.send(instead)
        except StopIteration as end:
            self.current, self.outputs = None, end.value
            return
        loop_pass = self._passes.get(name, 0)
        self._passes[name] = loop_pass + 1
        self.current = name, loop_pass, value


def replaced(
    value: Any, given: Collection[tuple[int | None, Any]], kept: Collection[int] | None
) -> Any:
    """The value, replaced by the device's.

    kept: None for a graph that does not write to values. In one that does, several nodes may share
    memory, so the device's value is written there, except for the addresses in `kept`.
    """
    elements = list(value) if isinstance(value, (tuple, list)) else value
    for element, array in given:
        if element is None:
            elements = _like(elements, array, kept)
        else:
            elements[element] = _like(elements[element], array, kept)
    return tuple(elements) if isinstance(elements, list) else elements


def _like(value: Any, array: Any, kept: Collection[int] | None) -> Any:
    """The array as a tensor, in the layout and type of `value`."""
    if not isinstance(value, torch.Tensor) or not isinstance(array, np.ndarray):
        return value
    given = tensor_from_numpy(array) if kept is not None else tensor_sharing(array)
    if given.numel() != value.numel():
        return value
    given = given.reshape(value.shape)
    if kept is None and given.dtype == value.dtype and given.stride() == value.stride():
        return given
    if kept is not None and value.untyped_storage().data_ptr() not in kept:
        try:
            return value.copy_(given)
        except RuntimeError:  # elements that share memory
            return given
    dtype = given.dtype if value.dtype == torch.float64 else value.dtype
    return torch.empty_like(value, dtype=dtype).copy_(given)


# -- in float64


# Libraries with operators that compute in the type of their inputs, or refuse it. Others may read
# float64 as float32, as ExecuTorch's LLM operators do.
_ANY_TYPE = frozenset({"aten", "prims", "quantized_decomposed", "dim_order_ops", "higher_order"})


def _wide_call(
    operation: Operation,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    local: Local,
    jitter: torch.Generator | None,
) -> Any:
    """Compute a node in float64 where its operator allows it. local: its call in float32. jitter:
    for a node of a backend with unknown arithmetic."""
    target = operation.target
    schema = getattr(target, "_schema", None)
    if schema is not None and schema.is_mutable:
        # What is written into a tensor has that tensor's type; a kernel may not check it.
        given = {**dict(zip((one.name for one in schema.arguments), args, strict=False)), **kwargs}
        written = [
            given[one.name].dtype
            for one in schema.arguments
            if one.is_write and isinstance(given.get(one.name), torch.Tensor)
        ]
        dtype = written[0] if written else torch.float32

        def as_written(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        args, kwargs = pytree.tree_map_only(torch.Tensor, as_written, (args, kwargs))
        return target(*args, **kwargs)
    args = _past_ties(operation, args, local) if jitter is None else _jittered(target, args, jitter)

    def widened(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor

    try:
        plain = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
        called = (
            one if isinstance(one, plain) else getattr(one, "_op", one)
            for one in operation.operators
        )
        if not _ANY_TYPE.issuperset(getattr(one, "namespace", "aten") for one in called):
            raise NotImplementedError
        args_wide, kwargs_wide = pytree.tree_map_only(torch.Tensor, widened, (args, kwargs))
        value = target(*args_wide, **kwargs_wide)
        cancel = CANCELLING.get(operator_name(target))
        if cancel is None or args_wide[0].dtype != torch.float64:
            return value
        epsilon = torch.finfo(operation.float_type or torch.float32).eps
        return cancel(target, args_wide, kwargs_wide, value, epsilon)
    except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError):
        # The operator takes no float64: back to the type that it was exported with.
        dtype = operation.float_type or torch.float32

        def narrow(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(dtype) if tensor.dtype == torch.float64 else tensor

        narrowed = pytree.tree_map_only(torch.Tensor, narrow, (args, kwargs))
        return target(*narrowed[0], **narrowed[1])


def _jittered(target: Any, args: tuple[Any, ...], jitter: torch.Generator) -> tuple[Any, ...]:
    """Move the numbers that an operator quantizes by up to half a step."""
    scales = _scales_of(target, args)
    if scales is None:
        return args
    tensor = args[0]
    moves = torch.rand(tensor.shape, generator=jitter, dtype=torch.float64) - 0.5
    return (tensor + moves * scales).to(tensor.dtype), *args[1:]


def _past_ties(operation: Operation, args: tuple[Any, ...], local: Local) -> tuple[Any, ...]:
    """Move the numbers that are next to the middle between two steps to the step that they do not
    have in float32, for an operator that quantizes."""
    scales = _scales_of(operation.target, args)
    if scales is None or not args[0].numel():
        return args
    tensor = args[0]
    steps = tensor.double() / scales
    epsilon = torch.finfo(operation.float_type or torch.float32).eps
    near = _NEAR * epsilon * steps.nan_to_num(0.0).abs().max().clamp(max=_MOST_STEPS)
    other = steps
    if local.args and local.args[0].shape == tensor.shape:
        other = local.args[0].double() / _scales_of(operation.target, local.args)
        near = near + nearness(steps, other)
    moved = rounded_away(steps, torch.round(other), near)
    moved = torch.where(moved == torch.round(steps), tensor.double(), moved * scales)
    return moved.to(tensor.dtype), *args[1:]


def _is_quantizing(target: Any) -> bool:
    """True for an operator with `_scales_of` its own."""
    operator = operator_name(target)
    return operator in _QUANTIZING or operator.startswith(_BY_TENSOR)


_BY_TENSOR = "quantized_decomposed.quantize_per_tensor."
_QUANTIZING = frozenset({
    "torchao.quantize_affine.default", "quantized_decomposed.quantize_per_token.default",
})  # fmt: skip


def _scales_of(target: Any, args: tuple[Any, ...]) -> Any:
    """The scales of an operator that quantizes, in float64: a number, or a tensor that fits its
    input; None for an operator that does not quantize."""
    operator = operator_name(target)
    if operator.startswith(_BY_TENSOR):
        return args[1].double() if isinstance(args[1], torch.Tensor) else args[1]
    if operator == "torchao.quantize_affine.default":
        tensor, block, scales = args[0], args[1], args[2]
    elif operator in _QUANTIZING:
        tensor, scales = args[0], args[1]
        block = [*[1] * (tensor.dim() - 1), tensor.shape[-1]]
    else:
        return None
    blocks = [size // part for size, part in zip(tensor.shape, block, strict=True)]
    scales = scales.reshape(blocks)
    for axis, part in enumerate(block):
        scales = scales.repeat_interleave(part, axis)
    return scales.double()


# -- Derive the state of a model before a run from the values that the run logged.
#
# A cache is changed by operators that write some elements of a buffer and leave the others as they
# were. The value that such an operator logged has them all, so it shows what was in the buffer
# before, where it was not written to.


# Operators that write elements of their first argument, functionally.
_WRITE_ELEMENTS = frozenset(
    {
        "aten.index_put.default",
        "aten.index_copy.default",
        "aten.slice_scatter.default",
        "aten.select_scatter.default",
        "aten.scatter.src",
        "aten.scatter.value",
    }
)


def updated_buffers(graph: ReferenceGraph) -> dict[str, str]:
    """Return the buffers of a graph that an operator updates in part, by the operator's node."""
    if not isinstance(graph, NamedProgram):
        return {}
    buffers = {
        graph.names.get(name, name): buffer
        for name, buffer in graph.program.graph_signature.inputs_to_buffers.items()
    }
    found = {}
    for node in graph.nodes():
        source = getattr(node.args[0], "name", None) if node.args else None
        if node.operator in _WRITE_ELEMENTS and source in buffers:
            found[node.name] = buffers[source]
    return found


def take_logged_state(graph: ReferenceGraph, device: DeviceValues, memory: Memory) -> None:
    """Correct the device's state before a run by the buffers that the run logged. Elements that the
    run itself writes do not matter: it writes them again.
    """
    for node, buffer in updated_buffers(graph).items():
        for element, value in device(node, 0):
            known = memory.local.get(buffer)
            if element is None and (known is None or tuple(known.shape) == np.shape(value)):
                memory.take_device_state({buffer: value})


def state_errors(before: Mapping[str, torch.Tensor], memory: Memory) -> dict[str, float]:
    """Return how far the device's buffers are from the reference's where a run did not write to
    them, by buffer: SQNR in dB.

    before: the reference's state before the run; memory: after it.
    """
    errors = {}
    for name, own in memory.local.items():
        first, last = before.get(name), memory.reference.get(name)
        if first is None or last is None or not own.is_floating_point():
            continue
        if not first.shape == last.shape == own.shape:
            continue
        kept = first == last
        expected = first[kept].double()
        power = float(expected.square().sum())
        noise = float((own[kept].double() - expected).square().sum())
        if power:
            errors[name] = float("inf") if not noise else 10 * float(np.log10(power / noise))
    return errors
