"""The inputs of a run, and the runs before it that its state comes from."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from etscope.analysis.graphs.partition import mutated_buffers
from etscope.analysis.memory.plan import methods_sharing_state
from etscope.analysis.numerics.runs import (
    INPUTS_HINT,
    MethodRun,
    OtherInputsError,
    runs_of,
    sequences,
)
from etscope.analysis.profile.logged_run import unfolded
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import recorded_inputs
from etscope.diagnosis.reference import named_graph, whole_program
from etscope.errors import NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE, RecordView
from etscope.formats.generation import OutputOf
from etscope.formats.program.bpte import BundledFile
from etscope.formats.program.input_validation import (
    as_exported,
    as_program_input,
    check_count,
    check_value,
)
from etscope.formats.program.pte import Program
from etscope.formats.run_json import SavedCall, call_of_run, inputs_sha256


def inputs_of_run(
    trace: Trace, method: str, run: MethodRun, given: Any, bundle: BundledFile | None
) -> Any:
    """Find the inputs of a run: the given ones, else the bundled test case's, else the ones that
    `etscope run --save` kept, else the record's example inputs. None if there are none.

    Raises `NumericGapError` if the run had other inputs that were not saved, and
    `OtherInputsError` if the given inputs are not the ones that ran.
    """
    if given is not None:
        if not trace.forced:
            _check_given(trace, method, run, given)
        return given
    case_inputs = inputs_of_case(bundle, method, run)
    if case_inputs is not None:
        return case_inputs
    return _inputs_of_call(trace, method, _calls(trace, method)(run))


def inputs_are_a_guess(trace: Trace, method: str, run: MethodRun) -> bool:
    """True if the record's inputs may not be the run's: nothing says so, and the run is not its
    method's first (a decoder's second step has other tokens) or the record lacks example inputs.
    """
    if run.block.bundled_input_index >= 0 or _calls(trace, method)(run) is not None:
        return False
    is_main = method == "forward" or trace.methods == (method,)
    return not is_main or run.number != runs_of(trace, method)[0].number


def _check_given(trace: Trace, method: str, run: MethodRun, given: Any) -> None:
    call = _calls(trace, method)(run)
    noted = None if call is None or call.inputs is None else call.inputs.fingerprint
    if call is None or call.inputs is None or noted is None:
        return
    from etscope.bridge.reference.local_reference import flat_inputs

    values = _as_taken(trace.recorded_program, method, flat_inputs(given))
    if values is None or inputs_sha256(values) == noted:
        return
    source = call.inputs.source
    own = "" if source == "given" else f" ({source})"
    kept = source == "record" or call.inputs.values is not None
    raise OtherInputsError(
        f"these are not the inputs that ran: the run recorded others{own}",
        hint="leave out --inputs (inputs=) to use the ones that ran" if kept else INPUTS_HINT,
    )


def _as_taken(program: Program | None, method: str, given: Sequence[Any]) -> list[Any] | None:
    """Flat inputs in the program's types; None if these are unknown or the inputs do not fit. The
    reference reports a misfit."""
    if program is None:
        return list(given) if all(isinstance(value, np.ndarray) for value in given) else None
    values = as_exported(given)
    found = program.method(method)
    expected = [found.values[index] for index in found.inputs]
    if check_count(values, expected) or any(map(check_value, values, expected)):
        return None
    return list(map(as_program_input, values, expected))


def _calls(trace: Trace, method: str) -> Callable[[MethodRun], SavedCall | None]:
    """Return a function from a run to its call, or None if the call is unknown."""
    if not trace.known_calls:
        return lambda _: None
    numbers = [one.number for one in runs_of(trace, method)]
    mine = [call for call in trace.known_calls if call.method == method]
    if len(mine) == len(numbers) and all(call.runs == 1 for call in mine):  # of a generation
        return lambda run: mine[bisect_left(numbers, run.number)]
    return lambda run: call_of_run(mine, method, bisect_left(numbers, run.number))


def _inputs_of_call(trace: Trace, method: str, call: SavedCall | None) -> Any:
    """The inputs that were saved, or the record's."""
    saved = None if call is None else call.inputs
    if saved is not None:
        if saved.values is not None:
            return list(saved.values)
        if saved.made_of is not None:
            return [
                _output_of_call(trace, value) if isinstance(value, OutputOf) else value
                for value in saved.made_of
            ]
        if saved.source != "record":
            raise NumericGapError(
                f"the inputs of this run ({saved.source}) were not saved with its dump",
                hint="pass them: --inputs FILE, inputs=",
            )
    return None if trace.record is None else recorded_inputs(trace.record, method)


