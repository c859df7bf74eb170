"""Values that are copied, from the graph: to another layout, or where a view would do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from etscope.analysis.graphs.delegate_io import INPUT, OUTPUT, Borders
from etscope.analysis.graphs.run_graph import (
    OF_TORCH,
    RunGraph,
    bytes_of,
    function_of,
    is_same_type,
    order_of,
    spec_of,
    varying_givers,
)
from etscope.analysis.insights.facts import Facts, explained, needs_graph
from etscope.analysis.insights.node_words import (
    at_lines,
    does,
    fewer_calls,
    listed,
    operators,
    places,
)
from etscope.analysis.profile.profile import Leaf, Row
from etscope.analysis.program.xnnpack_events import event_kind
from etscope.model.finding import Finding, Remedy, Sureness
from etscope.model.graph import SAME_VALUE, VIEWS, Node, stem
from etscope.units import count, format_bytes

_SHOWN = 3  # copies among the evidence: the sites have all
_UNCHANGED = SAME_VALUE - VIEWS - {"squeeze", "unsqueeze"}


# Operators that do to each element by itself the same as in another order.
_POINTWISE = frozenset(
    {"abs", "add", "clamp", "div", "elu", "exp", "gelu", "hardswish", "hardtanh", "leaky_relu",
     "mul", "neg", "relu", "rsqrt", "sigmoid", "sqrt", "sub", "tanh"}
)  # fmt: skip


_COPIES = frozenset({"clone", "clone_dim_order", "contiguous", "to", "to_dim_order"})


@dataclass(frozen=True, eq=False)
class Pair:
    """A permute and a second one that undoes it. between: what computes between them."""

    first: Node
    second: Node
    between: tuple[Node, ...]


def _cancelling_pairs(facts: Facts, run: RunGraph) -> Iterator[Pair]:
    """Yield pairs of permutes: the second undoes the first, with only elementwise operators between
    them."""

    def value_read(node: Node) -> Node | None:
        """Return the only value read by a node that differs from run to run."""
        givers = list(varying_givers(run, node))
        return givers[0] if len(givers) == 1 else None

    def dimensions(node: Node) -> list[int]:
        spec, dims = spec_of(node), re.findall(r"-?\d+", dict(node.arguments).get("dims", ""))
        rank = 0 if spec is None else len(spec.shape)
        return [int(text) % rank for text in dims] if rank == len(dims) and rank else []

    for second in run.partition.linked.graph.operators.values():
        first = value_read(second) if stem(second.op) == "permute" else None
        between: list[Node] = []
        while first is not None and stem(first.op) in _UNCHANGED | _POINTWISE:
            if stem(first.op) in _POINTWISE:
                between.insert(0, first)
            first = value_read(first)
        if first is None or stem(first.op) != "permute":
            continue
        once, again = dimensions(first), dimensions(second)
        is_undone = len(once) == len(again) and [once[axis] for axis in again] == sorted(once)
        if is_undone and all(map(facts.is_free, (first, second))) and run.members([second]):
            yield Pair(first, second, tuple(between))


# -- transposes that XNNPACK adds around its operators, for values of another layout


def added_transposes(run: RunGraph) -> dict[int, tuple[Leaf, ...]]:
    """The transposes that XNNPACK added, by the instruction of their delegate call. XNNPACK
    convolves with the channels last, so it transposes values that have the channels first.
    """

    def is_added(leaf: Row) -> bool:
        (value, *others) = leaf.attribution.inputs or ("",)
        is_transpose = event_kind(leaf.name) == "Transpose" and not leaf.attribution.nodes
        return is_transpose and not others and value.count(",") == 3

    def found() -> dict[int, tuple[Leaf, ...]]:
        added = {
            number: tuple(one for one in members if is_added(one[1]))
            for number, members in run.events_of_calls.items()
        }
        return {number: members for number, members in added.items() if members}

    return run.once("added transposes", found)


def transposes_at(
    run: RunGraph, entering: set[tuple[int, str]], leaving: set[tuple[int, str]]
) -> list[Leaf]:
    """The added transposes of values that go into a call or come out of it, each given as the
    call's instruction with the sizes of the value."""
    return [
        member
        for number, members in added_transposes(run).items()
        for member in members
        if (number, sizes(member[1].attribution.inputs[0])) in entering
        or (number, sizes((member[1].attribution.outputs or ("",))[0])) in leaving
    ]


