"""Decode what Arm's Ethos-U delegate logs.

It logs phases of the call on the runtime's clock, without an identifier. "EthosUBackend::execute()"
holds "+EthosUBackend::execute()handles.input.memcpy()" for each input, and
"+EthosUBackend::execute()NPU", in which the host waits for the NPU
(backends/arm/runtime/EthosUBackend.cpp). The log does not show what the NPU does meanwhile.
"""

from __future__ import annotations

import re
from dataclasses import replace

from etscope.backends.common.logged import LoggedCall, nested
from etscope.model.event_table import Meaning

_PHASE = re.compile(r"\+?EthosUBackend::(?P<function>\w+\(\))(?P<step>.*)", re.DOTALL)


def recognises(call: LoggedCall) -> bool:
    """True for names of the delegate's phases."""
    return any(_PHASE.fullmatch(name) for name in call.names)


def decode(call: LoggedCall) -> list[Meaning]:
    """Return phases, nested by time."""
    found: list[Meaning] = []
    for meaning in nested(call):
        name, parts = meaning.name, _PHASE.fullmatch(meaning.name)
        if parts is not None:  # "+EthosUBackend::execute()NPU" becomes "NPU"
            name = parts["step"] or f"EthosUBackend::{parts['function']}"
        found.append(replace(meaning, name=name, identifier=None))
    return found
