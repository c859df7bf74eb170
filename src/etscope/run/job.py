"""The contract between `run()` and the runners, the processes that hold the runtime: a job in, a
result out.

A runner executes one `Job`, once, and leaves these files in a folder:

    result.json            times and outputs, see `Result`
    output-CALL-INDEX.raw  the bytes of tensor outputs
    run.etdp               if `trace`
    debug.bin              if `debug_level` is not "none"
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.plan import GenerationResult, GenerationTask
from etscope.errors import reading
from etscope.formats.json_values import JsonValue
from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.scalar_type import ScalarType, dense_view, dim_order_of, scalar_type_of
from etscope.formats.run_json import MeasuredMemory, measured_memory
from etscope.support.shown import Shown

__all__ = ["INTERMEDIATE_OUTPUTS", "NONE", "Job"]

RESULT = "result.json"
ETDUMP = "run.etdp"
DEBUG_BUFFER = "debug.bin"
LOGITS = "output-0-0.raw"

NONE = "none"
PROGRAM_OUTPUTS = "program_outputs"
INTERMEDIATE_OUTPUTS = "intermediate_outputs"
DEBUG_LEVELS = (NONE, PROGRAM_OUTPUTS, INTERMEDIATE_OUTPUTS)

ALL_EVENTS = "all"
METHOD_ONLY = "method"
PROFILING_LEVELS = (ALL_EVENTS, METHOD_ONLY)


@dataclass(frozen=True, slots=True, eq=False)
class JobCall:
    """Executions of one method: first `warmup` executions, whose times are kept apart, then
    `iterations`.

    inputs: the values in the order of the program's flat list of inputs. Tensors are numpy arrays
        (types of ml_dtypes where numpy has none), with dense memory in the order of dimensions that
        the program expects; None for an absent optional input.
    bundled_input_index: a number that is written into the ETDump for these executions; -1 for none.
    fresh: load the method again for this call, so that no other call has changed its state, and
        return the outputs of the first execution instead of the last.
    inputs_from: "given", "record", "case" (of a bundle) or "seed N".
    """

    method: str
    inputs: tuple[CaseValue | None, ...]
    iterations: int = 1
    warmup: int = 0
    bundled_input_index: int = -1
    fresh: bool = False
    inputs_from: str = "given"

    @property
    def executions(self) -> int:
        return self.warmup + self.iterations

    @property
    def case(self) -> int | None:
        """The bundled test case; None for other inputs."""
        return None if self.bundled_input_index < 0 else self.bundled_input_index


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Bytes of the pools that stand in for malloc, as on a microcontroller.

    planned: the method's pool holds the planned buffers and a list of the inputs, too.
    """

    method: int
    temporary: int
    planned: bool = False


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The use of a memory pool, "method" or "temporary", by a run. `peak`: the largest number of
    bytes in use, with padding between allocations. `alignment`: the largest alignment that was
    requested.
    """

    pool: str
    size: int
    peak: int
    alignment: int


@dataclass(frozen=True, slots=True, eq=False)
class Job(Shown):
    """One process, one load of the program, and the calls in order.

    data: external tensors of the program (.ptd).
    trace: write an ETDump.
    debug_buffer_size: bytes that may be logged; 0: no limit (the native runner only).
    threads: size of the runtime's thread pool; None: the runtime's default.
    delegate_filters: regular expressions; an intermediate output of a delegate is logged only if
        one of them matches its whole name. () logs all. Native runner only, like `profiling_level`
        "method", `allocations` and the debug level "program_outputs".
    libraries: shared libraries with operators or backends to load first.
    memory: measure the memory of the process by owner (native runner only, without `trace`).
    pools: memory in place of malloc's, for one call without a trace. Native runner only.
    generation: in place of the calls, a language model's calls for its tokens.
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
    memory: bool = False
    pools: PoolSizes | None = None
    generation: GenerationTask | None = None

    @property
    def executions(self) -> int:
        """Executions of all calls, warm-up included; for a generation, the most that are
        possible.
        """
        if self.generation is not None:
            return (self.generation.warmup + self.generation.runs) * self.generation.calls
        return sum(call.executions for call in self.calls)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that run, in the order of their first calls."""
        if self.generation is not None:
            return self.generation.methods
        return tuple(dict.fromkeys(call.method for call in self.calls))

    def executions_of_methods(self) -> list[tuple[str, int]]:
        """Return the executions as (method, number), with the largest possible numbers; a method
        may appear more than once.
        """
        task = self.generation
        if task is None:
            return [(call.method, call.executions) for call in self.calls]
        generations = task.warmup + task.runs
        return [
            *((call.method, generations) for call in task.prompt),
            *((call.method, generations * (task.max_new_tokens - 1)) for call in task.decode),
        ]


@dataclass(frozen=True, slots=True, eq=False)
class CallResult:
    """Result of one call: times in ns, and the outputs of its last execution, flat."""

    load_ns: int
    warmup_ns: npt.NDArray[np.int64]
    samples_ns: npt.NDArray[np.int64]
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Result of a whole job, in the file:

        {"runner": "native", "executorch": "1.5.1", "threads": 2,
         "rss_before_bytes": 12546048, "peak_rss_bytes": 13717504, "load_ns": 810000,
         "calls": [{"load_ns": 120000, "warmup_ns": [], "samples_ns": [2031, …],
                    "outputs": [description, …]}]}

    load_ns: the time of reading the program; for a call, the time of loading its method, 0 if it
    was already loaded. threads: size of the runtime's thread pool, None if not known.
    rss_before_bytes, peak_rss_bytes: resident memory of the runner's process, before it read the
    program and at its peak; None where the system does not report it. memory: only for a job with
    `memory`, as in run.json. generation: only for a job that generates tokens: `run`, `start_ns`,
    `execute_ns` and `sampling_ns` of each call in order; `tokens` and `stopped_by` of each
    generation, warm-up included; if logits were requested, `logits`, the description of a tensor,
    and `logits_positions`. pools: only for a job with memory pools: `pool`, `size_bytes`,
    `peak_bytes` and `alignment` of each pool. pool_failure: the first allocation that a pool had no
    room for; the run may have continued without it.
    """

    runner: str
    executorch: str | None
    threads: int | None
    load_ns: int
    calls: tuple[CallResult, ...]
    rss_before_bytes: int | None = None
    peak_rss_bytes: int | None = None
    memory: MeasuredMemory | None = None
    pools: tuple[PoolUse, ...] = ()
    pool_failure: str | None = None
    generation: GenerationResult | None = None


