"""Decode what Arm's VGF delegate logs.

It logs nested phases of the call and of its initialization on the runtime's clock
(backends/arm/runtime/VGFBackend.cpp, VGFSetup.cpp). "VGF_NEURAL_STATISTICS" is not a phase: it
marks the time when the delegate read the statistics in its metadata (VGFNeuralStatistics.h).
"""

from __future__ import annotations

from dataclasses import replace

from etscope.backends.common.logged import LoggedCall, nested
from etscope.errors import EtscopeError
from etscope.formats.etdump.vgf import parse_vgf_neural_statistics_metadata
from etscope.model.event_table import Meaning, Quantity

_PHASE = "VGF_"
_STATISTICS = "VGF_NEURAL_STATISTICS"


def recognises(call: LoggedCall) -> bool:
    """True for the names of VGF's phases."""
    return any(name.startswith(_PHASE) for name in call.names)


def decode(call: LoggedCall) -> list[Meaning]:
    """Return phases, nested by time, and the sizes of the statistics."""
    found: list[Meaning] = []
    for number, meaning in enumerate(nested(call)):
        one = replace(meaning, identifier=None) if meaning.name.startswith(_PHASE) else meaning
        if meaning.name == _STATISTICS:
            columns = _statistics(call.metadata_of(number))
            one = replace(one, quantity=Quantity.INSTANT, columns=columns)
        found.append(one)
    return found


def _statistics(metadata: bytes) -> dict[str, str | float]:
    """Return the bytes of each kind of statistics, over all segments of the graph, and why a kind
    is missing."""
    try:
        segments = parse_vgf_neural_statistics_metadata(metadata)["segments"]
    except EtscopeError as error:
        return {"statistics": f"unreadable: {error}"}
    sizes: dict[str, int] = {}
    missing: dict[str, None] = {}
    for segment in segments:
        for name, blob in segment.items():
            if isinstance(blob, dict) and "raw_data" in blob:
                column = f"{name}_bytes"
                sizes[column] = sizes.get(column, 0) + len(blob["raw_data"])
                if not blob.get("available", False):
                    missing[f"{name}: {blob.get('reason') or 'not available'}"] = None
    problems = {"statistics": "; ".join(missing)} if missing else {}
    return {"segments": len(segments), **sizes, **problems}
