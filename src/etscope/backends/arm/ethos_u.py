"""Decode what Arm's Ethos-U delegate logs.

Phases of the call on the runtime's clock, logged without an identifier: "EthosUBackend::execute()"
holds "+EthosUBackend::execute()handles.input.memcpy()", one for each input, and
"+EthosUBackend::execute()NPU", the time that the host waits for the NPU
(backends/arm/runtime/EthosUBackend.cpp). Nothing tells what the NPU did in it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from etscope.backends.common.logged import LoggedCall, nested
from etscope.model.event_table import Meaning

_PHASE = re.compile(r"\+?EthosUBackend::(?P<function>\w+\(\))(?P<step>.*)", re.DOTALL)


def recognises(call: LoggedCall) -> bool:
    """True for the names of the delegate's phases."""
    return any(_PHASE.fullmatch(name) for name in call.names)


def decode(call: LoggedCall) -> list[Meaning]:
    """Phases, nested as they lie in time."""
    found: list[Meaning] = []
    for meaning in nested(call):
        name, parts = meaning.name, _PHASE.fullmatch(meaning.name)
        if parts is not None:  # "NPU" of "+EthosUBackend::execute()NPU"
            name = parts["step"] or f"EthosUBackend::{parts['function']}"
        found.append(replace(meaning, name=name, identifier=None))
    return found
