"""Forms of the values that QNN logs.

With `dump_intermediate_outputs`, `QnnManager::Execute` (backends/qualcomm/runtime/QnnManager.cpp)
logs each tensor that is not a weight by its name, "aten_add_tensor@0", as it lies in QNN's memory:

- quantised, where the model is: scale and zero point are not in the dump. The numbers are those of
  `AnnotateQuantAttrs`: of the operator that quantised the value before `FoldQDQ` removed it.
- with the channels last, where `LayoutTransform` (backends/qualcomm/_passes/layout_transform.py)
  says so: of the operators that QNN has for channels-last alone, and of all that are connected with
  one through operators for which the order is the same. Neither the dump nor the record says so,
  but shapes do; where these fit both orders, the pass's own rule decides, unless other values of
  the connected operators contradict it.
- as uint8, whatever the type is, if `qnn_dtype_to_scalar_type_` (QnnManager.h) does not have it, as
  float16, bool and int64; only as many bytes as the tensor has elements are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from etscope.backends.common.inner import Form, InnerCall, InnerValue, Types, same_shape, type_form
from etscope.model.graph import Graph, Node

# Of `LayoutTransform.layout_type`: dimensions of the graph's value, in QNN's order.
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
    "logged as uint8, as QNN's runtime logs the types that it has no name for, float16 and int64 "
    "among them; or quantised by a scale that the record does not say"
)


def forms(call: InnerCall) -> list[Form | str]:
    """Values as QNN has them in memory."""
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
                f"the shape of {value.path} does not tell whether its channels are last, and "
                "other values of the call contradict each other"
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
    """The orders that the logged shape fits: True with the channels last, False as in the graph.
    One that changes nothing is that of the graph."""
    logged, expected = value.shape, value.spec.shape
    found = {False} if same_shape(logged, expected) else set()
    order = _CHANNELS_LAST.get(len(expected))
    if order is None or not same_shape(logged, [expected[axis] for axis in order]):
        return found
    if found and (logged[-1] == 1 or all(size == 1 for size in logged[1:-1])):
        return found
    return {*found, True}


class _Region:
    """Connected operators of one order. is_sensitive: one of them has the channels last."""

    def __init__(self, number: int) -> None:
        self.number, self.is_sensitive = number, False


def _regions(graph: Graph, inside: Collection[str]) -> Mapping[str, _Region]:
    """The region of each operator of the call that may have the channels last, by path, as
    `LayoutTransform.annotate_layout` finds them."""
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
    # Without its dimensions a reduction has no order that could be another.
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
    """The operator with its overload, of the library aten."""
    return node.op.removeprefix("aten.")


def _shapes(node: Node) -> Iterator[tuple[int | str, ...]]:
    return (value.tensor.shape for value in node.outputs if value.tensor is not None)
