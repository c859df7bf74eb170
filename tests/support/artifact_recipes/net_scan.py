"""A scan, in one of whose steps the device may do wrong."""

from __future__ import annotations

import warnings

import torch
from torch._higher_order_ops.scan import scan

from etscope.export import export
from etscope.run import run
from tests.support.artifact_recipes.workbench import Workbench, seeded


class Scan(torch.nn.Module):
    """What goes from step to step is copied, and the copies are of no node; `decay` is what the
    device may do wrong."""

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear = torch.nn.Linear(4, 4)
        self.decay = decay

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            carry = torch.tanh(torch.mul(carry, self.decay) + x)
            return carry, torch.mul(carry, 2.0)

        _, ys = scan(step, torch.mul(xs[0], 0.0), xs)
        return torch.mul(self.linear(ys), 3.0)


def net_scan(bench: Workbench) -> None:
    """Keep the record and a run of the right model, and a run of the wrong one."""
    bench.notes.update(seed=3, planted=["decay"], file="net_scan.py", no_fault={})
    inputs = (torch.randn(5, 4, generator=seeded()),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in {"right": Scan(), "decay": Scan(0.5)}.items():
            exported = export(model, inputs)
            if name == "right":
                exported.record.save(bench.folder / "etrecord.bin")
            (bench.folder / f"{name}.pte").write_bytes(exported.program_bytes())
            # In a process of its own: its values are more than the first buffer holds.
            with run(
                exported.program,
                inputs,
                debug_level="intermediate_outputs",
                separate=False,
                iterations=1,
                warmup=0,
            ) as done:
                done.save_etdump(bench.folder / f"{name}.etdp")
                done.save_debug_buffer(bench.folder / f"{name}.bin")
