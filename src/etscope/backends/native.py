"""ExecuTorch's native backend, by `executorch.backends.native`.

The passes that it suggests are left out: they make operators in-place, and `to_executorch` of 1.5
drops those that no delegate takes, as `relu_`, so that the program computes something else.
"""

from __future__ import annotations

from typing import Any


def partitioners() -> list[Any]:
    """Make the partitioner; weights stay in the program."""
    from executorch.backends.native.partitioner import NativePartitioner

    return [NativePartitioner(external_constants_tag=None)]
