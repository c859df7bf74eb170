"""Decode what the QNN delegate logs.

`QnnProfile::ProfileData` (backends/qualcomm/runtime/backends/QnnProfiler.cpp) logs each event with
start 0 and the number as end. The name ends with the unit: the delegate appends " (us)",
" (bytes)" or " (count)", and QNN itself writes "(cycles)". The events of nodes follow the
accelerator's event in cycles. Some have no unit: "conv_1:OpId_24 (cycles)", "conv_1".

QNN logs the accelerator's time in cycles and in microseconds, which gives the length of a cycle.
"""

from __future__ import annotations

import re

from etscope.backends.common.logged import LoggedCall
from etscope.model.event_table import Clock, Meaning, Quantity

_UNIT = re.compile(r"(?P<name>.*?) \((?P<unit>us|bytes|count|cycles)\)$", re.DOTALL)
_NODE = re.compile(r"(?P<node>.+):OpId_(?P<number>\d+)$", re.DOTALL)
_ACCELERATOR = re.compile(r"Accelerator \(execute\b.*cycles", re.DOTALL)
# The same time of a call in two units.
_IN_CYCLES = "Accelerator (execute) time (cycles)"
_IN_US = "Accelerator (execute) time (us)"


def recognises(call: LoggedCall) -> bool:
    """True for names that end with a unit."""
    return any(_UNIT.fullmatch(name) for name in call.names)


def decode(call: LoggedCall) -> list[Meaning]:
    """Return numbers with units, without a place in time; node cycles are parts of the
    accelerator's."""
    found: list[Meaning] = []
    cycle_us: float | None = None  # over all runs; needs the accelerator's time once in each unit
    names = list(call.names)
    if names.count(_IN_CYCLES) == names.count(_IN_US) == 1:
        cycles, us = (int(call.ticks[names.index(name)].sum()) for name in (_IN_CYCLES, _IN_US))
        cycle_us = us / cycles if cycles > 0 and us > 0 else None
    accelerator: int | None = None
    for number, (name, identifier) in enumerate(zip(call.names, call.identifiers, strict=True)):
        parts = _UNIT.fullmatch(name)
        plain, unit = (name, None) if parts is None else (parts["name"], parts["unit"])
        node = _NODE.fullmatch(plain)
        is_summary = parts is not None and node is None
        if is_summary:
            accelerator = number if _ACCELERATOR.match(name) else None
        elif unit is None:
            unit = "count" if accelerator is None else "cycles"
        known = identifier if node is None else node["node"]
        found.append(
            Meaning(
                plain if node is None else node["node"],
                None if is_summary else known,
                quantity=Quantity.INTERVAL if unit == "us" else Quantity.COUNTER,
                clock=Clock.DEVICE,
                unit=unit,
                is_placed=False,
                parent=None if is_summary else accelerator,
                columns={} if node is None else {"op_id": int(node["number"])},
                unit_us=cycle_us if unit == "cycles" else None,
            )
        )
    return found
