"""Values that are copied, from the graph: to another layout, or where a view would do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etscope.analysis.graphs.delegate_io import INPUT, OUTPUT, Borders
from etscope.analysis.graphs.run_graph import (
    OF_TORCH,
    Kernel,
    RunGraph,
    bytes_of,
    function_of,
    is_same_type,
    order_of,
    spec_of,
    varying_givers,
)
from etscope.analysis.insights.added_transposes import added_transposes, sizes
from etscope.analysis.insights.facts import Facts
from etscope.analysis.insights.node_words import (
    at_lines,
    does,
    fewer_calls,
    listed,
    operators,
    places,
)
from etscope.analysis.insights.rule import graph_rule
from etscope.analysis.profile.profile import Leaf
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import SAME_VALUE, VIEWS, Node, stem
from etscope.units import format_bytes

_UNCHANGED = SAME_VALUE - VIEWS - {"squeeze", "unsqueeze"}


# Operators that do to each element by itself the same as in another order.
_POINTWISE = frozenset(
    {"abs", "add", "clamp", "div", "elu", "exp", "gelu", "hardswish", "hardtanh", "leaky_relu",
     "mul", "neg", "relu", "rsqrt", "sigmoid", "sqrt", "sub", "tanh"}
)  # fmt: skip


_COPIES = frozenset({"clone", "clone_dim_order", "contiguous", "to", "to_dim_order"})


def _conversions(facts: Facts, run: RunGraph) -> Iterator[Node]:
    """The kernels that copy a value to another order of its dimensions in memory."""
    for kernel in run.kernels.values():
        if kernel.op not in _COPIES or not facts.is_free(kernel.node):
            continue
        giver = next(run.givers(kernel.node), None)
        one = spec_of(kernel.node)
        two = None if giver is None else spec_of(giver)
        if one is not None and two is not None and order_of(one) != order_of(two):
            yield kernel.node


@dataclass(frozen=True, eq=False)
class Pair:
    """A permute and a second one that undoes it. between: what computes between them."""

    first: Node
    second: Node
    between: tuple[Node, ...]


def _cancelling_pairs(facts: Facts, run: RunGraph) -> Iterator[Pair]:
    """Yield pairs of permutes: the second undoes the first, with only elementwise operators between
    them."""
    for second in run.partition.linked.graph.operators.values():
        first = _value_read(run, second) if stem(second.op) == "permute" else None
        between: list[Node] = []
        while first is not None and stem(first.op) in _UNCHANGED | _POINTWISE:
            if stem(first.op) in _POINTWISE:
                between.insert(0, first)
            first = _value_read(run, first)
        if first is None or stem(first.op) != "permute":
            continue
        once, again = _dimensions(first), _dimensions(second)
        is_undone = len(once) == len(again) and [once[axis] for axis in again] == sorted(once)
        if is_undone and all(map(facts.is_free, (first, second))) and run.members([second]):
            yield Pair(first, second, tuple(between))


def _value_read(run: RunGraph, node: Node) -> Node | None:
    """The one value that a node reads which differs from run to run; None if there are several."""
    givers = list(varying_givers(run, node))
    return givers[0] if len(givers) == 1 else None


def _dimensions(node: Node) -> list[int]:
    spec, dims = spec_of(node), re.findall(r"-?\d+", dict(node.arguments).get("dims", ""))
    rank = 0 if spec is None else len(spec.shape)
    return [int(text) % rank for text in dims] if rank == len(dims) and rank else []


def changes_of_layout(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Find copies to another layout, permutes that cancel, and transposes that XNNPACK added."""
    nodes, pairs = list(_conversions(facts, run)), list(_cancelling_pairs(facts, run))
    facts.claim([*nodes, *(node for pair in pairs for node in (pair.first, pair.second))])
    if nodes:
        members = run.members(nodes)
        yield facts.finding(
            "layout-conversions",
            f"{operators(nodes)} put values in another order in memory: "
            f"{facts.time.taken(members)}{places(len(nodes))}"
            f"{at_lines(nodes)}.",
            members,
            Explanation(
                Sureness.MEASURED,
                tuple(_orders(run, nodes)),
                remedies=(
                    Remedy(
                        "Keep one memory format throughout: give the inputs in the one that the "
                        "convolutions want, and leave out `.to(memory_format=...)`"
                        f"{at_lines(nodes)}.",
                        "channels_last",
                    ),
                ),
            ),
        )
    for computes in (False, True):
        if alike := [pair for pair in pairs if bool(pair.between) == computes]:
            yield _cancelling(facts, run, alike)
    yield from _added(facts, run)