def sizes(tensor: object) -> str:
    """The sizes of a tensor's text ("float32[1, 8]"), without its type: a value may be quantized
    before it is laid out."""
    return str(tensor).partition("[")[2]


def changes_of_layout(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Find copies to another layout, permutes that cancel, and transposes that XNNPACK added."""
    nodes: list[Node] = []
    evidence: list[str] = []
    for kernel in run.kernels.values():
        giver = next(run.givers(kernel.node), None)
        one, two = None if giver is None else spec_of(giver), spec_of(kernel.node)
        is_copy = kernel.op in _COPIES and facts.is_free(kernel.node)
        if is_copy and one is not None and two is not None and order_of(one) != order_of(two):
            nodes.append(kernel.node)
            orders = f"dimensions in the order {order_of(one)} to {order_of(two)}"
            evidence.append(f"{kernel.node.name}: {one}, {orders}.")
    pairs = list(_cancelling_pairs(facts, run))
    facts.claim([*nodes, *(node for pair in pairs for node in (pair.first, pair.second))])
    if nodes:
        members = run.members(nodes)
        remedy = Remedy(
            "Keep one memory format throughout: give the inputs in the format that the "
            f"convolutions need, and leave out `.to(memory_format=...)`{at_lines(nodes)}.",
            "channels_last",
        )
        yield facts.finding(
            "layout-conversions",
            f"{operators(nodes)} put values in another order in memory: "
            f"{facts.time.taken(members)}{places(len(nodes))}"
            f"{at_lines(nodes, run, facts.time)}.",
            members,
            explained(Sureness.MEASURED, evidence[:_SHOWN], [remedy]),
        )
    for computes in (False, True):
        if alike := [pair for pair in pairs if bool(pair.between) == computes]:
            yield _undone(facts, run, alike)
    yield from _laid_out_anew(facts, run)


def _undone(facts: Facts, run: RunGraph, pairs: Sequence[Pair]) -> Finding:
    both = [pair.second for pair in pairs]
    both += [pair.first for pair in pairs if len(list(run.readers(pair.first))) == 1]
    members = run.members(both)
    taken = facts.time.taken(members)
    evidence = [f"{does(len(pairs), 'permute', 'give')} back the order that another changed."]
    remedy = Remedy(
        "Remove both operators, and use the value from before the first one.",
        "pass",
        {"name": "remove_transposes"},
    )
    if between := [node for pair in pairs for node in pair.between]:
        evidence.append(
            "Between the transposes are only operators that accept any order: "
            f"{operators(between)}."
        )
        remedy = Remedy(
            "Remove both transposes, and shape the weights between them for the order that "
            "remains: `scale[:, None]` if the channels are not last."
        )
    return facts.finding(
        "layout-conversions",
        f"Transposes that undo each other take {taken}{places(len(pairs))}"
        f"{at_lines(both, run, facts.time)}.",
        members,
        explained(Sureness.MEASURED, evidence, [remedy]),
    )


def _laid_out_anew(facts: Facts, run: RunGraph) -> Iterator[Finding]:
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
        entering = {id(one.maker): one.kind for one in borders.entering(call)}
        leaving = {id(one.maker): one.kind for one in borders.leaving(call)}
        events = run.events_of_calls[number]
        specs = [spec_of(node) for node in call.nodes if stem(node.op) == "convolution"]
        is_one_dimensional = {len(spec.shape) for spec in specs if spec is not None} == {3}
        for member in added:
            kinds = set(_ends(run, events, member, entering, leaving))
            if is_one_dimensional:
                one_dimensional.append(member)
            elif not kinds:
                inner.append(member)
            elif kinds <= {INPUT, OUTPUT}:
                outer.append(member)
    permutes = list(_undoing(facts, run, inner))
    facts.claim(permutes)
    inner += run.members(permutes)
    for members, (where, reason, remedy) in (
        (outer, _OUTER),
        (inner, _PERMUTED if permutes else _INNER),
        (one_dimensional, _ONE_DIMENSIONAL),
    ):  # fmt: skip
        if members:
            facts.claim(leaves=members)
            taken = facts.time.taken(members)
            inserted = count(sum(not one[1].attribution.nodes for one in members), "transpose")
            yield facts.finding(
                "layout-conversions",
                f"XNNPACK converts {where}, which takes {taken}{places(len(members))}.",
                members,
                explained(
                    Sureness.MEASURED,
                    [f"XNNPACK added {inserted}: {reason}"],
                    [replace(remedy, text=remedy.text.format(at_lines(permutes)))],
                ),
            )


def _ends(
    run: RunGraph,
    events: Sequence[Leaf],
    added: Leaf,
    entering: Mapping[int, str],
    leaving: Mapping[int, str],
) -> Iterator[str]:
    """Yield the kinds of the borders at which a transpose was added: it stands directly before the
    operator that reads it, or directly behind the one that makes its value.

    entering, leaving: kinds of values at the borders of its call, by `id` of their makers.
    """
    at = next(number for number, one in enumerate(events) if one[1] is added[1])
    size = sizes(added[1].attribution.inputs[0])

    def nodes_at(others: Iterable[Leaf]) -> tuple[Node, ...]:
        return next((one[1].attribution.nodes for one in others if one[1].attribution.nodes), ())

    for node in nodes_at(events[at:]):
        values = list(_origins(run, node))
        yield from (
            entering[id(one)]
            for one in values
            if id(one) in entering and sizes(spec_of(one)) == size
        )
    for node in nodes_at(reversed(events[:at])):
        if sizes(spec_of(node)) == sizes((added[1].attribution.outputs or ("",))[0]):
            yield from (leaving[id(one)] for one in _ends_of(run, node) if id(one) in leaving)


def _origins(run: RunGraph, node: Node) -> Iterator[Node]:
    """The values that a node reads, before operators that only convert them."""
    for giver in run.givers(node):
        is_same = giver.kind == "call_function" and stem(giver.op) in _CONVERTING
        yield from _origins(run, giver) if is_same else (giver,)


def _ends_of(run: RunGraph, node: Node) -> Iterator[Node]:
    """A node, and those behind it that only convert its value."""
    yield node
    for reader in run.readers(node):
        if reader.kind == "call_function" and stem(reader.op) in _CONVERTING:
            yield from _ends_of(run, reader)


_CONVERTING = _UNCHANGED | {"dequantize_per_tensor", "quantize_per_tensor", "hardtanh", "relu"}
_LAST, _FIRST = ["0", "2", "3", "1"], ["0", "3", "1", "2"]  # channels, by permutes


def _undoing(facts: Facts, run: RunGraph, added: Sequence[Leaf]) -> Iterator[Node]:
    """The model's own permutes of images to channels last and back, which the added transposes
    undo: next to convolutions and pools."""
    sizes_of = {sizes(one[1].attribution.inputs[0]) for one in added}
    for node in run.partition.linked.graph.operators.values():
        order = re.findall(r"\d", dict(node.arguments).get("dims", ""))
        if stem(node.op) != "permute" or order not in (_LAST, _FIRST) or not facts.is_free(node):
            continue
        others = list(_origins(run, node))
        if order == _FIRST:
            others = [reader for one in _ends_of(run, node) for reader in run.readers(one)]
        is_near = any(stem(one.op) in _IMAGES | _POINTWISE for one in others)
        if is_near and sizes_of and run.members([node]):
            yield node


_IMAGES = frozenset(
    {"avg_pool2d", "convolution", "max_pool2d", "native_batch_norm_legit_no_training"}
)


_ORDERS = "images between channels-first and channels-last"
_OUTER = (
    f"{_ORDERS} at the model's inputs and outputs",
    "its convolutions and pools need the channels last.",
    Remedy(
        "Hand in images with the channels last, and export with such inputs: "
        "`x.to(memory_format=torch.channels_last)`.",
        "channels_last",
    ),
)
_ONE_DIMENSIONAL = (
    "the inputs and outputs of Conv1d layers",
    "it computes them as convolutions of images with the channels last, and converts each time.",
    Remedy(
        "Keep four dimensions from the first convolution to the last: `nn.Conv2d(c, d, (k, "
        "1))` on `x.unsqueeze(-1)` for `nn.Conv1d(c, d, k)`; with k = 1, use `nn.Linear`."
    ),
)
_PERMUTED = (
    f"{_ORDERS} between operators",
    "its convolutions need the channels last, and the model's permutes ask for the same order.",
    Remedy(
        "Leave out the permutes of images{}: `nn.Conv2d(c, d, 1)` computes what `nn.Linear(c, d)` "
        "does between them."
    ),
)
_INNER = (
    f"{_ORDERS} between operators",
    "its convolutions and pools need the channels last, and the operators around them do not.",
    Remedy(
        "Avoid `flatten`, `reshape` and `permute` of images with more than one pixel "
        "between convolutions and pools."
    ),
)


# Operators, by `stem`, that give the values that they read, if type and shape are the same.
_MAY_KEEP = frozenset(
    {"alias", "cat", "clone", "clone_dim_order", "contiguous", "detach", "expand", "lift_fresh",
     "repeat", "slice", "squeeze", "to", "to_dim_order", "unsqueeze", "view"}
)  # fmt: skip
# These give the elements that they read in the same order, in another shape.
_RESHAPING = frozenset({"squeeze", "unsqueeze", "view"})


@needs_graph
def needless_copies(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Kernels that copy values without a change: a view would do, or nothing at all."""
    kinds: dict[bool, list[Node]] = {}  # whether the copy changes nothing, or the shape
    for kernel in run.kernels.values():
        node, givers = kernel.node, list(run.givers(kernel.node))
        if kernel.op not in _MAY_KEEP or len(givers) != 1 or not facts.is_free(node):
            continue
        one, two = spec_of(node), spec_of(givers[0])
        # A node with several values has the type of the first only: do not compare these.
        if len(givers[0].outputs) != 1 or one is None or two is None:
            continue
        if is_same_type(node, givers[0]):
            kinds.setdefault(True, []).append(node)
        elif kernel.op in _RESHAPING and one.dtype == two.dtype:
            kinds.setdefault(False, []).append(node)
    # The slices of one value that are put together again, outside of delegates and inside.
    reordered: list[tuple[Node, ...]] = []
    for node in run.partition.linked.graph.operators.values():
        parts = list(run.givers(node)) if stem(node.op) == "cat" else []
        if len(parts) < 2 or any(stem(part.op) != "slice" for part in parts):
            continue
        values = {giver.name for part in parts for giver in run.givers(part)}
        together = (*(one for one in parts if len(list(run.readers(one))) == 1), node)
        if len(values) == 1 and all(map(facts.is_free, together)):
            reordered.append(together)
    for is_same, nodes in kinds.items():
        facts.claim(nodes)
        yield _copies(facts, run, nodes, is_same=is_same)
    facts.claim(node for nodes in reordered for node in nodes)
    yield from _reordered(facts, run, reordered)


def _copies(facts: Facts, run: RunGraph, nodes: Sequence[Node], *, is_same: bool) -> Finding:
    members = run.members(nodes)
    taken = facts.time.taken(members)
    evidence = [f"Together they write {format_bytes(sum(map(bytes_of, nodes)))} in each run."]
    names = operators(nodes)
    if is_same:
        sentence = f"Copies that change nothing ({names}) take {taken}"
        evidence.append("Each copy has the same type, shape and layout as its input.")
        remove = "Remove them from the graph when the program is made."
        remedies = [Remedy(remove, "pass", {"name": "remove_dead_copies"})]
        functions = {function_of(node) for node in nodes if stem(node.op) == "expand"}
        if "matmul" in functions:
            remedies.append(
                Remedy(
                    "torch adds an expand to each matmul of more than three dimensions. "
                    "`torch.bmm` of three-dimensional tensors has none."
                )
            )
    else:
        sentence = f"Copies that only change the shape ({names}) take {taken}"
        evidence.append("The copies do not reorder elements, so a view would be enough.")
        remedies = [
            Remedy(
                f"Write {names}{at_lines(nodes).replace(', at', ' at', 1)} as "
                "`x.reshape(...)` or `x.view(...)`, which memory planning turns into "
                "views, without a copy."
            )
        ]
        parts = {function_of(node) for node in nodes} - {stem(node.op) for node in nodes}
        if parts & OF_TORCH:
            evidence.append(f"The copies are parts of torch's {listed(sorted(parts & OF_TORCH))}.")
    evidence += fewer_calls(run, nodes, "Without them")
    return facts.finding(
        "needless-copies",
        f"{sentence}{places(len(nodes))}{at_lines(nodes, run, facts.time)}.",
        members,
        explained(Sureness.MEASURED, evidence, remedies),
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
    remedies = [
        Remedy(
            "Reorder in one step: `x.view(n // 2, 2, -1).transpose(0, 1)` puts every other "
            "row first. Leave it out if the next operators accept any order."
        ),
        Remedy(
            "Or reorder the weights of the operator before it once, instead of the values in "
            "each run."
        ),
    ]
    yield facts.finding(
        "needless-copies",
        f"Slices that are put together again (slice and cat) take {taken}{places(len(found))}"
        f"{at_lines(nodes, run, facts.time)}.",
        members,
        explained(Sureness.MEASURED, evidence, remedies),
    )
