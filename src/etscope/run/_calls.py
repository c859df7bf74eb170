"""From what a caller asks for to the executions of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from etscope.errors import MissingDataError, UsageError
from etscope.formats.program.bpte import BundledFile
from etscope.model.input_names import record_input_names
from etscope.run.inputs import method_inputs
from etscope.run.job import JobCall
from etscope.run.program import Opened


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One method to execute on one set of inputs; what is None is as `run()` has it.

    testset_index: the bundled test case whose inputs are taken.
    """

    method: str | None = None
    inputs: Any = None
    iterations: int | None = None
    warmup: int | None = None
    testset_index: int | None = None


def job_calls(inputs: Any, default: Call, opened: Opened, seed: int) -> tuple[JobCall, ...]:
    """The calls of a job: of `inputs` alone, or of each `Call` in it, with the rest of `default`.

    Raises `MissingDataError` when nothing would be run.
    """
    wanted = _wanted_calls(inputs, default)
    calls = tuple(call for one in wanted for call in _resolved(one, opened, seed))
    if not calls:
        raise MissingDataError(
            "the bundled program has no test cases", hint="give inputs (inputs=, --inputs)"
        )
    return calls


def _wanted_calls(inputs: Any, default: Call) -> list[Call]:
    if isinstance(inputs, Call):
        inputs = [inputs]
    is_list = isinstance(inputs, (list, tuple))
    if not is_list or not any(isinstance(one, Call) for one in inputs):
        return [replace(default, inputs=inputs)]
    if not all(isinstance(one, Call) for one in inputs):
        raise UsageError("a list of calls has something else in it", hint="give Call objects only")
    return [
        Call(
            method=default.method if call.method is None else call.method,
            inputs=call.inputs,
            iterations=default.iterations if call.iterations is None else call.iterations,
            warmup=default.warmup if call.warmup is None else call.warmup,
            testset_index=default.testset_index
            if call.testset_index is None
            else call.testset_index,
        )
        for call in inputs
    ]


def _resolved(call: Call, opened: Opened, seed: int) -> Iterable[JobCall]:
    """The executions that a call asks for: one, or one for each test case of a bundle."""
    iterations, warmup = call.iterations or 0, call.warmup or 0
    if iterations < 1 or warmup < 0:
        raise UsageError("at least one iteration must run, and warm-up cannot be negative")
    if call.inputs is None and opened.bundle is not None:
        yield from _cases(call, opened, opened.bundle, iterations, warmup)
        return
    if call.testset_index is not None:
        raise UsageError(
            "a test case and inputs exclude each other"
            if call.inputs is not None
            else "a test case can be chosen of a bundled program only (.bpte)"
        )
    method = opened.method_name(call.method)
    names = None if opened.record is None else record_input_names(opened.record, method)
    values = method_inputs(opened.program, method, call.inputs, seed=seed, input_names=names)
    yield JobCall(method, values, iterations, warmup)


def _cases(
    call: Call, opened: Opened, bundle: BundledFile, iterations: int, warmup: int
) -> Iterable[JobCall]:
    """The test cases of a bundle: of the method that is named, or of all that have some."""
    suites = [bundle.suite(opened.method_name(call.method))] if call.method else bundle.suites
    for suite in suites:
        indices: Iterable[int] = range(len(suite.cases))
        if call.testset_index is not None:
            if not 0 <= call.testset_index < len(suite.cases):
                raise MissingDataError(
                    f"there is no test case {call.testset_index} of method {suite.method!r}",
                    hint=f"it has {len(suite.cases)}, counted from 0",
                )
            indices = [call.testset_index]
        for index in indices:
            given = suite.cases[index].inputs
            values = method_inputs(opened.program, suite.method, given, seed=0)
            yield JobCall(suite.method, values, iterations, warmup, index, fresh=True)
