"""Known differences between the kernels of devices and PyTorch, tried on a wrong value.

`DIFFERENCES` is the table: what was seen to differ in the field, and where. The value is computed
again from the device's own inputs, with one entry applied to one call that leads to it. Only a
result that leaves nothing but rounding is named (`analysis.numerics.explanations`): what no entry
explains has no name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from etscope.analysis.numerics.diagnose import Recomputed
from etscope.analysis.numerics.explain import Recomputing
from etscope.analysis.numerics.explanations import Candidate, Residual
from etscope.analysis.numerics.limits import TOLERANCES
from etscope.analysis.numerics.rows import NumericsRow
from etscope.analysis.numerics.value_patterns import along, number_text
from etscope.bridge.reference.backends import Arithmetic
from etscope.bridge.reference.local_reference import (
    DeviceValues,
    Memory,
    recompute,
)
from etscope.bridge.reference.local_reference import replaced as with_device
from etscope.bridge.reference.reference import Operation, ReferenceGraph, arrays_of
from etscope.model.graph import SAME_VALUE, Graph, stem

# -- Compute a wrong value again with one operator's call changed.
#
# `record_calls` runs the graph with the device's values once more, and keeps the calls of the
# operators that lead to wrong values, with their arguments. `Reruns` computes a value from these
# calls, one of them changed. Only the operators after the changed one run again.


# Elements that the reruns of a value read and write, at most: some seconds of work. A count, as a
# limit of time would give other answers on other machines.
_MOST_ELEMENTS = 200_000_000
_MOST_BYTES = 1 << 28  # of the arguments and results that are kept, for a model of a phone's size

Place = tuple[str, int]  # a node, and the pass of its loop


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """An operator's call in the run with the device's values. compute: computes it as the device
    does by design, instead of the operator."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    compute: Callable[..., Any] | None = None

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute the call with other arguments."""
        if self.compute is None:
            return self.target(*args, **kwargs)
        return self.compute(self.target, tuple(args), dict(kwargs), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The known names of the arguments, by position."""
        schema = getattr(self.target, "_schema", None)
        found = () if schema is None else tuple(one.name for one in schema.arguments)
        return (*found, *("" for _ in self.args[len(found) :]))

    @property
    def given(self) -> dict[str, Any]:
        """All arguments by name, including arguments with default values."""
        schema = getattr(self.target, "_schema", None)
        defaults = {
            one.name: one.default_value
            for one in (() if schema is None else schema.arguments)
            if one.has_default_value()
        }
        return {**defaults, **dict(zip(self.names, self.args, strict=False)), **self.kwargs}

    def changed(self, /, **arguments: Any) -> Callable[[], Any]:
        """Return the call with other arguments, by name."""

        def call() -> Any:
            position = {name: at for at, name in enumerate(self.names[: len(self.args)])}
            args, kwargs = list(self.args), dict(self.kwargs)
            for name, value in arguments.items():
                if name in position:
                    args[position[name]] = value
                else:
                    kwargs[name] = value
            return self.run(args, kwargs)

        return call


