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
from importlib.metadata import entry_points
from typing import NamedTuple

from etscope.delegates import qnn, vulkan
from etscope.delegates.intervals import in_a_row, nested
from etscope.delegates.logged import LoggedCall
from etscope.errors import UsageError
from etscope.model.event_table import Meaning

Decoder = Callable[[LoggedCall], Sequence[Meaning]]


class Backend(NamedTuple):
    """decode: tells what the events of a call are. recognises: tells by the names of events that
    they are of this backend, for dumps without a record."""

    decode: Decoder
    recognises: Callable[[Sequence[str]], bool] = lambda names: False


DELEGATES: Mapping[str, Backend] = {
    "XnnpackBackend": Backend(in_a_row),
    "QnnBackend": Backend(qnn.decode, qnn.recognises),
    "VulkanBackend": Backend(vulkan.decode, vulkan.recognises),
}
_OTHERS = Backend(nested)


def decoded(backend: str | None, call: LoggedCall) -> Sequence[Meaning]:
    """Return the meaning of each event of a call. backend: its id; None if it is not known.

    Raises `UsageError` for a decoder of another package that leaves events out.
    """
    if backend is None:
        names = call.names
        found = next((one for one in DELEGATES.values() if one.recognises(names)), _OTHERS)
    else:
        found = DELEGATES.get(backend) or _from_packages().get(backend, _OTHERS)
    told = found.decode(call)
    if len(told) != len(call.names):
        raise UsageError(
            f"the decoder of {backend} returns {len(told)} meanings of {len(call.names)} events",
            hint="it is of the package that has the entry point etscope.delegates",
        )
    return told


@cache
def _from_packages() -> Mapping[str, Backend]:
    return {entry.name: entry.load() for entry in entry_points(group="etscope.delegates")}


__all__ = ["DELEGATES", "Backend", "Decoder", "LoggedCall", "Meaning", "decoded"]
