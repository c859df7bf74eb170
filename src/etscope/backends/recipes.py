"""Export for XNNPACK, OpenVINO and ExecuTorch's native backend; their tools write no files.

OpenVINO needs Intel's openvino and nncf.
"""

from __future__ import annotations

from typing import Any, Literal


def xnnpack_partitioners(*, per_op: bool = False) -> list[Any]:
    """Make the partitioner. per_op: make one delegate for each operator. The dump then has the
    time of each operator, but the program is slower."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return [XnnpackPartitioner(per_op_mode=per_op)]


def xnnpack_quantizer(*, dynamic: bool = False, per_channel: bool = True) -> Any:
    """Make a quantizer: symmetric int8 for weights and activations. Calibration fixes the ranges of
    activations; with `dynamic`, each run finds them."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xq

    config = xq.get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=dynamic)
    made = xq.XNNPACKQuantizer().set_global(config)
    # Skip the search for convolutions with batch norm in training: it takes most of the time.
    made.SUPPORTED_PATTERNS = [one for one in made.SUPPORTED_PATTERNS if not one.is_qat]
    return made


def openvino_partitioners(*, device: str = "CPU") -> list[Any]:
    """Make the partitioner. device: target of the runtime: "CPU", "GPU", "NPU" or "AUTO"."""
    from executorch.backends.openvino import OpenvinoPartitioner
    from executorch.exir.backend.backend_details import CompileSpec

    return [OpenvinoPartitioner([CompileSpec("device", device.encode())])]


def openvino_quantizer(
    *, mode: Literal["int8_sym", "int8_mixed", "int8_transformer"] = "int8_sym"
) -> Any:
    """Make NNCF's quantizer: int8 weights and activations.

    mode: symmetric activations, asymmetric ones ("mixed"), or a mix that suits transformers.
    """
    from executorch.backends.openvino import OpenVINOQuantizer
    from executorch.backends.openvino.quantizer.quantizer import QuantizationMode

    return OpenVINOQuantizer(mode=QuantizationMode(mode))


def native_partitioners() -> list[Any]:
    """Make the partitioner; weights stay in the program.

    The passes that the backend suggests are not used. They make operators in-place, and
    `to_executorch` of 1.5 drops an in-place operator that no delegate takes (`relu_`): the program
    then computes wrong values.
    """
    from executorch.backends.native.partitioner import NativePartitioner

    return [NativePartitioner(external_constants_tag=None)]
