"""Records of models that two backends take in part, with the delegate calls as ExecuTorch's own
lowered graph has them. Vulkan's lowering takes most of a minute."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir.dialects._ops import ops

from tests.support.artifact_recipes.workbench import Workbench
from tests.support.export.partitioned import lowered, memory, text_block


class Turned(torch.nn.Module):
    """A permute between operators that Vulkan takes, and one that no delegate is near."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(torch.relu(x).permute(1, 0))
        return torch.cumsum(torch.cumsum(y, 0).permute(1, 0), 1)


def partitioned(bench: Workbench) -> None:
    """`both` for Vulkan, then XNNPACK; `turned` for Vulkan, which may not permute."""
    refusing = VulkanPartitioner(operator_blocklist=[ops.edge.aten.permute_copy.default])
    for name, methods, backends in (
        ("both", {"forward": text_block(), "update": memory()}, ["vulkan", "xnnpack"]),
        ("turned", {"forward": (Turned(), (torch.randn(2, 3),))}, [refusing]),
    ):
        with TemporaryDirectory() as folder:
            made = lowered(Path(folder), methods, backends)
            for path in (made.record, made.plain, made.program):
                (bench.folder / f"{name}.{path.name}").write_bytes(path.read_bytes())
        calls = {
            method: [[one.backend, sorted(one.nodes), one.bytes_in, one.bytes_out] for one in found]
            for method, found in made.calls.items()
        }
        (bench.folder / f"{name}.calls.json").write_text(json.dumps(calls, indent=1))
