"""A program that remembers: its output is how often it was executed, times the input."""

from __future__ import annotations

from pathlib import Path

import torch

from etscope.export import export


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1.0)
        return x * self.count


def counter_bundle(folder: Path) -> Path:
    """Two test cases, each as it is after loading: the state of one is not in the other."""
    from etscope.bundled_program import bundle_cases

    exported = export(Counter(), (torch.ones(2),))
    cases = [((torch.full((2,), x),), (torch.full((2,), x),)) for x in (1.0, 3.0)]
    path = folder / "counter.bpte"
    path.write_bytes(bundle_cases(exported.program_bytes(), {"forward": cases}))
    return path
