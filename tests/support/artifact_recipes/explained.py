"""Runs of models of `tests.support.explain.cases`, seeded and clean, for `etscope explain`.

Weights and inputs are constants: they change no time, and pack to nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tests.support.artifact_recipes.workbench import Workbench
from tests.support.explain.cases import CLEAN, SEEDED, Made, Seeded
from tests.support.explain.recording import DUMP, RECORD, exported, timed_run

RUNS, ITERATIONS = 6, 12  # the run that other processes disturbed least is kept


def artifact_of(case: str) -> str:
    """The name of the artefact of a case."""
    return "explained_" + re.sub(r"\W+", "_", case)


def make(bench: Workbench, name: str) -> None:
    """Export a case, and keep its record and a run."""
    cases = {artifact_of(case): case for case in (*SEEDED, *CLEAN)}
    case = cases[name]
    of = SEEDED.get(case) or CLEAN[case]
    made = of.made(f"{case}/1")
    bench.notes["seed"] = f"{case}/1"
    if isinstance(of, Seeded):
        bench.notes["planted"] = of.kind
    if made.places is not None:
        bench.notes["module"] = min(made.places.modules)
    made = _with_constants(made)
    program = exported(made)
    kept = bench.folder / DUMP
    least = float("inf")
    for _ in range(RUNS):
        with timed_run(program, made, iterations=ITERATIONS) as run, TemporaryDirectory() as folder:
            run.save(folder)
            if (time := run.latency.p50_ns) < least:
                least = time
                for path in (kept, kept.with_name("run.json")):
                    path.write_bytes(Path(folder, path.name).read_bytes())
    program.record.save(bench.folder / RECORD)


def _with_constants(made: Made) -> Made:
    with torch.no_grad():
        for weight in made.model.parameters():
            weight.fill_(1 / weight.shape[-1] if weight.dim() else 1)
        for value in made.inputs:
            if value.is_floating_point():
                value.fill_(0.5)
    return made
