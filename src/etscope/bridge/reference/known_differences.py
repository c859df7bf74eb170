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

from etscope.analysis.numerics.diagnose import Recomputed
from etscope.analysis.numerics.explain import Recomputing
from etscope.analysis.numerics.explanations import Candidate, Residual
from etscope.analysis.numerics.rows import NumericsRow
from etscope.analysis.numerics.value_patterns import along, number_text
from etscope.bridge.reference.backends import Arithmetic
from etscope.bridge.reference.local_reference import (
    DeviceValues,
    Memory,
    recompute,
)
from etscope.bridge.reference.reference import ReferenceGraph
from etscope.bridge.reference.reruns import RecordedCall, Reruns, record_calls
from etscope.model.graph import SAME_VALUE, Graph, stem

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
    value = reruns.value(at, call.changed(**{name: tensor * factor}))
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