def _output_of_call(trace: Trace, wanted: OutputOf) -> Any:
    """Return the output of a call that a later call of the generation reads: the logged value, or
    the value that the record's graph computes if the method keeps no state.

    Raises `NumericGapError` if it is unknown.
    """
    logged = _logged_output(trace, wanted)
    if logged is not None:
        return logged
    record = trace.record
    if record is not None:
        from etscope.bridge.reference.reference import arrays_of, keeps_state, run_outputs

        name = named_graph(record, EDGE, wanted.method)
        program = trace.once(("whole program", name), lambda: whole_program(record, name))
        inputs = _inputs_of_call(trace, wanted.method, trace.known_calls[wanted.call])
        if not keeps_state(program):
            return arrays_of(run_outputs(program, inputs, {})[wanted.output])
    raise NumericGapError(
        f"an input is an output of call {wanted.call}, of {wanted.method!r}, which was not logged",
        hint="record the values of all calls: etscope generate --debug-level intermediate_outputs",
    )


def _logged_output(trace: Trace, wanted: OutputOf) -> Any:
    """Return the logged output of a call that a later call reads; None if it was not logged."""
    number = int(trace.calls_of_runs.run[wanted.call])
    run = next((one for one in runs_of(trace, wanted.method) if one.number == number), None)
    if run is None or trace.debug_buffer is None:
        return None
    logged = unfolded(trace.values(run.block, run.position, run.block.outputs))
    return logged[wanted.output] if wanted.output < len(logged) else None


def computed_input(trace: Trace, method: str, run: MethodRun) -> OutputOf | None:
    """Return the first input of a run that another call made and did not log. PyTorch computes it,
    which may differ from the device in the last bits."""
    call = _calls(trace, method)(run)
    sources = () if call is None or call.inputs is None else call.inputs.made_of or ()
    made = [one for one in sources if isinstance(one, OutputOf)]
    return next((one for one in made if _logged_output(trace, one) is None), None)


class EarlierRun(NamedTuple):
    """A run that a later run's state comes from. run: None if the dump lacks it."""

    method: str
    run: MethodRun | None
    inputs: Any


@dataclass(frozen=True, slots=True, eq=False)
class EarlierRuns:
    """The earlier runs that a run's state comes from, in order. doubts: which inputs are
    guesses."""

    runs: Sequence[EarlierRun] = ()
    doubts: tuple[str, ...] = ()


def writers_of_state(trace: Trace, method: str) -> tuple[str, ...]:
    """Return the other methods that ran and have the mutable buffers of a method. Without the
    program, buffers of the same name count as shared in a language model."""
    program = trace.recorded_program
    if program is not None:
        found = methods_sharing_state(program, method)
    elif trace.record is not None and trace.calls_of_runs.phases:
        found = _with_same_buffers(trace.record, method)
    else:
        return ()
    return tuple(one for one in found if runs_of(trace, one))


def _with_same_buffers(record: RecordView, method: str) -> tuple[str, ...]:
    """Return the other methods of a record that write to buffers of the names of a method's."""
    written = {
        name: set(mutated_buffers(record, f"{EDGE}/{name}").values())
        for name in record.edge_methods
        if f"{EDGE}/{name}" in record.graph_names
    }
    own = written.pop(method, set())
    return tuple(name for name, buffers in written.items() if own & buffers)


