"""What identifies the program of a record: a member of etscope's own in the ETRecord."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etscope.formats.exported_program.exported_json import integer, mapping, sequence, text

VERSION = 1


@dataclass(frozen=True, slots=True)
class MethodFingerprint:
    """The instructions of a method as the runtime runs them, and a hash of its graph.

    An instruction is "aten::add.out", "delegate:XnnpackBackend", "move", "jump_false" or "free";
    its place is the instruction id of ETDump events. `graph_sha256` is of the JSON of the edge
    program as recorded, None if there is none of that name.
    """

    instructions: tuple[str, ...]
    graph_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Which program a record was made of. The hash is of the .pte file's bytes."""

    program_sha256: str
    program_bytes: int
    methods: Mapping[str, MethodFingerprint]


def fingerprints_to_json(fingerprints: Fingerprints) -> dict[str, Any]:
    """The content of the member."""
    return {
        "version": VERSION,
        "program_sha256": fingerprints.program_sha256,
        "program_bytes": fingerprints.program_bytes,
        "methods": {
            name: {
                "instructions": list(method.instructions),
                "graph_sha256": method.graph_sha256,
            }
            for name, method in fingerprints.methods.items()
        },
    }


def fingerprints_from_json(content: Mapping[str, Any]) -> Fingerprints:
    """Read the member. Keys that a later version may add are left out."""
    return Fingerprints(
        text(content["program_sha256"], "a hash"),
        integer(content["program_bytes"], "a size"),
        {
            name: _method(mapping(value, "a method's fingerprint"))
            for name, value in mapping(content["methods"], "the methods").items()
        },
    )


def _method(value: Mapping[str, Any]) -> MethodFingerprint:
    digest = value.get("graph_sha256")
    return MethodFingerprint(
        tuple(
            text(instruction, "an instruction")
            for instruction in sequence(value["instructions"], "the instructions")
        ),
        None if digest is None else text(digest, "a hash"),
    )
