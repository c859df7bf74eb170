"""Export for Core ML, by `executorch.backends.apple.coreml` and coremltools, also on Linux."""

from __future__ import annotations

from typing import Any, Literal

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
