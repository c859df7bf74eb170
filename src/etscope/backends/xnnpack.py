"""Export for XNNPACK, by `executorch.backends.xnnpack`."""

from __future__ import annotations

from typing import Any


def partitioners(*, per_op: bool = False) -> list[Any]:
    """Make the partitioner. per_op: make one delegate for each operator. The dump then has the
    time of each operator, but the program is slower."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return [XnnpackPartitioner(per_op_mode=per_op)]


def quantizer(*, dynamic: bool = False, per_channel: bool = True) -> Any:
    """Make a quantizer: symmetric int8 for weights and activations. Calibration fixes the ranges of
    activations; with `dynamic`, each run finds them."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xq

    config = xq.get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=dynamic)
    made = xq.XNNPACKQuantizer().set_global(config)
    # Skip the search for convolutions with batch norm in training: it takes most of the time.
    made.SUPPORTED_PATTERNS = [one for one in made.SUPPORTED_PATTERNS if not one.is_qat]
    return made