def _cancelling(facts: Facts, run: RunGraph, pairs: Sequence[Pair]) -> Finding:
    both = [pair.second for pair in pairs]
    both += [pair.first for pair in pairs if len(list(run.readers(pair.first))) == 1]
    members = run.members(both)
    taken = facts.time.taken(members)
    evidence = [f"{does(len(pairs), 'permute', 'give')} back the order that another changed."]
    remedy = Remedy("Read the value from before both.", "pass", {"name": "remove_transposes"})
    if between := [node for pair in pairs for node in pair.between]:
        evidence.append(
            f"Nothing but {operators(between)} is between them, which any order is right for."
        )
        remedy = Remedy(
            "Leave both out, and give weights between them the shape of the order that is there: "
            "`scale[:, None]` where the channels are not last."
        )
    return facts.finding(
        "layout-conversions",
        f"Transposes that undo each other take {taken}{places(len(pairs))}{at_lines(both)}.",
        members,
        Explanation(Sureness.MEASURED, tuple(evidence), remedies=(remedy,)),
    )


def _orders(run: RunGraph, nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes[:3]:
        giver = next(run.givers(node))
        one, two = spec_of(giver), spec_of(node)
        if one is not None and two is not None:
            yield f"{node.name}: {one}, dimensions in the order {order_of(one)} to {order_of(two)}."


def _added(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """The transposes that XNNPACK added for inputs and outputs of the model, and between
    operators. Those at a kernel outside of delegates are a part of its finding."""
    borders = Borders(run.partition)
    calls = {call.instruction: call for call in run.calls}
    outer: list[Leaf] = []
    inner: list[Leaf] = []
    one_dimensional: list[Leaf] = []
    for number, added in added_transposes(run).items():
        call = calls.get(number)
        if call is None:
            continue
        entering = {sizes(one.tensor): one.kind for one in borders.entering(call)}
        leaving = {sizes(one.tensor): one.kind for one in borders.leaving(call)}
        ranks = {
            len(spec.shape)
            for node in call.nodes
            if stem(node.op) == "convolution" and (spec := spec_of(node)) is not None
        }
        for member in added:
            before, after = member[1].attribution.inputs[0], member[1].attribution.outputs
            kinds = {entering.get(sizes(before)), leaving.get(sizes(after[0] if after else ""))}
            if ranks == {3}:
                one_dimensional.append(member)
            elif kinds == {None}:
                inner.append(member)
            elif kinds <= {INPUT, OUTPUT, None}:
                outer.append(member)
    for members, finding in (
        (outer, _OUTER), (inner, _INNER), (one_dimensional, _ONE_DIMENSIONAL),
    ):  # fmt: skip
        if members:
            facts.claim(leaves=members)
            taken = facts.time.taken(members)
            where, reason, remedy = finding
            yield facts.finding(
                "layout-conversions",
                f"XNNPACK lays out {where} anew, which takes {taken}{places(len(members))}.",
                members,
                Explanation(
                    Sureness.MEASURED,
                    (
                        f"{does(len(members), 'transpose', 'stand')} for no operator of the model: "
                        f"{reason}",
                    ),
                    remedies=(remedy,),
                ),
            )


_OUTER = (
    "images that come into the model or go out of it",
    "XNNPACK convolves and pools with the channels last.",
    Remedy(
        "Hand in images with the channels last, and export with such inputs: "
        "`x.to(memory_format=torch.channels_last)`.",
        "channels_last",
    ),
)
_ONE_DIMENSIONAL = (
    "the values of convolutions of one dimension",
    "XNNPACK convolves images with the channels last, and lays out before and after each.",
    Remedy(
        "Keep four dimensions from the first to the last of them: `nn.Conv2d(c, d, (k, 1))` on "
        "`x.unsqueeze(-1)` for `nn.Conv1d(c, d, k)`; with k = 1, use `nn.Linear`."
    ),
)
_INNER = (
    "images between operators",
    "convolutions and pools keep the channels last, and what comes before or after does not.",
    Remedy(
        "Leave `flatten`, `reshape`, `permute` and such of images with more than one pixel out of "
        "the way between convolutions and pools."
    ),
)


_SAME, _VIEW = "same", "view"  # what would do in place of a copy: what it reads, or a view of it
# Operators, by `stem`, that give the values that they read, if type and shape are the same.
_MAY_KEEP = frozenset(
    {"alias", "cat", "clone", "clone_dim_order", "contiguous", "detach", "expand", "lift_fresh",
     "repeat", "slice", "squeeze", "to", "to_dim_order", "unsqueeze", "view"}
)  # fmt: skip
# These give the elements that they read in the same order, in another shape.
_RESHAPING = frozenset({"squeeze", "unsqueeze", "view"})


def _reorderings(facts: Facts, run: RunGraph) -> Iterator[tuple[Node, ...]]:
    """The slices of one value that are put together again, each with the cat that does so last;
    outside of delegates and inside."""
    for node in run.partition.linked.graph.operators.values():
        parts = list(run.givers(node)) if stem(node.op) == "cat" else []
        if len(parts) < 2 or any(stem(part.op) != "slice" for part in parts):
            continue
        values = {giver.name for part in parts for giver in run.givers(part)}
        nodes = (*(one for one in parts if len(list(run.readers(one))) == 1), node)
        if len(values) == 1 and all(map(facts.is_free, nodes)):
            yield nodes


def _copy_kind(run: RunGraph, kernel: Kernel) -> str | None:
    """Return what would do in place of a kernel that only copies; None for another kernel."""
    node = kernel.node
    givers = list(run.givers(node))
    if kernel.op not in _MAY_KEEP or len(givers) != 1:
        return None
    # A node with several values has the type of the first only: do not compare these.
    if len(givers[0].outputs) != 1 or spec_of(node) is None:
        return None
    if is_same_type(node, givers[0]):
        return _SAME
    one, two = spec_of(node), spec_of(givers[0])
    if one is None or two is None or kernel.op not in _RESHAPING or one.dtype != two.dtype:
        return None
    return _VIEW


@graph_rule("Copies where a view, or nothing, would do")
def needless_copies(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Kernels that copy values without a change: a view would do, or nothing at all."""
    kinds: dict[str, list[Kernel]] = {}
    for kernel in run.kernels.values():
        found = _copy_kind(run, kernel) if facts.is_free(kernel.node) else None
        if found is not None:
            kinds.setdefault(found, []).append(kernel)
    reordered = list(_reorderings(facts, run))
    for kind, kernels in kinds.items():
        facts.claim(kernel.node for kernel in kernels)
        yield _copy_finding(facts, run, kind, kernels)
    facts.claim(node for nodes in reordered for node in nodes)
    yield from _reordered(facts, run, reordered)


def _copy_finding(facts: Facts, run: RunGraph, kind: str, kernels: Sequence[Kernel]) -> Finding:
    nodes = [kernel.node for kernel in kernels]
    members = run.members(nodes)
    taken = facts.time.taken(members)
    size = format_bytes(sum(map(bytes_of, nodes)))
    evidence = [f"Together they write {size} in each run."]
    names = operators(nodes)
    if kind == _SAME:
        sentence = f"Copies that change nothing ({names}) take {taken}"
        evidence.append("Each has the type, shape and layout of what it reads.")
        remedies = [
            Remedy(
                "Remove them from the graph when the program is made.",
                "pass",
                {"name": "remove_dead_copies"},
            )
        ]
        functions = {function_of(node) for node in nodes if stem(node.op) == "expand"}
        if "matmul" in functions:
            remedies.append(
                Remedy(
                    "torch adds an expand to each product of more than three dimensions: "
                    "`torch.bmm` of tensors of three dimensions has none."
                )
            )
    else:
        sentence = f"Copies that only change the shape ({names}) take {taken}"
        evidence.append("Their elements stay in order, so that a view would do.")
        remedies = [
            Remedy(
                f"Write {names}{at_lines(nodes).replace(', at', ' at', 1)} as `x.reshape(...)` or "
                "`x.view(...)`, which memory planning makes views."
            ),
        ]
        parts = {function_of(node) for node in nodes} - {stem(node.op) for node in nodes}
        if parts & OF_TORCH:
            evidence.append(f"They are parts of torch's {listed(sorted(parts & OF_TORCH))}.")
    evidence += fewer_calls(run, nodes, "Without them")
    return facts.finding(
        "needless-copies",
        f"{sentence}{places(len(nodes))}{at_lines(nodes)}.",
        members,
        Explanation(Sureness.MEASURED, tuple(evidence), remedies=tuple(remedies)),
    )


def _reordered(facts: Facts, run: RunGraph, found: Sequence[tuple[Node, ...]]) -> Iterator[Finding]:
    nodes = [node for each in found for node in each]
    members = run.members(nodes)
    if not members:
        return
    members += run.rests(members)
    taken = facts.time.taken(members)
    evidence = [f"They only reorder the values of one tensor{places(len(found))}."]
    evidence += fewer_calls(run, nodes, "Without them")
    yield facts.finding(
        "needless-copies",
        f"Slices that are put together again (slice and cat) take {taken}{places(len(found))}"
        f"{at_lines(nodes)}.",
        members,
        Explanation(
            Sureness.MEASURED,
            tuple(evidence),
            remedies=(
                Remedy(
                    "Reorder in one step: every other row first is `x.view(n // 2, 2, -1)."
                    "transpose(0, 1)`; where what reads it does not mind the order, leave it."
                ),
                Remedy("Or put the order into the weights before, once and for all."),
            ),
        ),
    )
