"""Decoders of the events that delegates log: one for each backend.

A delegate logs names, identifiers and numbers; what they mean is a matter of its backend. QNN logs
bytes and cycles as if they were times, Vulkan the times of a GPU beside its own. A decoder tells
the `Meaning` of each event of a call, and all tables and pictures obey it.

Packages add decoders for other backends by an entry point of the group `etscope.delegates`, whose
name is the backend's id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from etscope.delegates import coreml, ethos_u, neutron, qnn, vgf, vulkan
from etscope.delegates.intervals import in_a_row, nested
from etscope.delegates.logged import LoggedCall
from etscope.errors import UsageError
from etscope.model.event_table import Clock, Meaning, Quantity

Decoder = Callable[[LoggedCall], Sequence[Meaning]]

_TRACER = "A runtime built with -DEXECUTORCH_ENABLE_EVENT_TRACER=ON logs what is inside."
_NEVER = "It never does: what runs inside is told by the backend's own tools."


class Backend(NamedTuple):
    """decode: tells what the events of a call are. recognises: tells by the events that they are
    of this backend, for dumps without a record. silence: a sentence on how to get events
    where its calls have none."""

    decode: Decoder
    recognises: Callable[[LoggedCall], bool] = lambda call: False
    silence: str = _NEVER


DELEGATES: Mapping[str, Backend] = {
    "XnnpackBackend": Backend(
        in_a_row,
        silence=_TRACER,
    ),
    "QnnBackend": Backend(
        qnn.decode,
        qnn.recognises,
        "It does when it is compiled with profile_level=2 (kProfileDetailed), or run with "
        "--profile_level 2.",
    ),
    "VulkanBackend": Backend(
        vulkan.decode,
        vulkan.recognises,
        _TRACER,
    ),
    "CoreMLBackend": Backend(
        coreml.decode,
        coreml.recognises,
        silence="A delegate built with -DEXECUTORCH_BUILD_DEVTOOLS=ON does, from macOS 14.4 and "
        "iOS 17.4 on.",
    ),
    "VgfBackend": Backend(vgf.decode, vgf.recognises, _TRACER),
    "NeutronBackend": Backend(
        neutron.decode,
        neutron.recognises,
        silence="It does for a model compiled with use_profiling=True.",
    ),
    "EthosUBackend": Backend(
        ethos_u.decode,
        ethos_u.recognises,
        _TRACER,
    ),
    # These have no events of their own in a dump.
    "OpenvinoBackend": Backend(nested),
    "MPSBackend": Backend(nested),
    "NeuropilotBackend": Backend(nested),
    "CudaBackend": Backend(nested),
    "MetalBackend": Backend(nested),
    "MLXBackend": Backend(nested),
    "EnnBackend": Backend(nested),
}
_OTHERS = Backend(nested, silence="Nothing is known of this backend: a package may tell it.")


def backend_of(name: str) -> Backend:
    """Return what is known of the backend of that id: its own, a package's, or how all others are
    taken."""
    return DELEGATES.get(name) or _from_packages().get(name, _OTHERS)


def decoded(backend: str | None, call: LoggedCall) -> Sequence[Meaning]:
    """Return the meaning of each event of a call. backend: its id; None if it is not known.

    Raises `UsageError` for a decoder of another package that leaves events out.
    """
    if backend is None:
        found = next((one for one in DELEGATES.values() if one.recognises(call)), _OTHERS)
    else:
        found = backend_of(backend)
    told = found.decode(call)
    if len(told) != len(call.names):
        raise UsageError(
            f"the decoder of {backend} returns {len(told)} meanings of {len(call.names)} events",
            hint="it is of the package that has the entry point etscope.delegates",
        )
    return told


@cache
def _from_packages() -> Mapping[str, Backend]:
    from importlib.metadata import entry_points

    return {entry.name: entry.load() for entry in entry_points(group="etscope.delegates")}


__all__ = [
    "DELEGATES",
    "Backend",
    "Clock",
    "Decoder",
    "LoggedCall",
    "Meaning",
    "Quantity",
    "backend_of",
    "decoded",
]
