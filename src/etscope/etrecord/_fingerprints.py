"""The fingerprints of a program that goes into a record."""

from __future__ import annotations

from collections.abc import Mapping

from etscope.analysis.program.compatibility import instruction_labels
from etscope.formats.etrecord.fingerprints import Fingerprints, MethodFingerprint
from etscope.formats.program.pte import program_fingerprint, read_pte


def program_fingerprints(buffer: bytes, graph_hashes: Mapping[str, str]) -> Fingerprints:
    """Of a .pte file, with the SHA-256 of each method's graph."""
    return Fingerprints(
        program_fingerprint(buffer),
        len(buffer),
        {
            method.name: MethodFingerprint(
                instruction_labels(method), graph_hashes.get(method.name)
            )
            for method in read_pte(buffer).methods
        },
    )
