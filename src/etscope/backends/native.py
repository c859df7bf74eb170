"""Export for ExecuTorch's native backend, by `executorch.backends.native`.

The passes that it suggests are not used. They make operators in-place, and `to_executorch` of 1.5
drops an in-place operator that no delegate takes (`relu_`): the program then computes wrong values.
"""

from __future__ import annotations

from typing import Any


def partitioners() -> list[Any]:
    """Make the partitioner; weights stay in the program."""
    from executorch.backends.native.partitioner import NativePartitioner

    return [NativePartitioner(external_constants_tag=None)]
