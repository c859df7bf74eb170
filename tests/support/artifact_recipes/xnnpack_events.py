"""Models for XNNPACK in which each line says what it becomes, and their events: `xnnpack_linears`,
and `xnnpack_linears_int8` for the quantised one."""

from __future__ import annotations

import warnings

import torch

from etscope.export import export
from etscope.run import run
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.xnnpack_models import MODELS


def make(bench: Workbench, name: str) -> None:
    """Export and run a model twice."""
    model = name.removeprefix("xnnpack_").removesuffix("_int8")
    build, inputs = MODELS[model]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = export(
            build().eval(), inputs(), backend="xnnpack", quantize=name.endswith("_int8")
        )
        bench.pte.write_bytes(exported.program_bytes())
        exported.record.save(bench.folder / "etrecord.bin")
        with run(exported.record, inputs(), iterations=2) as done:
            done.save_etdump(bench.folder / "etdump.etdp")
