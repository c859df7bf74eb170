"""Operators outside of delegates, in a method that has some: islands, with the reasons of the
partitioner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from etscope.analysis.explain.facts import Facts
from etscope.analysis.explain.refusals import kind_of_refusal, reasons, refusals_of
from etscope.analysis.explain.rule import Rule
from etscope.analysis.explain.rules import (
    cancelling_quantization,
    float_among_quantized,
    layout_conversions,
    lost_fusion,
    needless_copies,
    runtime_constants,
    untaken_types,
)
from etscope.analysis.explain.run_graph import (
    Kernel,
    RunGraph,
    at_lines,
    count,
    first_line,
    function_of,
    operators,
    places,
)
from etscope.analysis.findings.time import Member
from etscope.analysis.graphs.views import tensor_bytes
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import Node, stem
from etscope.units import format_bytes

_OTHERS = (
    lost_fusion, runtime_constants, float_among_quantized, cancelling_quantization,
    needless_copies, layout_conversions, untaken_types,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Island:
    """Connected kernels outside of delegates."""

    kernels: tuple[Kernel, ...]

    @property
    def nodes(self) -> list[Node]:
        return [kernel.node for kernel in self.kernels]


def islands(run: RunGraph) -> list[Island]:
    """Find the islands, without the kernels that another rule tells more of."""
    taken = set[int]().union(*(rule.claimed(run) for rule in _OTHERS)) if run.calls else set()
    left = {key: kernel for key, kernel in run.kernels.items() if run.calls and key not in taken}
    found, seen = [], set[int]()
    for key, kernel in left.items():
        if key in seen:
            continue
        part, waiting = list[Kernel](), [kernel]
        while waiting:
            one = waiting.pop()
            if id(one.node) not in seen:
                seen.add(id(one.node))
                part.append(one)
                around = (*run.givers(one.node), *run.readers(one.node))
                waiting += [left[id(node)] for node in around if id(node) in left]
        found.append(Island(tuple(part)))
    return found


def _find(facts: Facts) -> Iterator[Finding]:
    run = facts.run_graph
    if run is None:
        return
    groups: dict[tuple[frozenset[str], frozenset[str]], list[Island]] = {}
    for island in islands(run):
        names = frozenset(kernel.op for kernel in island.kernels)
        why = frozenset(
            kind_of_refusal(one) for node in island.nodes for one in refusals_of(run, node)
        )
        groups.setdefault((names, why), []).append(island)
    for alike in groups.values():
        yield _finding(run, alike)


def _finding(run: RunGraph, alike: Sequence[Island]) -> Finding:
    facts = run.facts
    nodes = [node for island in alike for node in island.nodes]
    kernels = run.members(nodes)
    at_borders = _border_transposes(run, nodes)
    members = [*kernels, *at_borders]
    taken = facts.time.with_share(facts.time.ticks(members))
    evidence = list(reasons(run, nodes))
    evidence += _functions(nodes)
    evidence += _crossing(run, nodes)
    if at_borders:
        take = "take" if len(at_borders) > 1 else "takes"
        evidence.append(
            f"{count(len(at_borders), 'transpose')} at the borders {take} "
            f"{facts.time.text(facts.time.ticks(at_borders))} of it: XNNPACK keeps images with the "
            "channels last, and the runtime's kernels do not."
        )
    evidence.append(_merging(run, nodes))
    told = any(refusals_of(run, node) for node in nodes)
    verb = "runs" if len({stem(node.op) for node in nodes}) == 1 else "run"
    return facts.finding(
        RULE.name,
        f"{operators(nodes)} {verb} outside of delegates: {taken}{places(len(alike))}"
        f"{at_lines(nodes)}.",
        members,
        Explanation(
            Sureness.MEASURED if told else Sureness.LIKELY,
            tuple(evidence),
            remedies=tuple(_remedies(run, nodes)),
        ),
    )


# -- evidence


def _merging(run: RunGraph, nodes: Sequence[Node]) -> str:
    """Say how many delegate calls there would be, if nodes were inside of them; else with the
    kernels around them that other findings are about."""
    calls = len(run.calls)
    if merged := run.merged_calls(nodes):
        return f"Inside of delegates, {calls:,} delegate calls would be {calls - merged:,}."
    around: dict[int, Node] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if id(node) not in around and id(node) in run.kernels:
            around[id(node)] = node
            waiting += [*run.givers(node), *run.readers(node)]
    if merged := run.merged_calls(around.values()):
        inside = set(map(id, nodes))
        others = operators(node for key, node in around.items() if key not in inside)
        return (
            f"Inside of delegates with {others} beside it, {calls:,} delegate calls would be "
            f"{calls - merged:,}."
        )
    return f"The {count(calls, 'delegate call')} would stay as many without it."


def _functions(nodes: Sequence[Node]) -> Iterator[str]:
    """Say if nodes are parts of a function of torch that is decomposed into many operators."""
    names = {function_of(node) for node in nodes}
    if len(names) == 1 and names <= {*needless_copies.OF_TORCH, "rms_norm"}:
        yield f"torch decomposes {names.pop()} so."


def _crossing(run: RunGraph, nodes: Sequence[Node]) -> Iterator[str]:
    """The values that go between the nodes and delegates."""
    values = {name: size for _, _, name, size in _values(run, nodes)}
    if values:
        size = format_bytes(sum(values.values()))
        verb = "go" if len(values) > 1 else "goes"
        yield f"{count(len(values), 'value')} of {size} {verb} between them and delegates."


def _values(run: RunGraph, nodes: Sequence[Node]) -> Iterator[tuple[bool, int | None, str, int]]:
    """The values between nodes and calls: whether it goes into the call, its instruction, the
    type of the value with its name in front, and its bytes."""
    inside = set(map(id, nodes))
    for node in nodes:
        for giver in run.givers(node):
            call = run.partition.call_of.get(id(giver))
            for value in giver.outputs if call is not None else ():
                if value.tensor is not None and value.name in node.inputs and call is not None:
                    size = tensor_bytes(value.tensor) or 0
                    yield False, call.instruction, f"{value.name} {value.tensor}", size
        for reader in run.readers(node):
            call = run.partition.call_of.get(id(reader))
            for value in node.outputs if call is not None and id(reader) not in inside else ():
                if value.tensor is not None and value.name in reader.inputs and call is not None:
                    size = tensor_bytes(value.tensor) or 0
                    yield True, call.instruction, f"{value.name} {value.tensor}", size


def _border_transposes(run: RunGraph, nodes: Sequence[Node]) -> list[Member]:
    """The transposes that XNNPACK added for values that go between its calls and the nodes."""
    entering, leaving = set[tuple[int, str]](), set[tuple[int, str]]()
    for enters, number, name, _ in _values(run, nodes):
        if number is not None:
            (entering if enters else leaving).add((number, name.partition(" ")[2]))
    return layout_conversions.transposes_at(run, entering, leaving)


# -- remedies

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
    ("ymbolic", "Export with fixed sizes, if you can."),
    ("dynamic", "Export with fixed sizes, if you can."),
    ("inferred dimension is", "Export with fixed sizes, if you can."),
    ("dim-order preserving", "Leave out the change of memory format."),
    ("negative padding", "Cut with slices, instead of padding by less than nothing."),
    ("fp16", "Compute this in float32."),
)  # fmt: skip
# What does the same in operators that XNNPACK takes, by `stem`.
_INSTEAD: Mapping[str, str] = {
    "split_with_sizes": "Cut with slices, which XNNPACK takes (`x[..., :n]`, `x[..., n:]`), or use "
    "several linear layers in place of one whose output is split.",
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
    "expand": "Leave it out where the next operator broadcasts (add, mul), or where `torch.cat` of "
    "the same value does it.",
    "repeat": "Leave it out where the next operator broadcasts (add, mul), or use `torch.cat`.",
    "native_layer_norm": "XNNPACK has no layer norm. Run it on ExecuTorch's optimized kernels, "
    "which are vectorised, or use a norm that folds into a linear layer.",
    "native_group_norm": "XNNPACK has no group norm; a batch norm folds into the convolution "
    "before it.",
    "embedding": "It is a look-up, which needs no delegate: nothing to do, unless it stands "
    "between two of them.",
}


def _remedies(run: RunGraph, nodes: Sequence[Node]) -> Iterator[Remedy]:
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


RULE = Rule("outside-delegates", "Operators outside of delegates", _find)
