"""What a runner is told, and what it answers: the one contract between `run()` and the processes
that hold the runtime.

A runner executes one `Job`, once, and leaves these files in a folder:

    result.json            times and outputs, see `etscope.run.job`
    output-CALL-INDEX.raw  the bytes of tensor outputs
    run.etdp               if `trace`
    debug.bin              if `debug_level` is not "none"
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
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.scalar_type import ScalarType, dense_view, dim_order_of, scalar_type_of
from etscope.model.statistics import statistic
from etscope.model.table import Column, Kind, Table

# Values on their way to and from a runner: a description in JSON, and a file for a tensor's bytes.
#
#     {"kind": "tensor", "dtype": "float32", "sizes": [1, 3], "dim_order": [0, 1], "file": "…"}
#     {"kind": "int" | "bool" | "double" | "string", "value": …}
#     {"kind": "none"}
#
# A tensor's file holds its elements, densely, in the order of dimensions `dim_order`, outermost
# first; `dtype` is torch's name of the type.


_SCALAR_KINDS = ("int", "bool", "double", "string")
_BY_TORCH_NAME = {kind.torch_name: kind for kind in ScalarType}


def describe_value(value: Any, file: Path, dim_order: tuple[int, ...] | None = None) -> Any:
    """The description of a value; a tensor's bytes go to `file`."""
    if value is None:
        return {"kind": "none"}
    if isinstance(value, (bool, np.bool_)):
        return {"kind": "bool", "value": bool(value)}
    if isinstance(value, int):
        return {"kind": "int", "value": value}
    if isinstance(value, float):
        return {"kind": "double", "value": value}
    if isinstance(value, str):
        return {"kind": "string", "value": value}
    order = dim_order_of(value) if dim_order is None else dim_order
    file.write_bytes(np.ascontiguousarray(value.transpose(order)).tobytes())
    return {
        "kind": "tensor",
        "dtype": scalar_type_of(value.dtype).torch_name,
        "sizes": list(value.shape),
        "dim_order": list(order),
        "file": file.name,
    }


def value_of(description: Any, folder: Path) -> Any:
    """The value of a description; tensors as read-only arrays of their own memory."""
    kind = description["kind"]
    if kind == "none":
        return None
    if kind in _SCALAR_KINDS:
        return description["value"]
    name = description["file"]
    if Path(name).name != name:  # it may come from a device
        raise ValueError(f"{name!r} is not a file beside the description")
    data = (folder / name).read_bytes()
    return dense_view(
        memoryview(data),
        _BY_TORCH_NAME[description["dtype"]],
        description["sizes"],
        description["dim_order"],
    )


RESULT = "result.json"
ETDUMP = "run.etdp"
DEBUG_BUFFER = "debug.bin"

NONE = "none"
PROGRAM_OUTPUTS = "program_outputs"
INTERMEDIATE_OUTPUTS = "intermediate_outputs"
DEBUG_LEVELS = (NONE, PROGRAM_OUTPUTS, INTERMEDIATE_OUTPUTS)

ALL_EVENTS = "all"
METHOD_ONLY = "method"
PROFILING_LEVELS = (ALL_EVENTS, METHOD_ONLY)


@dataclass(frozen=True, slots=True, eq=False)
class JobCall:
    """Executions of one method: `warmup` of them, whose times are kept apart, then `iterations`.

    inputs: flat, as the program's own list of inputs. Tensors are numpy arrays (types of ml_dtypes
        where numpy has none) whose memory is dense in the order of dimensions that the program
        expects; None stands for an absent optional.
    bundled_input_index: written into the ETDump for these executions; -1 for none.
    fresh: load the method anew for this call, so that no other has changed its state, and answer
        with the outputs of the first execution instead of the last.
    """

    method: str
    inputs: tuple[CaseValue | None, ...]
    iterations: int = 1
    warmup: int = 0
    bundled_input_index: int = -1
    fresh: bool = False

    @property
    def executions(self) -> int:
        return self.warmup + self.iterations


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One process, one load of the program, and the calls in order.

    data: external tensors of the program (.ptd).
    trace: write an ETDump.
    debug_buffer_size: bytes that may be logged; 0: as many as there are (the native runner only).
    threads: of the runtime's thread pool; None: the runtime's default.
    delegate_filters: regular expressions; of delegates' intermediate outputs only those whose name
        matches one of them whole are logged. () logs all. Native runner only, like
        `profiling_level` "method", `allocations` and the debug level "program_outputs".
    libraries: shared libraries with operators or backends to load first.
    """

    program: Path
    calls: tuple[JobCall, ...]
    data: Path | None = None
    trace: bool = True
    debug_level: str = NONE
    profiling_level: str = ALL_EVENTS
    debug_buffer_size: int = 0
    threads: int | None = None
    delegate_filters: tuple[str, ...] = ()
    allocations: bool = False
    libraries: tuple[Path, ...] = ()

    @property
    def executions(self) -> int:
        """Executions of all calls, warm-up included."""
        return sum(call.executions for call in self.calls)


# What a runner answers: the times of each execution and the outputs of the last one of each call.
#
#     {"runner": "native", "executorch": "1.5.1", "threads": 2,
#      "rss_before_bytes": 12546048, "peak_rss_bytes": 13717504, "load_ns": 810000,
#      "calls": [{"load_ns": 120000, "warmup_ns": [], "samples_ns": [2031, …],
#                 "outputs": [description, …]}]}
#
# `load_ns` of the whole is reading the program, of a call loading its method (0 when it was loaded
# before). A description of a value is that of `etscope.run.job`.


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
