"""Decode what NXP's Neutron delegate logs.

After a run the delegate logs the NPU's kernels, numbered from 0 in the order in which they ran
(backends/nxp/runtime/NeutronBackend.cpp). Each event has ticks of the NPU's 32-bit counter, and
one byte of metadata: the code of the kernel's function. The last event has code 0: the NPU writes
these numbers. The delegate adds the host call's ticks to its end, so its length is not a time of
either clock. The record's delegate map has the kernels by number.
"""

from __future__ import annotations

from etscope.backends.common.logged import LoggedCall
from etscope.model.event_table import Clock, Meaning, Quantity

_DUMP = 0  # the function code


def recognises(call: LoggedCall) -> bool:
    """True for numbered events that each have a byte of metadata, the last of them 0."""
    is_numbered = all(isinstance(identifier, int) for identifier in call.identifiers)
    has_codes = bool(call.metadata) and all(len(one) == 1 for one in call.metadata)
    return is_numbered and has_codes and call.metadata[-1][0] == _DUMP


def decode(call: LoggedCall) -> list[Meaning]:
    """Return NPU ticks, one kernel after the other."""
    found: list[Meaning] = []
    for number, identifier in enumerate(call.identifiers):
        metadata = call.metadata_of(number)
        code = metadata[0] if len(metadata) == 1 else None
        is_dump = code == _DUMP and number == len(call.names) - 1
        kernel = (
            f"kernel {identifier}" if code is None else f"kernel {identifier} (function {code})"
        )
        found.append(
            Meaning(
                "profiling dump" if is_dump else kernel,
                identifier,
                Quantity.INSTANT if is_dump else Quantity.COUNTER,
                Clock.DEVICE,
                unit="ticks",
                is_placed=False,
                columns={} if code is None else {"function_code": code},
            )
        )
    return found
