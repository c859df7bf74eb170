"""What a runner answers: the times of each execution and the outputs of the last one of each call.

    {"runner": "native", "executorch": "1.5.1", "threads": 2,
     "rss_before_bytes": 12546048, "peak_rss_bytes": 13717504, "load_ns": 810000,
     "calls": [{"load_ns": 120000, "warmup_ns": [], "samples_ns": [2031, …],
                "outputs": [description, …]}]}

`load_ns` of the whole is reading the program, of a call loading its method (0 when it was loaded
before). A description of a value is that of `etscope.run.job`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import reading
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table
from etscope.run.job import RESULT, value_of


@dataclass(frozen=True, slots=True, eq=False)
class CallResult:
    """Of one call: times in ns, and the outputs of its last execution, flat."""

    load_ns: int
    warmup_ns: npt.NDArray[np.int64]
    samples_ns: npt.NDArray[np.int64]
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Of a whole job. `threads` is the size of the runtime's thread pool, None if not known.

    rss_before_bytes, peak_rss_bytes: resident memory of the runner's process, before it read the
    program and the most ever; None where the system does not tell.
    """

    runner: str
    executorch: str | None
    threads: int | None
    load_ns: int
    calls: tuple[CallResult, ...]
    rss_before_bytes: int | None = None
    peak_rss_bytes: int | None = None


def read_result(folder: Path) -> Result:
    """The answer that a runner left in `folder`."""
    path = folder / RESULT
    with reading("runner's result", path):
        found = json.loads(path.read_text())
        return Result(
            runner=found["runner"],
            executorch=found["executorch"],
            threads=found["threads"],
            load_ns=found["load_ns"],
            calls=tuple(
                CallResult(
                    load_ns=call["load_ns"],
                    warmup_ns=np.array(call["warmup_ns"], np.int64),
                    samples_ns=np.array(call["samples_ns"], np.int64),
                    outputs=tuple(value_of(one, folder) for one in call["outputs"]),
                )
                for call in found["calls"]
            ),
            rss_before_bytes=found.get("rss_before_bytes"),
            peak_rss_bytes=found.get("peak_rss_bytes"),
        )


# How long executions took, as the runner's clock saw them.


_MS = 1e6  # ns


@dataclass(frozen=True, slots=True, eq=False)
class Latency:
    """The times of one call, in ns, around the runtime's `execute`.

    method, case: what ran; `case` is the index of a bundled test case, None without.
    load_ns: reading the program and loading the method.
    first_ns: the first execution, warm-up included; it fills caches.
    samples_ns: [iterations], each execution after the warm-up.
    traced: None, or what was recorded meanwhile, which takes time of its own: "times" or
        "values". Only an untraced latency says how long the model takes.
    """

    method: str
    case: int | None
    load_ns: int
    first_ns: int
    samples_ns: npt.NDArray[np.int64]
    traced: str | None = None

    @property
    def p50_ns(self) -> float:
        return statistic(self.samples_ns, "p50")

    @property
    def mean_ns(self) -> float:
        return float(self.samples_ns.mean())


def latency_of(
    method: str, case: int | None, load_ns: int, result: CallResult, traced: str | None
) -> Latency:
    """The latency of one call of a job; `load_ns` is of the program."""
    executions = np.concatenate([result.warmup_ns, result.samples_ns])
    return Latency(
        method=method,
        case=case,
        load_ns=load_ns + result.load_ns,
        first_ns=int(executions[0]),
        samples_ns=result.samples_ns,
        traced=traced,
    )


def latency_table(latencies: Sequence[Latency]) -> Table:
    """One row a call and kind of run, in ms."""
    samples = [latency.samples_ns / _MS for latency in latencies]
    p50, p90 = ([statistic(one, name) for one in samples] for name in ("p50", "p90"))
    has_cases = any(latency.case is not None for latency in latencies)
    notes = []
    if any(latency.traced for latency in latencies):
        notes.append("Traced runs do more than the model: compare untraced ones.")
    return Table(
        columns=(
            Column("run"),
            Column("method", priority=4),
            *([Column("case", Kind.INT, priority=5)] if has_cases else []),
            Column("iterations", Kind.COUNT, priority=2),
            Column("load", Kind.DURATION, "ms", priority=2),
            Column("first", Kind.DURATION, "ms", title="cold", priority=1),
            Column("avg", Kind.DURATION, "ms"),
            Column("p50", Kind.DURATION, "ms"),
            Column("p90", Kind.DURATION, "ms", priority=1),
            Column("min", Kind.DURATION, "ms", priority=3),
            Column("max", Kind.DURATION, "ms", priority=3),
            Column("std", Kind.DURATION, "ms", priority=4),
        ),
        values={
            "run": [_NAMES[latency.traced] for latency in latencies],
            "method": [latency.method for latency in latencies],
            "case": [latency.case for latency in latencies],
            "iterations": [len(one) for one in samples],
            "load": [latency.load_ns / _MS for latency in latencies],
            "first": [latency.first_ns / _MS for latency in latencies],
            "avg": [float(one.mean()) for one in samples],
            "p50": p50,
            "p90": p90,
            "min": [float(one.min()) for one in samples],
            "max": [float(one.max()) for one in samples],
            "std": [float(one.std()) if len(one) > 1 else None for one in samples],
        },
        title="Latency",
        notes=tuple(notes),
    )


_NAMES = {None: "untraced", "times": "traced: times", "values": "traced: values"}
