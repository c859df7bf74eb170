"""Find the operator that goes wrong: `analysis.numerics` on a trace, its record and inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from etscope.analysis.faults.faults import possible_faults
from etscope.analysis.matching.delegate_values import codes_of_graph
from etscope.analysis.metrics import Metric, find_metric
from etscope.analysis.numerics.diagnose import (
    DEFAULT_METRIC,
    Judgement,
    KeptValues,
    MatchedRun,
    RunMatcher,
    diagnose_run,
)
from etscope.analysis.numerics.limits import check_tolerance
from etscope.analysis.numerics.multi_run_tests import AddedRuns
from etscope.analysis.numerics.rows import Numerics, with_faults
from etscope.analysis.numerics.runs import (
    INPUTS_HINT,
    MethodRun,
    OtherInputsError,
    TracedMethod,
    check_record,
    check_values,
    method_that_ran,
)
from etscope.analysis.profile.trace import Trace
from etscope.backends.common.logged import Inside
from etscope.diagnosis.reference import EarlierRuns, ReferenceGraphs, RunInputs
from etscope.errors import EtscopeError, EtscopeWarning, ReferenceFailure
from etscope.formats.etrecord.reader import EDGE
from etscope.formats.program.bpte import BundledFile
from etscope.model.selector import Selector
from etscope.units import listed

if TYPE_CHECKING:
    from etscope.bridge.reference.backends import Arithmetic
    from etscope.bridge.reference.float_runs import FloatReference
    from etscope.bridge.reference.local_reference import DeviceValues, Memory


@dataclass(frozen=True, slots=True, eq=False)
class RunToCompare:
    """The run to compare with its reference, and how: see `Inspector.diagnose_numerics`.

    run: an index, or a run of the dump. bundle: the bundled program that may have run.

    Raises `UsageError` for a tolerance of NaN.
    """

    metric: str = DEFAULT_METRIC
    tolerance: float | None = None
    reference_graph: str | None = None
    method: str | None = None
    run: int | MethodRun | None = None
    inputs: Any = None
    previous: Sequence[Any] | None = None
    bundle: BundledFile | None = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)


_ANY_RUN = RunToCompare()


class PreparedNumerics:
    """The reference of a method for any number of runs. It reads the graph, rebuilds the program
    and matches each kind of run once.

    trace: a trace with a dump of the record's program; the runs may come from other dumps of the
    same record and program. kept: selects the rows that keep their values; None selects none.

    Raises `NumericGapError` without a record or the named graph, `UsageError` for an unknown metric
    or a tolerance of NaN.
    """

    def __init__(
        self,
        trace: Trace,
        method: str,
        *,
        metric: str | Metric = DEFAULT_METRIC,
        tolerance: float | None = None,
        reference_graph: str | None = None,
        kept: KeptValues | None = None,
    ) -> None:
        self._judgement = Judgement(find_metric(metric), tolerance, kept)
        check_record(trace, "a diagnosis needs")
        self.method = method
        of_trace, graphs = TracedMethod(trace, method), ReferenceGraphs.of(trace)
        graph = self.graph = graphs.of_method(of_trace, reference_graph or EDGE)
        self._matcher = RunMatcher(graph)
        self.runnable = graphs.runnable(graph)
        self._codes = partial(codes_of_graph, graph, of_trace.symbols.before_passes)
        self._arithmetics: dict[frozenset[tuple[str, Inside]], Arithmetic] = {}
        self._side: FloatReference | None = None
        self._no_side: tuple[str, ...] = ()
        try:
            self._side = graphs.float_reference(method, graph, self.runnable)
        except EtscopeError as error:  # of a slimmed record, without weights, or a refused graph
            self._no_side = (f"the cost of quantization is unknown: {error.message}",)
        self.keeps_state = self.runnable.keeps_state

    def memory(self) -> Memory:
        """Return the state of a model that was just loaded."""
        from etscope.bridge.reference.local_reference import Memory

        return Memory()

    def diagnose(
        self,
        trace: Trace,
        run: MethodRun,
        inputs: Any,
        memory: Memory | None = None,
        *,
        operators: bool = False,
        runs: AddedRuns | None = None,
    ) -> Numerics:
        """Find the operators of a run that compute wrong numbers.

        inputs: the run's inputs. memory: the state that earlier runs left, by default none; this
        run updates it and adds the reference's outputs. operators: measure the cost of quantization
        for each operator, not only for the outputs. runs: combines the values of this run with
        other runs'.

        Raises the errors of `analysis.numerics.diagnose`.
        """
        from etscope.bridge.eager import threads_for
        from etscope.bridge.reference.known_differences import ReferenceRun
        from etscope.bridge.reference.local_reference import Memory, flat_inputs

        memory = Memory() if memory is None else memory
        side = None
        with suppress(ReferenceFailure):  # this graph fails, too, and the diagnosis says where
            side = None if self._side is None else self._side.run(inputs, memory)
        ran = self._matched(trace, run)
        reference = ReferenceRun(
            graph=self.runnable,
            named=self.graph,
            inputs=inputs,
            device=ran.device,
            memory=memory,
            before=Memory(local=dict(memory.local)),
            arithmetic=self._arithmetic(ran.backends),
            float_value=(lambda path, element: None) if side is None else side.value,
        )
        judgement = replace(self._judgement, runs=runs)
        with threads_for(self.graph):
            found = diagnose_run(ran, flat_inputs(inputs), reference, self._matcher, judgement)
            if side is not None and not found.failure:
                device = run.outputs(trace)
                cost = side.compare(judgement.metric, memory.outputs, device, operators=operators)
                found = replace(found, quantization=cost)
        found = with_faults(found, possible_faults(trace.export))
        return replace(found, doubts=(*found.doubts, *self._no_side))

    def _matched(self, trace: Trace, run: MethodRun) -> MatchedRun:
        return self._matcher.match(TracedMethod(trace, self.method), run)

    def _arithmetic(self, backends: Mapping[str, Inside]) -> Arithmetic:
        """The device's way to compute the graph, found once for all runs."""
        from etscope.bridge.reference.backends import arithmetic_of

        key = frozenset(backends.items())
        if key not in self._arithmetics:
            self._arithmetics[key] = arithmetic_of(self.runnable, backends, self._codes)
        return self._arithmetics[key]

    def take_logged_state(self, trace: Trace, run: MethodRun, memory: Memory) -> None:
        """Fill the device's state before a run from the buffers that the run logged, because
        earlier runs logged nothing."""
        from etscope.bridge.reference.local_reference import take_logged_state

        take_logged_state(self.runnable, self._matched(trace, run).device, memory)

    @property
    def quantizes(self) -> bool:
        """True if an operator of the graph quantizes."""
        return any("quantize" in one.op for one in self.graph.operators.values())

    def go_on(self, trace: Trace, run: MethodRun | None, inputs: Any, memory: Memory) -> None:
        """Update `memory` with the state that a run leaves, without judging its numbers. If nothing
        was logged, or the dump lacks the run, the reference's state stands in for the device's."""
        from etscope.bridge.reference.local_reference import recompute

        if self._side is not None:
            self._side.run(inputs, memory)
        device: DeviceValues = lambda node, loop_pass: ()  # noqa: E731
        if run is not None and run.has_values:
            device = self._matched(trace, run).device
        for _ in recompute(self.runnable, inputs, device, (), memory):
            pass


