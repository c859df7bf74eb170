"""The answers of partitioners about nodes that they did not take, as sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from etscope.analysis.graphs.partition import NodeRefusal
from etscope.analysis.graphs.run_graph import OF_TORCH, RunGraph, function_of
from etscope.analysis.insights.node_words import at_lines, first_line, listed, operators
from etscope.analysis.program.xnnpack_events import takes
from etscope.formats.etrecord.partitioning import NOT_ASKED, TOLD, UNKNOWN, UNPLACED
from etscope.model.finding import Remedy
from etscope.model.graph import Node, stem


def refusals_of(run: RunGraph, node: Node) -> tuple[NodeRefusal, ...]:
    """Return the partitioners' answers about a node; none if the record has none."""
    return run.partition.refusals.get(id(node), ())


def kind_of_refusal(refusal: NodeRefusal) -> str:
    """The answer of a partitioner, without the numbers of one node."""
    return f"{refusal.answer} {re.sub(r'[0-9]+', '#', refusal.reason or '')}"


def reasons(run: RunGraph, nodes: Sequence[Node]) -> Iterator[str]:
    """Say why partitioners did not take nodes, once for each operator and reason."""
    found: dict[tuple[str, str], tuple[NodeRefusal, list[Node]]] = {}
    for node in nodes:
        for one in refusals_of(run, node):
            name = one.by if one.answer == UNKNOWN else stem(node.op)
            found.setdefault((name, kind_of_refusal(one)), (one, []))[1].append(node)
    for one, alike in found.values():
        names, by = operators(alike), one.by
        if one.answer == UNKNOWN:
            # With the overload, where the backend takes another one.
            full = list(
                dict.fromkeys(
                    ".".join(node.op.split(".")[1:]) if takes(node.op) else stem(node.op)
                    for node in alike
                )
            )
            many = len(full) > 1
            names = listed(full[:4], len(full) - 4)
            what = f"are not operators of {by}" if many else f"is not an operator of {by}"
            yield f"{names} {what}: its partitioner does not know {'them' if many else 'it'}."
        elif one.answer == TOLD:
            meaning = next((why for text, why in _MEANINGS if text in (one.reason or "")), "")
            yield f"{by} refused {names}: “{one.reason}”.{meaning and f' {meaning}'}"
        elif one.answer == UNPLACED:
            yield f"{by} supports {names}, but put it in no partition."
        elif one.answer == NOT_ASKED:
            yield f"{by} was not asked about {names}, in a branch or a loop."
        elif one.reason:
            yield f"{by} takes {names} in other places, and refused it here ({one.reason})."
        else:
            yield f"{by} did not take {names}, and gave no reason."
    if nodes and not found:
        yield "The record has no reasons; records made by `etscope export` have the partitioner's."


# A part of the reason of a partitioner, and what it means.
_MEANINGS = (
    ("mean.dim only supports", "XNNPACK averages the last two of four dimensions, and keeps them."),
    ("concatenation of > 2", "XNNPACK concatenates two to five tensors."),
    ("dim must be the last dim", "XNNPACK's softmax is over the last dimension."),
    ("static param", "XNNPACK packs weights when the program is loaded, and not in each run."),
    ("BatchNorm cannot be", "XNNPACK takes it as a part of the layer before it."),
    ("symbolic", "XNNPACK takes this with fixed sizes only."),
    ("dynamic", "XNNPACK takes this with fixed sizes only."),
    ("inferred dimension is", "XNNPACK takes one size that varies."),
)  # fmt: skip


# -- what to do

