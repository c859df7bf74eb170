"""Changes of layout at run time: between channels first and last, and transposes that cancel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etscope.analysis.delegates.xnnpack import event_kind
from etscope.analysis.graphs.delegate_io import INPUT, OUTPUT, Borders
from etscope.analysis.graphs.run_graph import RunGraph, order_of, spec_of
from etscope.analysis.insights.added_transposes import added_transposes, sizes
from etscope.analysis.insights.facts import RECORD_NEEDED, Facts, Level
from etscope.analysis.insights.leaf_times import quoted
from etscope.analysis.insights.node_words import at_lines, does, operators, places
from etscope.analysis.insights.rule import Rule
from etscope.analysis.insights.thresholds import LAYOUT_SHARE
from etscope.analysis.profile.profile import Leaf, Row
from etscope.model.finding import Explanation, Finding, Remedy, Sureness
from etscope.model.graph import SAME_VALUE, VIEWS, Node, stem

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
    givers = [
        one for one in run.givers(node) if id(one) not in run.constant and not run.is_weight(one)
    ]
    return givers[0] if len(givers) == 1 else None


def _dimensions(node: Node) -> list[int]:
    spec, dims = spec_of(node), re.findall(r"-?\d+", dict(node.arguments).get("dims", ""))
    rank = 0 if spec is None else len(spec.shape)
    return [int(text) % rank for text in dims] if rank == len(dims) and rank else []


# -- findings


def _find(facts: Facts) -> Iterator[Finding]:
    run = facts.run_graph if Level.FULL in facts.level else None
    yield from _all(facts) if run is None else _of_graph(facts, run)


def _of_graph(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    nodes, pairs = list(_conversions(facts, run)), list(_cancelling_pairs(facts, run))
    facts.claim([*nodes, *(node for pair in pairs for node in (pair.first, pair.second))])
    if nodes:
        members = run.members(nodes)
        yield facts.finding(
            RULE.name,
            f"{operators(nodes)} put values in another order in memory: "
            f"{facts.time.with_share(facts.time.ticks(members))}{places(len(nodes))}"
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
    taken = facts.time.with_share(facts.time.ticks(members))
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
        RULE.name,
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
            taken = facts.time.with_share(facts.time.ticks(members))
            where, reason, remedy = finding
            yield facts.finding(
                RULE.name,
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


# -- all of them, by the names of kernels and events

# What moves or converts values without computing any: kernels by the start of their names, and the
# names that XNNPACK gives such operators.
_LAYOUT_KERNELS = (
    "permute_copy", "transpose_copy", "t_copy", "clone", "_clone_dim_order", "_to_copy",
    "_to_dim_order_copy", "_conj_physical", "expand_copy", "copy_", "contiguous",
    "quantize_", "dequantize_", "choose_qparams",
)  # fmt: skip
_LAYOUT_DELEGATED = ("Transpose", "Convert", "Copy")


def _all(facts: Facts) -> Iterator[Finding]:
    """Find all changes of layout and type together, which compute nothing: from times alone."""
    time = facts.time
    members = [one for one in facts.free(time.members) if _is_layout(one[1])]
    ticks = time.ticks(members)
    if time.share(ticks) < LAYOUT_SHARE:
        return
    kinds: dict[str, list[Leaf]] = {}
    for one in members:
        kinds.setdefault(_kind_of(one[1]), []).append(one)
    listed = sorted(kinds, key=lambda name: -time.ticks(kinds[name]))
    longest = max(members, key=lambda one: time.averages[id(one[1])])
    sentence = f"Changes of layout and type ({', '.join(listed[:4])}) take {time.with_share(ticks)}"
    if len(members) > 1:
        sentence += (
            f" in {len(members):,} places, the most in {longest[1].name} of instruction "
            f"{longest[0].head.instruction_id}, {time.text(time.ticks([longest]))}"
        )
    yield facts.finding(
        RULE.name,
        f"{sentence}{time.lines([longest])}.",
        members,
        Explanation(
            Sureness.MEASURED,
            tuple(
                f"{name}: {time.with_share(time.ticks(kinds[name]))}{places(len(kinds[name]))}."
                for name in listed
            ),
            remedies=(RECORD_NEEDED,),
        ),
        " or ".join(f"name:{quoted(name)}*" for name in listed),
        by=("op", listed[0]),
    )


def _is_layout(row: Row) -> bool:
    if row.kind == "kernel":
        name = row.name.rpartition("::")[2]
        return name.startswith(_LAYOUT_KERNELS)
    return row.kind == "delegated" and _kind_of(row) in _LAYOUT_DELEGATED


def _kind_of(row: Row) -> str:
    """The name of an operator up to its overload, or to the types that XNNPACK names."""
    if row.kind == "delegated":
        return event_kind(row.name)
    return row.name.partition(".")[0]


RULE = Rule("layout-conversions", "Changes of layout at run time", _find)
