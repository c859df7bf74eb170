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

from etscope.formats.program.bpte import CaseValue

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
