"""What a runner cannot do, found out before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from etscope.analysis.memory.memory import recorded_by_a_run
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import ScalarValue, TensorValue, ValueKind
from etscope.formats.program.scalar_type import ScalarType
from etscope.run.job import ALL_EVENTS, INTERMEDIATE_OUTPUTS, PROGRAM_OUTPUTS, Job

# The types that ETDumpGen (ExecuTorch 1.0 to 1.5, devtools/etdump/etdump_flatcc.cpp) can log. Any
# other leaves a dump that nobody can read.
LOGGABLE = frozenset(
    {
        ScalarType.BYTE,
        ScalarType.CHAR,
        ScalarType.SHORT,
        ScalarType.INT,
        ScalarType.LONG,
        ScalarType.FLOAT,
        ScalarType.DOUBLE,
        ScalarType.BOOL,
        ScalarType.BITS16,
        ScalarType.UINT16,
    }
)


def beyond_python(job: Job, program: Program) -> list[str]:
    """What of a job the Python runtime cannot do, in words that end a sentence."""
    found = []
    if job.debug_level == PROGRAM_OUTPUTS:
        found.append("the debug level program_outputs")
    if job.profiling_level != ALL_EVENTS:
        found.append(f"the profiling level {job.profiling_level}")
    if job.allocations:
        found.append("allocation events")
    if job.delegate_filters and job.debug_level == INTERMEDIATE_OUTPUTS:
        found.append("filters of delegates' outputs")
    if job.debug_level == INTERMEDIATE_OUTPUTS:
        for method in dict.fromkeys(call.method for call in job.calls):
            found += unloggable(program, method)
    return found


def unloggable(program: Program, method: str) -> list[str]:
    """Values that the runtime's own tracer cannot log at the level intermediate_outputs."""
    types: dict[str, list[str]] = {}
    for place, value in _logged(program, method):
        if isinstance(value, TensorValue) and value.scalar_type not in LOGGABLE:
            types.setdefault(f"tensors of {value.scalar_type.torch_name}", []).append(place)
        elif isinstance(value, ScalarValue) and value.kind is ValueKind.NULL:
            types.setdefault("None as an output", []).append(place)
    return [f"{kind} ({_shortened(places)})" for kind, places in types.items()]


def _logged(program: Program, method: str) -> Iterator[tuple[str, object]]:
    values = program.method(method).values
    for place, index in recorded_by_a_run(program, method):
        yield place, values[index]


def _shortened(places: Iterable[str]) -> str:
    listed = list(dict.fromkeys(places))
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more
