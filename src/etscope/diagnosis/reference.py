"""The reference of a comparison: a graph of the record, and its program run on inputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from etscope.analysis.graphs.linked_graph import method_of_graph
from etscope.analysis.matching.matching import parts_of
from etscope.analysis.numerics.gap import Reference
from etscope.analysis.numerics.runs import NO_RECORD_HINT, MethodRun, edge_symbols
from etscope.analysis.profile.correlate import EDGE_GRAPH, graph_name, recorded_inputs
from etscope.analysis.profile.trace import Trace
from etscope.errors import EtscopeWarning, MissingDataError, NumericGapError
from etscope.etrecord import as_etrecord
from etscope.etrecord.loading import load_recorded, load_to_run
from etscope.formats.etrecord.reader import EDGE, EXPORTED, RecordFile, RecordView
from etscope.formats.program.bpte import BundledFile
from etscope.formats.run_json import saved_inputs
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph
from etscope.optional import require

_WANTED_BY = "a reference run"


def reference_of(
    trace: Trace,
    method: str,
    name: str | None,
    inputs: Any,
    *,
    best_effort: bool = False,
    is_first_run: bool = True,
    at_once: bool = False,
) -> Reference:
    """The graph `name` of a method on `inputs`.

    name: "exported_program", "edge_dialect_exported_program", or another graph of the record. By
    default the exported program, if the edge program's nodes all lead back to it, or
    `best_effort` does without that; else the edge program. is_first_run: the state that
    the method keeps, if any, is that of the program. at_once: start slow work now, in a thread,
    because the values are needed soon.

    Raises `NumericGapError` without a record, for a graph that it does not have (an unknown
    name), and, when the reference is run, for inputs that are not the program's.
    """
    record = trace.record
    if record is None:
        raise NumericGapError("a reference needs an ETRecord", hint=NO_RECORD_HINT)
    graph = None
    if name is None:
        graph = _default_graph(trace, method, best_effort)
    elif name in (EDGE, EDGE_GRAPH):
        graph = edge_symbols(trace, method).graph
    if graph is None:
        graph = graph_from_record(record, _found_name(record, name or EDGE, method))
    found = graph
    weights = _Weights(record, graph.name) if at_once and _is_in_file(record, graph.name) else None

    def values() -> Iterator[tuple[str, Any]]:
        yield from _values(record, found, inputs, is_first_run, weights)

    return Reference(graph.name, graph, values)


def _found_name(record: RecordView, name: str, method: str) -> str:
    try:
        return graph_name(record, name, method)
    except MissingDataError as error:
        known = [graph.removesuffix(f"/{method}") for graph in record.graph_names]
        raise NumericGapError(
            f"the record has no reference graph {name!r} for the method {method!r}",
            hint="reference graphs are: " + ", ".join(dict.fromkeys(known)),
        ) from error


def _default_graph(trace: Trace, method: str, best_effort: bool) -> Graph | None:
    """The exported program's graph, if the edge program's nodes lead back to it."""
    record = trace.record
    if record is None:
        return None
    try:
        name = graph_name(record, EXPORTED, method)
    except MissingDataError:
        return None
    edge = edge_symbols(trace, method).graph
    if edge is None or method_of_graph(record, name) not in (method, None):
        return None
    graph = graph_from_record(record, name)
    linked = {part.debug_handle for parts in parts_of(edge, graph).values() for part in parts}
    lost = [  # edge nodes whose handle no node of the exported graph has
        path
        for path, node in edge.operators.items()
        if node.debug_handle and node.debug_handle not in linked
    ]
    if lost and not best_effort:
        warnings.warn(
            f"{len(lost)} operators of the edge program do not say what they come from in the "
            f"exported program ({', '.join(lost[:3])}): compared with the edge program instead "
            "(disable_debug_handle_valdiation=True takes the exported program all the same)",
            EtscopeWarning,
            stacklevel=4,
        )
        return None
    return graph


# -- values


class _Weights:
    """The weights of a graph in a record's file, which a thread checks while they are used."""

    def __init__(self, file: RecordFile, name: str) -> None:
        self.file = file
        self.read, self._wait = file.state_dict_beside(name)

    def checked(self, values: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The values; `FormatError` in place of their end, or of another error, if the weights that
        they come of are damaged."""
        try:
            yield from values
        except Exception:
            self._wait()
            raise
        self._wait()


def _is_in_file(record: RecordView, name: str) -> TypeGuard[RecordFile]:
    return isinstance(record, RecordFile) and name in record.graph_names


def _values(
    record: RecordView,
    graph: Graph,
    inputs: Any,
    is_first_run: bool,
    weights: _Weights | None,
) -> Iterator[tuple[str, Any]]:
    if weights is not None:
        plain = load_recorded(weights.file, graph.name, weights.read())
        if plain is not None:
            ours = [node.name for node in graph.nodes if node.kind == "call_function"]
            yield from weights.checked(zip(ours, plain.arrays(inputs), strict=True))
            return
    program, names = named_program(record, graph)
    from etscope.bridge.reference.reference import keeps_state, reference_arrays

    if not is_first_run and keeps_state(program):
        raise NumericGapError(
            "this method keeps state from run to run, and the state before this run is not known",
            hint="compare the first run: run=0",
        )
    for name, value in reference_arrays(program, inputs):
        yield names.get(name, name), value


def named_program(record: RecordView, graph: Graph) -> tuple[Any, dict[str, str]]:
    """The `ExportedProgram` of a graph, and what our graph calls its nodes: our names are of the
    record's file, and a program that was never saved may have others."""
    require("torch", wanted_by=_WANTED_BY)
    require("executorch.exir", wanted_by=_WANTED_BY)
    from etscope.bridge.reference.reference import call_names

    program = reference_program(record, graph.name)
    ours = [node.name for node in graph.nodes if node.kind == "call_function"]
    return program, dict(zip(call_names(program), ours, strict=True))


def reference_program(record: RecordView, name: str) -> Any:
    """The `ExportedProgram` of a graph of the record. Of a file, its weights are read when a node
    uses them."""
    if _is_in_file(record, name):
        return load_to_run(record, name)
    etrecord = as_etrecord(record)
    kind, _, method = name.partition("/")
    if kind == EDGE:
        return etrecord.edge_programs[method]
    if kind == EXPORTED:
        programs = etrecord.exported_programs
        return programs.get(method, etrecord.exported_program)
    return (etrecord.graph_map or {})[name]


def inputs_of_run(
    trace: Trace, method: str, run: MethodRun, given: Any, bundle: BundledFile | None
) -> Any:
    """The inputs of a run: those that are given, those of the bundled test case that ran, those
    that `etscope run --save` kept beside the dump, or the record's representative ones. None when
    there are none.

    Raises `NumericGapError` when the run is known to have had others, which were not saved.
    """
    if given is not None:
        return given
    case_inputs = inputs_of_case(bundle, method, run)
    if case_inputs is not None:
        return case_inputs
    saved = saved_inputs(trace.dump.path, method)
    if saved is not None:
        if saved.values is not None:
            return list(saved.values)
        if saved.source != "record":
            raise NumericGapError(
                f"the inputs of this run ({saved.source}) were not saved beside its dump",
                hint="give them: --inputs FILE, inputs=",
            )
    return None if trace.record is None else recorded_inputs(trace.record, method)


def inputs_of_case(bundle: BundledFile | None, method: str, run: MethodRun) -> list[Any] | None:
    """The inputs of the bundled test case that a run executed; None if they are not known."""
    case = run.block.bundled_input_index
    for suite in () if bundle is None else bundle.suites:
        if suite.method == method and 0 <= case < len(suite.cases):
            return list(suite.cases[case].inputs)
    return None
