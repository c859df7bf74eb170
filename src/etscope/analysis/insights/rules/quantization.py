"""Float where integers would do, and conversions that undo each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from etscope.analysis.graphs.run_graph import RunGraph, module_of, varying_givers
from etscope.analysis.insights.facts import Facts, explained, needs_graph
from etscope.analysis.insights.node_words import (
    at_lines,
    connected,
    does,
    fewer_calls,
    first_line,
    listed,
    longest_first,
    operators,
    places,
)
from etscope.analysis.insights.rules.islands import as_written, reasons, refusals_of, ways_in
from etscope.analysis.profile.profile import Leaf
from etscope.formats.etrecord.own_members import TOLD
from etscope.formats.generation import DECODE
from etscope.model.finding import Finding, Remedy, Severity, Sureness
from etscope.model.graph import Node, stem
from etscope.units import format_share

# Operators, by `stem`, that only move values, so that they do to int8 as they do to float.
MOVING = frozenset(
    {"alias", "cat", "clone", "clone_dim_order", "contiguous", "expand", "flip", "index_select",
     "max_pool2d", "max_pool2d_with_indices", "permute", "pixel_shuffle", "pixel_unshuffle",
     "repeat", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "to_dim_order",
     "transpose", "unbind", "unsqueeze", "upsample_nearest2d", "view"}
)  # fmt: skip
# Of activations that XNNPACK computes in float only.
_SMOOTH = frozenset(
    {"elu", "exp", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "mul", "sigmoid", "tanh"}
)
_OPTION = 3  # modules in an option that a remedy writes out
_ACTIVATIONS = frozenset({"clamp", "hardtanh", "relu"})  # a part of the operator before them
_CLAMPING = frozenset({"add", "addmm", "convolution", "linear", "mm"})  # have a fused activation


@dataclass(frozen=True, eq=False)
class Stretch:
    """Connected nodes in float between quantized ones. nodes: the nodes that compute. converting:
    the nodes at their ends that quantize and dequantize. readers: the quantized operators after
    them.
    """

    nodes: tuple[Node, ...]
    converting: tuple[Node, ...]
    readers: tuple[Node, ...]


def is_quantize(node: Node, start: str = "quantize_") -> bool:
    """Return whether a node quantizes with a scale that is fixed."""
    is_call = node.kind == "call_function" and stem(node.op).startswith(start)
    return is_call and len(node.inputs) == 1


def is_dequantize(node: Node) -> bool:
    """Return whether a node dequantizes with a scale that is fixed."""
    return is_quantize(node, "dequantize_")


def _stretches(facts: Facts, run: RunGraph) -> Iterator[Stretch]:
    """Find the stretches in float between quantized operators."""
    graph = run.partition.linked.graph
    calls = [node for node in graph.nodes if node.kind == "call_function"]
    if not any(map(is_quantize, calls)):
        return
    in_float = {
        id(node): node
        for node in calls
        if id(node) not in run.constant
        and not stem(node.op).startswith(("quantize_", "dequantize_", "choose_qparams"))
        and node.op != "getitem"
        and not _is_quantized(run, node)
    }
    seen: set[int] = set()
    for node in in_float.values():
        if id(node) in seen:
            continue
        part = connected(run, [node], in_float)
        seen.update(id(one) for one in part)
        part = [one for one in part if facts.is_free(one)]
        before = [g for one in part for g in run.givers(one) if is_dequantize(g)]
        before = [one for one in before if id(one) not in run.constant]
        after = [r for one in part for r in run.readers(one) if is_quantize(r)]
        if before and after and any(stem(one.op) not in MOVING for one in part):
            ends = {id(one): one for one in (*before, *after)}
            readers = {
                id(user): user
                for one in after
                for dequantized in run.readers(one)
                for user in run.readers(dequantized)
                if user.kind == "call_function"
            }
            yield Stretch(tuple(part), tuple(ends.values()), tuple(readers.values()))


def _is_quantized(run: RunGraph, node: Node) -> bool:
    """Return whether an operator reads quantized values only, and gives one: a backend computes
    such as one in int8. An activation before or after it is a part of it."""
    if id(node) in run.kernels:
        return False
    # Delegates may log the types that they computed with.
    inputs = [leaf.attribution.inputs for _, leaf in run.members([node])]
    if any(texts and texts[0].startswith("float") for texts in inputs):
        return False
    read = list(_through(node, lambda one: varying_givers(run, one)))
    given = list(_through(node, run.readers))
    return bool(read and given) and all(map(is_dequantize, read)) and all(map(is_quantize, given))


def _through(node: Node, step: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """The nodes in one direction, beyond the activations that are a part of the node."""
    waiting = list(step(node))
    fused = stem(node.op) in _ACTIVATIONS
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        is_part = stem(one.op) in _ACTIVATIONS or (fused and stem(one.op) in _CLAMPING)
        if one.kind == "call_function" and is_part:
            waiting += step(one)
        else:
            yield one


@needs_graph
def float_among_quantized(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Operators in float between quantized ones, and the conversions around them."""
    groups: dict[frozenset[str], list[Stretch]] = {}
    for one in list(_stretches(facts, run)):
        facts.claim((*one.nodes, *one.converting))
        names = frozenset(stem(node.op) for node in one.nodes if stem(node.op) not in MOVING)
        groups.setdefault(names, []).append(one)
    for alike in groups.values():
        nodes = [node for one in alike for node in one.nodes]
        converting = [node for one in alike for node in one.converting]
        members = run.members([*nodes, *converting])
        if not members:
            continue
        computing = longest_first(
            run, facts.time, [node for node in nodes if stem(node.op) not in MOVING]
        )
        conversions = run.members(converting)
        several = len({stem(node.op) for node in computing}) > 1
        evidence = [
            f"Inputs and outputs of {operators(computing)} are int8; the computation between is "
            "in float."
        ]
        if conversions:
            evidence.append(
                f"{does(len(conversions), 'conversion', 'take')} "
                f"{facts.time.text(facts.time.ticks(conversions))} of this time."
            )
        outside = [node for node in computing if id(node) in run.kernels]
        if outside and run.calls:
            evidence += reasons(run, outside)
            evidence += fewer_calls(run, outside, "Inside a delegate")
        verb = "take" if several else "takes"
        yield facts.finding(
            "float-among-quantized",
            f"With conversions, {operators(computing)} in float among int8 operators {verb} "
            f"{facts.time.taken(members)}{places(len(alike))}{at_lines(computing)}.",
            members,
            explained(Sureness.LIKELY, evidence, _stretch_remedies(facts, run, computing, alike)),
        )


