"""What a runner is told, and what it answers: the one contract between `run()` and the processes
that hold the runtime.

A runner executes one `Job`, once, and leaves these files in a folder:

    result.json            times and outputs, see `etscope.run._result`
    output-CALL-INDEX.raw  the bytes of tensor outputs
    run.etdp               if `trace`
    debug.bin              if `debug_level` is not "none"
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from etscope.formats.program.bpte import CaseValue
from etscope.formats.program.dense_tensor import dense_view, dim_order_of
from etscope.formats.program.scalar_type import ScalarType, scalar_type_of

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