# A part of the reason of a partitioner, and what to do.
_FOR_REASONS = (
    (
        "mean.dim only supports keepdim",
        "Keep the dimensions: `x.mean((2, 3), keepdim=True).flatten(1)` for `x.mean((2, 3))`.",
    ),
    (
        "mean.dim only supports averaging 4D tensors, got",
        "Give it four dimensions: `x.unsqueeze(-1).mean((2, 3), keepdim=True)` for a mean over the "
        "last of three, and reshape the result.",
    ),
    ("mean.dim only supports averaging", "Permute the value, so that these are the last two."),
    (
        "unsqueeze_copy only supported on the trailing",
        "Write `x.reshape(...)` with the new shape, instead of `unsqueeze` or `x[:, None]`.",
    ),
    ("concatenation of > 2", "Concatenate two to five tensors at once: several `torch.cat`."),
    ("ceil mode", "Use `ceil_mode=False`, with padding to a size that divides."),
    ("zero-padding in the averaging", "Use `count_include_pad=False`, or no padding."),
    ("divisor override", "Leave out `divisor_override`, and multiply the result."),
    ("dim must be the last dim", "Transpose the value, so that it is over the last dimension."),
    ("power == 2", "Write other powers as products: `x * x * x`, and 0.5 as `torch.sqrt`."),
    ("int powers", "Write the power as products, and 0.5 as `torch.sqrt`."),
    ("alpha != 1", "Multiply by alpha before: `x + alpha * y`."),
    ("static param", "Make the weight a parameter or a buffer that the model does not change."),
    (
        "BatchNorm cannot be",
        "Put the batch norm directly behind a convolution or linear layer, or fold it into the one "
        "after it.",
    ),
    ("symbolic", "Export with fixed sizes, if you can."),
    ("dynamic", "Export with fixed sizes, if you can."),
    ("inferred dimension is", "Export with fixed sizes, if you can."),
    ("dim-order preserving", "Leave out the change of memory format."),
    ("negative padding", "Cut with slices, instead of padding by less than nothing."),
    ("fp16", "Compute this in float32."),
)  # fmt: skip
# What does the same in operators that XNNPACK takes, by `stem`.
_INSTEAD: Mapping[str, str] = {
    "split_with_sizes": "Cut with slices, which XNNPACK takes (`x[..., :n]`, `x[..., n:]`), or "
    "replace the layer before the split by several linear layers.",
    "select": "Take a slice and reshape it: `x[:, :1].reshape(...)` for `x[:, 0]`.",
    "upsample_nearest2d": 'XNNPACK resizes by `mode="bilinear"`; twice the size of the nearest '
    "pixel is also a grouped `ConvTranspose2d(c, c, 2, 2, groups=c)` of ones.",
    "flip": "Flip weights or inputs instead, where the model allows it.",
    "roll": "Write it as `torch.cat` of two slices, which XNNPACK takes.",
    "index": "Where the index is fixed, write slices and `torch.cat`, which XNNPACK takes.",
    "sum": "Write a sum of images over their pixels as `x.mean((2, 3), keepdim=True) * n`.",
    "where": "Where both values are finite, write `mask * a + (1 - mask) * b` with a float mask.",
    "mul.Scalar": "Write the product with a number as `x * 0.5` in the model, which exports as a "
    "product with a tensor.",
    "add.Scalar": "Write the sum with a number as `x + 1e-5` in the model, which exports as a sum "
    "with a tensor.",
    "expand": "Leave it out where the next operator broadcasts (add, mul). Where it repeats keys "
    "and values for grouped queries, put the group into the rows of the queries: "
    "`q.reshape(b, kv_heads, groups * t, d)`.",
    "repeat": "Leave it out where the next operator broadcasts (add, mul), or use `torch.cat`.",
    "native_layer_norm": "XNNPACK has no layer norm. Run it on ExecuTorch's optimized kernels, "
    "which are vectorised, or use a norm that folds into a linear layer.",
    "native_group_norm": "XNNPACK has no group norm; a batch norm folds into the convolution "
    "before it.",
    "embedding": "It is a look-up, which needs no delegate: nothing to do, unless it stands "
    "between two of them.",
}


def ways_in(run: RunGraph, nodes: Sequence[Node]) -> Iterator[Remedy]:
    """Say how nodes outside of delegates could be inside."""
    texts: dict[str, list[Node]] = {}
    unknown: list[Node] = []
    for node in nodes:
        told = [one.reason or "" for one in refusals_of(run, node)]
        said = next((do for text, do in _FOR_REASONS for one in told if text in one), None)
        overload = ".".join(node.op.split(".")[1:])
        said = said or _INSTEAD.get(overload) or _INSTEAD.get(stem(node.op))
        if said is None:
            unknown.append(node)
        else:
            texts.setdefault(said, []).append(node)
    for text, alike in texts.items():
        line = first_line(alike)
        torch_s = {function_of(node) for node in alike} & OF_TORCH
        if torch_s:
            text = f"Write torch's {listed(sorted(torch_s))} out in the model. {text}"
        yield Remedy(f"{text[:-1]} ({line})." if line else text)
    constant = [
        giver
        for node in nodes
        for giver in run.givers(node)
        if id(giver) in run.constant
        and any("static" in (one.reason or "") for one in refusals_of(run, node))
    ]
    if constant:
        yield Remedy(
            f"Or compute its weight once, when the program is made ({operators(constant)}).",
            "pass",
            {"name": "fold_constants"},
        )
    if unknown:
        yield Remedy(
            f"Write {operators(unknown)}{at_lines(unknown).replace(', at', ' at', 1)} in operators "
            "that the backend takes, or move it before the first or behind the last delegate call."
        )
