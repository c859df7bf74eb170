"""Programs and records that ExecuTorch's own exporter makes."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

from etscope.analysis.matching.export import Export
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte


def upstream_export(
    methods: Any, *, xnnpack: bool = False, record: bool = True, **config: Any
) -> tuple[bytes, Export]:
    """Lower an exported program, or several by method. Returns the program, and the export with it.

    record: False for graphs with control flow, which upstream's record does not hold. config:
    fields of `ExecutorchBackendConfig`.
    """
    lowered = to_edge_transform_and_lower(
        methods, partitioner=[XnnpackPartitioner()] if xnnpack else [], generate_etrecord=record
    ).to_executorch(ExecutorchBackendConfig(**config))
    file, data = BytesIO(), bytes(lowered.buffer)
    if record:
        lowered.get_etrecord().save(file)
    return data, Export(read_pte(data), read_etrecord(file.getvalue()) if record else None)