def runs_before(
    trace: Trace,
    method: str,
    run: MethodRun,
    given: Any,
    bundle: BundledFile | None,
    previous: Sequence[Any] | None = None,
) -> EarlierRuns:
    """Find the earlier runs that a run's state comes from, with their inputs: the ones that
    `etscope run --save` kept, or of test cases. Unknown inputs are assumed equal to the run's own.
    Runs of other methods that write the same buffers are included.

    given: the user's inputs of the run, None for none. previous: inputs of all runs of the method
    before, where no other writes its buffers.

    Raises `NumericGapError` for an earlier run with other inputs that were not saved, or of another
    method; `UsageError` if `previous` has too few entries.
    """
    known = sequences(trace, method)
    earlier = known.before(run)
    doubts: tuple[str, ...] = () if known.doubt is None else (known.doubt,)
    # Each test case loads the model anew.
    writers = writers_of_state(trace, method) if run.block.bundled_input_index < 0 else ()
    if previous is not None and not writers:
        return EarlierRuns(_with_given_inputs(method, earlier, previous), doubts)
    calls = {name: _calls(trace, name) for name in (method, *writers)}
    ran = [(method, one) for one in earlier]
    for name in writers:
        ran += [(name, one) for one in runs_of(trace, name) if one.number < run.number]
    ran.sort(key=lambda one: one[1].number)
    found: list[EarlierRun] = []
    before: SavedCall | None = None
    is_guess = False
    for name, one in (*ran, (method, run)):
        call = calls[name](one)
        if call is not None and call is not before:
            inputs = _inputs_of_call(trace, name, call) if call.warmup else None
            found += [EarlierRun(name, None, inputs)] * call.warmup
        before = call
        if one is run:
            break
        case = one.block.bundled_input_index
        values = inputs_of_case(bundle, name, one)
        if values is None and call is not None and call.inputs is not None:
            values = _inputs_of_call(trace, name, call)
        elif values is None and (name, case) != (method, run.block.bundled_input_index):
            raise _inputs_not_known(one, name, method)
        elif values is None:
            own = calls[method](run)
            values = given if given is not None else _inputs_of_call(trace, method, own)
            is_guess = is_guess or (given is not None and case < 0)
        found.append(EarlierRun(name, one, values))
    if is_guess:
        doubts += (
            f"the model keeps state, and the inputs of the runs before run {run.number} are "
            "unknown: assumed the same as this run's",
        )
    return EarlierRuns(found, doubts)


def _inputs_not_known(run: MethodRun, ran: str, method: str) -> NumericGapError:
    """Return the error for an earlier run of the method `ran`, which a run of `method` goes on
    from."""
    if ran != method:
        return NumericGapError(
            f"{method!r} reads buffers that {ran!r} wrote, and the inputs of its run {run.number} "
            "are unknown",
            hint="etscope run --save keeps the inputs of all calls",
        )
    case = run.block.bundled_input_index
    return NumericGapError(
        f"the model keeps state, and the inputs of the earlier run {run.number} are unknown"
        + (f" (test case {case})" if case >= 0 else ""),
        hint="pass the bundled program that ran (program=, --program), or the inputs of all "
        "earlier runs (previous=; --dataset)",
    )


def _with_given_inputs(
    method: str, runs: Sequence[MethodRun], previous: Sequence[Any]
) -> list[EarlierRun]:
    """Pair the runs with their inputs. The first inputs may belong to runs outside the dump."""
    absent = len(previous) - len(runs)
    if absent < 0:
        raise UsageError(
            f"the model's state comes from {len(runs)} earlier runs, but previous= has the inputs "
            f"of {len(previous)}",
            hint="pass the inputs of each earlier run, in order: previous=",
        )
    ran = zip([*[None] * absent, *runs], previous, strict=True)
    return [EarlierRun(method, run, inputs) for run, inputs in ran]


def inputs_of_case(bundle: BundledFile | None, method: str, run: MethodRun) -> list[Any] | None:
    """The inputs of the bundled test case that a run executed; None if they are not known."""
    case = run.block.bundled_input_index
    for suite in () if bundle is None else bundle.suites:
        if suite.method == method and 0 <= case < len(suite.cases):
            return list(suite.cases[case].inputs)
    return None
