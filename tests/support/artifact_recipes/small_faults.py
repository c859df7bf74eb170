"""Models with small faults: `fault_small_FeedForward_xnnpack` has all of that model."""

from __future__ import annotations

import warnings

from etscope.export import export
from tests.support.artifact_recipes.fault_runs import keep_faults
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.faults.small import FAULTS, INPUTS, model_of


def make(bench: Workbench, name: str) -> None:
    """Export and run a model without fault, and with each of its faults."""
    *_, model, backend = name.split("_")
    kind = next(kind for kind in INPUTS if kind.__name__ == model)
    faults = {str(fault): fault for fault in FAULTS if fault.kind is kind}
    taps = ("op:*",) if backend == "xnnpack" else ()
    bench.notes.update(seed=0, planted=list(faults), file="small.py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right, *wrong = (
            export(model_of(kind, fault), INPUTS[kind], backend=backend, taps=taps)
            for fault in (None, *faults.values())
        )
    keep_faults(bench, right, dict(zip(faults, wrong, strict=True)), INPUTS[kind])
