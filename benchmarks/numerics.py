"""Measure the numeric gap and the diagnosis beside upstream's gap and beside PyTorch's own run.

Both sides compute with one thread: several wait for each other busily, which counts as CPU.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.side import Cost, measured, process
from etscope.etrecord import parse_etrecord
from etscope.formats.etrecord.reader import read_etrecord
from tests.support.artifacts import Artifact, artifacts

QUIET = """import os, warnings
os.environ["OMP_NUM_THREADS"] = "1"
warnings.simplefilter("ignore")
"""
UPSTREAM = QUIET + "from executorch.devtools import Inspector"
OURS = QUIET + "from etscope import Inspector"
_MODULES = "import torch, pandas, executorch.exir"
_GAP = "result = inspector.calculate_numeric_gap('MSE')"


def gap(side: str, name: str, repeats: int, *, warm_up: int = 1, again: bool = False) -> Cost:
    """Open the files, run the reference, compare. Files are opened anew each time, unless it is the
    same Inspector's `again`; what Python and torch load and compile at the first call is there
    already, unless warm_up is 0."""
    opened = _opened(artifacts(name))
    return measured(
        f"{side}\n{_MODULES}\n{opened if again else ''}",
        _GAP if again else f"{opened}\n{_GAP}\ndel inspector",
        repeats=repeats,
        warm_up=warm_up,
        cpu=True,
    )


def gap_above(name: str, allowed: float) -> Cost:
    """Our gap again, less so many seconds."""
    found = gap(OURS, name, 10, again=True)
    return replace(found, seconds=max(found.seconds - allowed, 1e-6))


def gap_process(side: str, name: str) -> Cost:
    """The gap from the start of Python to its result."""
    return process("-c", f"{side}\n{_opened(artifacts(name))}\n{_GAP}", repeats=3, cpu=True)


def eager(name: str) -> Cost:
    """PyTorch's run of the exported program that the record has."""
    made = artifacts(name)
    setup = f"""{QUIET}
import torch
from etscope.etrecord import parse_etrecord
record = parse_etrecord({str(_with_inputs(made))!r})
module, inputs = record.exported_program.module(), record._representative_inputs
"""
    code = "with torch.inference_mode():\n    result = module(*inputs)"
    return measured(setup, code, repeats=10, warm_up=3, cpu=True)


def diagnosis(name: str) -> Cost:
    """Our diagnosis, of an Inspector that made one before."""
    return measured(
        f"{OURS}\n{_MODULES}\n{_opened(artifacts(name))}",
        "result = inspector.diagnose_numerics()",
        repeats=5,
        warm_up=1,
        cpu=True,
    )


def command(name: str) -> Cost:
    """The whole process of our command."""
    made = artifacts(name)
    words = ["-m", "etscope", "numerics", str(made.etdump), "-r", str(_with_inputs(made))]
    return process(*words, "-b", str(made.debug_buffer), repeats=3, cpu=True)


def _opened(made: Artifact) -> str:
    return (
        f"inspector = Inspector(etdump_path={str(made.etdump)!r}, "
        f"etrecord={str(_with_inputs(made))!r}, debug_buffer_path={str(made.debug_buffer)!r})"
    )


def _with_inputs(made: Artifact) -> Path:
    """The artefact's record; one without inputs, with those that ran: upstream takes no others."""
    assert made.etrecord is not None
    record = read_etrecord(made.etrecord)
    path = made.etrecord.with_name("record_with_inputs.etrecord")
    if record.representative_inputs() is not None:
        return made.etrecord
    if not path.exists():
        import torch

        assert made.inputs_pt is not None
        changed = parse_etrecord(str(made.etrecord))
        changed.update_representative_inputs(list(torch.load(made.inputs_pt)["forward"][0]))
        changed.save(str(path))
    return path
