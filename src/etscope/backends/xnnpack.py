"""XNNPACK, by `executorch.backends.xnnpack`."""

from __future__ import annotations

from typing import Any


def partitioners(*, per_op: bool = False) -> list[Any]:
    """Make the partitioner. per_op: each operator becomes a delegate of its own, which shows the
    time of each, and is slower."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return [XnnpackPartitioner(per_op_mode=per_op)]


def quantizer(*, dynamic: bool = False, per_channel: bool = True) -> Any:
    """Make a quantizer: symmetric int8 for weights, and for activations ranges that calibration
    fixes, or with `dynamic` ones that each run finds."""
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xq

    config = xq.get_symmetric_quantization_config(is_per_channel=per_channel, is_dynamic=dynamic)
    made = xq.XNNPACKQuantizer().set_global(config)
    # It looks for convolutions with a batch norm in training, too, which takes it most of its time.
    made.SUPPORTED_PATTERNS = [one for one in made.SUPPORTED_PATTERNS if not one.is_qat]
    return made
