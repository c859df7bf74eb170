"""Find the operator that goes wrong: `analysis.numerics` on a trace, its record and inputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from etscope.analysis.matching.delegate_values import codes_of_graph
from etscope.analysis.metrics import Metric, find_metric
from etscope.analysis.numerics.diagnose import (
    DEFAULT_METRIC,
    Judgement,
    KeptValues,
    RunMatcher,
    diagnose_run,
)
from etscope.analysis.numerics.multi_run_tests import AddedRuns
from etscope.analysis.numerics.rows import Numerics
from etscope.analysis.numerics.runs import (
    INPUTS_HINT,
    NO_RECORD_HINT,
    MethodRun,
    OtherInputsError,
    check_values,
    chosen_run,
    edge_symbols,
    has_values,
    method_that_ran,
)
from etscope.analysis.profile.logged_run import unfolded
from etscope.analysis.profile.trace import Trace
from etscope.backends.common.inner import Inside
from etscope.diagnosis.reference import float_reference, graph_to_compare, runnable_graph
from etscope.diagnosis.run_inputs import (
    computed_input,
    inputs_are_a_guess,
    inputs_of_run,
    runs_before,
    writers_of_state,
)
from etscope.errors import EtscopeError, EtscopeWarning, NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE
from etscope.formats.program.bpte import BundledFile
from etscope.model.selector import Selector

if TYPE_CHECKING:
    from etscope.bridge.reference.backends import Arithmetic
    from etscope.bridge.reference.float_runs import FloatReference
    from etscope.bridge.reference.local_reference import DeviceValues, Memory


@dataclass(frozen=True, slots=True, eq=False)
class RunToCompare:
    """The run to compare with its reference, and how: see `Inspector.diagnose_numerics`.

    run: an index, or a run of the dump. bundle: the bundled program that may have run.
    """

    metric: str = DEFAULT_METRIC
    tolerance: float | None = None
    reference_graph: str | None = None
    method: str | None = None
    run: int | MethodRun | None = None
    inputs: Any = None
    previous: Sequence[Any] | None = None
    bundle: BundledFile | None = None


_ANY_RUN = RunToCompare()


class PreparedNumerics:
    """The reference of a method for any number of runs. It reads the graph, rebuilds the program
    and matches each kind of run once.

    trace: of a dump of the record's program; runs may come from other dumps of the same record and
    program. kept: the rows that keep their values; None for none.

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
        if tolerance is not None and math.isnan(tolerance):
            raise UsageError("a tolerance must be a number, not NaN")
        if trace.record is None:
            raise NumericGapError("a diagnosis needs an ETRecord", hint=NO_RECORD_HINT)
        self.method = method
        self.metric = metric if isinstance(metric, Metric) else find_metric(metric)
        self._judgement = Judgement(self.metric, tolerance, kept)
        graph = self.graph = graph_to_compare(trace, method, reference_graph or EDGE)
        self._matcher = RunMatcher(graph)
        self.runnable = runnable_graph(trace, graph)
        self._codes = partial(codes_of_graph, graph, edge_symbols(trace, method).before_passes)
        self._arithmetics: dict[frozenset[tuple[str, Inside]], Arithmetic] = {}
        self._side: FloatReference | None = None
        self._no_side: tuple[str, ...] = ()
        try:
            self._side = float_reference(trace, method, graph, self.runnable)
        except EtscopeError as error:  # of a slimmed record, without weights, or a refused graph
            self._no_side = (f"the cost of quantisation is unknown: {error.message}",)
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

        inputs: of the run. memory: the state that earlier runs left, by default none; this run
        updates it and adds the reference's outputs. operators: measure the cost of quantisation for
        each operator, not only for the outputs. runs: adds up the values.

        Raises the errors of `analysis.numerics.diagnose`.
        """
        from etscope.bridge.reference.known_differences import ReferenceRun
        from etscope.bridge.reference.local_reference import Memory, flat_inputs
        from etscope.bridge.threads import threads_for

        memory = self.memory() if memory is None else memory
        side = None if self._side is None else self._side.run(inputs, memory)
        ran = self._matcher.match(trace, run, self.method)
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
            if side is not None:
                device = unfolded(trace.values(run.block, run.position, run.block.outputs))
                cost = side.compare(self.metric, memory.outputs, device, operators=operators)
                found = replace(found, quantization=cost)
        return replace(found, doubts=(*found.doubts, *self._no_side))

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
        from etscope.bridge.reference.state_updates import take_logged_state

        device = self._matcher.match(trace, run, self.method).device
        take_logged_state(self.runnable, device, memory)

    @property
    def quantizes(self) -> bool:
        """True if an operator of the graph quantises."""
        return any("quantize" in one.op for one in self.graph.operators.values())

    def go_on(self, trace: Trace, run: MethodRun | None, inputs: Any, memory: Memory) -> None:
        """Update `memory` with the state that a run leaves, without judging its numbers. If nothing
        was logged, or the dump lacks the run, the reference's state stands in for the device's."""
        from etscope.bridge.reference.local_reference import recompute

        if self._side is not None:
            self._side.run(inputs, memory)
        device: DeviceValues = lambda node, loop_pass: ()  # noqa: E731
        if run is not None and has_values(run):
            device = self._matcher.match(trace, run, self.method).device
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
    """See `Inspector.diagnose_numerics`. costs: measure the cost of quantising each operator, which
    takes several more runs; else only that of the outputs. progress: called with the number of
    earlier runs replayed to restore the state, and their total."""
    kept = KeptValues(None if values is None else Selector(values))
    if asked.tolerance is not None and math.isnan(asked.tolerance):
        raise UsageError("a tolerance must be a number, not NaN")
    if trace.record is None:
        raise NumericGapError("a diagnosis needs an ETRecord", hint=NO_RECORD_HINT)
    wanted = method_that_ran(trace, asked.method)
    chosen = chosen_run(trace, wanted, asked.run)
    inputs, bundle = asked.inputs, asked.bundle
    check_values(trace)
    prepared = PreparedNumerics(
        trace,
        wanted,
        metric=asked.metric,
        tolerance=asked.tolerance,
        reference_graph=asked.reference_graph,
        kept=kept,
    )
    given = inputs_of_run(trace, wanted, chosen, inputs, bundle)
    if not prepared.keeps_state and not writers_of_state(trace, wanted):
        found = prepared.diagnose(trace, chosen, given, operators=costs)
        return _not_accused(found, trace, chosen, inputs)
    memory = prepared.memory()
    before = runs_before(trace, wanted, chosen, inputs, bundle, asked.previous)
    for doubt in before.doubts:
        warnings.warn(doubt, EtscopeWarning, stacklevel=3)
    others = {wanted: prepared}
    for done, one in enumerate(before.runs):
        if progress is not None:
            progress(done, len(before.runs))
        if one.method not in others:
            others[one.method] = PreparedNumerics(trace, one.method)
        others[one.method].go_on(trace, one.run, one.inputs, memory)
    if any(one.run is None or not has_values(one.run) for one in before.runs):
        prepared.take_logged_state(trace, chosen, memory)
    state = {name: value.clone() for name, value in memory.reference.items()}
    try:
        found = prepared.diagnose(trace, chosen, given, memory, operators=costs)
    except OtherInputsError as error:
        source = computed_input(trace, wanted, chosen)
        if source is None or inputs is not None:
            raise
        raise OtherInputsError(
            f"this run reads an output of call {source.call} ({source.method!r}), which was not "
            "recorded, and PyTorch's value for it differs",
            hint=f"record that call, too: etscope generate -X values_at={source.call}..N",
        ) from error
    found = _not_accused(found, trace, chosen, inputs)
    doubts = (*found.doubts, *before.doubts, *_doubts_of_state(prepared, state, memory))
    return replace(found, doubts=doubts)


# SQNR in dB of a buffer before a run. Below it, an earlier run went wrong: rounding alone stays
# above it, in a float and in a quantised model.
_STATE_DB, _QUANTIZED_STATE_DB = 60.0, 20.0


def _doubts_of_state(
    prepared: PreparedNumerics, before: Mapping[str, Any], memory: Memory
) -> tuple[str, ...]:
    """Warn that an earlier run may be the cause. before: the reference's state."""
    from etscope.bridge.reference.state_updates import state_errors

    limit = _QUANTIZED_STATE_DB if prepared.quantizes else _STATE_DB
    off = {name: error for name, error in state_errors(before, memory).items() if error < limit}
    if not off:
        return ()
    listed = [f"{name} {error:.3g} dB" for name, error in list(off.items())[:3]]
    more = f" and {len(off) - 3} more" if len(off) > 3 else ""
    return (
        f"the state before this run differs from the reference's ({', '.join(listed)}{more}): an "
        "earlier run went wrong, too. Diagnose the runs from the first on (--calls N, --run N)",
    )


def _not_accused(found: Numerics, trace: Trace, run: MethodRun, given: Any) -> Numerics:
    """Return the diagnosis. Raises `OtherInputsError` if an operator that reads the inputs is wrong
    and the inputs are a guess."""
    accused = [row for row in found.wrong if row.inputs and row.loop_pass == 0]
    if not accused or given is not None or trace.forced:
        return found
    if not inputs_are_a_guess(trace, found.method, run):
        return found
    raise OtherInputsError(
        f"the inputs of this run of {found.method!r} are unknown: with the record's inputs, "
        f"{accused[0].label or accused[0].op}, which reads them, differs",
        hint=f"{INPUTS_HINT}; etscope run --save keeps the inputs of each call",
    )
