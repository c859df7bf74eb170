"""Compare the stages of a model: run the graphs of the record, and the eager model if it is
given, and compare them with the device's values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from etscope.analysis.graphs.graph_names import float_graph
from etscope.analysis.matching.graph_alignment import (
    GraphAlignment,
    align_graphs,
    module_results,
)
from etscope.analysis.metrics import Metric, find_metric
from etscope.analysis.numerics.rows import WRONG, Numerics
from etscope.analysis.numerics.runs import (
    INPUTS_HINT,
    NO_RECORD_HINT,
    MethodRun,
    check_values,
    chosen_run,
    method_that_ran,
)
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import AFTER_PASSES, graph_name
from etscope.diagnosis.numerics import RunToCompare, numerics_of
from etscope.diagnosis.reference import (
    graph_to_compare,
    recorded_graph,
    runnable_graph,
    whole_program,
)
from etscope.diagnosis.run_inputs import inputs_of_run, runs_before, writers_of_state
from etscope.diagnosis.stages import (
    DECOMPOSITION,
    DEVICE,
    EAGER,
    EDGE,
    EXPORT,
    EXPORTED,
    KERNEL,
    LOWERING,
    PASSES,
    QUANTIZATION,
    QUANTIZED,
    NumericStages,
    Rows,
    Stage,
    StageError,
    Step,
    device_errors,
    places_of,
)
from etscope.errors import FormatError, MissingDataError, NumericGapError, UsageError
from etscope.formats.etrecord.reader import EDGE as EDGE_MEMBER
from etscope.formats.etrecord.reader import EXPORTED as EXPORTED_MEMBER
from etscope.formats.program.bpte import BundledFile
from etscope.model.graph import Graph, NodeValue
from etscope.support.tensor_spill import TensorSpill

if TYPE_CHECKING:
    from etscope.bridge.reference.reference import ReferenceGraph

# Scale the floats of the export's inputs by these: different inputs show a constant that the
# export made of an input.
_FACTORS = (0.5, -1.0)


@dataclass(frozen=True, slots=True, eq=False)
class EagerModel:
    """A `torch.nn.Module`. nested: makes the arguments of its call, positional ones and those by
    keyword, of the values of the program's inputs."""

    module: Any
    nested: Callable[[Sequence[Any]], tuple[Sequence[Any], Mapping[str, Any]]]

    @classmethod
    def of(cls, module: Any, example: Any) -> EagerModel:
        """A module that is called as on its example inputs, in any form that an export takes; by
        position without them."""
        from torch.utils import _pytree as pytree

        from etscope.bridge.lowering.export import inputs_of

        given = inputs_of(example)

        def nested(values: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
            if given is None:
                return values, {}
            leaves, spec = pytree.tree_flatten((given.args, given.kwargs))
            if len(leaves) != len(values):
                raise UsageError(
                    f"the model's example inputs have {len(leaves)} values, and the program takes "
                    f"{len(values)}"
                )
            found: tuple[Sequence[Any], Mapping[str, Any]] = pytree.tree_unflatten(values, spec)
            return found

        return cls(module, nested)


@dataclass(frozen=True, slots=True)
class _Program:
    """A graph of the record as a stage. step: what made it of the stage before. between: a graph
    that was made on the way, and cannot be run."""

    name: str
    step: str
    graph: Graph
    between: Graph | None = None


def numeric_stages(
    trace: Trace, asked: RunToCompare, eager: EagerModel | None = None
) -> NumericStages:
    """Compare each stage of a model with the one before: see `Inspector.numeric_stages`.

    eager: the model that was exported.

    Raises the errors of `diagnosis.numerics.numerics_of`, and `NumericGapError` for a stage of
    which no value is known to be one of the stage before.
    """
    if trace.record is None:
        raise NumericGapError("stages need an ETRecord", hint=NO_RECORD_HINT)
    if asked.tolerance is not None and math.isnan(asked.tolerance):
        raise UsageError("a tolerance must be a number, not NaN")
    wanted = method_that_ran(trace, asked.method)
    chosen = chosen_run(trace, wanted, asked.run)
    check_values(trace)
    given = inputs_of_run(trace, wanted, chosen, asked.inputs, asked.bundle)
    if given is None:
        raise NumericGapError("the stages need inputs to run on", hint=INPUTS_HINT)
    metric = find_metric(asked.metric)
    programs, absent = _programs(trace, wanted)
    before, doubts = _inputs_before(trace, wanted, chosen, asked.inputs, asked.bundle, programs)
    comparing = _Comparing(trace, programs, metric, asked.tolerance, given, before)
    if eager is None:
        absent.insert(0, "the eager model is not compared: pass it with -X model (model=)")
    else:
        comparing.export_step(eager)
    for at in range(1, len(programs)):
        comparing.program_step(at)
    device = numerics_of(
        trace,
        replace(
            asked,
            reference_graph=programs[-1].graph.name.partition("/")[0],
            method=wanted,
            run=chosen,
        ),
        costs=False,
    )
    comparing.device_step(device)
    return NumericStages(
        method=wanted,
        metric=metric,
        first=programs[0].name if eager is None else EAGER,
        stages=tuple(comparing.stages),
        rows=comparing.rows.rows(),
        device=device,
        absent=tuple(absent),
        doubts=(*comparing.doubts, *doubts, *device.doubts),
    )


def _programs(trace: Trace, method: str) -> tuple[list[_Program], list[str]]:
    """The graphs of the record in order of the stages, and why others are not among them."""
    record = trace.needed_record

    def graph(name: str) -> Graph | None:
        try:
            found = name if name in record.graph_names else graph_name(record, name, method)
        except MissingDataError:
            return None
        return recorded_graph(trace, found)

    absent = []
    programs: list[_Program] = []
    named = float_graph(record, method)
    plain, exported = None if named is None else graph(named), graph(EXPORTED_MEMBER)
    if plain is not None:
        programs.append(_Program(EXPORTED, EXPORT, plain))
    if exported is None:
        absent.append("the record has no exported program: the edge program is the first stage")
    elif plain is None:
        programs.append(_Program(EXPORTED, EXPORT, exported))
        if any("dequantize" in node.op for node in exported.operators.values()):
            absent.append(
                "the model is quantised, and the record does not have it in float: what "
                "quantisation costs is not compared"
            )
    else:
        programs.append(_Program(QUANTIZED, QUANTIZATION, exported))
    step, between = LOWERING, None
    try:
        if exported is not None:
            runnable_graph(trace, exported)
    except FormatError as error:  # of torchao's tensors, which are not read from files
        del programs[-1]
        absent.append(
            f"the exported program is not compared, as it cannot be read: {error.message}"
            + ("" if plain is None else "; quantisation and lowering are one step")
        )
        step = LOWERING if plain is None else QUANTIZATION
        between = exported
    edge = graph_to_compare(trace, method, EDGE_MEMBER)
    programs.append(_Program(EDGE, step, edge, between))
    after = graph(AFTER_PASSES)
    if after is not None and any(node.debug_handle for node in after.nodes):
        programs.append(_Program(PASSES, LOWERING, after))
    return programs, absent


def _inputs_before(
    trace: Trace,
    method: str,
    run: MethodRun,
    given: Any,
    bundle: BundledFile | None,
    programs: Sequence[_Program],
) -> tuple[list[Any], tuple[str, ...]]:
    """The inputs of the runs that a model with state goes on from, and doubts about them."""
    record = trace.record
    if record is None or not runnable_graph(trace, programs[-1].graph).keeps_state:
        return [], ()
    found = runs_before(trace, method, run, given, bundle)
    own = [one.inputs for one in found.runs if one.method == method]
    others = writers_of_state(trace, method)
    if others:
        return own, (
            f"what {', '.join(others)} wrote to the buffers that it shares is not in the stages "
            "before the device",
        )
    return own, ()


class _Comparing:
    """Compares the stages of a run one by one."""

    def __init__(
        self,
        trace: Trace,
        programs: Sequence[_Program],
        metric: Metric,
        tolerance: float | None,
        inputs: Any,
        before: Sequence[Any],
    ) -> None:
        self._trace, self._programs = trace, programs
        self._metric, self._tolerance = metric, tolerance
        self._inputs, self._before = inputs, before
        self._matched: list[GraphAlignment] = [
            align_graphs(one.graph, other.graph, other.between) for one, other in pairwise(programs)
        ]
        self.rows = Rows([one.graph for one in programs], [one.owners for one in self._matched])
        self.stages: list[Stage] = []
        self.doubts: list[str] = []

    def export_step(self, eager: EagerModel) -> None:
        """Compare the first program with the eager model: what the modules return, on the inputs
        of the run and on others that are made of them: what an export took for a constant is the
        same for its own inputs."""
        from etscope.bridge.reference.aligned_values import turned
        from etscope.bridge.reference.reference import given_values

        graph = self._programs[0].graph
        own = given_values(self._inputs) or []
        made_up = [turned(own, factor) for factor in _FACTORS]
        found: list[StageError] = []
        outputs: list[StageError] = []
        compared, modules = 0, 0
        for inputs in (own, *(other for other in made_up if other is not None)):
            try:
                values, known, calls = _module_values(eager, inputs, graph)
            except NumericGapError:
                if inputs is own:
                    raise
                continue  # the model does not take the inputs that were made up
            places = {path: [(element, "", None)] for path, element in values}
            step = self._step(EXPORT, graph, None, places)
            errors = self._errors(step, graph, inputs, _eager_lookup(values))
            if inputs is own:
                outputs, compared, modules = errors, known, calls
            found += errors
        if not outputs:
            raise NumericGapError(
                "no module of the eager model is known to have a value in the exported program",
                hint="the model must be the one that was exported",
            )
        if all(error.verdict != WRONG for error in outputs) and any(
            error.verdict == WRONG for error in found
        ):
            self.doubts.append(
                "torch.export made a constant of a value that depends on the inputs: right for "
                "this run's inputs, wrong for scaled ones"
            )
        self.rows.add(EXPORTED, 0, found)
        self.stages.append(
            Stage(EXPORTED, EXPORT, compared, modules, "modules", self._output(graph, outputs))
        )

    def program_step(self, at: int) -> None:
        """Compare a program with the one before."""
        earlier, later = self._programs[at - 1], self._programs[at]
        errors = self._compared(earlier.graph, later.graph, self._matched[at - 1], later.step)
        if not errors:
            raise NumericGapError(
                f"no value of {later.graph.name} is known to be one of {earlier.graph.name}",
                hint="both graphs of the record must be of one export",
            )
        self.rows.add(later.name, at - 1, errors)
        operators = [
            path
            for path, node in earlier.graph.own_operators.items()
            if any(value.tensor is not None for value in node.outputs)
        ]
        count = len({error.node for error in errors})
        output = self._output(earlier.graph, errors)
        self.stages.append(Stage(later.name, later.step, count, len(operators), output=output))
        wrong = [error.node for error in errors if error.verdict == WRONG]
        if later.name == EDGE and at and wrong:
            for path in self._wrong_decompositions(earlier.graph, wrong):
                self.rows.blame(EDGE, at - 1, path, DECOMPOSITION)

    def device_step(self, found: Numerics) -> None:
        """Add the diagnosis of the device's run."""
        last = len(self._programs) - 1
        errors = device_errors(found)
        self.rows.add(DEVICE, last, errors)
        coverage = found.coverage
        self.stages.append(
            Stage(
                DEVICE,
                KERNEL,
                coverage.pairs,
                coverage.pairs + len(coverage.outputs),
                "logged values",
                self._output(self._programs[last].graph, errors),
            )
        )

    def _wrong_decompositions(self, graph: Graph, wrong: Sequence[str]) -> set[str]:
        """Find the wrong operators that are wrong as soon as PyTorch decomposes the program."""
        record = self._trace.record
        if record is None:
            return set()
        from etscope.bridge.reference.aligned_values import AlignedValues
        from etscope.bridge.reference.decomposed import decomposed_program

        runnable, later = decomposed_program(whole_program(record, graph.name))
        places = places_of(align_graphs(graph, later).values)
        places = {path: found for path, found in places.items() if path in wrong}
        if not places:
            return set()
        beside = AlignedValues(runnable, self._inputs, self._state(runnable), places)
        step = self._step(DECOMPOSITION, graph, later, places)
        errors = self._errors(step, graph, self._inputs, beside)
        return {error.node for error in errors if error.verdict == WRONG}

    # -- values of both

    def _compared(
        self, earlier: Graph, later: Graph, matched: GraphAlignment, step_name: str
    ) -> list[StageError]:
        from etscope.bridge.reference.aligned_values import AlignedValues

        places = places_of(matched.values)
        if not places:
            return []
        runnable = self._runnable(later)
        beside = AlignedValues(runnable, self._inputs, self._state(runnable), places)
        return self._errors(
            self._step(step_name, earlier, later, places), earlier, self._inputs, beside
        )

    def _step(self, name: str, earlier: Graph, later: Graph | None, places: Any) -> Step:
        return Step(name, earlier, later, places, self._metric, self._tolerance)

    def _errors(
        self, step: Step, graph: Graph, inputs: Any, later: Callable[[str, int], Any]
    ) -> list[StageError]:
        from etscope.bridge.reference.local_reference import Memory, recompute

        runnable = self._runnable(graph)
        memory = Memory(self._state(runnable), self._state(runnable), self._state(runnable))
        items = recompute(runnable, inputs, later, set(step.places), memory)
        return step.errors(items, later)

    def _runnable(self, graph: Graph) -> ReferenceGraph:
        record = self._trace.record
        if record is None:  # checked before
            raise NumericGapError("stages need an ETRecord", hint=NO_RECORD_HINT)
        return runnable_graph(self._trace, graph)

    def _state(self, runnable: ReferenceGraph) -> dict[str, Any]:
        """The buffers that the runs before leave in a graph."""
        state: dict[str, Any] = {}
        for inputs in self._before:
            for _ in runnable.run(inputs, state):
                pass
        return state

    def _output(self, graph: Graph, errors: Sequence[StageError]) -> float | None:
        """The worst total error of the outputs of a graph."""
        named = (graph.value_named(name, graph) for name in graph.outputs)
        outputs = {value.path for value in named if value is not None}
        totals = [
            error.total for error in errors if error.total is not None and error.node in outputs
        ]
        return max(totals, key=self._metric.badness, default=None)


# -- the eager model


def _module_values(
    eager: EagerModel, inputs: Sequence[Any], graph: Graph
) -> tuple[dict[tuple[str, int | None], Any], int, int]:
    """Return module results by graph node and element, the number of module calls with known
    values, and the number of all calls."""
    from etscope.bridge.failures import innermost, own_frame
    from etscope.bridge.reference.aligned_values import run_modules

    results, spill = module_results(graph), TensorSpill()
    kept: dict[tuple[str, int | None], Any] = {}
    calls = known = 0

    def keep(path: str, call: int, values: list[Any]) -> None:
        nonlocal calls, known
        calls += 1
        places: list[tuple[NodeValue | None, Any]] = []
        if not path:
            named = [graph.value_named(name, graph) for name in graph.outputs]
            places = list(zip(reversed(named), reversed(values), strict=False))
        elif len(values) == 1:
            places = [(results.get((path, call)), values[0])]
        found = [(at, one) for at, one in places if at is not None and hasattr(one, "dtype")]
        known += bool(found)
        for place, value in found:
            if (place.path, place.element) not in kept:
                kept[place.path, place.element] = spill.add(value)

    try:
        run_modules(eager.module, *eager.nested(inputs), keep)
    except Exception as error:
        raise NumericGapError(
            f"the model fails in PyTorch, on these inputs: {innermost(error)}{own_frame(error)}"
        ) from error
    return {place: spill.get(value) for place, value in kept.items()}, known, calls


def _eager_lookup(values: Mapping[tuple[str, int | None], Any]) -> Callable[[str, int], Any]:
    by_node: dict[str, list[tuple[int | None, Any]]] = {}
    for (path, element), value in values.items():
        by_node.setdefault(path, []).append((element, value))
    return lambda name, loop_pass: [] if loop_pass else by_node.get(name, [])


__all__ = ["EagerModel", "numeric_stages"]
