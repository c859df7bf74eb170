"""Faults in quantised programs; `python -m benchmarks.planted_faults` has many more."""

from __future__ import annotations

import warnings

from benchmarks.planted_faults import GROUPS, KINDS, changed_nodes, lowered, with_fault
from benchmarks.planted_models import MODELS, made
from tests.support.artifact_recipes.fault_runs import keep_faults
from tests.support.artifact_recipes.workbench import Workbench

# By artefact: the group of programs, the model, and the faults.
CASES = {
    "fault_int8": ("int8 by channel", "Convolutions", ["depthwise channel x1.5"]),
    "fault_int8_calls": (
        "int8 by channel, whole calls",
        "FeedForward",
        ["channel x1.5", "weights one step lower"],
    ),
    "fault_int8_dynamic": ("int8 dynamic", "FeedForward", ["channel x1.01"]),
    "fault_8da4w": (
        "8da4w by 32",
        "FeedForward",
        ["scales of two groups exchanged", "halves of bytes exchanged"],
    ),
    "fault_fp16": ("fp16", "FeedForward", ["channel x1.5"]),
}


def make(bench: Workbench, name: str) -> None:
    """Run a quantised program without fault, and with each; "changed" notes the nodes that a fault
    changes."""
    of_group, model, faults = CASES[name]
    group, kind = GROUPS[of_group], KINDS[model]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (sample,) = MODELS[kind](1)
        if model == "FeedForward":  # fewer values, for git
            sample = sample[:1, :4]
        program, inputs = group.make(made(kind, 0), (sample,))
        right = lowered(group, program, inputs)
        wrong = {fault: lowered(group, with_fault(program, fault), inputs) for fault in faults}
    bench.notes.update(seed=0, planted=faults, file="planted_models.py")
    bench.notes["changed"] = {
        fault: sorted(changed_nodes(right, faulty)) for fault, faulty in wrong.items()
    }
    keep_faults(bench, right, wrong, inputs)
