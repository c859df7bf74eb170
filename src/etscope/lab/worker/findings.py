"""What the runs of a job say: the parts of its summary (`etscope.lab.jobs.results`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from etscope.errors import MissingDataError
from etscope.lab.jobs.results import statistics_of
from etscope.run import Run
from etscope.run.program import Opened

if TYPE_CHECKING:
    from etscope.analysis.numerics.rows import Numerics, NumericsRow

METRIC = "sqnr"
_MOST_CASES = 16  # test cases whose numerics are looked at: each runs the model in PyTorch again
_MS = 1e6  # ns


def backend_of(opened: Opened, method: str) -> str:
    """The backends of a method's delegates: "XnnpackBackend", "A+B", or "portable" for none."""
    names = {delegate.backend_id for delegate in opened.program.method(method).delegates}
    return "+".join(sorted(names)) or "portable"


def check_comparable(opened: Opened) -> None:
    """Raise `MissingDataError` when there is nothing that a program's values can be held against:
    no record, and no bundle with expected outputs."""
    suites = () if opened.bundle is None else opened.bundle.suites
    if opened.record is None and not any(
        case.expected_outputs for suite in suites for case in suite.cases
    ):
        raise MissingDataError(
            "there is nothing to compare this program's values with",
            hint="give an ETRecord, or a bundled program with expected outputs",
        )


def latency_of(done: Run) -> dict[str, Any]:
    """The statistics of the untraced run, over all test cases of a bundle."""
    untraced = [one for one in done.latencies if one.traced is None]
    samples = np.concatenate([one.samples_ns for one in untraced])
    return statistics_of(samples.tolist(), untraced[0].load_ns, untraced[0].first_ns)


def traced_p50_ms(done: Run) -> float | None:
    """The median of the run that recorded times; None when there was none."""
    traced = [one.samples_ns for one in done.latencies if one.traced == "times"]
    return float(np.median(np.concatenate(traced))) / _MS if traced else None


def memory_of(done: Run) -> dict[str, Any] | None:
    """The memory of the runner's process in the untraced run; None when the system tells none.

    `rss_before_bytes` was there before the program was read: of the Python runner that is most.
    """
    result = next(iter(done.passes.values())).result
    if result.peak_rss_bytes is None:
        return None
    return {
        "peak_rss_bytes": result.peak_rss_bytes,
        "rss_before_bytes": result.rss_before_bytes,
        "runner": result.runner,
    }


def verification_of(done: Run) -> dict[str, int] | None:
    """How many test cases of a bundle passed and failed; None when it expects no outputs."""
    try:
        cases = [case for case in done.verify().cases if case.checks]
    except MissingDataError:
        return None
    passed = sum(case.passed for case in cases)
    return {"passed": passed, "failed": len(cases) - passed}


def numerics_of(done: Run) -> dict[str, Any]:
    """What PyTorch makes of the same inputs, against the values that the run recorded.

    Raises `MissingDataError` when there is no reference, or nothing to compare.
    """
    if done.opened.record is None:
        raise MissingDataError("there is no ETRecord, and so no reference")
    found = _numerics(done)
    compared = [row for one in found for row in one.rows if row.total is not None]
    if not compared:
        raise MissingDataError("no value of the run could be compared with the reference")
    worst = _worst(compared, found[0].metric.better)
    return {
        "metric": METRIC,
        "worst": worst.total if worst.total is not None and np.isfinite(worst.total) else None,
        "worst_op": worst.op,
        "fine": all(one.is_fine for one in found),
        "compared": len(compared),
        "verdict": next((one.verdict for one in found if not one.is_fine), found[0].verdict),
        "cases": len(found),
    }


def _numerics(done: Run) -> list[Numerics]:
    """Of each call, whose run in the dump has its number: one execution each, without warm-up."""
    if len(done.calls) == 1:
        return [done.numerics(METRIC)]
    inspector = done.inspector()
    return [
        inspector.diagnose_numerics(
            METRIC, method=call.method, run=number, inputs=list(call.inputs)
        )
        for number, call in enumerate(done.calls[:_MOST_CASES])
    ]


def _worst(rows: list[NumericsRow], better: str) -> NumericsRow:
    """The row that is farthest from the reference; NaN is farther than any number."""
    sign = -1 if better == "higher" else 1

    def badness(row: NumericsRow) -> float:
        value = float("nan") if row.total is None else row.total
        return float("inf") if np.isnan(value) else sign * value

    return max(rows, key=badness)
