"""Exports and runs of models of `cases`, and their files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from etscope.errors import EtscopeWarning
from etscope.export import Exported, export
from etscope.run import Run, run
from tests.support.explain.cases import Made

SECONDS = 0.4  # of a run: other processes take their turns, each of which is a few ms
THREADS = 2
DUMP, RECORD = "run.etdp", "model.etrecord"


def exported(made: Made) -> Exported:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EtscopeWarning)  # of what is not delegated
        return export(made.model, made.inputs, **{"backend": "xnnpack", **made.export})


def recorded(made: Made, folder: Path) -> Exported:
    """Export and run a model, and write the files of the run and the record into a folder."""
    found = exported(made)
    record_run(found, made, folder)
    return found


def record_run(found: Exported, made: Made, folder: Path) -> None:
    """Run an exported model, and write the files of the run and the record into a folder."""
    once = least_ns(found, made, 3) / 1e9
    with timed_run(found, made, iterations=int(min(300, max(8, SECONDS / once)))) as done:
        done.save(folder)
    found.record.save(folder / RECORD)


def is_recorded(folder: Path) -> bool:
    return (folder / RECORD).exists()


def least_ns(program: Exported, made: Made, iterations: int) -> float:
    """The least time of a run without a trace, in ns."""
    with timed_run(program, made, iterations=iterations, trace=False) as done:
        return float(done.latency.samples_ns.min())


def timed_run(program: Exported, made: Made, **options: Any) -> Run:
    return run(
        program.program,
        made.inputs,
        warmup=3,
        isolate=False,
        runner="python",
        verify=False,
        **{"threads": THREADS, **options, **made.run},
    )
