"""The reference of a comparison: a graph of the record, and the program that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard

from etscope.analysis.graphs.linked_graph import float_graph
from etscope.analysis.matching.graph_alignment import align_graphs
from etscope.analysis.numerics.runs import TracedMethod
from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import EDGE_GRAPH, graph_name
from etscope.errors import MissingDataError, NumericGapError
from etscope.etrecord import as_etrecord
from etscope.etrecord.loading import load_program, load_recorded, load_to_run
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordFile, RecordView
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
