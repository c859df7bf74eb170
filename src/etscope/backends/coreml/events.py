"""Decode what the Core ML delegate logs.

Core ML does not measure operations. The delegate divides the time of the whole prediction among
them by the weights of `MLComputePlan`, end to end in the order of the graph
(backends/apple/coreml/runtime/sdk/ETCoreMLModelProfiler.mm). An event's name is the debug symbol of
the delegate map, or "<output>:<operator>" without one (model_event_logger_impl.mm). Its metadata is
JSON (ETCoreMLOperationProfilingInfo.mm): preferredComputeUnit, supportedComputeUnits ("NE" for the
Neural Engine, "CPU", "GPU"), outputNames, operatorName, estimatedCost.
"""

from __future__ import annotations

import json
from typing import Any

from etscope.backends.common.logged import LoggedCall
from etscope.model.event_table import Clock, Meaning, Quantity

_UNITS = {"NE": "ANE"}  # Apple's own name for its Neural Engine


def recognises(call: LoggedCall) -> bool:
    """True for metadata with a compute unit."""
    return any("compute_unit" in _about(one) for one in call.metadata)


def decode(call: LoggedCall) -> list[Meaning]:
    """Return estimates, each with the compute unit of the operation."""
    inside = call.is_inside
    found: list[Meaning] = []
    for number, (name, identifier) in enumerate(zip(call.names, call.identifiers, strict=True)):
        about = _about(call.metadata_of(number))
        output, _, _ = name.rpartition(":")
        operator = about.get("operator")
        symbol = output if operator is not None and name == f"{output}:{operator}" else name
        found.append(
            Meaning(
                symbol,
                identifier if symbol == name else symbol,
                Quantity.ESTIMATE,
                Clock.RUNTIME if inside[number] else Clock.DEVICE,
                columns=about,
            )
        )
    return found


def _about(metadata: bytes) -> dict[str, str | float]:
    """Return the columns in the metadata; {} if the delegate did not write it."""
    try:
        content: Any = json.loads(metadata)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    preferred, supported = content.get("preferredComputeUnit"), content.get("supportedComputeUnits")
    operator, cost = content.get("operatorName"), content.get("estimatedCost")
    found: dict[str, str | float] = {}
    if isinstance(preferred, str):
        found["compute_unit"] = _UNITS.get(preferred, preferred)
    if isinstance(supported, list):
        units = [_UNITS.get(unit, unit) for unit in supported if isinstance(unit, str)]
        found["supported_compute_units"] = ", ".join(units)
    if isinstance(operator, str):
        found["operator"] = operator
    if isinstance(cost, (int, float)) and not isinstance(cost, bool):
        found["estimated_cost"] = float(cost)
    return found
