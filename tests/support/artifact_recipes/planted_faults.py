"""Generated models with a planted fault: `fault_portable_7` is case 7 on portable kernels,
`fault_xnnpack_7` in XNNPACK, `fault_taps_7` in XNNPACK with the values of each operator."""

from __future__ import annotations

import warnings

from etscope.export import export
from tests.support.artifact_recipes.fault_runs import keep_faults
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.faults.planted import cases


def make(bench: Workbench, name: str) -> None:
    """Export and run the model of a case, and the one with its fault."""
    _, target, number = name.split("_")
    case = list(cases(int(number) + 1))[-1]
    bench.notes.update(
        seed=case.seed,
        planted=case.fault.name,
        file="blocks.py",
        line=case.line,
        module=f"parts.{case.fault.block}",
    )
    backend, taps = ("portable", ()) if target == "portable" else ("xnnpack", ("op:*",))
    inputs = case.inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right, wrong = (
            export(model, inputs, backend=backend, taps=taps if target == "taps" else ())
            for model in (case.model(), case.faulty())
        )
    keep_faults(bench, right, {"wrong": wrong}, inputs)
