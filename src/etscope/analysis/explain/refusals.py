"""The answers of partitioners about nodes that they did not take, as sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from etscope.analysis.delegates.xnnpack import takes
from etscope.analysis.explain.run_graph import RunGraph, listed, operators
from etscope.analysis.graphs.partition import NodeRefusal
from etscope.formats.etrecord.partitioning import NOT_ASKED, TOLD, UNKNOWN, UNPLACED
from etscope.model.graph import Node, stem


def refusals_of(run: RunGraph, node: Node) -> tuple[NodeRefusal, ...]:
    """The answers about a node; none where the record does not tell."""
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
            full = list(dict.fromkeys(_unknown_name(node) for node in alike))
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
        yield "The record has no reasons: `etscope export` keeps those of the partitioner."


def _unknown_name(node: Node) -> str:
    """The operator; with its overload, where the backend takes another one."""
    return ".".join(node.op.split(".")[1:]) if takes(node.op) else stem(node.op)


# A part of the reason of a partitioner, and what it means.
_MEANINGS = (
    ("mean.dim only supports", "XNNPACK averages the last two of four dimensions, and keeps them."),
    ("concatenation of > 2", "XNNPACK concatenates two to five tensors."),
    ("dim must be the last dim", "XNNPACK's softmax is over the last dimension."),
    ("static param", "XNNPACK packs weights when the program is loaded, and not in each run."),
    ("BatchNorm cannot be", "XNNPACK takes it as a part of the layer before it."),
    ("ymbolic", "XNNPACK takes this with fixed sizes only."),
    ("dynamic", "XNNPACK takes this with fixed sizes only."),
    ("inferred dimension is", "XNNPACK takes one size that varies."),
)  # fmt: skip