def _stretch_remedies(
    facts: Facts, run: RunGraph, computing: list[Node], alike: list[Stretch]
) -> Iterator[Remedy]:
    refused = [
        node for node in computing if any(one.answer == TOLD for one in refusals_of(run, node))
    ]
    if refused:
        yield from ways_in(facts, run, refused)
    line, names = first_line(computing), as_written(computing)
    there = f" at {line}" if line else ""
    move = "move them before the first or after the last quantized operator"
    if run.has_xnnpack and {stem(node.op) for node in computing} <= _SMOOTH:
        yield Remedy(
            f"Use ReLU or ReLU6, which XNNPACK computes in int8, instead of {names}{there}, and "
            f"train the model with it; or {move}."
        )
    elif run.has_xnnpack and not refused and all(id(node) in run.kernels for node in computing):
        yield Remedy(f"XNNPACK has no kernel for {names}: {move}.")
    else:
        yield Remedy(f"Use operators with an int8 kernel instead of {names}{there}, or {move}.")
    modules = dict.fromkeys(module_of(node) for one in alike for node in one.readers)
    named = [module for module in modules if module]
    if named and len(named) == len(modules):
        select = " or ".join(f"module:{module}" for module in named)
        option = f": `-X keep_float='{select}'`" if len(named) <= _OPTION else ""
        yield Remedy(
            "Or keep the operators that read these values in float as well "
            f"({listed(named[:3], len(named) - 3)}), so that nothing is converted between{option}.",
            "keep_float",
            {"select": select},
        )


_NO_SCALE = frozenset({"input", "out_dtype", "output_dtype", "input_dtype"})


def _numbers(node: Node) -> list[tuple[str, str]]:
    """Scale, zero point, range and type of a node that quantizes or dequantizes."""
    return [(name, text) for name, text in node.arguments if name not in _NO_SCALE]


