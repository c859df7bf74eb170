"""The numbers of a job: its summary, made of `run.json`'s raw samples.

A summary is plain JSON:

    method            "forward"
    backend           "XnnpackBackend", "A+B" or "portable": of the program's delegates
    latency           {load_ms, first_ms, iterations, p10_ms, p50_ms, p90_ms, mean_ms, stdev_ms,
                       mad_ms, cv, min_ms, max_ms}: of the untraced run; see `statistics_of`
    traced_p50_ms     of the traced run, when there is one
    memory            {peak_rss_bytes}: of the runner's process, when the device shows it
    numerics          {metric, worst, worst_op, fine, compared}: when asked for and possible
    verification      {passed, failed}: of a bundle's expected outputs
    ab                of an A/B job, see `etscope.lab.comparison.ab`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from etscope.errors import MissingDataError
from etscope.model.table import Column, Kind

_MS = 1e6  # ns


def _ms(title: str) -> Column:
    return Column(f"{title.lower()}_ms", Kind.DURATION, "ms", title)


LATENCY = (  # what `latency` has, as it is shown
    Column("iterations", Kind.COUNT),
    *map(_ms, ("load", "first", "p10", "p50", "p90", "mean", "stdev", "MAD")),
    Column("cv", Kind.SHARE, title="cv"),
    *map(_ms, ("min", "max")),
)


def statistics_of(samples_ns: Sequence[int], load_ns: int, first_ns: int) -> dict[str, Any]:
    """The statistics of untraced executions, times in ms.

    samples_ns: [iterations], without the warm-up. Percentiles are interpolated linearly. stdev is
    of the sample (n - 1; None for one sample); mad the median of the distances to the median, not
    scaled; cv = stdev / mean. Raises `MissingDataError` for no samples.
    """
    samples = np.asarray(samples_ns, dtype=np.float64) / _MS
    if samples.size == 0:
        raise MissingDataError("nothing was timed", hint="iterations: 1 or more")
    p10, p50, p90 = np.percentile(samples, [10, 50, 90]).tolist()
    mean = float(samples.mean())
    stdev = float(samples.std(ddof=1)) if samples.size > 1 else None
    return {
        "load_ms": load_ns / _MS,
        "first_ms": first_ns / _MS,
        "iterations": int(samples.size),
        "p10_ms": p10,
        "p50_ms": p50,
        "p90_ms": p90,
        "mean_ms": mean,
        "stdev_ms": stdev,
        "mad_ms": float(np.median(np.abs(samples - p50))),
        "cv": None if stdev is None or mean == 0 else stdev / mean,
        "min_ms": float(samples.min()),
        "max_ms": float(samples.max()),
    }
