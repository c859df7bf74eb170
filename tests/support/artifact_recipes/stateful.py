"""Programs and records of models that remember; and of one with NaN on the device only."""

from __future__ import annotations

import warnings
from copy import deepcopy

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass

from etscope import generate_etrecord
from etscope.bundled_program import bundle_cases
from etscope.export import export
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.run.stateful import Cache, Counter


class Sum(torch.nn.Module):
    """Adds up what comes in; `drift` is what the device may do wrong."""

    def __init__(self, drift: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.drift = drift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.mul_(0.5)
        self.total.add_(x * self.drift)
        return self.total.sin() * 2


class Root(torch.nn.Module):
    """Zero on the right path, and a little below on the device."""

    def __init__(self, off: float = 0.0) -> None:
        super().__init__()
        self.off = off

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(x * 1.0 - x.abs() - self.off)


class _Prefill(torch.nn.Module):
    def __init__(self, model: Cache) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.prefill(x)


class _Decode(_Prefill):
    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self.model(x, position)


def stateful(bench: Workbench) -> None:
    """Export all of them."""
    one = (torch.ones(3),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in {
            "sum": Sum(),
            "sum_off": Sum(1.01),
            "root": Root(),
            "root_off": Root(1e-3),
        }.items():
            export(model, one).save(bench.folder, name, bundle=False)
        counter(bench)
        shared_cache(bench)


def counter(bench: Workbench) -> None:
    """Two test cases, each as it is after loading: the state of one is not in the other."""
    exported = export(Counter(), (torch.ones(2),))
    cases = [((torch.full((2,), x),), (torch.full((2,), x),)) for x in (1.0, 3.0)]
    bundle = bundle_cases(exported.program_bytes(), {"forward": cases})
    (bench.folder / "counter.bpte").write_bytes(bundle)


def shared_cache(bench: Workbench) -> None:
    """The two methods as one program, whose plan shares the cache."""
    model = Cache()
    x, position = torch.ones(1, 1, 8), torch.tensor([4])
    edge = to_edge(
        {
            "prefill": torch.export.export(_Prefill(model), (torch.ones(1, 4, 8),)),
            "decode": torch.export.export(_Decode(model), (x, position)),
        }
    )
    recorded = deepcopy(edge)
    plan = MemoryPlanningPass(share_mutable_buffers=True)
    made = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan))
    (bench.folder / "shared_cache.pte").write_bytes(made.buffer)
    generate_etrecord(str(bench.folder / "shared_cache.etrecord"), recorded, made)
