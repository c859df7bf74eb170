"""Programs that remember: how often they were executed, or what they were given."""

from __future__ import annotations

import functools
import tempfile
from copy import deepcopy
from pathlib import Path

import torch

from etscope import generate_etrecord
from etscope.export import export


class Counter(torch.nn.Module):
    """Its output is how often it was executed, times the input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1.0)
        return x * self.count


@functools.cache
def counter_bundle() -> bytes:
    """Two test cases, each as it is after loading: the state of one is not in the other."""
    from etscope.bundled_program import bundle_cases

    exported = export(Counter(), (torch.ones(2),))
    cases = [((torch.full((2,), x),), (torch.full((2,), x),)) for x in (1.0, 3.0)]
    return bundle_cases(exported.program_bytes(), {"forward": cases})


class Cache(torch.nn.Module):
    """Attention over a cache of keys, which both methods write."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8).requires_grad_(requires_grad=False)
        self.register_buffer("cache", torch.zeros(1, 16, 8))

    def _attend(self, query: torch.Tensor) -> torch.Tensor:
        return torch.softmax(query @ self.cache.transpose(1, 2), -1) @ self.cache

    def prefill(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.linear(x)
        self.cache[:, :4] = keys
        return self._attend(keys)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        key = self.linear(x)
        self.cache.index_copy_(1, position, key)
        return self._attend(key)


class _Prefill(torch.nn.Module):
    def __init__(self, model: Cache) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.prefill(x)


class _Decode(_Prefill):
    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.model(x, position)


Values = tuple[torch.Tensor, ...]


def cache_calls() -> list[tuple[str, Values, torch.Tensor]]:
    """A prefill and three decodes: method, inputs, and what the eager model gives in that order."""
    model, generator = Cache(), torch.Generator().manual_seed(1)
    first = torch.randn(1, 4, 8, generator=generator)
    calls: list[tuple[str, Values, torch.Tensor]] = [("prefill", (first,), model.prefill(first))]
    for position in range(4, 7):
        values = torch.randn(1, 1, 8, generator=generator), torch.tensor([position])
        calls.append(("decode", values, model(*values)))
    return calls


@functools.cache
def shared_cache_program() -> Path:
    """The two methods as one program, whose plan shares the cache; its record is beside it."""
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    model = Cache()
    x, position = torch.ones(1, 1, 8), torch.tensor([4])
    programs = {
        "prefill": torch.export.export(_Prefill(model), (torch.ones(1, 4, 8),)),
        "decode": torch.export.export(_Decode(model), (x, position)),
    }
    plan = MemoryPlanningPass(share_mutable_buffers=True)
    edge = to_edge(programs)
    recorded = deepcopy(edge)
    made = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan))
    path = Path(tempfile.mkdtemp(prefix="shared-cache-")) / "shared_cache.pte"
    path.write_bytes(made.buffer)
    generate_etrecord(str(path.with_suffix(".etrecord")), recorded, made)
    return path
