"""Faults of known kinds: `fault_kinds_0` to `fault_kinds_5` have a part of them each, on portable
kernels; those of `fault_kinds_inside` are inside of calls of XNNPACK."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import torch
from executorch.exir import to_edge

from etscope.export import export
from tests.support.artifact_recipes.fault_runs import RIGHT, keep_faults, keep_run
from tests.support.artifact_recipes.workbench import Workbench
from tests.support.faults.kinds import FAULTS, INSIDE, inputs, model
from tests.support.faults.small import INPUTS, FeedForward, model_of

PARTS = 6


def make(bench: Workbench, name: str) -> None:
    """Run the model without fault, and with each fault of a part."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = name.rpartition("_")[2]
        if part == "inside":
            inside_of_calls(bench)
        else:
            on_kernels(bench, int(part))


def on_kernels(bench: Workbench, part: int) -> None:
    """Export the edge program once; each fault changes a copy, before memory is planned."""
    given, faults = inputs(), list(FAULTS)[part::PARTS]
    bench.notes.update(seed=0, planted=faults, file="kinds.py")
    np.savez(bench.folder / "inputs.npz", *given)
    edge = to_edge(torch.export.export(model(), given), generate_etrecord=True)
    right = copy.deepcopy(edge).to_executorch()
    right.get_etrecord().save(str(bench.folder / "etrecord.bin"))
    keep_run(bench, RIGHT, right, given)
    for fault in faults:
        faulty = copy.deepcopy(edge)
        program = faulty.exported_program()
        program._state_dict = dict(program.state_dict)
        FAULTS[fault](program)
        keep_run(bench, fault, faulty.to_executorch(), given)


def inside_of_calls(bench: Workbench) -> None:
    """The faults of a feed-forward layer."""
    given = INPUTS[FeedForward]
    bench.notes.update(seed=0, planted=list(INSIDE), file="small.py")
    wrong = {}
    for fault, (parameter, change) in INSIDE.items():
        faulty = model_of(FeedForward)
        with torch.no_grad():
            faulty.get_parameter(parameter).copy_(change(faulty.get_parameter(parameter)))
        wrong[fault] = export(faulty, given, backend="xnnpack")
    keep_faults(bench, export(model_of(FeedForward), given, backend="xnnpack"), wrong, given)
