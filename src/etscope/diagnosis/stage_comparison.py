"""Compare the stages of a model: run the graphs of the record, and the eager model if it is
given, and compare them with the device's values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from etscope.analysis.graphs.linked_graph import float_graph
from etscope.analysis.matching.graph_alignment import (
    GraphAlignment,
    align_graphs,
    module_results,
)
from etscope.analysis.metrics import find_metric
from etscope.analysis.numerics.rows import WRONG, Numerics
from etscope.analysis.numerics.runs import (
    INPUTS_HINT,
    TracedMethod,
    check_record,
    check_values,
    method_that_ran,
)
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import AFTER_PASSES, graph_name
from etscope.diagnosis.numerics import RunToCompare, numerics_of
from etscope.diagnosis.reference import ReferenceGraphs, RunInputs, whole_program
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
    LaterValues,
    NumericStages,
    Places,
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
from etscope.model.graph import Graph, NodeValue
from etscope.support.tensor_spill import TensorSpill

if TYPE_CHECKING:
    from etscope.bridge.reference.reference import ReferenceGraph

# Scale the floats of the export's inputs by these: different inputs show a constant that the
# export made of an input.
_FACTORS = (0.5, -1.0)


ModuleValue = Collection[tuple[int | None, Any]]  # results of a module, as (element, value)
ModuleValues = Mapping[str, ModuleValue]  # by node of the graph that the model was exported to


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

    def values(self, inputs: Sequence[Any], graph: Graph) -> tuple[ModuleValues, int, int]:
        """Run the model. Return results of modules, the number of module calls with known values,
        and the number of all calls."""
        from etscope.bridge.failures import innermost, own_frame
        from etscope.bridge.reference.aligned_values import run_modules

        results, spill = module_results(graph), TensorSpill()
        kept: dict[NodeValue, Any] = {}
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
                if place not in kept:
                    kept[place] = spill.add(value)

        try:
            run_modules(self.module, *self.nested(inputs), keep)
        except Exception as error:
            raise NumericGapError(
                f"the model fails in PyTorch, on these inputs: {innermost(error)}{own_frame(error)}"
            ) from error
        found: dict[str, list[tuple[int | None, Any]]] = {}
        for place, value in kept.items():
            found.setdefault(place.path, []).append((place.element, spill.get(value)))
        return found, known, calls


def _of_first_pass(values: ModuleValues, name: str, loop_pass: int) -> ModuleValue:
    return () if loop_pass else values.get(name, ())


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

    Raises the errors of `diagnosis.numerics.numerics_of`, and `NumericGapError` for a stage
    none of whose values corresponds to a value of the stage before.
    """
    return _Comparing(trace, asked).stages(eager)


