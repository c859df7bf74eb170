"""`keeping_partition()`: keep what partitioners say, for a lowering of your own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from etscope.support.optional import require

if TYPE_CHECKING:
    from etscope.bridge.lowering.partition import KeptPartition


def keeping_partition() -> AbstractContextManager[KeptPartition]:
    """Keep which nodes partitioners take and why they refuse others, while programs are lowered
    inside by `to_edge_transform_and_lower` or `EdgeProgramManager.to_backend`.

    `export` does this by itself. For a record of your own lowering:

        with keeping_partition() as kept:
            edge = to_edge_transform_and_lower(program, partitioner=[…], generate_etrecord=True)
        …
        record = etscope.parse_etrecord("model.etrecord")
        record.partition = kept.of(edge.methods)
        record.save("model.etrecord")
    """
    require("executorch.exir", wanted_by="keeping_partition")
    from etscope.bridge.lowering import partition

    return partition.keeping_partition()
