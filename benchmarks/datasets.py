"""Measure a dataset: samples that are run and compared, and what stays in memory of them."""

from __future__ import annotations

from benchmarks.side import Cost, measured
from tests.support.artifacts import artifacts


def evaluated(name: str, samples: int) -> Cost:
    """Running and comparing so many samples, in processes of their own; the peak of memory is of
    the process that compares."""
    made = artifacts(name)
    return measured(
        f"""
import warnings; warnings.simplefilter("ignore")
import torch; torch.set_num_threads(1)
from etscope.evaluation import evaluate
given = torch.load({str(made.inputs_pt)!r})["forward"][0]
""",
        f"result = evaluate({str(made.pte)!r}, ((*given,) for _ in range({samples})), "
        f"etrecord={str(made.etrecord)!r})\nassert result.is_fine",
        repeats=1,
    )
