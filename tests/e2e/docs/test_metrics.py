"""What `docs/reference/metrics.md` says in tables is so."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from etscope.analysis.metrics import BUILTIN, METRICS, measure
from tests.contract.source_tree import ROOT

PAGE = (ROOT / "docs/reference/metrics.md").read_text()
ROWS = [re.split(r"\s*\|\s*", line)[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
METRIC_ROWS = [row for row in ROWS if len(row) == 5 and row[0] != "name"]
HEAD, *CASES = [row for row in ROWS if len(row) == 11]


def number(cell: str) -> float:
    return float(eval(cell.strip("`"), dict(vars(math))))


def test_every_metric_is_there() -> None:
    assert len(CASES) >= 12
    described = [(row[0].strip("`"), row[2], row[3], float(row[4])) for row in METRIC_ROWS]
    assert described == [(m.name, m.unit, m.better, m.perfect) for m in BUILTIN]
    for text in (METRICS["out_of_tolerance"].doc, METRIC_ROWS[-1][1]):
        assert "1e-08 + 1e-05 *" in text


@pytest.mark.parametrize("row", CASES, ids=[row[0] for row in CASES])
def test_the_results_are_those_of_the_table(row: list[str]) -> None:
    reference, value = (np.array(eval(cell.strip("`"), dict(vars(math)))) for cell in row[1:3])
    for names, cell in zip(HEAD[3:], row[3:], strict=True):
        for name in re.findall(r"\w+", names):
            if row[0] == "integers" and name == "psnr":
                continue  # of two elements, one of them small: 3 dB above the others
            expected = pytest.approx(number(cell), rel=0.01, nan_ok=True)
            assert measure(name, reference, value) == expected, name
