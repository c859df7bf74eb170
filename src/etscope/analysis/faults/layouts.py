"""Operators of an XNNPACK call that read a value in another order of dimensions than they need.

XNNPACK's convolutions and pools take the channels last. `ChannelsLastTaggedReshapePass` of
ExecuTorch adds the transposes, by a tag on each node of the graph, and some of its edits leave tags
that are wrong:

- `insert_copy_q_dq` gives the transposed copy of a dequantized value to all its users, also to
  those that need the other order;
- for a convolution that is quantized dynamically, `input_to_nhwc` transposes what its input is
  computed from, for all users too;
- a softmax of the last dimension has no order: behind a convolution it takes the channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from etscope.formats.program.xnnpack import XnnNode, XnnTensor

_LAST = frozenset({
    "Conv2d", "DepthwiseConv2d", "ConvTranspose2d", "AvgPooling2d", "MaxPooling2d",
    "ArgMaxPooling2d", "GlobalAvgPooling2d", "StaticResizeBilinear2D", "PReLU",
})  # fmt: skip
_FIRST = frozenset({"StaticReshape", "FullyConnected", "Softmax"})
# By the dimensions: does a transpose, or the order in memory, have the channels last?
_ADDED: Mapping[tuple[int, ...], bool] = {(0, 2, 3, 1): True, (0, 3, 1, 2): False}
_STORED: Mapping[tuple[int, ...], bool] = {(0, 1, 2, 3): False, (0, 2, 3, 1): True}


def mixed_layouts(
    operators: Sequence[XnnNode], arguments: Mapping[int, bool]
) -> Iterator[tuple[XnnNode | None, bool | None]]:
    """Yield the operators that read a value in a wrong order, and the order that they need: True
    for channels last, None if their inputs differ. None instead of an operator: the call returns a
    value in another order than the program has.

    arguments: the images that the call reads and returns, by `id` of their `XnnTensor`: are the
    channels last in the program? A value of unknown order is not judged.
    """
    orders = dict(arguments)
    for operator in operators:
        known = {
            orders[id(value)]
            for value in operator.inputs
            if id(value) in orders and math.prod(value.sizes) > 1
        }
        order = known.pop() if len(known) == 1 else None
        if known:
            yield operator, None
        if operator.kind in _LAST:
            if order is False:
                yield operator, True
            order = True
        elif operator.kind in _FIRST:
            if order is True and not _is_same_in_both(operator):
                yield operator, False
            order = False
        elif operator.kind == "StaticTranspose":
            # One with a handle is the model's own: what it makes of an image is unknown.
            is_added = operator.debug_handle is None
            order = _ADDED.get(operator.order) if is_added else None
        if order is not None:
            images = [value for value in operator.outputs if len(value.sizes) == 4]
            orders |= dict.fromkeys(map(id, images), order)
    if any(orders.get(value, wanted) != wanted for value, wanted in arguments.items()):
        yield None, None


def _is_same_in_both(operator: XnnNode) -> bool:
    """A reshape of values with one channel or one pixel: both orders have the same bytes."""
    return operator.kind == "StaticReshape" and 1 in operator.inputs[0].sizes[1:]


def order_of(value: XnnTensor, dim_order: Sequence[int]) -> bool | None:
    """Return True for an image with the channels last in the program, None for other tensors."""
    if len(value.sizes) != 4 or value.constants:
        return None
    return _STORED.get(tuple(dim_order))
