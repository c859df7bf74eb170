"""Weights of a program that differ from its record's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etscope.analysis.matching.export import Export
from etscope.analysis.memory.stored import StoredTensor, parameter_name, stored_tensors
from etscope.formats.bytes.files import BytesLike
from etscope.formats.program.pte import read_pte


@dataclass(frozen=True, slots=True)
class OtherWeight:
    """A weight with other content than in the record's program. name: in the model, None if
    unknown."""

    tensor: StoredTensor
    name: str | None


def other_weights(export: Export) -> tuple[OtherWeight, ...]:
    """Compare the weights of a program with its record's program, byte by byte.

    Returns nothing if only the record has a program. Weights of .ptd files are not compared, nor
    programs of different exports, which have other lists of weights.
    """
    given, record = export.program, export.record
    view = None if record is None or given is None else record.program_view()
    if given is None or view is None:
        return ()
    if _equal(given.source.buffer, view):
        return ()
    recorded = read_pte(view)
    stored = stored_tensors(given, export.edge_nodes)
    expected = stored_tensors(recorded)
    if [(one.method, one.label) for one in stored] != [(one.method, one.label) for one in expected]:
        return ()
    return tuple(
        OtherWeight(one, parameter_name(one, export.edge_nodes(one.method).symbols.graph))
        for one, other in zip(stored, expected, strict=True)
        if not _equal(given.blob(one.span), recorded.blob(other.span))
    )


def _equal(one: BytesLike, other: BytesLike) -> bool:
    return np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))
