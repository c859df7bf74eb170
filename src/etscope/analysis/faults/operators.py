"""Operators that a backend computes by another definition than PyTorch's.

Each entry has the condition on a node's arguments under which the results differ. An entry is
added only after both were run: `tests/e2e/faults/test_other_definitions.py` holds the table
against the runtime.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etscope.model.graph import Graph, Node, TensorSpec

if TYPE_CHECKING:
    from etscope.analysis.program.correlate import Attribution

_XNNPACK = "XnnpackBackend"
_PORTABLE = None  # kernels of ExecuTorch's portable library

Differs = Callable[[dict[str, str], TensorSpec, TensorSpec], bool]


@dataclass(frozen=True, slots=True)
class Difference:
    """An operator that a backend computes by another definition than PyTorch.

    backend: the delegate's name; None for the portable kernels. op: the operator in the edge graph.
    differs: a function that returns True if the results of a node differ; it takes the node's
    arguments, and the types of its first input and its result. how: the difference, as the end of a
    sentence that begins with the backend. depends: True if the difference appears only with some
    input values, so the program alone does not show it. is_small: True if most models tolerate the
    difference.
    """

    backend: str | None
    op: str
    differs: Differs
    how: str
    remedy: str
    depends: bool = False
    is_small: bool = False


def _fraction_of_sizes(arguments: dict[str, str], given: TensorSpec, made: TensorSpec) -> bool:
    """Return True if the scale factors are not the ratios of the sizes. Aligned corners use the
    sizes in both."""
    if arguments.get("align_corners") != "False":
        return False
    try:
        factors = json.loads(arguments.get("scale_factors", "null"))
    except ValueError:  # of symbols
        return False
    sizes = zip(factors or (), given.shape[-2:], made.shape[-2:], strict=False)
    return any(
        isinstance(before, int) and isinstance(after, int) and abs(after - before * factor) > 1e-6
        for factor, before, after in sizes
    )


def _of(kind: str) -> Differs:
    """A condition on the type of the first input, by the beginning of its name."""
    return lambda arguments, given, made: given.dtype.startswith(kind)


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        _XNNPACK,
        "aten.upsample_bilinear2d.vec",
        _fraction_of_sizes,
        "takes the ratio of the sizes for the scale, where PyTorch takes 1 / scale_factor; the two "
        "differ for these sizes",
        "Pass `size=` or `recompute_scale_factor=True` to `interpolate`: both then use the sizes.",
    ),
    *(
        Difference(
            _PORTABLE,
            f"aten.remainder.{overload}",
            _of("int"),
            "of whole numbers gives a remainder the sign of the dividend, where PyTorch gives it "
            "the sign of the divisor",
            "Compute it as `x - torch.div(x, d, rounding_mode='floor') * d`.",
            depends=True,
        )
        for overload in ("Scalar", "Tensor")
    ),
    Difference(
        _PORTABLE,
        "aten.sign.default",
        _of("float"),
        "returns NaN for NaN, where PyTorch returns 0",
        "Replace NaN first: `torch.nan_to_num`.",
        depends=True,
    ),
    Difference(
        _PORTABLE,
        "aten.max_pool2d_with_indices_backward.default",
        lambda arguments, given, made: True,
        "adds the gradients to what is in the memory of the result, where PyTorch adds them to 0",
        "Compute the gradients in PyTorch; this kernel is of no use in ExecuTorch 1.5.",
    ),
    *(
        Difference(
            _PORTABLE,
            f"aten.{op}.default",
            lambda arguments, given, made: given.shape[-1] == 0,
            "leaves its result as the memory is when the inner dimension is 0, where PyTorch "
            "gives 0",
            "Replace the product by `torch.zeros`.",
        )
        for op in ("mm", "bmm")
    ),
    Difference(
        _XNNPACK,
        "aten.gelu.default",
        lambda arguments, given, made: "tanh" in arguments.get("approximate", ""),
        "computes GELU by erf, where the model asks for approximate='tanh': up to 0.0005 apart",
        "Use `nn.GELU()` if the model was trained with it, or accept the difference.",
        is_small=True,
    ),
)
# What XNNPACK makes of numbers at the edges, by operator of the edge graph: in float32, in half.
_OTHER_FOR_NAN = "gives the other number for NaN, where PyTorch gives NaN"
_NAN_IN_HALF = "gives -infinity for NaN in half"
_EDGES = {
    "exp.default": ("gives 0 for NaN", "gives 3e-05 for NaN and numbers below -10.4 in half"),
    "sigmoid.default": ("gives NaN for numbers as large as 1e30", ""),
    "sin.default": ("gives NaN for numbers as large as 1e30", ""),
    "cos.default": ("gives NaN for numbers as large as 1e30", ""),
    "sqrt.default": (
        "gives NaN for infinity",
        "gives NaN for infinity and 0 for numbers below 0 in half",
    ),
    "rsqrt.default": ("gives NaN for 0, where PyTorch gives infinity", ""),
    "log.default": ("takes numbers below 1e-38 for 0", "gives 88.8 for NaN in half"),
    "maximum.default": (_OTHER_FOR_NAN, _OTHER_FOR_NAN),
    "minimum.default": (_OTHER_FOR_NAN, _OTHER_FOR_NAN),
    "relu.default": ("", "gives 0 for NaN in half"),
    "hardtanh.default": ("", "gives the lower bound for NaN in half"),
    "clamp.default": ("", "gives the lower bound for NaN in half"),
    "linear.default": ("", _NAN_IN_HALF),
    "convolution.default": ("", _NAN_IN_HALF),
}
_TYPES = _of("float32"), _of("float16")
_REMEDIES = (
    "Keep such numbers out: `torch.nan_to_num`, `torch.clamp`.",
    "Keep such numbers out: `torch.clamp`. A number above 65,504 is infinite in half, and "
    "infinities make NaN.",
)
DIFFERENCES += tuple(
    Difference(_XNNPACK, f"aten.{op}", of_dtype, how, remedy, depends=True)
    for op, sentences in _EDGES.items()
    for of_dtype, how, remedy in zip(
        (_of("float32"), _of("float16")), sentences, _REMEDIES, strict=True
    )
    if how
)
_BY_OPERATOR: dict[tuple[str | None, str], list[Difference]] = {}
for _one in DIFFERENCES:
    _BY_OPERATOR.setdefault((_one.backend, _one.op), []).append(_one)


def different_operators(
    edge: Graph, attributions: Sequence[Attribution]
) -> Iterator[tuple[int, Node, Difference]]:
    """Yield the nodes that their backend computes by another definition, with the instruction."""
    for number, attribution in enumerate(attributions):
        for node in attribution.nodes:
            known = _BY_OPERATOR.get((attribution.backend_id, node.op), ())
            if not known:
                continue
            graph = edge.graph_of(node)
            given, made = _spec(graph, node.inputs[:1]), _spec(graph, (node.name,))
            if given is None or made is None:
                continue
            for one in known:
                if one.differs(dict(node.arguments), given, made):
                    yield number, node, one


def _spec(graph: Graph, names: Sequence[str]) -> TensorSpec | None:
    node = graph.by_name.get(names[0]) if names else None
    return node.outputs[0].tensor if node is not None and node.outputs else None
