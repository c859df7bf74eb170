"""A fault in a single channel: the record of the right model, and a run of the faulty program."""

from __future__ import annotations

import warnings

import torch

from etscope.export import export
from etscope.run import run
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.faults.one_channel import CHANNEL, Net


def one_channel(bench: Workbench) -> None:
    """Export both, run the faulty one, and save the run as a person does."""
    torch.manual_seed(0)
    model, example = Net().eval(), torch.randn(1, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(model, (example,)).save(bench.folder, "right", bundle=False)
        with torch.no_grad():
            model.wide.weight[CHANNEL] *= 1.3
        wrong = export(model, (example,))
        wrong.save(bench.folder, "wrong", bundle=False)
        (bench.folder / "wrong.etrecord").unlink()
        with run(
            wrong.program,
            (example,),
            debug_level="intermediate_outputs",
            separate=False,
            isolate=False,
            runner="python",
        ) as done:
            done.save(bench.folder)
