"""Members that etscope adds to an ETRecord: fingerprints of the program, and its taps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from etscope.formats.json_values import JsonValue

VERSION = 1  # of both members


@dataclass(frozen=True, slots=True)
class MethodFingerprint:
    """The instructions of a method as the runtime runs them, and a hash of its graph.

    An instruction is "aten::add.out", "delegate:XnnpackBackend", "move", "jump_false" or "free";
    its index is the instruction id of ETDump events. `graph_sha256` is of the JSON of the edge
    program as recorded, None if there is none of that name.
    """

    instructions: tuple[str, ...]
    graph_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Identity of the program that a record was made of. The hash is of the .pte file's bytes."""

    program_sha256: str
    program_bytes: int
    methods: Mapping[str, MethodFingerprint]


def fingerprints_to_json(fingerprints: Fingerprints) -> dict[str, Any]:
    """Return the content of the member."""
    return {
        "version": VERSION,
        "program_sha256": fingerprints.program_sha256,
        "program_bytes": fingerprints.program_bytes,
        "methods": {name: asdict(method) for name, method in fingerprints.methods.items()},
    }


def fingerprints_from_json(content: JsonValue) -> Fingerprints:
    """Read the member. Unknown keys, which a later version may add, are ignored."""
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
    """Return the content of the member."""
    return {
        "version": VERSION,
        "methods": {
            name: {"own_outputs": method.own_outputs, "taps": [asdict(tap) for tap in method.taps]}
            for name, method in methods.items()
        },
    }


def taps_from_json(content: JsonValue) -> dict[str, MethodTaps]:
    """Read the member. Unknown keys, which a later version may add, are ignored."""
    return {
        name: MethodTaps(
            one.get("own_outputs").whole(),
            tuple(tap.read_as(Tap) for tap in one.get("taps").array()),
        )
        for name, one in content.get("methods").members().items()
    }
