"""Execute a job on the runtime inside the `executorch` package, in this process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

from etscope.analysis.memory.plan import methods_sharing_state
from etscope.bridge.generation import Execute, generate
from etscope.bridge.tensors import numpy_value, torch_values
from etscope.errors import MissingDependencyError, UsageError
from etscope.formats.program.pte import read_pte
from etscope.support.optional import installed_libraries

for _name, _path in installed_libraries().items():
    os.environ.setdefault(_name, _path)
try:
    # The bindings alone. `executorch.runtime` adds seconds of imports that nothing here needs.
    from executorch.extension.pybindings import _C
except ImportError as error:
    raise MissingDependencyError(
        f"the ExecuTorch runtime cannot be loaded: {error}",
        hint="running a program needs the Python package of ExecuTorch 1.5 or later: "
        "pip install 'etscope[torch]'",
    ) from error

# Namespace of operators -> the library in the executorch package that has their kernels.
_KERNELS = {
    "quantized_decomposed": "kernels/quantized/**/*quantized_ops_aot_lib.*",
    "llama": "extension/llm/custom_ops/**/*custom_ops_aot_lib.*",
    "preprocess": "extension/llm/custom_ops/**/*custom_ops_aot_lib.*",
}


def execute(job: Any, etdump: Path | None, debug_buffer: Path | None) -> dict[str, Any]:
    """Execute `job` (`etscope.run.job.Job`) and return its result as `result.json` has it, with
    numpy arrays for the descriptions of outputs. ETDump and debug buffer are written if their paths
    are given."""
    for library in job.libraries:
        _load_library(library)
    # The libraries with kernels that the bindings lack.
    known = {name.partition("::")[0] for name in _C._get_operator_names()}
    used = {
        operator.name.partition("::")[0]
        for method in read_pte(job.program).methods
        for operator in method.operators
    }
    spec = find_spec("executorch")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    for pattern in sorted({_KERNELS[name] for name in used - known if name in _KERNELS}):
        for library in (path for folder in folders for path in folder.glob(pattern)):
            _load_library(library)
    threads = _C._threadpool_get_thread_count()
    if job.threads is not None:
        _C._unsafe_reset_threadpool(job.threads)
    try:
        return _execute(job, etdump, debug_buffer)
    finally:
        if _C._threadpool_get_thread_count() != threads:
            _C._unsafe_reset_threadpool(threads)


def _execute(job: Any, etdump: Path | None, debug_buffer: Path | None) -> dict[str, Any]:
    generating = () if job.generation is None else job.generation.methods
    shares = len(generating) < 2
    if not shares:
        # `_load_program` gives all methods the same memory: one would overwrite another's state,
        # unless its buffers were planned to be shared.
        planned = read_pte(job.program)
        shares = any(methods_sharing_state(planned, name) for name in generating)
    load = _C._load_program if shares else _C._load_for_executorch
    begin = perf_counter_ns()
    program = load(
        str(job.program),
        enable_etdump=etdump is not None,
        debug_buffer_size=0 if debug_buffer is None else job.debug_buffer_size,
        data_path=None if job.data is None else str(job.data),
    )
    load_ns = perf_counter_ns() - begin
    methods: dict[str, Any] = {}
    calls = [_execute_call(program, methods, call) for call in job.calls]
    generated = {}
    if job.generation is not None:
        begin = perf_counter_ns()
        execute = _loaded(program, generating, shares)
        load_ns += perf_counter_ns() - begin
        generated["generation"] = generate(
            job.generation, read_pte(job.program), execute, keep_outputs=shares
        )
    if etdump is not None:
        buffer = None if debug_buffer is None else str(debug_buffer)
        program.write_etdump_result_to_file(str(etdump), buffer)
    return {
        "runner": "python",
        "executorch": metadata.version("executorch"),
        "threads": _C._threadpool_get_thread_count(),
        "load_ns": load_ns,
        "calls": calls,
        **generated,
    }


def _loaded(program: Any, names: Iterable[str], shares: bool) -> Execute:
    """Load the methods of a generation, all before one runs: loading sets buffers back. shares:
    they share memory; else each has separate memory."""
    if shares:
        methods = {name: program.load_method(name) for name in names}
        return lambda name, inputs: methods[name](inputs, clone_outputs=False)
    for name in names:
        # The bindings cannot only load a method. A call with a value that it does not take ends
        # before anything is executed. If loading fails, the first call reports it.
        with suppress(RuntimeError):
            program.run_method(name, [True])
    return lambda name, inputs: program.run_method(name, inputs, clone_outputs=False)


def _execute_call(program: Any, methods: dict[str, Any], call: Any) -> dict[str, Any]:
    load_ns = 0
    if call.fresh or call.method not in methods:
        begin = perf_counter_ns()
        methods[call.method] = program.load_method(call.method)
        load_ns = perf_counter_ns() - begin
    method, inputs = methods[call.method], torch_values(call.inputs)
    times: list[int] = []
    outputs: list[Any] = []
    if call.fresh:
        times, first = _timed(method, inputs, 1)
        outputs = [numpy_value(value) for value in first]
    more, last = _timed(method, inputs, call.executions - len(times))
    times += more
    return {
        "load_ns": load_ns,
        "warmup_ns": times[: call.warmup],
        "samples_ns": times[call.warmup :],
        "outputs": outputs if call.fresh else [numpy_value(value) for value in last],
    }


def _timed(method: Any, inputs: list[Any], count: int) -> tuple[list[int], list[Any]]:
    """Return the wall time of each of `count` executions, in ns, and the outputs of the last.

    Outputs are not cloned: they are views of the method's memory until its next execution.
    """
    times = [0] * count
    outputs: list[Any] = []
    for index in range(count):
        begin = perf_counter_ns()
        outputs = method(inputs, clone_outputs=False)
        times[index] = perf_counter_ns() - begin
    return times, outputs


def _load_library(library: Path) -> None:
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        raise UsageError(f"cannot load the library {library}: {error}") from error
