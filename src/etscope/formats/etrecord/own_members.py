"""Members that etscope adds to an ETRecord: fingerprints of the program, its taps, and the work of
the partitioners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from etscope.formats.json_values import JsonValue

VERSION = 1  # of each member


@dataclass(frozen=True, slots=True)
class MethodFingerprint:
    """The instructions of a method as the runtime runs them, and a hash of its graph.

    An instruction is "aten::add.out", "delegate:XnnpackBackend", "move", "jump_false" or "free";
    its index is the instruction id of ETDump events. `graph_sha256` is the hash of the recorded
    JSON of the edge program; None if the record has no edge program with the method's name.
    """

    instructions: tuple[str, ...]
    graph_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """The identity of the program that a record belongs to. The hash is the hash of the .pte file's
    bytes.
    """

    program_sha256: str
    program_bytes: int
    methods: Mapping[str, MethodFingerprint]


def fingerprints_to_json(fingerprints: Fingerprints) -> dict[str, Any]:
    return {
        "version": VERSION,
        "program_sha256": fingerprints.program_sha256,
        "program_bytes": fingerprints.program_bytes,
        "methods": {name: asdict(method) for name, method in fingerprints.methods.items()},
    }


def fingerprints_from_json(content: JsonValue) -> Fingerprints:
    """Read the fingerprints of a record from JSON. Unknown keys, which a later version may add, are
    ignored."""
    methods = content.get("methods").members()
    return Fingerprints(
        content.get("program_sha256").text(),
        content.get("program_bytes").whole(),
        {name: one.read_as(MethodFingerprint) for name, one in methods.items()},
    )


@dataclass(frozen=True, slots=True)
class Tap:
    """An intermediate value that an export made an output.

    node, op: the node of the exported program that computes it, and its operator
        ("aten.conv2d.default"). element: index of the value, for a node that has several.
    value: the value of the exported program that is the output. It differs from the node's own if
        that cannot be an output: for a quantized operator, it is the dequantized result.
    output: its position among the user's outputs of the method, from 0. The model's own output
        serves if it is the same value.
    module: path of the module; None if unknown. source: "file:line" in Python; None if unknown.
    handle: debug handle of the node of the edge program that gives the output; None without one.
    """

    node: str
    op: str
    value: str
    output: int
    element: int | None = None
    module: str | None = None
    source: str | None = None
    handle: int | None = None

    @property
    def name(self) -> str:
        """The node, with the index of its value if it has several: "conv2d", "topk[1]"."""
        return self.node if self.element is None else f"{self.node}[{self.element}]"


@dataclass(frozen=True, slots=True)
class MethodTaps:
    """The taps of a method, in order of execution. `own_outputs` is the number of the model's own
    outputs, which come first."""

    own_outputs: int
    taps: tuple[Tap, ...]


def taps_to_json(methods: Mapping[str, MethodTaps]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "methods": {
            name: {"own_outputs": method.own_outputs, "taps": [asdict(tap) for tap in method.taps]}
            for name, method in methods.items()
        },
    }


def taps_from_json(content: JsonValue) -> dict[str, MethodTaps]:
    """Read the taps of a record from JSON. Unknown keys, which a later version may add, are
    ignored."""
    return {
        name: MethodTaps(
            one.get("own_outputs").whole(),
            tuple(tap.read_as(Tap) for tap in one.get("taps").array()),
        )
        for name, one in content.get("methods").members().items()
    }


# -- Which backend took which nodes, and why not others. ExecuTorch keeps neither: a partitioner at
# most logs its reasons, and a record has only the debug handles of delegated nodes, which several
# nodes may share.

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
    """A node that a partitioner did not take. answer: one of `ANSWERS`. reason: the partitioner's
    own words, or the part of it that refused; None without.
    """

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
    return {
        "version": VERSION,
        "methods": {name: asdict(method) for name, method in methods.items()},
    }


def partition_from_json(content: JsonValue) -> dict[str, MethodPartition]:
    """Read the partitions of a record from JSON. Unknown keys, which a later version may add, are
    ignored."""
    return {
        name: MethodPartition(
            tuple(
                Partitioning(
                    given.get("partitioner").text(),
                    given.optional("backend", JsonValue.text),
                    tuple(map(_refusal, given.get("refusals").array())),
                )
                for given in one.get("partitionings").array()
            ),
            tuple(
                LoweredCall(
                    given.get("module").text(),
                    given.get("backend").text(),
                    tuple(node.read_as(LoweredNode) for node in given.get("nodes").array()),
                    given.texts("state"),
                )
                for given in one.get("calls").array()
            ),
        )
        for name, one in content.get("methods").members().items()
    }


def _refusal(given: JsonValue) -> Refusal:
    return Refusal(
        given.get("node").read_as(LoweredNode),
        given.get("answer").text(ANSWERS),
        given.optional("reason", JsonValue.text),
    )
