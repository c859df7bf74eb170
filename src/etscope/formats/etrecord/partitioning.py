"""A member that etscope adds to an ETRecord: which backend took which nodes, and why not others.

ExecuTorch does not keep either. A partitioner at most logs its reasons, and a record has only the
debug handles of delegated nodes, which several nodes may share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from etscope.formats.json_values import JsonValue

VERSION = 1

# What a partitioner answered about a node that it did not take (`Refusal.answer`).
TOLD = "told"  # it gave a reason
UNKNOWN = "unknown"  # the operator is not among those that it supports
REFUSED = "refused"  # it supports the operator, or was asked about it, and gave no reason
UNPLACED = "unplaced"  # it supports the node, and put it in no partition
NOT_ASKED = "not asked"  # the node is in a branch or loop that it does not look into
SILENT = "silent"  # its answer is unknown
ANSWERS = (TOLD, UNKNOWN, REFUSED, UNPLACED, NOT_ASKED, SILENT)


@dataclass(frozen=True, slots=True)
class LoweredNode:
    """A node of the edge program, as the partitioner saw it.

    path: its name; in a branch or loop with the sub-graph's in front: "true_graph_0/aten_add". It
        distinguishes equal operators with the same handle. op: "aten.add.Tensor".
    """

    path: str
    op: str
    handle: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that a partitioner did not take. answer: one of `ANSWERS`. reason: in its own words,
    or the part of it that refused; None without."""

    node: LoweredNode
    answer: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The work of one partitioner on one method, after those before it.

    partitioner: its class ("XnnpackPartitioner"). backend: the id of its backend; None if unknown.
    """

    partitioner: str
    backend: str | None
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class LoweredCall:
    """A delegate call of the lowered program.

    module: "lowered_module_0", in a branch or loop with the sub-graph's name in front. nodes: the
    operators inside. state: qualified names of the buffers that the delegate owns and changes.
    """

    module: str
    backend: str
    nodes: tuple[LoweredNode, ...]
    state: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MethodPartition:
    """The partitioners of a method in the order of their work, and the delegate calls in the order
    of the program's instructions; none for a program without delegates."""

    partitionings: tuple[Partitioning, ...] = ()
    calls: tuple[LoweredCall, ...] = ()


def partition_to_json(methods: Mapping[str, MethodPartition]) -> dict[str, Any]:
    """Return the content of the member."""
    return {
        "version": VERSION,
        "methods": {name: asdict(method) for name, method in methods.items()},
    }


def partition_from_json(content: JsonValue) -> dict[str, MethodPartition]:
    """Read the member. Unknown keys, which a later version may add, are ignored."""
    return {
        name: MethodPartition(
            tuple(map(_partitioning, one.get("partitionings").array())),
            tuple(map(_call, one.get("calls").array())),
        )
        for name, one in content.get("methods").members().items()
    }


def _partitioning(given: JsonValue) -> Partitioning:
    return Partitioning(
        given.get("partitioner").text(),
        given.optional("backend", JsonValue.text),
        tuple(map(_refusal, given.get("refusals").array())),
    )


def _call(given: JsonValue) -> LoweredCall:
    return LoweredCall(
        given.get("module").text(),
        given.get("backend").text(),
        tuple(one.read_as(LoweredNode) for one in given.get("nodes").array()),
        given.texts("state"),
    )


def _refusal(given: JsonValue) -> Refusal:
    node = given.get("node").read_as(LoweredNode)
    return Refusal(
        node, given.get("answer").text(ANSWERS), given.optional("reason", JsonValue.text)
    )
