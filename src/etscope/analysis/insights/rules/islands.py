"""Operators outside of delegates, from the graph: islands, and types that no backend takes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from etscope.analysis.graphs.node_table import short_tensor
from etscope.analysis.graphs.partition import NodeRefusal
from etscope.analysis.graphs.run_graph import OF_TORCH, RunGraph, function_of, spec_of, written_as
from etscope.analysis.insights.commands import then_exported
from etscope.analysis.insights.edits import in_float32, patch_of
from etscope.analysis.insights.facts import Facts, explained, needs_graph
from etscope.analysis.insights.node_words import (
    NAMED,
    at_lines,
    connected,
    does,
    fewer_calls,
    first_line,
    listed,
    operators,
    places,
)
from etscope.analysis.insights.rules.copies import sizes, transposes_at
from etscope.analysis.program.source_location import user_line
from etscope.analysis.program.xnnpack_events import takes
from etscope.formats.etrecord.own_members import NOT_ASKED, TOLD, UNKNOWN, UNPLACED
from etscope.model.finding import Finding, Remedy, Sureness
from etscope.model.graph import Node, stem
from etscope.units import count, format_bytes

_NAMESPACES = frozenset({"aten", "dim_order_ops", "quantized_decomposed", "torchao"})


def islands_outside(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Find groups of connected kernels outside of delegates (islands); equal islands are reported
    together. Kernels that another rule reports in more detail are left out.
    """
    left: dict[int, Node] = {}
    for key, kernel in run.kernels.items():
        # A backend takes no number, and an own operator ("llama.custom_sdpa") is outside of
        # delegates on purpose.
        parts = kernel.node.op.split(".")
        is_own = len(parts) > 2 and parts[0] not in _NAMESPACES
        if run.calls and facts.is_free(kernel.node) and not is_own and spec_of(kernel.node):
            left[key] = kernel.node
    groups: dict[tuple[frozenset[str], frozenset[str]], list[list[Node]]] = {}
    seen: set[int] = set()
    for key, node in left.items():
        if key in seen:
            continue
        island = connected(run, [node], left)
        seen.update(map(id, island))
        names = frozenset(stem(one.op) for one in island)
        why = frozenset(kind_of_refusal(one) for each in island for one in refusals_of(run, each))
        groups.setdefault((names, why), []).append(island)
    for alike in groups.values():
        nodes = [node for island in alike for node in island]
        facts.claim(nodes)
        yield _islands_finding(facts, run, nodes, len(alike))


def _islands_finding(facts: Facts, run: RunGraph, nodes: Sequence[Node], alike: int) -> Finding:
    inside = set(map(id, nodes))
    crossing: dict[str, int] = {}  # bytes of the values between nodes and calls, by name and type
    entering, leaving = set[tuple[int, str]](), set[tuple[int, str]]()
    for node in nodes:
        pairs = [(giver, node, giver) for giver in run.givers(node)]
        pairs += [(node, one, one) for one in run.readers(node) if id(one) not in inside]
        for giver, reader, other in pairs:
            call = run.partition.call_of.get(id(other))
            for value in giver.outputs if call is not None else ():
                if value.tensor is not None and value.name in reader.inputs and call is not None:
                    name = f"{value.name} {value.tensor}"
                    crossing[name] = value.tensor.nbytes or 0
                    if call.instruction is not None:
                        ends = entering if giver is node else leaving
                        ends.add((call.instruction, sizes(name)))
    at_borders = transposes_at(run, entering, leaving)
    members = run.members(nodes)  # the same time as without a graph, in `etscope inspect`
    evidence = list(reasons(run, nodes))
    names = {function_of(node) for node in nodes}
    if len(names) == 1 and names <= {*OF_TORCH, "rms_norm"}:
        evidence.append(f"torch decomposes {names.pop()} so.")
    if crossing:
        evidence.append(
            f"{count(len(crossing), 'value')} of {format_bytes(sum(crossing.values()))} "
            f"{'go' if len(crossing) > 1 else 'goes'} between these operators and delegates."
        )
    if at_borders:
        evidence.append(
            f"{does(len(at_borders), 'transpose', 'take')} another {facts.time.taken(at_borders)} "
            "between these operators and delegates: XNNPACK keeps images with the channels last, "
            "and the runtime's kernels do not."
        )
    merging = list(fewer_calls(run, nodes, "Inside a delegate"))
    if not merging:  # perhaps with the kernels around them that other findings are about
        around = connected(run, nodes, run.kernels)
        others = operators(node for node in around if id(node) not in inside)
        merging += fewer_calls(run, around, f"Inside a delegate together with {others}")
    same = f"Inside a delegate there would be {count(len(run.calls), 'delegate call')} as well."
    told = any(refusals_of(run, node) for node in nodes)
    verb = "runs" if len({written_as(node) or stem(node.op) for node in nodes}) == 1 else "run"
    return facts.finding(
        "outside-delegates",
        f"{as_written(nodes)} {verb} outside of delegates: {facts.time.taken(members)}"
        f"{places(alike)}{at_lines(nodes, run, facts.time)}.",
        members,
        explained(
            Sureness.MEASURED if told else Sureness.LIKELY,
            [*evidence, *(merging or [same])],
            ways_in(facts, run, nodes),
        ),
    )


