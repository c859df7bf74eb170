"""Caches, buffers and constants: bytes moved and values computed again in each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etscope.analysis.graphs.run_graph import RunGraph, bytes_of, spec_of
from etscope.analysis.insights import edits
from etscope.analysis.insights.commands import then_exported
from etscope.analysis.insights.facts import Facts, explained, needs_graph
from etscope.analysis.insights.node_words import (
    at_lines,
    connected,
    fewer_calls,
    first_line,
    listed,
    operators,
    places,
)
from etscope.analysis.memory.state import KV_CACHE, StateTensor, program_state
from etscope.analysis.profile.profile import Leaf
from etscope.analysis.program.source_location import short_lines
from etscope.errors import EtscopeError
from etscope.model.finding import Finding, Remedy, Sureness
from etscope.model.graph import SAME_VALUE, Node, stem
from etscope.units import count, format_bytes

_FEW = 0.5  # of the positions: a call that writes more has reason to write all


def whole_caches(facts: Facts) -> Iterator[Finding]:
    """KV caches that are copied whole, although a call writes only a few positions."""
    caches, tokens = copied_caches(facts), _tokens(facts)
    if not caches:
        return
    members = copying(facts, caches)
    facts.claim(leaves=members)
    context = max(one.length or 0 for one in caches)
    size = sum(one.nbytes for one in caches)
    written = sum(one.nbytes / (one.length or 1) * tokens for one in caches)
    names = dict.fromkeys(leaf.name for _, leaf in members)
    evidence = [
        f"{', '.join(names)} write {format_bytes(size)} of caches into copies and back; "
        f"what a call adds to them is {format_bytes(written)}.",
        f"The copies grow with the context, which is {context:,} positions here, however "
        "many of them are used.",
    ]
    numbers = {group.head.instruction_id for group, _ in members}
    linked = None if facts.run_graph is None else facts.run_graph.partition.linked
    nodes = () if linked is None else (one for at in numbers if at for one in linked.ran(at))
    puts = [node for node in nodes if stem(node.op) == "index_put"]
    many = len(caches) > 1
    yield facts.finding(
        "whole-caches",
        f"{len(caches):,} KV cache{'s are' if many else ' is'} copied whole in each call: "
        f"{facts.time.taken(members)}.",
        members,
        explained(Sureness.MEASURED, evidence, in_place(facts, puts)),
    )


def copied_caches(facts: Facts) -> list[StateTensor]:
    """The KV caches that are copied whole by calls that write less than half of them."""
    method = facts.profile.method
    if facts.program is None or method is None:
        return []
    try:
        state = program_state(facts.trace.export)
    except EtscopeError:  # a damaged plan: the memory views say where
        return []
    return [
        one
        for one in state.methods.get(method, ())
        if one.kind == KV_CACHE and one.copies and _tokens(facts) < _FEW * (one.length or 0)
    ]


def copying(facts: Facts, caches: Sequence[StateTensor]) -> list[Leaf]:
    """Return the kernels that write the copies of caches, or copy them back."""
    values = {one.value for one in caches} | {value for one in caches for value in one.copies}
    records = facts.trace.instructions(facts.profile.method or "")
    numbers = {
        record.instruction_id
        for record in records
        if record.kind == "kernel" and not values.isdisjoint(record.outputs)
    }
    kernels = (one for one in facts.time.members if one[1].kind == "kernel")
    return [one for one in kernels if one[0].head.instruction_id in numbers]


def _tokens(facts: Facts) -> float:
    """Return the mean number of tokens of a call; 1 if unknown, as for a decoder's step."""
    calls = facts.profile.calls
    if calls is None or not (calls.tokens > 0).all():
        return 1.0
    return float(calls.tokens.mean())


# Operators, by `stem`, with values that contain a buffer's values unchanged, next to others.
_KEEPING = frozenset(
    {"alias", "cat", "clone", "clone_dim_order", "index_copy", "index_put", "scatter",
     "select_scatter", "slice", "slice_scatter", "where"}
)  # fmt: skip
_MOVING = frozenset({"cat", "slice"})
_WRITE_BACK = "copy_"  # the kernel that writes a buffer when the method ends