@needs_graph
def cancelling_quantization(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """A value that is dequantized and quantized again to the same numbers."""
    nodes: list[Node] = []
    moving: list[Node] = []
    pairs = 0
    for node in run.partition.linked.graph.operators.values():
        if not is_quantize(node) or not facts.is_free(node):
            continue
        between: list[Node] = []
        giver = next(run.givers(node), None)
        while (
            giver is not None
            and stem(giver.op) in MOVING
            and len(list(run.givers(giver))) == 1
            and len(list(run.readers(giver))) == 1
        ):
            between.insert(0, giver)
            giver = next(run.givers(giver), None)
        if giver is None or not is_dequantize(giver) or _numbers(giver) != _numbers(node):
            continue
        # What a backend computes in int8 by itself leaves neither kernel nor event.
        if run.members([giver, node]) and (between or len(list(run.readers(giver))) == 1):
            nodes += [giver, *between, node]
            moving += between
            pairs += 1
    if not pairs:
        return
    facts.claim(nodes)
    members = run.members(nodes)
    evidence = [
        f"{does(pairs, 'quantize node', 'have')} the scale, zero point and range of the "
        "dequantize node before, so the numbers do not change."
    ]
    moved = ""
    if moving:
        alone = facts.time.ticks(run.members([node for node in nodes if node not in moving]))
        evidence.append(
            f"Between the conversions are only operators that compute nothing: {operators(moving)}."
            f" They stay; the conversions alone take {facts.time.text(alone)}."
        )
        moved = f", moved by {operators(moving)}"
    remedy = Remedy(
        "Remove both conversions, so that int8 stays int8.", "pass", {"name": "cancel_qdq"}
    )
    yield facts.finding(
        "cancelling-quantization",
        f"Values are dequantized{moved} and quantized again to the same numbers, which takes "
        f"{facts.time.taken(members)}{places(pairs)}"
        f"{at_lines(moving) or at_lines(nodes)}.",
        members,
        explained(Sureness.MEASURED, evidence, [remedy]),
    )


_SHARE = 0.3  # of the method's time: int8 that is twice as fast then saves 15 % of a run
_LEAST_FLOPS = 1e6  # of an operator: the time of a smaller one is not its work
# FLOPs for each byte, above which processors compute, and do not wait for memory.
_INTENSITY = 8.0
_REACHED = 0.3  # of the peak: a kernel that is far below is slow for another reason
# XNNPACK's names of these operators, by what int8 is quantized for.
_CONVOLUTIONS = ("Convolution", "Deconvolution")
_PRODUCTS = ("Fully Connected", "Dynamic Fully Connected", *_CONVOLUTIONS)


def float_weights(facts: Facts) -> Iterator[Finding]:
    """Products and convolutions in float that limit a method, although the backend has int8 kernels
    for them.
    """
    if facts.profile.phase == DECODE or facts.work is None:
        return  # `memory-bound` reports decode
    bound = [member for member in facts.time.members if _is_bound_product(facts, member)]
    ticks = facts.time.ticks(bound)
    ns = facts.ns(ticks)
    if not ns or facts.time.share(ticks) < _SHARE:
        return
    work = facts.work_of(*bound)
    limits = None if facts.limits is None else facts.limits.of([leaf for _, leaf in bound])
    evidence = [
        f"{len(bound):,} products and convolutions in float32 do {work.flops / 1e9:.3g} GFLOP in "
        f"{facts.time.text(ticks)}: {work.flops / ns:.3g} GFLOP/s.",
        f"They compute {work.flops / max(1.0, work.traffic.total):.3g} FLOPs for each byte that "
        "they read and write: computation limits them, not memory."
        if limits is None or limits.bound is None
        else f"{limits.bound.capitalize()} bounds them, by the calibration: they reach "
        f"{format_share(limits.share)} of what the machine can do.",
    ]
    remedies = [
        Remedy(
            "Quantize weights and activations to int8, calibrated with samples of real inputs: "
            "`etscope export MODEL --backend xnnpack --quantize int8`; `etscope sensitivity` shows "
            "what to keep in float.",
            "quantize",
            {"scheme": "int8"},
        )
    ]
    products = [member for member in bound if not member[1].name.startswith(_CONVOLUTIONS)]
    if facts.time.ticks(products) > ticks / 2:
        remedies.append(
            Remedy(
                "Quantize the weights of linear layers to int4, and activations to int8 as the "
                "program runs (8da4w), which needs no samples.",
                "quantize",
                {"scheme": "8da4w"},
            )
        )
    found = facts.finding(
        "float-weights",
        f"Products and convolutions in float32 take {facts.time.with_share(ticks)} in "
        "XNNPACK, which has int8 kernels for them.",
        bound,
        explained(Sureness.POSSIBLE, evidence, remedies),
    )
    # A part of that time; this run cannot show how large.
    yield replace(found, severity=Severity.FACT)


def _is_bound_product(facts: Facts, member: Leaf) -> bool:
    """Return whether a leaf is a product of XNNPACK in float32 that the machine limits: by the
    calibration, or by its FLOPs for each byte."""
    group, leaf = member
    if leaf.kind != "delegated" or "Xnnpack" not in group.head.name:
        return False
    work = facts.work_of(member)
    is_float = bool(work.dtypes) and all(dtype == "float32" for dtype, _ in work.dtypes)
    if not is_float or not leaf.name.startswith(_PRODUCTS) or work.traffic.weights <= 0:
        return False
    if work.unknown or work.is_bound or work.flops < _LEAST_FLOPS:
        return False
    limits = None if facts.limits is None else facts.limits.of([leaf])
    if limits is not None and limits.share is not None:
        return limits.bound is not None and limits.share >= _REACHED
    return work.intensity is not None and work.intensity >= _INTENSITY
