"""Export for Arm's backends, which all lower to TOSA: Ethos-U, VGF, and TOSA itself.

They need `executorch.backends.arm` and Arm's packages tosa-tools, ethos-u-vela and
ai-ml-sdk-model-converter.
"""

from __future__ import annotations

from typing import Any

TARGET = "ethos-u55-128"
TOSA = "TOSA-1.0+FP+INT+int16+int4"  # the default of upstream's VGF: takes float and int8


def ethos_u_partitioners(
    *,
    target: str = TARGET,
    system_config: str | None = None,
    memory_mode: str | None = None,
    config_ini: str | None = None,
    extra_flags: tuple[str, ...] = (),
) -> list[Any]:
    """Make the partitioner of Ethos-U.

    target: the NPU and its number of MACs: "ethos-u55-128", "ethos-u65-256", "ethos-u85-256", …
    system_config, memory_mode, config_ini, extra_flags: Vela's options.
    """
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner

    spec = EthosUCompileSpec(target, system_config, memory_mode, list(extra_flags), config_ini)
    return [EthosUPartitioner(spec)]


def ethos_u_quantizer(*, target: str = TARGET, per_channel: bool = True) -> Any:
    """Make the quantizer of Ethos-U: int8 weights and activations."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec
    from executorch.backends.arm.quantizer import EthosUQuantizer

    return _configured(EthosUQuantizer(EthosUCompileSpec(target)), per_channel)


def tosa_partitioners(*, tosa_spec: str = TOSA) -> list[Any]:
    """Make the partitioner of TOSA. tosa_spec: version, profiles and extensions."""
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
    from executorch.backends.arm.tosa.partitioner import TOSAPartitioner

    return [TOSAPartitioner(TosaCompileSpec(tosa_spec))]


def tosa_quantizer(*, tosa_spec: str = TOSA, per_channel: bool = True) -> Any:
    """Make the quantizer of TOSA: int8 weights and activations."""
    from executorch.backends.arm.quantizer import TOSAQuantizer
    from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec

    return _configured(TOSAQuantizer(TosaCompileSpec(tosa_spec)), per_channel)


def vgf_partitioners(*, tosa_spec: str = TOSA) -> list[Any]:
    """Make the partitioner of VGF."""
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner

    return [VgfPartitioner(VgfCompileSpec(tosa_spec))]


def vgf_quantizer(*, tosa_spec: str = TOSA, per_channel: bool = True) -> Any:
    """Make the quantizer of VGF: int8 weights and activations."""
    from executorch.backends.arm.quantizer import VgfQuantizer
    from executorch.backends.arm.vgf import VgfCompileSpec

    return _configured(VgfQuantizer(VgfCompileSpec(tosa_spec)), per_channel)


def _configured(quantizer: Any, per_channel: bool) -> Any:
    from executorch.backends.arm.quantizer import get_symmetric_quantization_config

    config = get_symmetric_quantization_config(is_per_channel=per_channel)
    return quantizer.set_global(config)