def as_written(nodes: Sequence[Node]) -> str:
    """Name nodes as the model has them, with the operators that they became: "nn.GroupNorm and
    F.mish (native_group_norm, where and log1p)"."""
    counted = Counter(written_as(node) or stem(node.op) for node in nodes)
    if not any(map(written_as, nodes)):
        return operators(nodes)
    names = [name for name, _ in counted.most_common()]
    return f"{listed(names[:NAMED], len(names) - NAMED)} ({operators(nodes)})"


_TAKEN = frozenset({"float32", "float16", "int8", "uint8"})  # by XNNPACK
_WIDER_FLOATS = frozenset({"bfloat16", "float64"})  # their values fit into float32, or nearly so
_SAID = ("dtype", "precision")  # words in the reasons of a partitioner


@needs_graph
def untaken_types(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Find operators that a backend supports, but not for the type of their tensors."""
    types: dict[str, list[Node]] = {}
    for kernel in run.kernels.values() if run.has_xnnpack else ():
        node = kernel.node
        told = [one.reason or "" for one in refusals_of(run, node)]
        may_be = any(word in reason for reason in told for word in _SAID)
        if not told:
            may_be = run.partition.partitionings is None and takes(node.op)
        specs = [spec for one in (node, *run.givers(node)) if (spec := spec_of(one)) is not None]
        untaken = [spec.dtype for spec in specs if spec.dtype not in _TAKEN]
        if may_be and untaken and facts.is_free(node):
            worst = max(untaken, key=lambda dtype: (dtype in _WIDER_FLOATS, untaken.count(dtype)))
            types.setdefault(worst, []).append(node)
    for dtype, nodes in types.items():
        facts.claim(nodes)
        members = run.members(nodes)
        evidence = [
            "XNNPACK takes float32, float16 and quantized int8; it has the operators, but not of "
            f"{dtype}."
        ]
        refused = sum(1 for node in nodes if refusals_of(run, node))
        if refused:
            evidence.append(
                f"The partitioner refused {count(refused, 'node')} because of its type."
            )
        if spec := spec_of(nodes[0]):
            evidence.append(f"The first makes {short_tensor(spec)}.")
        evidence += fewer_calls(run, nodes, "Inside a delegate")
        line = first_line(nodes)
        there = f" at {line}" if line else ""
        remedy = Remedy(
            f"Compute{there} in float32 what is converted to float anyway. Pass masks and "
            "positions as inputs, or keep them as buffers if they do not depend on the "
            "inputs."
        )
        if dtype in _WIDER_FLOATS:
            remedy = Remedy(
                f"Compute in float32{there}: `model.float()`, and no `.double()` or `dtype=` on "
                "the way.",
                "dtype",
                {"dtype": "float32"},
                in_float32(nodes),
            )
        verb = "run" if len(nodes) > 1 else "runs"
        yield facts.finding(
            "untaken-types",
            f"{operators(nodes)} on {dtype} {verb} outside of delegates: "
            f"{facts.time.taken(members)}{places(len(nodes))}{at_lines(nodes, run, facts.time)}.",
            members,
            explained(Sureness.MEASURED if refused else Sureness.LIKELY, evidence, [remedy]),
        )


# -- the answers of partitioners about nodes that they did not take


def refusals_of(run: RunGraph, node: Node) -> tuple[NodeRefusal, ...]:
    """Return the partitioners' answers about a node; none if the record has none."""
    return run.partition.refusals.get(id(node), ())


def overload_of(node: Node) -> str:
    """The operator of a node with its overload ("mul.Scalar")."""
    return ".".join(node.op.split(".")[1:])


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
            every = (overload_of(node) if takes(node.op) else stem(node.op) for node in alike)
            full = list(dict.fromkeys(every))
            many = len(full) > 1
            names = listed(full[:NAMED], len(full) - NAMED)
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
    ("zero-padding in the averaging", "Pad with zeros before, and pool without padding."),
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
    "cumsum": "XNNPACK has no running sum: of few elements a product with a triangle of ones is "
    "faster. Else move it before the first or after the last delegate call.",
    "softplus": "Write it as `torch.relu(x) + torch.log(torch.exp(-torch.abs(x)) + 1.0)`.",
    "linalg_vector_norm": "Write it as the root of a mean of squares, in four dimensions.",
    "masked_fill": "Where mask and value are constant and finite, write "
    "`x * (1 - mask) + mask * value` with a float mask, which is computed at export.",
    "one_hot": "Look rows up in place of a product with ones and zeros: `F.embedding(ids, table)`.",
    "flip": "Flip weights or inputs instead, where the model allows it.",
    "roll": "Write it as `torch.cat` of two slices, which XNNPACK takes.",
    "index": "No edit is known that is faster: slices and `torch.cat` took 1.2 times as long for "
    "the channels of an image. Order the weights of the layer before it instead, if you can.",
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
    **{
        f"nn.InstanceNorm{dims}d": "XNNPACK has no instance norm: of images, write it with means. "
        "A batch norm folds into the convolution before it."
        for dims in (1, 2, 3)
    },
    "F.mish": "XNNPACK has no mish: `F.hardswish` and `F.silu` are close to it, if the model is "
    "trained with one.",
    "amax": "Write the maximum of an image as `F.max_pool2d(x, x.shape[2:])`, which XNNPACK takes.",
    "native_dropout": "Leave it out: export the model in evaluation mode (`model.eval()`), or with "
    "`training=False`.",
    "upsample_bicubic2d": 'XNNPACK resizes by `mode="bilinear"`.',
    "embedding": "It is a look-up, which needs no delegate: nothing to do, unless it stands "
    "between two of them.",
}


