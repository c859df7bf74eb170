"""Find the operator that goes wrong: `analysis.numerics` on a trace, its record and inputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from etscope.analysis.matching.logged_run import logged_run
from etscope.analysis.metrics import Metric, find_metric
from etscope.analysis.numerics.diagnose import (
    DEFAULT_METRIC,
    DeviceValues,
    Recomputation,
    Recomputed,
    RunMatcher,
    device_values,
    diagnose_run,
)
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.numerics.runs import (
    NO_RECORD_HINT,
    MethodRun,
    check_values,
    chosen_run,
    sequences,
)
from etscope.analysis.profile.trace import Trace
from etscope.diagnosis.numeric_gap import method_that_ran
from etscope.diagnosis.reference import inputs_of_case, inputs_of_run, named_program, reference_of
from etscope.errors import EtscopeWarning, NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE
from etscope.formats.program.bpte import BundledFile

if TYPE_CHECKING:
    from etscope.bridge.reference.local_reference import Memory


class PreparedNumerics:
    """The reference of a method, ready for any number of runs: its graph is read, its program is
    rebuilt from the record, and runs are matched with it, once.

    `trace` is one of a dump of the record's program. Runs may be of others of the same record and
    program. Raises `NumericGapError` without a record, or the graph that is meant, `UsageError` for
    an unknown metric or a tolerance that is NaN.
    """

    def __init__(
        self,
        trace: Trace,
        method: str,
        *,
        metric: str | Metric = DEFAULT_METRIC,
        tolerance: float | None = None,
        reference_graph: str | None = None,
    ) -> None:
        if tolerance is not None and math.isnan(tolerance):
            raise UsageError("a tolerance must be a number, not NaN")
        if trace.record is None:
            raise NumericGapError("a diagnosis needs an ETRecord", hint=NO_RECORD_HINT)
        self.method = method
        self.metric = metric if isinstance(metric, Metric) else find_metric(metric)
        self._tolerance = tolerance
        graph = reference_of(trace, method, reference_graph or EDGE, None).graph
        self._matcher = RunMatcher(graph)
        self._program, self._names = named_program(trace.record, graph)
        from etscope.bridge.reference.reference import keeps_state

        self.keeps_state: bool = keeps_state(self._program)

    def memory(self) -> Memory:
        """Return the state of a model that was just loaded."""
        from etscope.bridge.reference.local_reference import Memory

        return Memory()

    def diagnose(
        self, trace: Trace, run: MethodRun, inputs: Any, memory: Memory | None = None
    ) -> Numerics:
        """Find the operators of a run whose numbers go wrong.

        inputs: of the run. memory: what the runs before it left, by default nothing; it goes on
        with this run, and has the outputs of the reference then.

        Raises the errors of `analysis.numerics.diagnose`.
        """
        from etscope.bridge.reference.local_reference import flat_inputs, recompute

        def values(device: DeviceValues, nodes: Collection[str]) -> Iterable[Recomputed]:
            return recompute(self._program, inputs, device, nodes, self._names, memory)

        recomputation = Recomputation(self._matcher.graph, flat_inputs(inputs), values)
        return diagnose_run(
            trace, self.method, run, recomputation, self._matcher, self.metric, self._tolerance
        )

    def go_on(self, trace: Trace, run: MethodRun | None, inputs: Any, memory: Memory) -> None:
        """Take what a run leaves into `memory`, without a look at its numbers. Where nothing was
        logged, or there is no run in the dump, the device's state is taken for the reference's."""
        from etscope.bridge.reference.local_reference import recompute

        device: DeviceValues = _nothing
        if run is not None and any(key.debug for key in run.block.keys):
            logged = logged_run(trace, run.block, run.position, self.method)
            device = device_values(logged, self._matcher.matched(trace, logged)[0])
        for _ in recompute(self._program, inputs, device, (), self._names, memory):
            pass


def _nothing(name: str, loop_pass: int) -> Collection[tuple[int | None, Any]]:
    return ()


def numerics_of(
    trace: Trace,
    *,
    metric: str = DEFAULT_METRIC,
    tolerance: float | None = None,
    reference_graph: str | None = None,
    method: str | None = None,
    run: int | MethodRun | None = None,
    inputs: Any = None,
    previous: Sequence[Any] | None = None,
    bundle: BundledFile | None = None,
) -> Numerics:
    """See `Inspector.diagnose_numerics`. run: also one of the dump's, as it is."""
    if tolerance is not None and math.isnan(tolerance):
        raise UsageError("a tolerance must be a number, not NaN")
    if trace.record is None:
        raise NumericGapError("a diagnosis needs an ETRecord", hint=NO_RECORD_HINT)
    wanted = method_that_ran(trace, method)
    chosen = chosen_run(trace, wanted, run)
    check_values(trace)
    prepared = PreparedNumerics(
        trace, wanted, metric=metric, tolerance=tolerance, reference_graph=reference_graph
    )
    given = inputs_of_run(trace, wanted, chosen, inputs, bundle)
    if not prepared.keeps_state:
        return prepared.diagnose(trace, chosen, given)
    memory = prepared.memory()
    known = sequences(trace, wanted)
    earlier = known.before(chosen)
    doubts = [] if known.doubt is None else [known.doubt]
    is_given = inputs is not None
    if previous is not None:
        before = _with_given_inputs(earlier, previous)
    else:
        before, guess = _with_recorded_inputs(earlier, chosen, given, is_given, bundle, wanted)
        doubts += guess
    for doubt in doubts:
        warnings.warn(doubt, EtscopeWarning, stacklevel=3)
    for one, values in before:
        prepared.go_on(trace, one, values, memory)
    found = prepared.diagnose(trace, chosen, given, memory)
    return replace(found, doubts=(*found.doubts, *doubts))


def _with_given_inputs(
    runs: Sequence[MethodRun], previous: Sequence[Any]
) -> list[tuple[MethodRun | None, Any]]:
    """Pair the runs with their inputs. The first inputs may be of runs that are not in the dump."""
    absent = len(previous) - len(runs)
    if absent < 0:
        raise UsageError(
            f"the model's state comes from {len(runs)} runs before this one, and the inputs of "
            f"{len(previous)} are given",
            hint="give those of each, in order: previous=",
        )
    return list(zip([*[None] * absent, *runs], previous, strict=True))


def _with_recorded_inputs(
    runs: Sequence[MethodRun],
    chosen: MethodRun,
    given: Any,
    is_given: bool,
    bundle: BundledFile | None,
    method: str,
) -> tuple[list[tuple[MethodRun | None, Any]], list[str]]:
    """The runs with their inputs, and what of these is a guess: those of test cases are known, and
    the record's representative ones are taken for all runs that are of none."""
    found: list[tuple[MethodRun | None, Any]] = []
    guessed = 0
    for run in runs:
        case = run.block.bundled_input_index
        if case != chosen.block.bundled_input_index:
            values = inputs_of_case(bundle, method, run)
            if values is None:
                raise NumericGapError(
                    f"the model keeps state, and the inputs of run {run.number}, which its state "
                    "comes from, are not known"
                    + (f": they are those of test case {case}" if case >= 0 else ""),
                    hint="give the bundled program that ran (program=, --program), or the inputs "
                    "of all runs before (previous=; --dataset)",
                )
        else:
            values = given
            guessed += is_given and case < 0
        found.append((run, values))
    if not guessed:
        return found, []
    return found, [
        f"the model keeps state, and the inputs of the runs before run {chosen.number} are not "
        "known: they are taken to be those of this one"
    ]
