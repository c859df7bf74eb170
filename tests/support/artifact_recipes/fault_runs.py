"""Runs of a sound model, and of faulty ones that its record is to diagnose: right.pte, right.etdp,
right.bin (the values), and the same of each fault."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import torch

from etscope.analysis.program.compatibility import instruction_labels
from etscope.export import Exported
from etscope.formats.program.pte import read_pte
from etscope.run import run
from tests.support.artifact_recipes.workbench import Workbench

RIGHT = "right"


def keep_faults(
    bench: Workbench, right: Exported, wrong: dict[str, Exported], inputs: tuple[Any, ...]
) -> None:
    """Keep the record and a run of a sound model, and a run of each faulty one.

    What is no fault on the backend has no run, and "no_fault" notes the reason: it leaves another
    part of the operators to the backend, which no record is of, or no output shows it.
    """
    right.record.save(bench.folder / "etrecord.bin")
    outputs = keep_run(bench, RIGHT, right.program, inputs)
    bench.notes["no_fault"] = {}
    for name, faulty in wrong.items():
        if instructions(faulty) != instructions(right):
            bench.notes["no_fault"][name] = "other instructions"
            continue
        found = keep_run(bench, name, faulty.program, inputs)
        if all(map(partial(np.array_equal, equal_nan=True), found, outputs)):
            bench.notes["no_fault"][name] = "the same outputs"
            for path in bench.folder.glob(f"{name}.*"):
                path.unlink()


def keep_run(
    bench: Workbench, name: str, program: Any, inputs: tuple[Any, ...]
) -> list[np.ndarray]:
    """Run a program once and keep it, its dump and its values; return the outputs."""
    (bench.folder / f"{name}.pte").write_bytes(program.buffer)
    with (
        warnings.catch_warnings(),
        run(
            program,
            inputs,
            debug_level="intermediate_outputs",
            separate=False,
            # Programs in float16 may end the process.
            isolate=any(one.dtype == torch.float16 for one in inputs),
            iterations=1,
            warmup=0,
        ) as done,
    ):
        warnings.simplefilter("ignore")
        done.save_etdump(bench.folder / f"{name}.etdp")
        done.save_debug_buffer(bench.folder / f"{name}.bin")
        return [np.array(one) for one in done.arrays[0]]


def instructions(exported: Exported) -> list[tuple[str, ...]]:
    """The operators of each method, in order."""
    program = read_pte(exported.program_bytes())
    return [instruction_labels(method) for method in program.methods]