def read_result(folder: Path) -> Result:
    """Read the result that a runner left in `folder`."""
    path = folder / RESULT
    with reading("runner's result", path):
        found = json.loads(path.read_bytes())
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
            memory=JsonValue(found).optional("memory", measured_memory),
            pools=tuple(
                PoolUse(one["pool"], one["size_bytes"], one["peak_bytes"], one["alignment"])
                for one in found.get("pools", ())
            ),
            pool_failure=found.get("pool_failure"),
            generation=_generation_result(found.get("generation"), folder),
        )


_OF_CALLS = ("run", "start_ns", "execute_ns", "sampling_ns")


def _generation_result(found: Any, folder: Path) -> GenerationResult | None:
    if found is None:
        return None
    columns = {name: np.array(found[name], np.int64) for name in _OF_CALLS}
    logits = found.get("logits")
    return GenerationResult(
        tokens=tuple(np.array(one, np.int64) for one in found["tokens"]),
        stopped_by=tuple(found["stopped_by"]),
        **columns,
        logits=None if logits is None else value_of(logits, folder),
        logits_positions=None if logits is None else np.array(found["logits_positions"], np.int64),
    )


def describe_generation(result: GenerationResult, folder: Path) -> dict[str, Any]:
    """Return what `read_result` reads of a generation; logits go to a file in `folder`."""
    found: dict[str, Any] = {name: getattr(result, name).tolist() for name in _OF_CALLS}
    found["tokens"] = [one.tolist() for one in result.tokens]
    found["stopped_by"] = list(result.stopped_by)
    if result.logits is not None and result.logits_positions is not None:
        found["logits"] = describe_value(result.logits, folder / LOGITS)
        found["logits_positions"] = result.logits_positions.tolist()
    return found


# -- values on their way to and from a runner: a description in JSON, a file for a tensor's bytes
#
#     {"kind": "tensor", "dtype": "float32", "sizes": [1, 3], "dim_order": [0, 1], "file": "…"}
#     {"kind": "int" | "bool" | "double" | "string", "value": …}
#     {"kind": "none"}
#
# A tensor's file holds its elements, densely, in the order of dimensions `dim_order`, outermost
# first; `dtype` is torch's name of the type.

# "bool" is first, as Python's bool is an int.
_SCALAR_KINDS: dict[str, Any] = {
    "bool": (bool, np.bool_), "int": int, "double": float, "string": str,
}  # fmt: skip
_BY_TORCH_NAME = {kind.torch_name: kind for kind in ScalarType}


def stored(array: npt.NDArray[Any]) -> bytes:
    """Return the elements of an array, dense, in its order of dimensions in memory."""
    return np.ascontiguousarray(array.transpose(dim_order_of(array))).tobytes()


def describe_value(value: Any, file: Path) -> Any:
    """Return the description of a value; a tensor's bytes go to `file`."""
    if value is None:
        return {"kind": "none"}
    for kind, python in _SCALAR_KINDS.items():
        if isinstance(value, python):
            return {"kind": kind, "value": bool(value) if kind == "bool" else value}
    file.write_bytes(stored(value))
    return {
        "kind": "tensor",
        "dtype": scalar_type_of(value.dtype).torch_name,
        "sizes": list(value.shape),
        "dim_order": list(dim_order_of(value)),
        "file": file.name,
    }


def value_of(description: Any, folder: Path) -> Any:
    """Return the value of a description; tensors as read-only arrays with separate memory."""
    kind = description["kind"]
    if kind == "none":
        return None
    if kind in _SCALAR_KINDS:
        return description["value"]
    name = description["file"]
    if Path(name).name != name:  # it may come from a device
        raise ValueError(f"{name!r} is not a file next to the description")
    data = (folder / name).read_bytes()
    return dense_view(
        memoryview(data),
        _BY_TORCH_NAME[description["dtype"]],
        description["sizes"],
        description["dim_order"],
    )
