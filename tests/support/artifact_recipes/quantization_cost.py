"""Quantised models with the float graph in their records: `picture` in int8, `network` by torchao,
`narrow` as `picture` but calibrated on numbers that are too small; and a run of each."""

from __future__ import annotations

import copy
import warnings

import torch

from etscope.export import export
from etscope.run import run
from tests.support.artifact_recipes.workbench import Workbench, seeded
from tests.support.evaluation.quantized_models import Network, Picture, eight_bit


def quantization_cost(bench: Workbench) -> None:
    """Export the three, and run each on the inputs of its record."""
    x, model = torch.randn(1, 3, 8, 8, generator=seeded()), Network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        int8 = {"backend": "xnnpack", "quantize": True}
        for name, made in {
            "picture": export(Picture(), (x,), **int8),
            "narrow": export(Picture(), (x,), calibration=[(x * 0.3,)], **int8),
            "network": export(
                eight_bit(copy.deepcopy(model)),
                (torch.arange(6)[None],),
                backend="xnnpack",
                float_model=model,
            ),
        }.items():
            made.save(bench.folder, name, bundle=False)
            with run(
                made.record,
                inputs=list(made.example_inputs["forward"]),
                debug_level="intermediate_outputs",
            ) as done:
                done.save_etdump(bench.folder / f"{name}.etdp")
                done.save_debug_buffer(bench.folder / f"{name}.bin")
