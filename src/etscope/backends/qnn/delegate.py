"""Decode what the QNN delegate logs: events, and values of tensors.

`QnnProfile::ProfileData` (backends/qualcomm/runtime/backends/QnnProfiler.cpp) logs each event with
start 0 and the number as end. The name ends with the unit: the delegate appends " (us)",
" (bytes)" or " (count)", and QNN itself writes "(cycles)". The events of nodes follow the
accelerator's event in cycles. Some have no unit: "conv_1:OpId_24 (cycles)", "conv_1".

QNN logs the accelerator's time in cycles and in microseconds, which gives the length of a cycle.

With `dump_intermediate_outputs`, `QnnManager::Execute` (backends/qualcomm/runtime/QnnManager.cpp)
logs each tensor that is not a weight by its name, "aten_add_tensor@0", as it lies in QNN's memory:

- quantized, where the model is. The dump has neither scale nor zero point. As `AnnotateQuantAttrs`
  does, take them from the operator that quantized the value before `FoldQDQ` removed it.
- with channels last, where `LayoutTransform` (backends/qualcomm/_passes/layout_transform.py) wants
  it: at operators that QNN has for channels-last only, and at all operators connected to one
  through operators that accept both orders. Neither dump nor record has the order, but shapes show
  it. A shape that fits both orders gets the order of the pass's rule, unless other values of the
  connected operators contradict the rule.
- as uint8 for each type that `qnn_dtype_to_scalar_type_` (QnnManager.h) lacks: float16, bool and
  int64. QNN then writes only one byte for each element.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from etscope.backends.common.logged import (
    Form,
    InnerCall,
    InnerValue,
    LoggedCall,
    Types,
    same_shape,
    type_form,
)
from etscope.model.event_table import Clock, Meaning, Quantity
from etscope.model.graph import Graph, Node

_UNIT = re.compile(r"(?P<name>.*?) \((?P<unit>us|bytes|count|cycles)\)$", re.DOTALL)
_NODE = re.compile(r"(?P<node>.+):OpId_(?P<number>\d+)$", re.DOTALL)
_ACCELERATOR = re.compile(r"Accelerator \(execute\b.*cycles", re.DOTALL)
# The same time of a call in two units.
_IN_CYCLES = "Accelerator (execute) time (cycles)"
_IN_US = "Accelerator (execute) time (us)"


def recognises(call: LoggedCall) -> bool:
    """True for names that end with a unit."""
    return any(_UNIT.fullmatch(name) for name in call.names)


def decode(call: LoggedCall) -> list[Meaning]:
    """Return numbers with units, without a place in time; node cycles are parts of the
    accelerator's."""
    found: list[Meaning] = []
    cycle_us: float | None = None  # over all runs; needs the accelerator's time once in each unit
    names = list(call.names)
    if names.count(_IN_CYCLES) == names.count(_IN_US) == 1:
        cycles, us = (int(call.ticks[names.index(name)].sum()) for name in (_IN_CYCLES, _IN_US))
        cycle_us = us / cycles if cycles > 0 and us > 0 else None
    accelerator: int | None = None
    for number, (name, identifier) in enumerate(zip(call.names, call.identifiers, strict=True)):
        parts = _UNIT.fullmatch(name)
        plain, unit = (name, None) if parts is None else (parts["name"], parts["unit"])
        node = _NODE.fullmatch(plain)
        is_summary = parts is not None and node is None
        if is_summary:
            accelerator = number if _ACCELERATOR.match(name) else None
        elif unit is None:
            unit = "count" if accelerator is None else "cycles"
        known = identifier if node is None else node["node"]
        found.append(
            Meaning(
                plain if node is None else node["node"],
                None if is_summary else known,
                quantity=Quantity.INTERVAL if unit == "us" else Quantity.COUNTER,
                clock=Clock.DEVICE,
                unit=unit,
                is_placed=False,
                parent=None if is_summary else accelerator,
                columns={} if node is None else {"op_id": int(node["number"])},
                unit_us=cycle_us if unit == "cycles" else None,
            )
        )
    return found


# -- values

# `LayoutTransform.layout_type`: rank -> dimensions of the graph's value in QNN's order.
_CHANNELS_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}

# `LayoutTransform.layout_sensitive_ops`.
_SENSITIVE = frozenset({
    "_adaptive_avg_pool3d.default", "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_no_training.default", "adaptive_avg_pool2d.default",
    "adaptive_max_pool2d.default", "avg_pool2d.default", "avg_pool3d.default",
    "convolution.default", "grid_sampler_2d.default", "grid_sampler_3d.default",
    "instance_norm.default", "max_pool2d_with_indices.default", "native_group_norm.default",
    "pixel_shuffle.default", "pixel_unshuffle.default", "upsample_bicubic2d.default",
    "upsample_bicubic2d.vec", "upsample_bilinear2d.default", "upsample_bilinear2d.vec",
    "upsample_nearest2d.default", "upsample_nearest2d.vec",
})  # fmt: skip
# `LayoutTransform.layout_agnostic_ops`.
_AGNOSTIC = frozenset({
    "_to_copy.default", "abs.default", "add.Tensor", "amax.default", "amin.default",
    "asin.default", "atan.default", "bitwise_and.Tensor", "bitwise_or.Tensor",
    "bitwise_xor.Tensor", "bmm.default", "cat.default", "ceil.default", "clamp.default",
    "constant_pad_nd.default", "cumsum.default", "div.Tensor", "elu.default", "eq.Tensor",
    "exp.default", "flip.default", "floor.default", "floor_divide.default", "full.default",
    "full_like.default", "ge.Tensor", "gelu.default", "gt.Tensor", "hardsigmoid.default",
    "hardswish.default", "hardtanh.default", "le.Tensor", "linear.default", "log.default",
    "logical_and.default", "logical_not.default", "lt.Scalar", "lt.Tensor", "max.dim",
    "maximum.default", "mean.dim", "min.dim", "minimum.default", "mul.Tensor", "ne.Scalar",
    "ne.Tensor", "neg.default", "pow.Tensor_Scalar", "prelu.default", "rand.default",
    "randn.default", "reflection_pad1d.default", "reflection_pad2d.default", "relu.default",
    "repeat.default", "round.default", "scatter.src", "scatter.value", "scatter_add.default",
    "scatter_reduce.two", "sigmoid.default", "sign.default", "slice_copy.Tensor",
    "sort.default", "split_with_sizes.default", "split_with_sizes_copy.default", "sqrt.default",
    "sub.Tensor", "sum.dim_IntList", "topk.default", "where.self",
})  # fmt: skip
_REDUCING = frozenset({"amax.default", "max.dim", "mean.dim", "min.dim", "sum.dim_IntList"})
_SOFTMAX = frozenset({"_softmax.default", "_log_softmax.default"})

