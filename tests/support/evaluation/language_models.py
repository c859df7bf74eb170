"""Faults in the weights of a language model's program, and a program of two methods with its
record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tests.support.artifact_recipes.decoders import METADATA, PROGRAMS

Change = Callable[[np.ndarray], None]


def planted(program: bytes, weight: torch.Tensor, change: Change) -> bytes:
    """Return the bytes of a program in which a weight, float32, is changed: what a kernel or a
    converter that goes wrong makes of the model, while the record is of the right one."""
    right = weight.detach().numpy()
    assert program.count(right.tobytes()) == 1, "the weight is not in the program once"
    wrong = right.copy()
    change(wrong)
    assert not np.array_equal(right, wrong)
    return program.replace(right.tobytes(), wrong.tobytes())


def export_pair(folder: Path) -> None:
    """Export `prefill` (8 tokens) and `decode` (one), which share a cache, for XNNPACK: pair.pte
    and pair.etrecord, which does not hold the program."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    edge = to_edge_transform_and_lower(
        PROGRAMS["pair"](),
        partitioner=[XnnpackPartitioner()],
        constant_methods=METADATA,
        generate_etrecord=True,
    )
    plan = MemoryPlanningPass(share_mutable_buffers=True)
    made = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan))
    (folder / "pair.pte").write_bytes(made.buffer)
    made.get_etrecord().save(str(folder / "pair.etrecord"))
