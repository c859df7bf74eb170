"""The reference of a comparison: a graph of the record, the program that runs it, the inputs of the
run, and the runs before it that its state comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from etscope.analysis.graphs.linked_graph import float_graph
from etscope.analysis.graphs.partition import mutated_buffers
from etscope.analysis.matching.graph_alignment import align_graphs
from etscope.analysis.memory.plan import methods_sharing_state
from etscope.analysis.numerics.runs import (
    INPUTS_HINT,
    MethodRun,
    OtherInputsError,
    TracedMethod,
    runs_of,
)
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import EDGE_GRAPH, graph_name, recorded_inputs
from etscope.errors import MissingDataError, NumericGapError, UsageError
from etscope.etrecord import as_etrecord
from etscope.etrecord.loading import load_program, load_recorded, load_to_run
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordFile, RecordView
from etscope.formats.generation import OutputOf
from etscope.formats.program.bpte import BundledFile
from etscope.formats.program.input_validation import (
    as_exported,
    as_program_input,
    check_count,
    check_value,
)
from etscope.formats.run_json import SavedCall, inputs_sha256
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph
from etscope.support.lazy import MadeOnce
from etscope.support.optional import require

if TYPE_CHECKING:
    from etscope.bridge.reference.float_runs import FloatReference
    from etscope.bridge.reference.recorded import RecordedGraphInterpreter
    from etscope.bridge.reference.reference import NamedProgram, ReferenceGraph

_WANTED_BY = "a reference run"


def named_graph(record: RecordView, name: str, method: str) -> str:
    """Find the graph `name` of a method: a name of the record, or a kind, such as
    "edge_dialect_exported_program". Raises `NumericGapError` for an unknown name."""
    try:
        return graph_name(record, name, method)
    except MissingDataError as error:
        known = [graph.removesuffix(f"/{method}") for graph in record.graph_names]
        raise NumericGapError(
            f"the record has no reference graph {name!r} for the method {method!r}",
            hint="reference graphs are: " + ", ".join(dict.fromkeys(known)),
        ) from error


class _RecordedGraph:
    """A recorded graph that runs from its file. A thread checks the weights during the run."""

    def __init__(self, file: RecordFile, graph: Graph) -> None:
        self._file, self._graph = file, graph
        self._read, self.wait = file.state_dict_beside(graph.name)

    @cached_property
    def interpreter(self) -> RecordedGraphInterpreter | None:
        """None if the graph needs torch's deserializer."""
        names = _computing(self._graph)
        found: RecordedGraphInterpreter | None = load_recorded(
            self._file, self._graph.name, self._read(), names
        )
        return found

    def checked(self, values: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield the values. Raises `FormatError` at the end, or instead of another error, if the
        weights are damaged."""
        try:
            yield from values
        except Exception:
            self.wait()
            raise
        self.wait()


def _computing(graph: Graph) -> list[str]:
    """The names of the nodes that compute, in order."""
    return [node.name for node in graph.nodes if node.kind == "call_function"]


def _is_in_file(record: RecordView, name: str) -> TypeGuard[RecordFile]:
    return isinstance(record, RecordFile) and name in record.graph_names


def named_program(record: RecordView, graph: Graph) -> NamedProgram:
    """The `ExportedProgram` of a graph with our names for its nodes. Our names come from the
    record's file; a program that was never saved may use others."""
    require("torch", wanted_by=_WANTED_BY)
    require("executorch.exir", wanted_by=_WANTED_BY)
    from etscope.bridge.reference.reference import NamedProgram, call_names

    program = reference_program(record, graph.name)
    return NamedProgram(program, dict(zip(call_names(program), _computing(graph), strict=True)))


def reference_program(record: RecordView, name: str) -> Any:
    """The `ExportedProgram` of a graph of the record. Of a file, its weights are read when a node
    uses them."""
    if _is_in_file(record, name):
        return load_to_run(record, name)
    return whole_program(record, name)


def whole_program(record: RecordView, name: str) -> Any:
    """The `ExportedProgram` of a graph of the record, with its weights in memory."""
    if _is_in_file(record, name):
        return load_program(record, name)
    etrecord = as_etrecord(record)
    kind, _, method = name.partition("/")
    if kind == EDGE:
        return etrecord.edge_programs[method]
    if kind == EXPORTED:
        programs = etrecord.exported_programs
        return programs.get(method, etrecord.exported_program)
    return (etrecord.graph_map or {})[name]


class ReferenceGraphs(MadeOnce):
    """The reference graphs of a trace's record, and the programs that run them, each made once."""

    def __init__(self, trace: Trace) -> None:
        self._record = trace.needed_record

    @classmethod
    def of(cls, trace: Trace) -> ReferenceGraphs:
        """Return the only instance of a trace: its graphs take seconds to make."""
        return trace.once("reference graphs", lambda: cls(trace))

    def graph(self, name: str) -> Graph:
        return self.once(("graph", name), lambda: graph_from_record(self._record, name))

    def of_method(self, method: TracedMethod, name: str) -> Graph:
        """The graph `name` of a method: see `named_graph`."""
        if name in (EDGE, EDGE_GRAPH):
            graph = method.symbols.graph
            if graph is not None:
                return graph
        return self.graph(named_graph(self._record, name, method.name))

    def recorded(self, graph: Graph) -> _RecordedGraph | None:
        """A graph that runs from its file; None if the record is not a file."""
        record = self._record
        if not _is_in_file(record, graph.name):
            return None
        return self.once(("recorded", graph.name), lambda: _RecordedGraph(record, graph))

    def rebuilt(self, graph: Graph) -> NamedProgram:
        """The graph's `named_program`."""
        return self.once(("program", graph.name), lambda: named_program(self._record, graph))

    def runnable(self, graph: Graph) -> ReferenceGraph:
        """A graph of the record that runs, with our names for its nodes. The recorded graph runs
        directly where possible: importing ExecuTorch's exporter and rebuilding the program takes
        seconds."""
        require("torch", wanted_by=_WANTED_BY)
        recorded = self.recorded(graph)
        if recorded is not None and recorded.interpreter is not None:
            recorded.wait()
            return recorded.interpreter
        return self.rebuilt(graph)

    def float_reference(
        self, method: str, graph: Graph, runnable: ReferenceGraph
    ) -> FloatReference | None:
        """Find the float graph of a method; None if the record has none, or `graph` is it."""
        from etscope.bridge.reference.float_runs import FloatReference

        name = float_graph(self._record, method)
        if name is None or name == graph.name:
            return None
        floats, exported = self.graph(name), None
        with suppress(MissingDataError):
            between = graph_name(self._record, EXPORTED, method)
            exported = None if between == graph.name else self.graph(between)
        return FloatReference(
            graph=graph,
            floats=floats,
            runnable=runnable,
            runnable_float=self.runnable(floats),
            pairs=self.once(
                ("counterparts", graph.name, name),
                lambda: align_graphs(floats, graph, exported),
            ),
        )


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


class RunInputs:
    """The inputs of a method's runs, and the earlier runs before a run.

    given: the inputs that the user gave for the requested run. bundle: the bundled program that may
    have run.
    """

    def __init__(
        self, method: TracedMethod, given: Any = None, bundle: BundledFile | None = None
    ) -> None:
        self.method, self.given, self._bundle = method, given, bundle
        self._trace = method.trace

    def of(self, run: MethodRun) -> Any:
        """Find the inputs of a run. They are the given inputs; else the inputs of the bundled test
        case; else the inputs that `etscope run --save` kept; else the record's example inputs. None
        if there are none.

        Raises `NumericGapError` if the run had other inputs that were not saved, and
        `OtherInputsError` if the given inputs are not the inputs of the run.
        """
        if self.given is not None:
            if not self._trace.forced:
                self._check_given(run)
            return self.given
        of_case = self._of_case(self.method.name, run)
        return (
            self._of_call(self.method.name, self.method.call_of(run))
            if of_case is None
            else of_case
        )

    def is_guess(self, run: MethodRun) -> bool:
        """True if the record's inputs may not be the run's: nothing says so, and the run is not its
        method's first (a decoder's second step has other tokens) or the record lacks example
        inputs."""
        if run.block.bundled_input_index >= 0 or self.method.call_of(run) is not None:
            return False
        name = self.method.name
        is_main = name == "forward" or self._trace.methods == (name,)
        return not is_main or run.number != self.method.runs[0].number

    def computed(self, run: MethodRun) -> OutputOf | None:
        """Return the first input of a run that another call made and did not log. PyTorch computes
        it, which may differ from the device in the last bits."""
        call = self.method.call_of(run)
        sources = () if call is None or call.inputs is None else call.inputs.made_of or ()
        made = [one for one in sources if isinstance(one, OutputOf)]
        return next((one for one in made if self._logged_output(one) is None), None)

    @cached_property
    def writers(self) -> tuple[TracedMethod, ...]:
        """The other methods that ran and have the mutable buffers of the method. Without the
        program, buffers of the same name count as shared in a language model."""
        program, record = self._trace.recorded_program, self._trace.record
        names: Sequence[str] = ()
        if program is not None:
            names = methods_sharing_state(program, self.method.name)
        elif record is not None and self._trace.calls_of_runs.phases:
            written = {
                name: set(mutated_buffers(record, f"{EDGE}/{name}").values())
                for name in record.edge_methods
                if f"{EDGE}/{name}" in record.graph_names
            }
            own = written.pop(self.method.name, set())
            names = [name for name, buffers in written.items() if own & buffers]
        methods = (TracedMethod(self._trace, name) for name in names)
        return tuple(method for method in methods if method.runs)

    def before(self, run: MethodRun, previous: Sequence[Any] | None = None) -> EarlierRuns:
        """Find the earlier runs that left the state for a run, with their inputs: inputs that
        `etscope run --save` kept, or test cases. Unknown inputs are assumed equal to the run's own.
        Runs of other methods that write the same buffers are included.

        previous: inputs of all earlier runs of the method, if no other method writes its buffers.

        Raises `NumericGapError` if an earlier run had other inputs that were not saved, or belongs
        to another method; `UsageError` if `previous` has too few entries.
        """
        own = self.method
        known = own.sequences
        earlier = known.before(run)
        doubts: tuple[str, ...] = () if known.doubt is None else (known.doubt,)
        # Each test case loads the model anew.
        writers = self.writers if run.block.bundled_input_index < 0 else ()
        if previous is not None and not writers:
            return EarlierRuns(self._with_given_inputs(earlier, previous), doubts)
        ran = [(own, one) for one in earlier]
        for method in writers:
            ran += [(method, one) for one in method.runs if one.number < run.number]
        ran.sort(key=lambda one: one[1].number)
        found: list[EarlierRun] = []
        before: SavedCall | None = None
        is_guess = False
        for method, one in (*ran, (own, run)):
            call = method.call_of(one)
            if call is not None and call is not before:
                for other in self._calls_up_to(call, before):
                    inputs = self._of_call(other.method, other) if other.warmup else None
                    found += [EarlierRun(other.method, None, inputs)] * other.warmup
            before = call
            if one is run:
                break
            case = one.block.bundled_input_index
            values = self._of_case(method.name, one)
            if values is None and call is not None and call.inputs is not None:
                values = self._of_call(method.name, call)
            elif values is None and (method, case) != (own, run.block.bundled_input_index):
                raise self._inputs_not_known(method, one)
            elif values is None and self.given is not None:
                values = self.given
                is_guess = is_guess or case < 0
            elif values is None:
                values = self._of_call(own.name, own.call_of(run))
            found.append(EarlierRun(method.name, one, values))
        if is_guess:
            doubts += (
                f"the model keeps state, and the inputs of the runs before run {run.number} are "
                "unknown: assumed the same as this run's",
            )
        return EarlierRuns(found, doubts)

    def _calls_up_to(self, call: SavedCall, before: SavedCall | None) -> Iterator[SavedCall]:
        """Yield the calls after `before` that are not in the dump, then `call`."""
        is_after = before is None
        for one in self._trace.known_calls:
            if one is call:
                break
            if is_after and one.runs == 0:
                yield one
            is_after = is_after or one is before
        yield call

    # -- where inputs come from

    def _check_given(self, run: MethodRun) -> None:
        call = self.method.call_of(run)
        noted = None if call is None or call.inputs is None else call.inputs.fingerprint
        if call is None or call.inputs is None or noted is None:
            return
        values = self._as_taken()
        if values is None or inputs_sha256(values) == noted:
            return
        source = call.inputs.source
        own = "" if source == "given" else f" ({source})"
        kept = source == "record" or call.inputs.values is not None
        raise OtherInputsError(
            f"these are not the inputs that ran: the run recorded other inputs{own}",
            hint="leave out --inputs (inputs=) to use the ones that ran" if kept else INPUTS_HINT,
        )

    def _as_taken(self) -> list[Any] | None:
        """The given inputs, flat, in the program's types; None if these are unknown or the inputs
        do not fit. The reference reports a misfit."""
        from etscope.bridge.reference.local_reference import flat_inputs

        given, program = flat_inputs(self.given), self._trace.recorded_program
        if program is None:
            return given if all(isinstance(value, np.ndarray) for value in given) else None
        values = as_exported(given)
        method = program.method(self.method.name)
        expected = [method.values[index] for index in method.inputs]
        if check_count(values, expected) or any(map(check_value, values, expected)):
            return None
        return list(map(as_program_input, values, expected))

    def _of_case(self, method: str, run: MethodRun) -> list[Any] | None:
        """The inputs of the bundled test case that a run executed; None if they are not known."""
        case = run.block.bundled_input_index
        for suite in () if self._bundle is None else self._bundle.suites:
            if suite.method == method and 0 <= case < len(suite.cases):
                return list(suite.cases[case].inputs)
        return None

    def _of_call(self, method: str, call: SavedCall | None) -> Any:
        """The inputs that were saved, or the record's."""
        saved = None if call is None else call.inputs
        if saved is not None:
            if saved.values is not None:
                return list(saved.values)
            if saved.made_of is not None:
                return [
                    self._output_of_call(value) if isinstance(value, OutputOf) else value
                    for value in saved.made_of
                ]
            if saved.source != "record":
                raise NumericGapError(
                    f"the inputs of this run ({saved.source}) were not saved with its dump",
                    hint="pass them: --inputs FILE, inputs=",
                )
        record = self._trace.record
        if isinstance(record, RecordFile):  # the file does not change; a record of a script may
            return self._trace.once(
                ("recorded inputs", method), lambda: recorded_inputs(record, method)
            )
        return None if record is None else recorded_inputs(record, method)

    def _output_of_call(self, wanted: OutputOf) -> Any:
        """Return the output of a call that a later call of the generation reads: the logged value,
        or the value that the record's graph computes if the method keeps no state.

        Raises `NumericGapError` if it is unknown.
        """
        logged = self._logged_output(wanted)
        if logged is not None:
            return logged
        record = self._trace.record
        if record is not None:
            from etscope.bridge.reference.reference import arrays_of, keeps_state, run_outputs

            name = named_graph(record, EDGE, wanted.method)
            program = self._trace.once(("whole program", name), lambda: whole_program(record, name))
            inputs = self._of_call(wanted.method, self._trace.known_calls[wanted.call])
            if not keeps_state(program):
                return arrays_of(run_outputs(program, inputs, {})[wanted.output])
        raise NumericGapError(
            f"an input is an output of call {wanted.call}, of {wanted.method!r}, which was not "
            "logged",
            hint="record the values of all calls: etscope generate --debug-level "
            "intermediate_outputs",
        )

    def _logged_output(self, wanted: OutputOf) -> Any:
        """Return the logged output of a call that a later call reads; None if it was not logged."""
        number = int(self._trace.calls_of_runs.run[wanted.call])
        runs = runs_of(self._trace, wanted.method)
        run = next((one for one in runs if one.number == number), None)
        if run is None or self._trace.debug_buffer is None:
            return None
        logged = run.outputs(self._trace)
        return logged[wanted.output] if wanted.output < len(logged) else None

    def _inputs_not_known(self, method: TracedMethod, run: MethodRun) -> NumericGapError:
        """Return the error for an earlier run, of this or another method."""
        if method is not self.method:
            return NumericGapError(
                f"{self.method.name!r} reads buffers that {method.name!r} wrote, and the inputs of "
                f"its run {run.number} are unknown",
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
        self, runs: Sequence[MethodRun], previous: Sequence[Any]
    ) -> list[EarlierRun]:
        """Pair the runs with their inputs. The first inputs may belong to runs outside the dump."""
        absent = len(previous) - len(runs)
        if absent < 0:
            raise UsageError(
                f"the model's state comes from {len(runs)} earlier runs, but previous= has the "
                f"inputs of {len(previous)}",
                hint="pass the inputs of each earlier run, in order: previous=",
            )
        ran = zip([*[None] * absent, *runs], previous, strict=True)
        return [EarlierRun(self.method.name, run, inputs) for run, inputs in ran]
