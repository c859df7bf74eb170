"""Measure a dataset: samples against a prepared reference, and what stays in memory of them."""

from __future__ import annotations

from benchmarks.side import Cost, measured, told
from tests.support.artifacts import artifacts

SAMPLES = 16

_SETUP = """
import warnings; warnings.simplefilter("ignore")
from time import process_time  # of all threads: what other processes do meanwhile does not count
import torch; torch.set_num_threads(1)
from etscope.evaluation import evaluate, evaluate_dump
from etscope.run import run
N = {samples}
GIVEN = torch.load({inputs!r})["forward"][0]
"""

_DUMP = """
done = run({pte!r}, GIVEN, etrecord={record!r}, iterations=N, warmup=0, separate=False,
           isolate=False, debug_level="intermediate_outputs")
inspector = done.inspector(program={pte!r})

def prepared():
    assert evaluate_dump(inspector.trace, [GIVEN] * N).is_fine

def one_by_one():
    for number in range(N):
        assert inspector.diagnose_numerics(run=number, inputs=GIVEN).is_fine

def seconds_of(work):
    begin = process_time(); work(); return process_time() - begin
"""


def compared(ours: bool, name: str) -> Cost:
    """CPU seconds of comparing the runs of a dump with the reference: together, or one by one."""
    work = "prepared" if ours else "one_by_one"
    return told(_setup(name) + _DUMP.format(**_files(name)), f"seconds = seconds_of({work})",
                repeats=3)  # fmt: skip


def evaluated(name: str, samples: int) -> Cost:
    """Running and comparing so many samples, in processes of their own; the peak of memory is of
    the process that compares."""
    files = _files(name)
    return measured(
        _setup(name),
        f"result = evaluate({files['pte']!r}, ((*GIVEN,) for _ in range({samples})), "
        f"etrecord={files['record']!r})\nassert result.is_fine",
        repeats=1,
    )


def _setup(name: str) -> str:
    return _SETUP.format(samples=SAMPLES, **_files(name))


def _files(name: str) -> dict[str, str]:
    made = artifacts(name)
    return {"pte": str(made.pte), "record": str(made.etrecord), "inputs": str(made.inputs_pt)}
