"""Core ML, Apple's runtime for CPUs, GPUs and the Neural Engine.

Export is by `executorch.backends.apple.coreml` and coremltools, also on Linux.

Core ML does not measure operations. The delegate divides the time of the whole prediction among
them by the weights of `MLComputePlan`, end to end in the order of the graph
(backends/apple/coreml/runtime/sdk/ETCoreMLModelProfiler.mm). An event's name is the debug symbol of
the delegate map, or "<output>:<operator>" without one (model_event_logger_impl.mm). Its metadata is
JSON (ETCoreMLOperationProfilingInfo.mm): preferredComputeUnit, supportedComputeUnits ("NE" for the
Neural Engine, "CPU", "GPU"), outputNames, operatorName, estimatedCost.

`ModelEventLoggerImpl::log_intermediate_tensors` logs the outputs of operators by their debug
symbol, "output:operator", packed, in the graph's order of dimensions. It widens float16 to float32,
and int32 is its only integer type. Core ML computes in float16 unless the program was lowered with
another precision.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from etscope.backends.common.logged import (
    Form,
    InnerCall,
    LoggedCall,
    Types,
    same_shape,
    type_form,
    without_ones,
)
from etscope.model.event_table import Clock, Meaning, Quantity

_FOR_INT8 = "iOS17"  # first target with int8 activations

Target = Literal["iOS15", "iOS16", "iOS17", "iOS18", "iOS26"]


def partitioners(
    *,
    quantize: bool = False,
    compute_unit: Literal["all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"] = "all",
    compute_precision: Literal["float16", "float32"] = "float16",
    minimum_deployment_target: Target | None = None,
) -> list[Any]:
    """Make the partitioner.

    compute_unit: where operators may run; "ne" is the Neural Engine.
    compute_precision: type that replaces float32.
    minimum_deployment_target: the oldest system to run on, and the macOS of the same year. None:
        the oldest one that has the operators.
    """
    import coremltools
    from executorch.backends.apple.coreml.compiler import CoreMLBackend
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner

    target = minimum_deployment_target or (_FOR_INT8 if quantize else None)
    specs = CoreMLBackend.generate_compile_specs(
        compute_unit=coremltools.ComputeUnit[compute_unit.upper()],
        compute_precision=coremltools.precision(compute_precision),
        minimum_deployment_target=None if target is None else coremltools.target[target],
    )
    return [CoreMLPartitioner(compile_specs=specs)]


def quantizer(*, weights_only: bool = False, per_channel: bool = True) -> Any:
    """Make a quantizer: int8 weights, and uint8 activations with ranges from calibration."""
    from coremltools.optimize.torch.quantization.quantization_config import LinearQuantizerConfig
    from executorch.backends.apple.coreml.quantizer import CoreMLQuantizer

    config = {
        "quantization_scheme": "symmetric",
        "weight_dtype": "qint8",
        "weight_per_channel": per_channel,
        "activation_dtype": "float32" if weights_only else "quint8",
    }
    return CoreMLQuantizer(LinearQuantizerConfig.from_dict({"global_config": config}))


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


def forms(call: InnerCall) -> list[Form | str]:
    """Return for each value of a call the steps that convert it to the reference's form, or the
    reason why it cannot be compared. Core ML may add or drop dimensions of 1."""
    found: list[Form | str] = []
    for value in call.values:
        types, expected = type_form(value), value.spec.shape
        if not isinstance(types, Types):
            found.append(types)
        elif same_shape(value.shape, expected):
            found.append(types.form())
        elif without_ones(value.shape) == without_ones(expected):
            shape = tuple(size for size in expected if isinstance(size, int))
            found.append(types.form(shape=shape))
        else:
            found.append(value.other_shape)
    return found