_NAMELESS = (
    "logged as uint8: QNN logs types that its runtime cannot name (float16, int64) as uint8; or "
    "the value is quantized, and the record does not have its scale"
)


def forms(call: InnerCall) -> list[Form | str]:
    """Return for each value of a call the steps that convert it to the reference's form, or the
    reason why it cannot be compared."""
    regions = _regions(call.graph, call.inside)
    seen: dict[int, set[bool]] = {}
    for value in call.values:
        orders = _orders(value)
        if len(orders) == 1 and value.path in regions:
            seen.setdefault(regions[value.path].number, set()).update(orders)
    found: list[Form | str] = []
    for value in call.values:
        expected = value.spec.dtype
        is_code = value.codes is not None and value.codes.dtype == "uint8"
        is_named = value.dtype != "uint8" or expected in ("uint8", "bool")
        is_known = is_named or (is_code and expected.startswith("float"))
        types = type_form(value) if is_known else _NAMELESS
        if not isinstance(types, Types):
            found.append(types)
            continue
        orders, region = _orders(value), regions.get(value.path)
        if len(orders) == 2:
            orders = {False} if region is None else seen.get(region.number, {region.is_sensitive})
        if len(orders) == 2:
            found.append(
                f"the shape of {value.path} fits both channel orders, and other values of the call "
                "contradict each other"
            )
        elif not orders and not value.spec.shape and value.shape == (1,):
            found.append(types.form(shape=()))
        elif not orders:
            found.append(value.other_shape)
        else:
            rank = len(value.shape)
            back = (0, rank - 1, *range(1, rank - 1))  # the dimensions in the graph's order
            found.append(types.form(order=back if True in orders else None))
    return found


def _orders(value: InnerValue) -> set[bool]:
    """Return the orders that the logged shape fits: True for channels last, False for the graph's
    order. If both give the same array, return the graph's order only."""
    logged, expected = value.shape, value.spec.shape
    found = {False} if same_shape(logged, expected) else set()
    order = _CHANNELS_LAST.get(len(expected))
    if order is None or not same_shape(logged, [expected[axis] for axis in order]):
        return found
    if found and (logged[-1] == 1 or all(size == 1 for size in logged[1:-1])):
        return found
    return {*found, True}


class _Region:
    """Connected operators of one order. is_sensitive: one of them needs channels last."""

    def __init__(self, number: int) -> None:
        self.number, self.is_sensitive = number, False


def _regions(graph: Graph, inside: Collection[str]) -> Mapping[str, _Region]:
    """Map the path of each operator that may have channels last to its region, by the rule of
    `LayoutTransform.annotate_layout`."""
    nodes = {path: graph.calls[path] for path in inside if path in graph.calls}
    takes_part = {path for path, node in nodes.items() if _takes_part(node)}
    neighbours: dict[str, list[str]] = {path: [] for path in takes_part}
    for path in takes_part:
        for value in graph.read_by(nodes[path]):
            if value.path in takes_part:
                neighbours[path].append(value.path)
                neighbours[value.path].append(path)
    found: dict[str, _Region] = {}
    for number, start in enumerate(sorted(takes_part)):
        if start in found:
            continue
        region, waiting = _Region(number), [start]
        while waiting:
            path = waiting.pop()
            if path not in found:
                found[path] = region
                region.is_sensitive |= _is_sensitive(nodes[path])
                waiting += neighbours[path]
    return found


def _takes_part(node: Node) -> bool:
    if _is_sensitive(node):
        return True
    shapes = list(_shapes(node))
    if len(shapes) == 1 and not shapes[0]:
        return False
    name = _name(node)
    # A reduction that drops dimensions has only one order.
    return name in _AGNOSTIC and (
        name not in _REDUCING or dict(node.arguments).get("keepdim") == "True"
    )


def _is_sensitive(node: Node) -> bool:
    name = _name(node)
    if name not in _SOFTMAX:
        return name in _SENSITIVE
    shape = next(_shapes(node), ())
    axis = dict(node.arguments).get("dim", "")
    return axis.lstrip("-").isdecimal() and int(axis) not in (-1, len(shape) - 1)


def _name(node: Node) -> str:
    """Return the operator with its overload, without the library: "add.Tensor"."""
    return node.op.removeprefix("aten.")


def _shapes(node: Node) -> Iterator[tuple[int | str, ...]]:
    return (value.tensor.shape for value in node.outputs if value.tensor is not None)
