"""Export for OpenVINO, by `executorch.backends.openvino` with Intel's openvino and nncf."""

from __future__ import annotations

from typing import Any, Literal

Mode = Literal["int8_sym", "int8_mixed", "int8_transformer"]


def partitioners(*, device: str = "CPU") -> list[Any]:
    """Make the partitioner. device: target of the runtime: "CPU", "GPU", "NPU" or "AUTO"."""
    from executorch.backends.openvino import OpenvinoPartitioner
    from executorch.exir.backend.backend_details import CompileSpec

    return [OpenvinoPartitioner([CompileSpec("device", device.encode())])]


def quantizer(*, mode: Mode = "int8_sym") -> Any:
    """Make NNCF's quantizer: int8 weights and activations.

    mode: symmetric activations, asymmetric ones ("mixed"), or a mix that suits transformers.
    """
    from executorch.backends.openvino import OpenVINOQuantizer
    from executorch.backends.openvino.quantizer.quantizer import QuantizationMode

    return OpenVINOQuantizer(mode=QuantizationMode(mode))