_FEWEST = 8  # steps of a loop: fewer can be looked at one by one


def batched(run: RunGraph, nodes: Sequence[Node]) -> Iterator[Remedy]:
    """Say how to compute the steps of unrolled loops at once, if a concatenation joins their
    results and nodes are in them."""
    joined = run.once("joined loops", lambda: frozenset().union(*_joined(run)))
    if not joined.isdisjoint(map(_place, nodes)):
        yield Remedy(
            f"Compute the steps of the loop at {first_line(nodes)} at once, in place of one after "
            "the other: as one more dimension of the values.",
            "pass",
            {"name": "batch_loops"},
        )


def _joined(run: RunGraph) -> Iterator[set[object]]:
    """The operators, with their lines, of each loop whose results are concatenated: values of one
    shape, of which none depends on another."""
    for node in run.partition.linked.graph.operators.values():
        parts = list(run.givers(node)) if stem(node.op) == "cat" else []
        if len(parts) < _FEWEST or len({(_place(one), spec_of(one)) for one in parts}) > 1:
            continue
        before: dict[int, Node] = {}
        waiting = [giver for one in parts for giver in run.givers(one)]
        while waiting:
            one = waiting.pop()
            if one.kind == "call_function" and id(one) not in before:
                before[id(one)] = one
                waiting += run.givers(one)
        if not any(id(one) in before for one in parts) and _touch(before.values(), len(parts)):
            counted = Counter(map(_place, (*parts, *before.values())))
            yield {place for place, number in counted.items() if number >= len(parts)}


