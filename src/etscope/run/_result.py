"""What a runner answers: the times of each execution and the outputs of the last one of each call.

    {"runner": "native", "executorch": "1.5.1", "threads": 2,
     "rss_before_bytes": 12546048, "peak_rss_bytes": 13717504, "load_ns": 810000,
     "calls": [{"load_ns": 120000, "warmup_ns": [], "samples_ns": [2031, …],
                "outputs": [description, …]}]}

`load_ns` of the whole is reading the program, of a call loading its method (0 when it was loaded
before). A description of a value is that of `etscope.run._values`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import reading
from etscope.run._values import value_of
from etscope.run.job import RESULT


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