class _Comparing:
    """Compares the stages of a run one by one."""

    def __init__(self, trace: Trace, asked: RunToCompare) -> None:
        check_record(trace, "stages need")
        self._trace = trace
        self._method = TracedMethod(trace, method_that_ran(trace, asked.method))
        run = self._method.run(asked.run)
        check_values(trace)
        inputs = RunInputs(self._method, asked.inputs, asked.bundle)
        self._inputs = inputs.of(run)
        if self._inputs is None:
            raise NumericGapError("the stages need inputs to run on", hint=INPUTS_HINT)
        self._asked = replace(asked, method=self._method.name, run=run)
        self._metric, self._graphs = find_metric(asked.metric), ReferenceGraphs.of(trace)
        self._absent: list[str] = []
        self._programs = self._found_programs()
        self._before: list[Any] = []  # inputs of the runs that a model with state goes on from
        self._doubts: list[str] = []
        if self._graphs.runnable(self._programs[-1].graph).keeps_state:
            before, own = inputs.before(run), self._method.name
            self._before = [one.inputs for one in before.runs if one.method == own]
            if others := [one.name for one in inputs.writers]:
                self._doubts.append(
                    f"the stages before the device do not include what {', '.join(others)} "
                    "wrote to shared buffers"
                )
        self._matched: list[GraphAlignment] = [
            align_graphs(one.graph, other.graph, other.between)
            for one, other in pairwise(self._programs)
        ]
        graphs = [one.graph for one in self._programs]
        self._rows = Rows(graphs, [one.owners for one in self._matched])
        self._stages: list[Stage] = []

    def _found_programs(self) -> list[_Program]:
        """The graphs of the record in order of the stages; notes why others are not among them."""
        record, method = self._trace.needed_record, self._method.name

        def graph(name: str) -> Graph | None:
            try:
                found = name if name in record.graph_names else graph_name(record, name, method)
            except MissingDataError:
                return None
            return self._graphs.graph(found)

        programs: list[_Program] = []
        named = float_graph(record, method)
        plain, exported = None if named is None else graph(named), graph(EXPORTED_MEMBER)
        if plain is not None:
            programs.append(_Program(EXPORTED, EXPORT, plain))
        if exported is None:
            self._absent.append(
                "the record has no exported program: the edge program is the first stage"
            )
        elif plain is None:
            programs.append(_Program(EXPORTED, EXPORT, exported))
            if any("dequantize" in node.op for node in exported.operators.values()):
                self._absent.append(
                    "the model is quantized, and the record does not have the float model: "
                    "the cost of quantization is unknown"
                )
        else:
            programs.append(_Program(QUANTIZED, QUANTIZATION, exported))
        step, between = LOWERING, None
        try:
            if exported is not None:
                self._graphs.runnable(exported)
        except FormatError as error:  # of torchao's tensors, which are not read from files
            del programs[-1]
            self._absent.append(
                f"the exported program is not compared, as it cannot be read: {error.message}"
                + ("" if plain is None else "; quantization and lowering are one step")
            )
            step = LOWERING if plain is None else QUANTIZATION
            between = exported
        edge = self._graphs.of_method(self._method, EDGE_MEMBER)
        programs.append(_Program(EDGE, step, edge, between))
        after = graph(AFTER_PASSES)
        if after is not None and any(node.debug_handle for node in after.nodes):
            programs.append(_Program(PASSES, LOWERING, after))
        return programs

    def stages(self, eager: EagerModel | None) -> NumericStages:
        if eager is None:
            self._absent.insert(
                0, "the eager model is not compared: pass it with -X model (model=)"
            )
        else:
            self.export_step(eager)
        for at in range(1, len(self._programs)):
            self.program_step(at)
        reference = self._programs[-1].graph.name.partition("/")[0]
        device = numerics_of(
            self._trace, replace(self._asked, reference_graph=reference), costs=False
        )
        self.device_step(device)
        return NumericStages(
            method=self._method.name,
            metric=self._metric,
            first=self._programs[0].name if eager is None else EAGER,
            stages=tuple(self._stages),
            rows=self._rows.rows(),
            device=device,
            absent=tuple(self._absent),
            doubts=(*self._doubts, *device.doubts),
        )

    def export_step(self, eager: EagerModel) -> None:
        """Compare the first program with the eager model by the results of modules, on the inputs
        of the run and on changed ones. Only changed inputs reveal a constant that the export made
        of an input.
        """
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
                values, known, calls = eager.values(inputs, graph)
            except NumericGapError:
                if inputs is own:
                    raise
                continue  # the model does not take the inputs that were made up
            places = {path: [(one[0], "", None) for one in found] for path, found in values.items()}
            step = Step(EXPORT, graph, None, places, self._metric, self._asked.tolerance)
            errors = self._errors(step, inputs, partial(_of_first_pass, values))
            if inputs is own:
                outputs, compared, modules = errors, known, calls
            found += errors
        if not outputs:
            raise NumericGapError(
                "no module of the eager model matches a value of the exported program",
                hint="the model must be the one that was exported",
            )
        if all(error.verdict != WRONG for error in outputs) and any(
            error.verdict == WRONG for error in found
        ):
            self._doubts.insert(
                0,
                "torch.export made a constant of a value that depends on the inputs: right for "
                "this run's inputs, wrong for scaled ones",
            )
        self._rows.add(EXPORTED, 0, found)
        self._stages.append(
            Stage(EXPORTED, EXPORT, compared, modules, "modules", self._output(graph, outputs))
        )

    def program_step(self, at: int) -> None:
        earlier, later = self._programs[at - 1], self._programs[at]
        places = places_of(self._matched[at - 1].values)
        runnable = self._graphs.runnable(later.graph)
        errors = self._aligned(later.step, earlier.graph, later.graph, places, runnable)
        if not errors:
            raise NumericGapError(
                f"no value of {later.graph.name} matches a value of {earlier.graph.name}",
                hint="both graphs of the record must be of one export",
            )
        self._rows.add(later.name, at - 1, errors)
        operators = [
            path
            for path, node in earlier.graph.own_operators.items()
            if any(value.tensor is not None for value in node.outputs)
        ]
        count = len({error.node for error in errors})
        output = self._output(earlier.graph, errors)
        self._stages.append(Stage(later.name, later.step, count, len(operators), output=output))
        wrong = [error.node for error in errors if error.verdict == WRONG]
        if later.name == EDGE and at and wrong:
            for path in self._wrong_decompositions(earlier.graph, wrong):
                self._rows.blame(EDGE, at - 1, path, DECOMPOSITION)

    def device_step(self, found: Numerics) -> None:
        last = len(self._programs) - 1
        errors = device_errors(found)
        self._rows.add(DEVICE, last, errors)
        coverage = found.coverage
        self._stages.append(
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
        from etscope.bridge.programs import decomposed_program

        runnable, later = decomposed_program(whole_program(self._trace.needed_record, graph.name))
        places = places_of(align_graphs(graph, later).values)
        places = {path: found for path, found in places.items() if path in wrong}
        errors = self._aligned(DECOMPOSITION, graph, later, places, runnable)
        return {error.node for error in errors if error.verdict == WRONG}

    # -- values of both

    def _aligned(
        self, step: str, earlier: Graph, later: Graph, places: Places, runnable: ReferenceGraph
    ) -> list[StageError]:
        """Compare two graphs where `places` aligns them. runnable: the later one."""
        from etscope.bridge.reference.aligned_values import AlignedValues

        if not places:
            return []
        beside = AlignedValues(runnable, self._inputs, self._state(runnable), places)
        compared = Step(step, earlier, later, places, self._metric, self._asked.tolerance)
        return self._errors(compared, self._inputs, beside)

    def _errors(self, step: Step, inputs: Any, later: LaterValues) -> list[StageError]:
        from etscope.bridge.reference.local_reference import Memory, recompute

        runnable = self._graphs.runnable(step.earlier)
        memory = Memory(self._state(runnable), self._state(runnable), self._state(runnable))
        items = recompute(runnable, inputs, later, set(step.places), memory)
        return step.errors(items, later)

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
        return self._metric.worst(error.total for error in errors if error.node in outputs)


__all__ = ["EagerModel", "numeric_stages"]
