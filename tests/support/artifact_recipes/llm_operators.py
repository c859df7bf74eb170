"""A model with the operators of ExecuTorch's LLM exports, on portable kernels and for XNNPACK."""

from __future__ import annotations

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  (registers them)
from torch import nn

from tests.support.artifact_recipes.workbench import Workbench

HEADS, WIDTH, LENGTH = 2, 8, 8


class Attention(nn.Module):
    """As executorch.examples.models.llama exports it."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(HEADS * WIDTH, HEADS * WIDTH, bias=False) for _ in range(4)
        )
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(1, LENGTH, HEADS, WIDTH))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        start = position[0].item()
        torch._check(start >= 0)
        torch._check(start <= LENGTH - 3)
        parts = (self.wq, self.wk, self.wv)
        q, k, v = (part(x).view(1, -1, HEADS, WIDTH).transpose(1, 2) for part in parts)
        for new, cache in ((k, self.k_cache), (v, self.v_cache)):
            torch.ops.llama.update_cache(new.transpose(1, 2), cache, start)
        caches = (one.transpose(1, 2).transpose(1, 2) for one in (self.k_cache, self.v_cache))
        found = torch.ops.llama.custom_sdpa(q.transpose(1, 2), *caches, start, None, 0.0, True)
        return self.wo(found.view(1, -1, HEADS * WIDTH)) + x


def llm_operators(bench: Workbench) -> None:
    """Export for both."""
    torch.manual_seed(0)
    model, inputs = Attention().eval(), (torch.randn(1, 3, HEADS * WIDTH), torch.tensor([0]))
    for backend in ("portable", "xnnpack"):
        with torch.no_grad():
            made = to_edge_transform_and_lower(
                torch.export.export(model, inputs),
                partitioner=[XnnpackPartitioner()] if backend == "xnnpack" else [],
                compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
                generate_etrecord=True,
            ).to_executorch()
        (bench.folder / f"{backend}.pte").write_bytes(made.buffer)
        record = made.get_etrecord()
        record.update_representative_inputs([list(inputs)])
        record.save(str(bench.folder / f"{backend}.etrecord"))