@needs_graph
def rewritten_buffers(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Buffers that are copied and written back as a whole to change a part of them."""
    copied = [
        member
        for member in run.members_of_run
        if member[1].kind == "kernel" and member[1].name.partition(".")[0] == _WRITE_BACK
    ]
    # The nodes that make each buffer's new value from the old one; the last is the new value.
    found: list[list[Node]] = []
    graph = run.partition.linked.graph
    names_of = {qualified: name for name, qualified in graph.parameters.items()}
    for value, qualified in run.partition.mutated.items() if copied else ():
        buffer, last = names_of.get(qualified), graph.by_name.get(value)
        nodes: list[Node] = []
        waiting, is_kept = [] if buffer is None or last is None else [last], False
        while waiting:  # back along what holds the buffer's values
            node = waiting.pop()
            if any(node is one for one in nodes) or stem(node.op) not in _KEEPING:
                continue
            nodes.insert(0, node)
            givers = list(run.givers(node))
            is_kept = is_kept or any(one.name == buffer for one in givers)
            waiting += [one for one in givers if one.kind == "call_function"]
        nodes = _holding(run, buffer, nodes)
        if is_kept and run.members(nodes):
            found.append(nodes)
    if not found:
        return
    nodes = [node for one in found for node in one]
    members = [*run.members(nodes), *copied]
    is_new = bool(facts.free(members))
    facts.claim(nodes)
    if not is_new:  # `whole-caches` reports these in more detail
        return
    size = format_bytes(sum(bytes_of(one[-1]) for one in found))
    lines = {short_lines((line,)) for _, leaf in members for line in leaf.attribution.lines[:1]}
    where = f", at {min(lines)}" if lines else ""
    evidence = [
        f"{operators(nodes)} {'copy' if len({stem(node.op) for node in nodes}) > 1 else 'copies'} "
        f"{count(len(found), 'whole buffer')}, and copy_ writes "
        f"{'them' if len(found) > 1 else 'it'} back{places(len(copied))}."
    ]
    yield facts.finding(
        "rewritten-buffers",
        f"Buffers of {size} are copied twice to change a part of them, which takes "
        f"{facts.time.taken(members)}{places(len(found))}{where}.",
        members,
        explained(Sureness.MEASURED, evidence, _writing_in_place(facts, run, nodes)),
    )


def _holding(run: RunGraph, buffer: str | None, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes with a buffer's values, without those that make the written part."""
    held, found = {buffer}, []
    for node in run.partition.linked.graph.nodes:
        if any(node is one for one in nodes) and held & {one.name for one in run.givers(node)}:
            held.add(node.name)
            found.append(node)
    return found


def is_written_in_place(run: RunGraph, node: Node) -> bool:
    """Return whether the kernel of index_put_ takes a node: one index of one dimension, and values
    of the shape of what they replace."""
    buffer, *indices, values = map(spec_of, run.givers(node))
    at = [one for one in dict(node.arguments).get("indices", "")[1:-1].split(", ") if one]
    given = [position for position, one in enumerate(at) if one != "None"]
    index = indices[0] if len(indices) == 1 else None
    if buffer is None or values is None or index is None:
        return False
    if len(given) != 1 or len(index.shape) != 1:
        return False
    axis = given[0]
    return values.shape == (*buffer.shape[:axis], index.shape[0], *buffer.shape[axis + 1 :])


def _writing_in_place(facts: Facts, run: RunGraph, nodes: Sequence[Node]) -> Iterator[Remedy]:
    names = {stem(node.op) for node in nodes}
    if _MOVING.issubset(names):
        yield Remedy(
            "Use a ring buffer: write each new row over the oldest, "
            "`buffer.index_copy_(1, position % length, new)`. Build the mask from the rows' "
            "positions, because the order has changed."
        )
    elif "where" in names:
        yield Remedy(
            "Write the changed part by its position, `buffer.index_copy_(1, position, "
            "new)`, instead of choosing between old and new for each element.",
            paste=then_exported(facts, edits.chosen(nodes, run), "reinplace"),
        )
    yield from in_place(facts, [node for node in nodes if stem(node.op) == "index_put"])


def in_place(facts: Facts, written: Sequence[Node]) -> Iterator[Remedy]:
    """Say how index_put nodes could write into their buffers themselves."""
    run = facts.run_graph
    if run is None or not all(is_written_in_place(run, node) for node in written):
        yield Remedy(
            "Write with `index_copy_`, in values of as many dimensions as the buffer; the pass "
            "reinplace then writes into the buffer itself.",
            paste=then_exported(facts, edits.in_place(written), "reinplace"),
        )
    elif written:
        yield Remedy(
            "Write into the buffers in place: `ExecutorchBackendConfig(run_reinplace_pass=True)` "
            "for `to_executorch`.",
            "pass",
            {"name": "reinplace"},
        )
    yield Remedy(
        "Or use an operator that updates the cache: torch.ops.llama.update_cache, as the export "
        "of ExecuTorch's llama does with use_sdpa_with_kv_cache."
    )


_WEIGHTS, _DEQUANTIZED, _VALUES = "weights", "dequantized", "values"
# Operators, by `stem`, that only put the elements of what they read in another order.
_LAYOUTS = SAME_VALUE | {"permute", "t", "transpose"}


@needs_graph
def runtime_constants(facts: Facts, run: RunGraph) -> Iterator[Finding]:
    """Values that are the same in each run, but are computed in each: masks, positions, and weights
    that are transposed or converted.
    """
    groups: dict[str, list[Node]] = {}
    for node in run.partition.linked.graph.operators.values():
        if id(node) in run.constant and facts.is_free(node) and run.members([node]):
            groups.setdefault(_constant_kind(run, node), []).append(node)
    for kind, nodes in groups.items():
        facts.claim(nodes)
        members = run.members(nodes)
        # What others read of the values that start with these nodes.
        found = connected(run, nodes, run.constant, only_readers=True)
        ends = [
            one
            for one in found
            if any(id(reader) not in run.constant for reader in run.readers(one))
        ]
        size = format_bytes(sum(map(bytes_of, ends)))
        evidence = [
            f"{operators(nodes)}: the inputs are only weights and constants, so the values are the "
            "same in each run.",
            f"The values that other operators read take {size}.",
        ]
        outside = [node for node in nodes if id(node) in run.kernels]
        evidence += fewer_calls(run, outside, "Without them")
        if kind == _WEIGHTS:
            inside = set(map(id, nodes))
            parameters = run.partition.linked.graph.parameters
            read = [one.name for node in nodes for one in run.givers(node) if id(one) not in inside]
            names = list(dict.fromkeys(parameters[name] for name in read if name in parameters))
            evidence.append(f"These kernels read {listed(names[:3], len(names) - 3)}.")
        one, several, what = _DOES[kind]
        many = len(members) > 1
        yield facts.finding(
            "runtime-constants",
            f"{count(len(members), 'kernel')} that {several if many else one} {what} in each run "
            f"{'take' if many else 'takes'} {facts.time.taken(members)}"
            f"{at_lines(nodes, run, facts.time)}.",
            members,
            explained(
                Sureness.MEASURED, evidence, _constant_remedies(run, kind, nodes, ends, size)
            ),
        )


_DOES = {
    _WEIGHTS: ("lays out or converts", "lay out or convert", "weights"),
    _DEQUANTIZED: ("dequantizes", "dequantize", "weights"),
    _VALUES: ("computes", "compute", "the same values"),
}


def _constant_kind(run: RunGraph, node: Node) -> str:
    """Return whether a node lays out a weight, dequantizes it, or computes a value."""
    if stem(node.op).startswith("dequantize_"):
        return _DEQUANTIZED
    while stem(node.op) in _LAYOUTS:
        giver = next(run.givers(node), None)
        if giver is None:
            return _VALUES
        if run.is_weight(giver):  # or a number or tensor that the code makes
            name = run.partition.linked.graph.parameters.get(giver.name) or ""
            return _VALUES if "lifted_tensor" in name else _WEIGHTS
        node = giver
    return _VALUES


def _constant_remedies(
    run: RunGraph, kind: str, nodes: Sequence[Node], ends: Sequence[Node], size: str
) -> Iterator[Remedy]:
    line = first_line(nodes)
    there = f" ({line})" if line else ""
    readers = {stem(reader.op) for node in nodes for reader in run.readers(node)}
    if kind == _DEQUANTIZED:
        if "embedding" in readers:
            yield Remedy(
                "Quantize the embedding to an operator that reads the quantized rows only: "
                "`etscope export -X quantize_embeddings=8`, with the quantized kernels in the "
                "runtime."
            )
        yield Remedy(
            f"Or keep these weights in float{there}, which takes {size} of memory.",
            "pass",
            {"name": "fold_constants"},
        )
        return
    yield Remedy(
        f"Compute these values once, when the program is made; it may grow by {size}.",
        "pass",
        {"name": "fold_constants"},
    )
    if kind == _WEIGHTS:
        yield Remedy(f"Or store the weights in the operator's layout, in `__init__`{there}.")
        if readers & {"addmm", "mm"} and not run.calls:
            yield Remedy(
                "Or lower linear layers to XNNPACK, which packs their weights when the program is "
                "loaded.",
                "backend",
                {"backend": "xnnpack"},
            )
    else:
        spec = next((spec for one in ends if (spec := spec_of(one)) is not None), None)
        example = "" if spec is None else f", such as {spec}"
        yield Remedy(
            "Or compute these values in `__init__` and keep them with "
            f"`register_buffer`{there}{example}."
        )