def record_calls(
    graph: ReferenceGraph,
    inputs: Any,
    device: DeviceValues,
    wanted: Mapping[Place, Collection[str]],
    memory: Memory,
    arithmetic: Arithmetic,
) -> dict[Place, list[RecordedCall]]:
    """Run a graph with the device's values, and return for each `wanted` value the calls that lead
    to it, in order: calls of the nodes named there, in the same pass of a loop. Values with too
    large or partly unknown calls are left out.

    memory: as before the run that is repeated; it is not changed. A graph with nodes that write to
    values has no result: its values may change later.
    """
    if graph.own_memory is not None:
        return {}
    inside = {name for names in wanted.values() for name in names}
    calls: dict[Place, RecordedCall] = {}
    passes: dict[str, int] = {}
    size = 0

    def record(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal size
        design = arithmetic.by_design.get(operation.name)
        args = args if design is None else design.change(args)
        compute = None if design is None else design.compute
        name = operation.name
        made = RecordedCall(name, operation.target, args, kwargs, None, compute)
        result = made.run(args, kwargs)
        if name in inside and size < _MOST_BYTES:
            size += sum(
                one.numel() * one.element_size()
                for one in pytree.tree_leaves((args, kwargs, result))
                if isinstance(one, torch.Tensor)
            )
            place = name, passes.get(name, 0)
            calls[place] = replace(made, result=result)
        passes[name] = passes.get(name, 0) + 1
        return result

    run = graph.run(inputs, dict(memory.local), call=record)
    seen: dict[str, int] = {}
    try:
        name, value = next(run)
        while True:
            loop_pass = seen.get(name, 0)
            seen[name] = loop_pass + 1
            given = device(name, loop_pass)
            name, value = run.send(with_device(value, given, None) if given else None)
    except StopIteration:
        pass
    found = {}
    for (name, loop_pass), names in wanted.items():
        listed = [calls.get((one, loop_pass)) for one in names]
        known = [one for one in listed if one is not None]
        if known and known[-1].name == name and len(known) == len(listed):
            found[name, loop_pass] = known
    return found


class Reruns:
    """Computes a value again from recorded calls, one of them changed.

    element: index of the value in the last call's result. Work is limited: when the limit is used
    up, `value` is None.
    """

    def __init__(self, calls: Sequence[RecordedCall], element: int | None) -> None:
        self.calls, self._element = calls, element
        self._elements = _MOST_ELEMENTS
        self._sizes = [
            sum(
                one.numel()
                for one in pytree.tree_leaves((call.args, dict(call.kwargs), call.result))
                if isinstance(one, torch.Tensor)
            )
            for call in calls
        ]

    def value(self, at: int, change: Callable[[], Any]) -> Any:
        """The value in float64 with the call at a position changed; None if that fails, or gives
        other types."""
        if self._elements <= 0:
            return None
        with torch.no_grad():
            return self._value(at, change)

    def _value(self, at: int, change: Callable[[], Any]) -> Any:
        try:
            result = change()
            self._elements -= self._sizes[at]
            replaced: dict[int, Any] = {}
            if not _note(self.calls[at].result, result, replaced):
                return None
            for size, call in zip(self._sizes[at + 1 :], self.calls[at + 1 :], strict=True):
                leaves, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
                if not any(id(leaf) in replaced for leaf in leaves):
                    continue
                leaves = [replaced.get(id(leaf), leaf) for leaf in leaves]
                args, kwargs = pytree.tree_unflatten(leaves, spec)
                result = call.run(args, kwargs)
                self._elements -= size
                if not _note(call.result, result, replaced):
                    return None
        except Exception:  # an operator refuses what no export would make
            return None
        found = replaced.get(id(self.calls[-1].result))
        if found is None:
            return None  # the changed value does not lead there
        array = arrays_of(found if self._element is None else found[self._element])
        return None if array is None else np.asarray(array).astype(np.float64)


def _note(before: Any, after: Any, replaced: dict[int, Any]) -> bool:
    """Note what a result is replaced by, and each of its elements; false if the types differ."""
    if isinstance(before, torch.Tensor):
        if not isinstance(after, torch.Tensor) or after.shape != before.shape:
            return False
        replaced[id(before)] = after.to(before.dtype)
        return True
    if not isinstance(before, (tuple, list)) or not isinstance(after, (tuple, list)):
        return False
    replaced[id(before)] = after
    pairs = zip(before, after, strict=True)
    return all(_note(*pair, replaced) for pair in pairs if isinstance(pair[0], torch.Tensor))


_TRANSPOSING = frozenset({"permute", "t", "transpose"})
# PyTorch's default is 1e-5, of BERT 1e-12, of Llama 1e-6, of Keras 1e-3; a kernel in float16 loses
# what is below 6e-8.
_EPS = (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3)
_WHOLE_STEP = 0.49999  # of a step to the next integer, without those that are there


_Variant = tuple[str, str, Callable[[], Any]]  # kind, words, and the changed call


@dataclass(frozen=True, slots=True)
class _Call:
    """A recorded call, the operator's `stem`, and words for the arguments that are weights, or
    views of some, by name."""

    made: RecordedCall
    operator: str
    weights: Mapping[str, str]

    def variant(self, kind: str, text: str, /, **arguments: Any) -> _Variant:
        """The call with other arguments."""
        return kind, text, self.made.changed(**arguments)

    def tensors(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Argument, words and value of each weight that is not a single number."""
        for name, text in self.weights.items():
            value = self.made.given.get(name)
            if isinstance(value, torch.Tensor) and value.dim():
                yield name, text, value


_Variants = Iterator[_Variant]
_Difference = Callable[[_Call], _Variants]
DIFFERENCES: list[_Difference] = []


def _known(difference: _Difference) -> _Difference:
    """Add a difference to the table."""
    DIFFERENCES.append(difference)
    return difference


@_known
def _approximation(call: _Call) -> _Variants:
    # XNNPACK computes gelu by erf, whatever `approximate` says (ExecuTorch 1.5; seen in Gemma 2).
    if call.operator == "gelu":
        own = call.made.given["approximate"]
        other, text = ("tanh", "by tanh") if own == "none" else ("none", "by erf")
        yield call.variant("approximation", f"gelu {text}", approximate=other)


@_known
def _eps(call: _Call) -> _Variants:
    # Frameworks and backends have other defaults, see `_EPS`.
    own = call.made.given.get("eps")
    if not isinstance(own, float):
        return
    for eps in _EPS:
        if eps != own:
            text = f"an eps of {number_text(eps)} in place of {number_text(own)}"
            yield call.variant("eps", text, eps=eps)


@_known
def _option(call: _Call) -> _Variants:
    # align_corners: TensorFlow, ONNX and delegates each resize by another default.
    # count_include_pad: TensorFlow and TFLite leave padding out of the mean, PyTorch counts it.
    for name in ("align_corners", "count_include_pad"):
        own = call.made.given.get(name)
        if isinstance(own, bool):
            yield call.variant("option", f"{name} {'off' if own else 'on'}", **{name: not own})


@_known
def _rounding(call: _Call) -> _Variants:
    # A cast of C cuts off, a shift of a fixed-point product rounds down; PyTorch rounds to the
    # nearest.
    if not call.operator.startswith("quantize_per"):
        return
    tensor, scale = call.made.args[:2]
    axis = call.made.given.get("axis")
    if isinstance(scale, torch.Tensor) and scale.numel() > 1:
        if not isinstance(axis, int):
            return
        scale = scale.reshape([-1 if one == axis else 1 for one in range(tensor.dim())])
    half = _WHOLE_STEP * scale
    for text, other in (
        ("rounded down", tensor - half),
        ("cut off towards zero", tensor - half * tensor.sign()),
    ):
        words = f"{text} in place of rounded to the nearest"
        argument = {call.made.names[0]: other.to(tensor.dtype)}
        yield call.variant("rounding", words, **argument)


@_known
def _transposed(call: _Call) -> _Variants:
    # Linear layers of Keras, and matrices of BLAS by columns, are PyTorch's transposed; kernels
    # have their channels in another order (OIHW, HWIO).
    for name, text, value in call.tensors():
        for one in range(value.dim()):
            for other in range(one + 1, value.dim()):
                if 1 < value.shape[one] == value.shape[other]:
                    words = "" if value.dim() == 2 else f" in dimensions {one, other}"
                    changed = {name: value.transpose(one, other).contiguous()}
                    words = f"{text} transposed{words}"
                    yield call.variant("transposed weight", words, **changed)


@_known
def _turned(call: _Call) -> _Variants:
    # Kernels of a convolution are turned around where a library correlates.
    for name, text, value in call.tensors():
        if value.dim() == 4 and min(value.shape[2:]) > 1:
            words = f"{text} turned around in both directions"
            yield call.variant("reversed weight", words, **{name: value.flip(2, 3)})


@_known
def _neighbours(call: _Call) -> _Variants:
    # Two numbers of 4 bits in a byte: which half comes first differs between packings.
    for name, text, value in call.tensors():
        if value.dtype == torch.int8 and value.shape[-1] % 2 == 0:
            pairs = value.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
            words = f"{text} with neighbours swapped"
            yield call.variant("permuted weight", words, **{name: pairs})


@_known
def _narrow(call: _Call) -> _Variants:
    # Core ML, Vulkan and QNN can store weights as float16; XNNPACK scales of groups as bfloat16.
    for name, text, value in call.tensors():
        for dtype in (torch.float16, torch.bfloat16) if value.dtype == torch.float32 else ():
            words = f"{text} rounded to {str(dtype).removeprefix('torch.')}"
            changed = {name: value.to(dtype).to(value.dtype)}
            yield call.variant("rounded weight", words, **changed)


@_known
def _one_pass(call: _Call) -> _Variants:
    # ExecuTorch's norms add up in turn, and take the variance as the mean square less the squared
    # mean, layer norms in float32; PyTorch adds up squared differences.
    if call.operator in ("native_layer_norm", "native_group_norm"):
        words = "its variance as the mean square less the squared mean, which loses digits"
        words += " (subtract the mean of each row before the norm)"
        yield "one-pass variance", words, lambda: _normalized(call)


def _normalized(call: _Call) -> tuple[torch.Tensor, ...]:
    given, count = call.made.given, call.made.result[1].numel()
    x: torch.Tensor = given["input"]
    rows, is_group = x.reshape(count, -1).numpy(), call.operator == "native_group_norm"
    wide = np.dtype(np.float64) if is_group else rows.dtype
    mean, square = (
        np.add.accumulate(one, 1)[:, -1:].astype(wide) / wide.type(rows.shape[1])
        for one in (rows, rows * rows)
    )
    with np.errstate(invalid="ignore"):  # NaN, as on the device
        reciprocal = 1 / np.sqrt(square - mean * mean + wide.type(given["eps"]))
    found = torch.from_numpy((rows - mean) * reciprocal).reshape(x.shape)
    shape = (-1, *[1] * (x.dim() - 2)) if is_group else given["normalized_shape"]
    for name, apply in (("weight", torch.mul), ("bias", torch.add)):
        if given[name] is not None:
            found = apply(found, given[name].reshape(shape))
    return found, *(
        torch.from_numpy(value).reshape(like.shape)
        for value, like in zip((mean, reciprocal), call.made.result[1:], strict=True)
    )


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceRun:
    """A reference run with the device's values: an `analysis.numerics.diagnose.RunReference`.

    named: our graph of it. memory: state from earlier runs; this run updates it. before: a copy of
    the device's part before the run. arithmetic: the device's own.
    """

    graph: ReferenceGraph
    named: Graph
    inputs: Any
    device: DeviceValues
    memory: Memory
    before: Memory
    arithmetic: Arithmetic
    float_value: Callable[[str, int | None], Any]

    @property
    def values_stay(self) -> bool:
        return self.graph.own_memory is None

    @property
    def by_design(self) -> Mapping[str, str]:
        return {name: one.reason for name, one in self.arithmetic.by_design.items()}

    def values(self, nodes: Collection[str]) -> Iterator[Recomputed]:
        """Compute the graph, and yield the values of nodes in order."""
        return recompute(self.graph, self.inputs, self.device, nodes, self.memory, self.arithmetic)

    def recompute(self, rows: Sequence[NumericsRow]) -> Recomputing:
        """Repeat the run, and return the function that yields candidates for one of the rows."""
        wanted = {(row.pair.node, row.loop_pass): row.nodes for row in rows}
        calls = record_calls(
            self.graph, self.inputs, self.device, wanted, self.before, self.arithmetic
        )

        def candidates(row: NumericsRow, residual: Residual) -> Iterator[Candidate]:
            known = calls.get((row.pair.node, row.loop_pass))
            if known is not None:
                yield from candidates_of(residual, Reruns(known, row.pair.element), self.named)

        return candidates


def candidates_of(residual: Residual, reruns: Reruns, graph: Graph) -> Iterator[Candidate]:
    """Yield a value's candidates by known differences, the last call's first. graph: names the
    weights."""
    for at, made in reversed(list(enumerate(reruns.calls))):
        node = graph.calls.get(made.name)
        if node is None:
            continue
        named = {name: _weight(graph, source) for name, source in node.arguments}
        weights = {name: text for name, text in named.items() if text is not None}
        call = _Call(made, stem(node.op), weights)
        variants = [one for difference in DIFFERENCES for one in difference(call)]
        for kind, text, change in variants:
            value = reruns.value(at, change)
            if value is not None:
                choices = len(variants) * len(reruns.calls)
                yield Candidate(kind, text, value, 0, choices, node=made.name)
        for name, text, tensor in call.tensors():
            if tensor.is_floating_point():
                yield from _scaled(residual, reruns, at, name, (text, tensor))


def _weight(graph: Graph, source: str) -> str | None:
    """The qualified name of the weight that a node's argument is, or is a view of."""
    node = graph.by_name.get(source)
    if node is None:
        return None
    return graph.parameters.get(graph.seen_through(node, SAME_VALUE | _TRANSPOSING).name)


def _scaled(
    residual: Residual, reruns: Reruns, at: int, name: str, weight: tuple[str, torch.Tensor]
) -> Iterator[Candidate]:
    """A weight times a constant, in all or some channels: a scale of its quantization is misread,
    or a bias left out where operators are fused. The factor fits a value that is linear in
    the weight."""
    text, tensor = weight
    call = reruns.calls[at]
    without = reruns.value(at, call.changed(**{name: torch.zeros_like(tensor)}))
    if without is None or not np.isfinite(without).all():
        return
    part = np.where(residual.known, residual.expected - without, 0.0)
    size = float((residual.weight * part * part).sum())
    if not size:
        return
    found = np.where(residual.known, residual.found - without, 0.0)
    factor = float((residual.weight * part * found).sum()) / size
    parameters = {"argument": name, "factor": factor}
    if abs(factor) < 1e-6:  # what rounding leaves of it
        yield Candidate("left out", f"{text} left out", without, 0, 8, parameters, call.name)
        return
    # A factor within the tolerance of the type changes only numbers at ties.
    is_one = abs(factor - 1) < TOLERANCES["float32"]
    value = None if is_one else reruns.value(at, call.changed(**{name: tensor * factor}))
    if value is not None:
        words = f"{text} times {number_text(factor)}"
        yield Candidate("weight scale", words, value, 1, 8, parameters, call.name)
    axis = residual.suspect.axis
    if axis is None or call is not reruns.calls[-1] or not without.any():
        return  # later calls may mix channels, and a value of this part alone has its own pattern
    rest = Residual(replace(residual.suspect, value=residual.found - without, local=part))
    for one in along(rest, axis):
        if one.kind == "scale":
            words, value = f"{text} {one.text}", one.value + without
            yield replace(one, kind="weight scale", text=words, value=value, node=call.name)
