"""Decode what NXP's Neutron delegate logs.

After a run the delegate logs the NPU's kernels, numbered from 0 in the order that they ran
(backends/nxp/runtime/NeutronBackend.cpp). Each event has ticks of the NPU's 32-bit counter, and
one byte of metadata: the code of the kernel's function. In the last event, the NPU writes these
numbers. The delegate adds the host call's ticks to its end, so its length is not a time of either
clock. Its metadata is the code 0, or since pytorch/executorch#21614 the driver's version in two
bytes, little-endian: major << 8 | minor << 4 | patch (backends/nxp/tests/profiling_utils.py). The
record's delegate map has the kernels by number.
"""

from __future__ import annotations

from etscope.backends.common.logged import LoggedCall
from etscope.model.event_table import Clock, Meaning, Quantity

_DUMP = 0  # the function code


def recognises(call: LoggedCall) -> bool:
    """True for numbered events that each have a byte of metadata, the last of them 0 or a driver's
    version."""
    is_numbered = all(isinstance(identifier, int) for identifier in call.identifiers)
    if not is_numbered or not call.metadata or any(len(one) != 1 for one in call.metadata[:-1]):
        return False
    return _is_dump(call.metadata[-1])


def decode(call: LoggedCall) -> list[Meaning]:
    """Return NPU ticks, one kernel after the other."""
    found: list[Meaning] = []
    for number, identifier in enumerate(call.identifiers):
        metadata = call.metadata_of(number)
        is_dump = number == len(call.names) - 1 and _is_dump(metadata)
        columns: dict[str, str | float] = {}
        if is_dump and len(metadata) == 2:
            low, major = metadata
            columns = {"driver_version": f"{major & 15}.{low >> 4}.{low & 15}"}
        elif len(metadata) == 1:
            columns = {"function_code": metadata[0]}
        elif metadata:  # of a later version: kept unchanged
            columns = {"metadata": metadata.hex(" ")}
        function = f" (function {metadata[0]})" if len(metadata) == 1 else ""
        found.append(
            Meaning(
                "profiling dump" if is_dump else f"kernel {identifier}{function}",
                identifier,
                Quantity.INSTANT if is_dump else Quantity.COUNTER,
                Clock.DEVICE,
                unit="ticks",
                is_placed=False,
                columns=columns,
            )
        )
    return found


def _is_dump(metadata: bytes) -> bool:
    return metadata == bytes([_DUMP]) or len(metadata) == 2