def _touch(nodes: Iterable[Node], steps: int) -> bool:
    """Return False if the steps read pieces of a value that are not each directly behind the one
    before, such as windows with gaps: the pass leaves such a loop as it is. nodes: the latest
    first."""
    found: dict[object, dict[tuple[int, int], None]] = {}
    for node in nodes:
        at = dict(node.arguments)
        with suppress(KeyError, ValueError):  # no piece, or symbolic
            start = int(at.get("start") or at["index"])
            end = int(at["end"]) if "end" in at else start + 1
            found.setdefault((node.inputs, at["dim"], _place(node)), {})[start, end] = None
    looped = (list(pieces) for pieces in found.values() if len(pieces) >= steps)
    return all(one[1] == after[0] for pieces in looped for after, one in pairwise(pieces))


def _place(node: Node) -> object:
    return stem(node.op), user_line(node.stack_trace)


_OF_CONSTANTS = frozenset({"cumsum", "masked_fill"})  # they compute constants when written so


def ways_in(facts: Facts, run: RunGraph, nodes: Sequence[Node]) -> Iterator[Remedy]:
    """Say how nodes outside of delegates could be delegated."""
    yield from batched(run, nodes)
    texts: dict[str, list[Node]] = {}
    unknown: list[Node] = []
    parts: dict[str, set[str]] = {}
    for node in nodes:
        parts.setdefault(written_as(node) or "", set()).add(stem(node.op))
    for node in nodes:
        told = [one.reason or "" for one in refusals_of(run, node)]
        said = next((do for text, do in _FOR_REASONS for one in told if text in one), None)
        written = written_as(node) or ""
        names = [written, overload_of(node), stem(node.op)]
        if len(parts[written]) > 1 and written:  # what it became is not in the model
            names = [written]
        said = (
            _INSTEAD.get(written)
            or said
            or next((_INSTEAD[name] for name in names if name in _INSTEAD), None)
        )
        if said is None:
            unknown.append(node)
        else:
            texts.setdefault(said, []).append(node)
    for text, alike in texts.items():
        line = first_line(alike)
        lines = patch_of(run, alike)
        torch_s = {function_of(node) for node in alike} & OF_TORCH
        if torch_s:
            text = f"Write torch's {listed(sorted(torch_s))} out in the model. {text}"
        if not _OF_CONSTANTS.isdisjoint(written_as(one) or stem(one.op) for one in alike):
            lines = then_exported(facts, lines, "fold_constants")
        yield Remedy(f"{text[:-1]} ({line})." if line else text, paste=lines)
    constant = [
        giver
        for node in nodes
        for giver in run.givers(node)
        if id(giver) in run.constant
        and any("static" in (one.reason or "") for one in refusals_of(run, node))
    ]
    if constant:
        yield Remedy(
            f"Or compute the weight once, when the program is made ({operators(constant)}).",
            "pass",
            {"name": "fold_constants"},
        )
    if unknown:
        yield Remedy(
            f"Write {as_written(unknown)}{at_lines(unknown).replace(', at', ' at', 1)} with "
            "operators that the backend supports, or move these operators before the first or "
            "after the last delegate call."
        )