def numerics_of(
    trace: Trace,
    asked: RunToCompare = _ANY_RUN,
    *,
    values: str | None = None,
    costs: bool = True,
    progress: Callable[[int, int | None], None] | None = None,
) -> Numerics:
    """See `Inspector.diagnose_numerics`. costs: measure the cost of quantizing each operator, which
    takes several more runs; else only that of the outputs. progress: called with the number of
    earlier runs replayed to restore the state, and their total."""
    kept = KeptValues(None if values is None else Selector(values))
    return _Diagnosis(trace, asked, kept).numerics(costs, progress)


# SQNR in dB of a buffer before a run. Below it, an earlier run went wrong: rounding alone stays
# above it, in a float and in a quantized model.
_STATE_DB, _QUANTIZED_STATE_DB = 60.0, 20.0


class _Diagnosis:
    """The diagnosis of one run of a trace, in the state that the runs before it left."""

    def __init__(self, trace: Trace, asked: RunToCompare, kept: KeptValues) -> None:
        check_record(trace, "a diagnosis needs")
        self._trace, self._previous = trace, asked.previous
        method = TracedMethod(trace, method_that_ran(trace, asked.method))
        self._run = method.run(asked.run)
        check_values(trace)
        self._inputs = RunInputs(method, asked.inputs, asked.bundle)
        self._prepared = PreparedNumerics(
            trace,
            method.name,
            metric=asked.metric,
            tolerance=asked.tolerance,
            reference_graph=asked.reference_graph,
            kept=kept,
        )

    def numerics(self, costs: bool, progress: Callable[[int, int | None], None] | None) -> Numerics:
        """Diagnose the run; see `numerics_of`."""
        prepared, given = self._prepared, self._inputs.of(self._run)
        if not prepared.keeps_state and not self._inputs.writers:
            found = prepared.diagnose(self._trace, self._run, given, operators=costs)
            return self._not_accused(found)
        before = self._inputs.before(self._run, self._previous)
        for doubt in before.doubts:
            warnings.warn(doubt, EtscopeWarning, stacklevel=4)
        memory = self._replayed(before, progress)
        state = {name: value.clone() for name, value in memory.reference.items()}
        try:
            found = prepared.diagnose(self._trace, self._run, given, memory, operators=costs)
        except OtherInputsError as error:
            source = self._inputs.computed(self._run)
            if source is None or self._inputs.given is not None:
                raise
            raise OtherInputsError(
                f"this run reads an output of call {source.call} ({source.method!r}), which was "
                "not recorded, and PyTorch's value for it differs",
                hint=f"record the other call, too: etscope generate -X values_at={source.call}..N",
            ) from error
        found = self._not_accused(found)
        doubts = (*found.doubts, *before.doubts, *self._doubts_of_state(state, memory))
        return replace(found, doubts=doubts)

    def _replayed(
        self, before: EarlierRuns, progress: Callable[[int, int | None], None] | None
    ) -> Memory:
        """Compute the state that earlier runs leave, of this and of other methods."""
        memory = self._prepared.memory()
        prepared = {self._prepared.method: self._prepared}
        for done, one in enumerate(before.runs):
            if progress is not None:
                progress(done, len(before.runs))
            if one.method not in prepared:
                prepared[one.method] = PreparedNumerics(self._trace, one.method)
            prepared[one.method].go_on(self._trace, one.run, one.inputs, memory)
        if any(one.run is None or not one.run.has_values for one in before.runs):
            self._prepared.take_logged_state(self._trace, self._run, memory)
        return memory

    def _doubts_of_state(self, before: Mapping[str, Any], memory: Memory) -> tuple[str, ...]:
        """Warn that an earlier run may be the cause. before: the reference's state."""
        from etscope.bridge.reference.local_reference import state_errors

        limit = _QUANTIZED_STATE_DB if self._prepared.quantizes else _STATE_DB
        off = {name: error for name, error in state_errors(before, memory).items() if error < limit}
        if not off:
            return ()
        errors = listed([f"{name} {error:.3g} dB" for name, error in off.items()], 3)
        return (
            f"the state before this run differs from the reference's ({errors}): "
            "an earlier run went wrong, too. Diagnose the runs from the first on (--calls N, "
            "--run N)",
        )

    def _not_accused(self, found: Numerics) -> Numerics:
        """Return the diagnosis. Raises `OtherInputsError` if an operator that reads the inputs is
        wrong and the inputs are a guess."""
        accused = [row for row in found.wrong if row.inputs and row.loop_pass == 0]
        if not accused or self._inputs.given is not None or self._trace.forced:
            return found
        if not self._inputs.is_guess(self._run):
            return found
        raise OtherInputsError(
            f"the inputs of this run of {found.method!r} are unknown: with the record's inputs, "
            f"{accused[0].label or accused[0].op}, which reads them, differs",
            hint=f"{INPUTS_HINT}; etscope run --save keeps the inputs of each call",
        )
