"""A program of two methods that share a cache, with a record that does not hold the program."""

from __future__ import annotations

from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass

from tests.support.artifact_recipes.decoders import METADATA, PROGRAMS
from tests.support.artifact_recipes.workbench import Workbench


def decoder_pair(bench: Workbench) -> None:
    """Export `prefill` (8 tokens) and `decode` (one) for XNNPACK."""
    edge = to_edge_transform_and_lower(
        PROGRAMS["pair"](),
        partitioner=[XnnpackPartitioner()],
        constant_methods=METADATA,
        generate_etrecord=True,
    )
    plan = MemoryPlanningPass(share_mutable_buffers=True)
    bench.save(edge, ExecutorchBackendConfig(memory_planning_pass=plan))
