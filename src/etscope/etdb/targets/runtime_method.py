"""A method that is about to run on the runtime: its program, inputs, stops and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.export import Export
from etscope.analysis.matching.matching import COMPUTING, Matching, Pair, one_by_one, with_flow
from etscope.analysis.profile.trace import Trace, attribution_of
from etscope.analysis.program.compatibility import instruction_labels
from etscope.analysis.program.correlate import MethodSymbols, method_symbols
from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.errors import MissingDataError
from etscope.etdb.targets.reference import inputs_of, sets_of
from etscope.etdb.targets.target import (
    NO_RECORD,
    NO_RECORD_HINT,
    Stop,
    edge_graph,
    stop_of_event,
)
from etscope.formats.program.bpte import BundledFile
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import Method, TensorValue
from etscope.model.event_table import EventKey


class NodeValues:
    """Map between nodes of the edge graph and values of a method, known without running it: from
    the record, the instructions and the shapes."""

    def __init__(
        self, method: Method, records: Sequence[InstructionRecord], linked: LinkedGraph | None
    ) -> None:
        """linked: the edge graph, joined to the method's program; None without a record."""
        self._method, self._records, self._linked = method, records, linked

    def outputs_of(self, instruction: int) -> tuple[int, ...]:
        """Return the indices of the values that an instruction writes, in the order of the
        runtime's log; elements of lists one by one."""
        return one_by_one(self._method.values, self._records[instruction].outputs)

    @property
    def matching(self) -> Matching:
        """Match outputs of instructions to nodes. For tensors with dynamic shapes the upper bounds
        are compared. Raises `MissingDataError` without a record."""
        run = None if self._linked is None else self._linked.run_nodes
        found = None if run is None else run.matching
        if found is None:
            raise MissingDataError(
                f"{NO_RECORD}, so nodes cannot be matched to values", hint=NO_RECORD_HINT
            )
        return found

    def index_of(self, pair: Pair) -> int:
        return self.outputs_of(pair.instruction)[pair.output]

    def why_unpaired(self, node: str) -> str:
        """Explain why a node has no value."""
        for missing in self.matching.unpaired_nodes:
            if missing.node == node:
                return missing.reason
        weight = None if self._linked is None else self._linked.graph.parameters.get(node)
        if weight is not None:
            return f'the value is inside a delegate; the record has it: weight("{weight}")'
        return "info ops lists the names"

    @cached_property
    def placeholders(self) -> Mapping[str, int]:
        """Values of the graph's inputs, weights and state, by placeholder. Those that a delegate
        absorbed are missing."""
        if self._linked is None:
            return {}
        graph = self._linked.graph
        names = {n.name: n.outputs[0].name for n in graph.nodes if n.kind == "placeholder"}
        given = [name for name in names if name not in graph.parameters]
        found: dict[str, int] = {}
        if len(given) == len(self._method.inputs):
            found.update(zip(given, self._method.inputs, strict=True))
        for pair in self.matching.pairs:
            node = graph.by_name.get(pair.node)
            record = self._records[pair.instruction]
            if node is None or node.name != pair.node or record.kind != "kernel":
                continue
            read = unfolded(self._method.values, record.inputs)
            if len(read) == len(node.inputs) == len(set(node.inputs)):
                for name, index in zip(node.inputs, read, strict=True):
                    if name in names:
                        found.setdefault(name, index)
        return found

    @property
    def state(self) -> Mapping[str, int]:
        """Values of the buffers that a run may change, by the buffer's name in the model."""
        names = {} if self._linked is None else self._linked.graph.parameters
        return {
            names[placeholder]: index
            for placeholder, index in self.placeholders.items()
            if placeholder in names and not self.is_constant(index)
        }

    def writers_of(self, index: int) -> tuple[int, ...]:
        """Return the instructions that write a value, or, for a view without an instruction, the
        value that it is a view of. Empty if unknown."""
        return tuple(self._writers.get(self._views.get(index, index), ()))

    @cached_property
    def _writers(self) -> Mapping[int, list[int]]:
        table: dict[int, list[int]] = {}
        for record in self._records:
            if record.kind == "free":
                continue
            inner = self.outputs_of(record.instruction_id)
            for index in dict.fromkeys((*record.outputs, *inner)):
                table.setdefault(index, []).append(record.instruction_id)
        return table

    @cached_property
    def _views(self) -> Mapping[int, int]:
        """Views without an instruction, with the value that they are a view of when they are first
        read."""
        table: dict[int, int] = {}
        flows = with_flow(self._method.values, self._records)
        for record, flow in zip(self._records, flows, strict=True):
            read = unfolded(self._method.values, record.inputs)
            for index, source in zip(read, flow.inputs, strict=True):
                if index != source:
                    table.setdefault(index, source)
        return table

    def has_content(self, index: int) -> bool:
        """True for a value that is set before any instruction has run."""
        value = self._method.values[index]
        return not isinstance(value, TensorValue) or value.has_data or value.is_constant

    def is_constant(self, index: int) -> bool:
        """True for a weight, which nothing may write."""
        value = self._method.values[index]
        return isinstance(value, TensorValue) and value.is_constant


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeMethod:
    """A method to run.

    calls: the flat inputs of each call. stops: one for each kernel and delegate call. input_names:
    names from the record, if known. seed: the seed of generated inputs; None if the user or a file
    gave the inputs.
    """

    program: Program
    method: Method
    records: Sequence[InstructionRecord]
    calls: Sequence[Sequence[Any]]
    stops: Sequence[Stop]
    nodes: NodeValues
    input_names: Sequence[str] | None = None
    seed: int | None = None

    def fitted(self, inputs: Any) -> Sequence[Any]:
        """The user's inputs, flat, as the method takes them. Raises `MismatchError`."""
        from etscope.run.inputs import method_inputs

        return method_inputs(
            self.program, self.method.name, inputs, seed=0, input_names=self.input_names
        )

    @property
    def outputs(self) -> list[tuple[int, ...]]:
        """Indices of the tensors that each instruction writes; empty for those without a stop."""
        values = self.method.values
        return [
            unfolded(values, record.outputs) if record.kind in COMPUTING else ()
            for record in self.records
        ]

    def weight(self, index: int) -> npt.NDArray[Any] | None:
        """A weight from the program's file; None for all other values and for weights in another
        file."""
        value = self.method.values[index]
        if not isinstance(value, TensorValue) or not value.is_constant or value.external:
            return None
        return self.program.constant(self.method.name, index)


