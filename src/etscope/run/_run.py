"""`run()`: from a program to its outputs, its latency, an ETDump and a debug buffer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etscope.analysis.faults.faults import FAILS, program_faults, sites_of, told
from etscope.analysis.matching.run_nodes import RunNodes
from etscope.analysis.program.compatibility import instruction_labels
from etscope.analysis.program.correlate import method_symbols, recorded_inputs
from etscope.analysis.program.program import InstructionRecord, instructions
from etscope.analysis.program.source_location import lines_of
from etscope.errors import MissingDataError, RuntimeFailure, UsageError
from etscope.formats.program.input_validation import as_exported
from etscope.model.exported_graph import record_input_names
from etscope.run._outcome import LATENCY, MEMORY, PROFILE, VALUES, Run
from etscope.run._runner_host import NATIVE
from etscope.run.execute import RecordingOptions, execute_all
from etscope.run.inputs import method_inputs
from etscope.run.job import ALL_EVENTS, NONE, Job, JobCall
from etscope.run.process import FAILED, MISSING_KERNEL, REFUSED_TENSOR
from etscope.run.program import Opened, open_program
from etscope.support.options import takes_fields
from etscope.support.shown import Shown

_LINES = 3  # of Python in a message


@dataclass(frozen=True, slots=True, eq=False)
class Call(Shown):
    """One method to execute on one set of inputs; None takes the value of the same option of
    `run()`.

    testset_index: the bundled test case that gives the inputs.
    """

    method: str | None = None
    inputs: Any = None
    iterations: int | None = None
    warmup: int | None = None
    testset_index: int | None = None


# Options that are None or more than 0.
_POSITIVE = (
    "traced_iterations", "profiled_iterations", "threads", "timeout", "debug_buffer_size",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunOptions(RecordingOptions):
    """Options of `run()`.

    method: "forward" by default, or the only one.
    iterations, warmup: executions that count, and executions before them that do not.
    data: the program's external weights (.ptd).
    testset_index: the only test case of a bundled program to run; all by default.
    seed: the seed of generated inputs; with a seed, the record's inputs are not used.
    trace: False measures the latency and records nothing.
    debug_level: "none", "program_outputs" or "intermediate_outputs".
    debug_buffer_size: bytes; by default computed from the memory plan. `grow`: if it is too small,
        run again with a larger one. The file is not longer than the tensors need.
    traced_iterations: executions that record values, 1 by default; the run that records values has
        no `warmup`.
    separate: False makes one run that measures and records everything; its latency is marked as
        traced.
    profiling_level: "all", or "method" for the times of whole methods only.
    delegate_filters: regular expressions; a value that a delegate logs is recorded if its name
        matches one of them. Without filters all are.
    allocations: record the allocations of the runtime's allocators.
    threads: size of the runtime's thread pool.
    libraries: shared libraries with operators or backends that the program needs.
    runner: "python" (the runtime in the `executorch` package), "native" (etscope's C++ runner), or
        "auto": python, unless only native supports the options.
    isolate: False runs in this process, which ends if the runtime aborts; python runner only. With
        runner "auto", values that the python runner cannot record are recorded by the native
        runner, with a warning.
    timeout: seconds for each run in a separate process.
    profiled_iterations: executions of the separate run that records times; `iterations` by default.
    place: the machine of the runner's processes; this one by default.
    memory: measure the memory of the process by owner, in a separate run: the first call of each
        method, executed twice; native runner only.
    """

    method: str | None = None
    iterations: int = 20
    warmup: int = 1
    testset_index: int | None = None
    seed: int | None = None
    grow: bool = True
    traced_iterations: int | None = None
    separate: bool = True
    delegate_filters: str | Sequence[str] = ()
    profiled_iterations: int | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions of `delegate_filters`."""
        filters = self.delegate_filters
        return (filters,) if isinstance(filters, str) else tuple(filters)

    def check(self) -> None:
        """Raise `UsageError` for values that are not allowed, and for options that contradict each
        other or would have no effect."""
        self.check_words()
        if not isinstance(self.seed, (int, type(None))):
            raise UsageError(f"a seed is a whole number, not {self.seed!r}")
        for name in _POSITIVE:
            number = getattr(self, name)
            if number is not None and not number > 0:
                raise UsageError(f"{name} must be more than 0, not {number}")
        try:
            _ = [re.compile(pattern) for pattern in self.patterns]
        except re.error as error:
            raise UsageError(f"not a regular expression: {error.pattern!r} ({error})") from error
        self._check_combinations()

    def _check_combinations(self) -> None:
        values = self.debug_level != NONE
        records_more = bool(
            values
            or self.allocations
            or self.delegate_filters
            or self.profiling_level != ALL_EVENTS
        )
        chooses_values = bool(
            self.delegate_filters
            or self.debug_buffer_size is not None
            or self.traced_iterations is not None
        )
        for wrong, why in (
            (not self.trace and records_more, "this is recorded in traced runs only"),
            (not self.trace and not self.separate, "there is one run only, and it is not traced"),
            (not values and chooses_values, "values are recorded with a debug level only"),
            (
                not self.separate and self.traced_iterations is not None,
                "traced_iterations is of the separate run that records values",
            ),
            (
                not (self.trace and self.separate) and self.profiled_iterations is not None,
                "profiled_iterations is of the separate run that records times",
            ),
            (
                not self.isolate and self.place is not None,
                "a run in this process cannot be on another device",
            ),
            (
                not self.isolate and self.runner == NATIVE,
                "the native runner is always a separate process",
            ),
        ):
            if wrong:
                raise UsageError(why)
        self.check_timeout()


@takes_fields(RunOptions)
def run(
    program: Any,
    inputs: Any = None,
    *,
    etrecord: Any = None,
    verify: bool = True,
    options: RunOptions = RunOptions(),
    **changes: Any,
) -> Run:
    """Run a program on the ExecuTorch runtime.

    By default there are separate runs, each loads the program: one without tracing for the
    latency, one that records the time of each event, and with a debug level one that records
    values as well. Recording takes time, so only the first gives the latency of the model.

    program: a path or bytes of a .pte, of a bundled program (.bpte) or of an ETRecord that holds
        its program; an `ETRecord`, an `ExecutorchProgramManager`, or a `BundledProgram`.
    inputs: inputs of the method, in any of these forms: tensors (torch or numpy) and numbers, in a
        sequence, nested or not; a mapping by input name; a file (.pt, .npz, .npy, .safetensors);
        None for the cases of a bundled program, else the record's representative inputs, else
        numbers generated from the seed. Or a sequence of `Call`, which are executed in order under
        one load of the program.
    etrecord: the record of the export, for the Inspector and the names of the inputs.
    verify: refuse a record of another program.
    options, changes: fields of `RunOptions`, as `iterations=100`; changes go before `options`.

    Raises `FormatError` for a file that is damaged or of another kind, `MismatchError` for inputs
    that the method does not take, `MissingDataError` for a method or test case that does not exist,
    `UsageError` for options that contradict each other, `MissingDependencyError` for a runner
    that is not available, `RuntimeFailure`, with the runtime's log, when the run fails.
    """
    options = replace(options, **changes)
    options.check()
    opened = open_program(program, etrecord)
    if verify:
        opened.check_record()
    calls = _calls(inputs, options, opened)
    jobs = _jobs(calls, options, opened)
    execution = replace(
        options.execution(jobs.values(), opened.program, options.place),
        debug_buffer_size=options.debug_buffer_size,
        grow=options.grow,
    )
    try:
        executed = execute_all(jobs, opened, execution)
    except RuntimeFailure as error:
        failed = FAILED.search(error.log)
        at = None if failed is None else int(failed["instruction"])
        error.message += "".join(f"\n  {line}" for line in _failed_lines(error, opened, calls))
        error.message += "".join(
            f"\nthe cause: {told(fault)}"
            for fault in program_faults(opened)
            if fault.kind in FAILS
            and fault.method in {call.method for call in calls}
            # A mixed layout in a call that ran is not why another one failed.
            and at in {site.instruction for site in sites_of(fault)}
        )
        raise
    return Run.of(executed, opened, forced=not verify, calls=calls)


def _failed_lines(failure: RuntimeFailure, opened: Opened, calls: Sequence[JobCall]) -> list[str]:
    """Return the lines of Python of what the log says failed: an instruction, an operator without a
    kernel, or what has a tensor that the runtime does not load; and the tensors of the instruction.
    Lines need a record."""
    log = failure.log
    failed, refused = FAILED.search(log), REFUSED_TENSOR.search(log)
    missing = set(re.findall(MISSING_KERNEL, log))
    methods = list(dict.fromkeys(call.method for call in calls))
    lines: dict[str, None] = {}
    tensors: dict[str, None] = {}
    for name in methods if failed or refused or missing else ():
        # The log has the value's index, and not its method.
        has_value = len(methods) == 1 or re.search(rf"\bmethod '?{name}\b", failure.message)
        labels = instruction_labels(opened.program.method(name))
        for one, label in zip(instructions(opened.program, name).records, labels, strict=True):
            if failed:
                is_it = one.instruction_id == int(failed["instruction"]) and (
                    label == failed["operator"] if failed["operator"] else one.kind == "delegate"
                )
                tensors.update(dict.fromkeys(_tensors(one) if is_it else ()))
            else:
                touched = (*one.outputs, *one.inputs)
                is_it = label in missing
                is_it |= bool(refused and has_value and int(refused["value"]) in touched)
            if is_it and opened.record is not None and name in opened.record.edge_methods:
                symbols = method_symbols(opened.record, name)
                nodes = RunNodes(symbols, labels, opened.program).nodes
                of_it = lines_of(nodes.get(one.instruction_id, ()))
                lines.update((f"at {line}: {line.text}", None) for line in of_it)
    return [*list(lines)[:_LINES], *tensors]


def _tensors(instruction: InstructionRecord) -> Iterable[str]:
    """Yield the types, shapes and layouts that the program has for an instruction's tensors."""
    for verb, tensors in (("reads", instruction.read), ("writes", instruction.written)):
        texts = [
            f"{one}"
            if one.dim_order == tuple(range(len(one.sizes)))
            else f"{one} in dim order {', '.join(map(str, one.dim_order))}"
            for one in tensors
        ]
        if texts:
            yield f"it {verb} {', '.join(texts)}"


def _calls(inputs: Any, options: RunOptions, opened: Opened) -> tuple[JobCall, ...]:
    """Return the calls to make: on `inputs`, or each `Call` in it, completed by the options."""
    calls = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if not any(isinstance(one, Call) for one in calls):
        calls = [Call(inputs=inputs)]
    if not all(isinstance(one, Call) for one in calls):
        raise UsageError("a list of calls contains something else", hint="give Call objects only")
    found: list[JobCall] = []
    for call in calls:
        names = ("method", "iterations", "warmup", "testset_index")
        missing = {name: getattr(options, name) for name in names if getattr(call, name) is None}
        found += job_calls(replace(call, **missing), opened, options.seed)
    if not found:
        raise MissingDataError(
            "the bundled program has no test cases", hint="give inputs (inputs=, --inputs)"
        )
    return tuple(found)


def job_calls(call: Call, opened: Opened, seed: int | None) -> Iterable[JobCall]:
    """Yield the executions of a call: one, or one for each test case of a bundle."""
    iterations, warmup = call.iterations or 0, call.warmup or 0
    if iterations < 1 or warmup < 0:
        raise UsageError("at least one iteration must run, and warm-up cannot be negative")
    bundle = opened.bundle
    if call.inputs is not None or bundle is None:
        if call.testset_index is not None:
            raise UsageError(
                "a test case and inputs exclude each other"
                if call.inputs is not None
                else "a test case can be chosen of a bundled program only (.bpte)"
            )
        method = opened.method_name(call.method)
        names = None if opened.record is None else record_input_names(opened.record, method)
        given, source = call.inputs, "given"
        if given is None and seed is None and opened.record is not None:
            given, source = recorded_inputs(opened.record, method), "record"
            given = as_exported(given) if isinstance(given, (list, tuple)) else given
        if given is None:
            source = f"seed {seed or 0}"
        values = method_inputs(opened.program, method, given, seed=seed or 0, input_names=names)
        yield JobCall(method, values, iterations, warmup, inputs_from=source)
        return
    for suite in [bundle.suite(opened.method_name(call.method))] if call.method else bundle.suites:
        indices: Iterable[int] = range(len(suite.cases))
        if call.testset_index is not None:
            if not 0 <= call.testset_index < len(suite.cases):
                raise MissingDataError(
                    f"method {suite.method!r} has no test case {call.testset_index}",
                    hint=f"the method has {len(suite.cases)} test cases, counted from 0",
                )
            indices = [call.testset_index]
        for index in indices:
            given = suite.cases[index].inputs
            values = method_inputs(opened.program, suite.method, given, seed=0)
            yield JobCall(
                suite.method, values, iterations, warmup, index, fresh=True, inputs_from="case"
            )


def _jobs(calls: tuple[JobCall, ...], options: RunOptions, opened: Opened) -> dict[str, Job]:
    """Return the runs by name; each records no more than it must."""
    opened.check_weights(options.data)
    untraced = options.job(calls)
    jobs: dict[str, Job] = {}
    if options.memory:
        # One load of each method: what a second one takes would be counted on top.
        first = {call.method: call for call in reversed(calls)}
        once = [call for call in calls if first[call.method] is call]
        executed_twice = [replace(call, iterations=2, warmup=0, fresh=False) for call in once]
        jobs[MEMORY] = replace(untraced, calls=tuple(executed_twice), memory=True)
    if not options.trace:
        return {LATENCY: untraced, **jobs}
    traced = replace(
        untraced,
        trace=True,
        debug_level=options.debug_level,
        profiling_level=options.profiling_level,
        delegate_filters=options.patterns,
        allocations=options.allocations,
    )
    if not options.separate:
        return {PROFILE if options.debug_level == NONE else VALUES: traced, **jobs}
    profiled = tuple(
        replace(call, iterations=options.profiled_iterations or call.iterations) for call in calls
    )
    jobs |= {LATENCY: untraced, PROFILE: replace(traced, debug_level=NONE, calls=profiled)}
    if options.debug_level != NONE:
        recorded = tuple(
            replace(call, iterations=options.traced_iterations or 1, warmup=0) for call in calls
        )
        jobs[VALUES] = replace(traced, calls=recorded)
    return jobs
