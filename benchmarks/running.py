"""Measure the cost of `run()` above the runtime itself, and of opening a large debug buffer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.side import Cost, measured, told
from etscope.formats.etdump.debug_values import TensorRef
from etscope.formats.etdump.reader import read_etdump
from tests.support.artifacts import artifacts

FEW, MANY = 50, 1050

_SETUP = """
import numpy as np, torch
from time import process_time  # of all threads: what other processes do meanwhile does not count
PATH, FEW, MANY = {path!r}, {few}, {many}
INPUTS = [np.load({inputs!r})[name] for name in ("forward/0/0",)]

def slope(run):
    # What one more iteration takes: all that a run costs once cancels out.
    begin = process_time(); run(FEW); middle = process_time(); run(MANY); end = process_time()
    return ((end - middle) - (middle - begin)) / (MANY - FEW)
"""

_BARE = """
from executorch.extension.pybindings import _C
TENSORS = [torch.from_numpy(array) for array in INPUTS]

def execute(iterations):
    method = _C._load_program(PATH).load_method("forward")
    for _ in range(iterations):
        method(TENSORS, clone_outputs=False)
"""

_OURS = """
from etscope.run import run

def execute(iterations):
    run(PATH, INPUTS, iterations=iterations, warmup=0, trace=False, runner="python", isolate=False)
"""


def overhead(ours: bool, name: str) -> Cost:
    """Seconds of one iteration, all costs of a run that do not grow with their number left out."""
    made = artifacts(name)
    setup = _SETUP.format(path=str(made.pte), inputs=str(made.inputs), few=FEW, many=MANY)
    return told(setup + (_OURS if ours else _BARE), "seconds = slope(execute)", repeats=7)


def large_debug_buffer() -> Cost:
    """Opening a debug buffer of more than 1 GB and summing one tensor of 16 MiB."""
    return measured(
        "from benchmarks.running import large_run\n"
        "from etscope.formats.etdump.debug_values import DebugBuffer\n"
        "kept, path, ref = large_run()\n",
        "result = DebugBuffer.open(path).tensor(ref).sum()",
        repeats=5,
    )


def large_run() -> tuple[Any, Path, TensorRef]:
    """A real run that logs more than 1 GB: what keeps its files, its debug buffer, and where in it
    the last tensor is."""
    import torch
    from executorch.exir import to_edge

    from etscope.run import run

    class Adds(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 1) * (x + 2) - x

    x = torch.zeros(4, 1024, 1024)
    program = to_edge(torch.export.export(Adds(), (x,))).to_executorch()
    done = run(
        program.buffer,
        (x,),
        iterations=1,
        debug_level="intermediate_outputs",
        traced_iterations=16,
    )
    path = done.debug_buffer_path
    assert path is not None
    assert path.stat().st_size > 1e9
    dump = read_etdump(done.etdump_path)
    ref = dump.value(int(np.flatnonzero(dump.debug_value_offset >= 0)[-1]))
    assert isinstance(ref, TensorRef)
    return done, path, ref