def prepare_method(
    capture: Trace | Export,
    bundle: BundledFile | None,
    name: str,
    given: Any,
    *,
    seed: int | None = None,
    forced: bool = False,
) -> RuntimeMethod:
    """Prepare a method of the program.

    given: its inputs, as `etscope.run` takes them: a file, a list, or names with values; or `Calls`
    with several sets; None for the inputs of the recorded runs, of the record or of the bundled
    program, or else generated ones. seed: generate the inputs in any case. forced: accept the
    record of another program.

    Raises `MissingDataError` without a program or method, `MismatchError` for a record of
    another program and for inputs that do not fit.
    """
    from etscope.model.exported_graph import record_input_names
    from etscope.run.inputs import method_inputs

    program, record = capture.recorded_program, capture.record
    if program is None:
        raise MissingDataError("no program is loaded to run", hint="give it: file MODEL.pte")
    method = program.method(name)

    linked, symbols = None, MethodSymbols(name, None)
    if record is not None and name in record.edge_methods:
        linked = edge_graph(capture, name)
        symbols = linked.symbols or method_symbols(record, name)
    records = instructions(program, name, delegate_outputs=symbols.num_outputs).records
    if not forced:
        Export(program, record).check_record()

    sets = ()
    if seed is None:
        sets = sets_of(given) or inputs_of(capture, bundle, name)
    names = None if record is None else record_input_names(record, name)
    calls = [
        method_inputs(program, name, one, seed=seed or 0, input_names=names)
        for one in sets or (None,)
    ]

    attribution = attribution_of(symbols, records, instruction_labels(method))
    paths = {} if linked is None else linked.graph.path_of
    stops = []
    for one in (record for record in records if record.kind in COMPUTING):
        key = EventKey(one.event, one.instruction_id, 0, None, None, (), 0)
        stops.append(stop_of_event(key, one.kind, attribution(key), linked, paths))
    return RuntimeMethod(
        program=program,
        method=method,
        records=records,
        calls=calls,
        stops=stops,
        nodes=NodeValues(method, records, linked),
        input_names=names,
        seed=None if sets or not method.inputs else seed or 0,
    )
