"""What a run on the runtime needs to know before it begins: program, inputs, stops, nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.matching import Matching, Pair
from etscope.analysis.matching.program import COMPUTING, one_by_one, with_flow
from etscope.analysis.profile.correlate import MethodSymbols, method_symbols
from etscope.analysis.profile.trace import attribution_of, differs_from_record
from etscope.analysis.program.compatibility import Observed, instruction_labels
from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.errors import MismatchError, MissingDataError
from etscope.etdb.files import NO_RECORD, NO_RECORD_HINT, Files
from etscope.etdb.targets.reference import inputs_of
from etscope.etdb.targets.target import Stop, stop_of
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import Method, TensorValue
from etscope.model.event_table import EventKey

__all__ = ["NO_PROGRAM", "NodeValues", "RuntimeMethod", "prepare_method"]


# Which value of the program is which node's, without a run: by record, instructions and shapes.


class NodeValues:
    """The nodes of the edge graph and the values of a method."""

    def __init__(
        self,
        method: Method,
        records: Sequence[InstructionRecord],
        linked: LinkedGraph | None,
    ) -> None:
        """linked: the edge graph, joined to the method's program; None without a record."""
        self._method, self._records, self._linked = method, records, linked

    def outputs_of(self, instruction: int) -> tuple[int, ...]:
        """The values that an instruction writes, those of lists one by one, in the order in which
        the runtime logs them."""
        return one_by_one(self._method.values, self._records[instruction].outputs)

    @property
    def matching(self) -> Matching:
        """Which outputs are values of which nodes. Of tensors with dynamic shapes the bounds are
        compared. Raises `MissingDataError` without a record."""
        found = None if self._linked is None else self._linked.matching
        if found is None:
            raise MissingDataError(
                f"{NO_RECORD}: nothing tells which value is which", hint=NO_RECORD_HINT
            )
        return found

    def index_of(self, pair: Pair) -> int:
        """The value that is the node's."""
        return self.outputs_of(pair.instruction)[pair.output]

    def why_unpaired(self, node: str) -> str:
        """Why no value is the node's."""
        for missing in self.matching.unpaired_nodes:
            if missing.node == node:
                return missing.reason
        weight = None if self._linked is None else self._linked.graph.parameters.get(node)
        if weight is not None:
            return f'a delegate keeps it to itself; the record\'s is weight("{weight}")'
        return "info ops lists the names"

    @cached_property
    def placeholders(self) -> Mapping[str, int]:
        """The values of the graph's inputs, weights and state, by the placeholder's name; only
        those of which instructions tell: what a delegate has taken in is none."""
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

    def writers_of(self, index: int) -> tuple[int, ...]:
        """The instructions that write a value; of a view that no instruction makes, those that
        write what it is a view of. Empty where none is known."""
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
        """Views that no instruction makes, with what they are of where they are first read."""
        table: dict[int, int] = {}
        for record, flow in zip(self._records, self._flow, strict=True):
            read = unfolded(self._method.values, record.inputs)
            for index, source in zip(read, flow.inputs, strict=True):
                if index != source:
                    table.setdefault(index, source)
        return table

    @cached_property
    def _flow(self) -> list[InstructionRecord]:
        return with_flow(self._method.values, self._records)

    def has_content(self, index: int) -> bool:
        """Whether a value is something before any instruction has run."""
        value = self._method.values[index]
        return not isinstance(value, TensorValue) or value.has_data or value.is_constant

    def is_constant(self, index: int) -> bool:
        """Whether a value is a weight, which nothing may write."""
        value = self._method.values[index]
        return isinstance(value, TensorValue) and value.is_constant


NO_PROGRAM = "there is no program to run"


@dataclass(frozen=True, slots=True, eq=False)
class RuntimeMethod:
    """A method to run. inputs: flat, as it takes them; generated of `seed` if that is not None.
    stops: one for each kernel and delegate."""

    program: Program
    method: Method
    records: Sequence[InstructionRecord]
    inputs: Sequence[Any]
    stops: Sequence[Stop]
    nodes: NodeValues
    seed: int | None = None

    @property
    def outputs(self) -> list[tuple[int, ...]]:
        """Of each instruction the tensors that it writes; only of those at which a run stops."""
        values = self.method.values
        return [
            unfolded(values, record.outputs) if record.kind in COMPUTING else ()
            for record in self.records
        ]

    def weight(self, index: int) -> npt.NDArray[Any] | None:
        """A weight, from the program's file: nothing writes it. None for all else, and for weights
        that are in another file."""
        value = self.method.values[index]
        if not isinstance(value, TensorValue) or not value.is_constant or value.external:
            return None
        return self.program.constant(self.method.name, index)


def prepare_method(
    files: Files, wanted: str | None, given: Any, seed: int | None = None
) -> RuntimeMethod:
    """The method `wanted` of the program, None for its main one, and its inputs: None for those of
    the record or the bundled program, and without such generated ones. seed: generate them anyway.

    Raises `MissingDataError` without a program or method, `MismatchError` for a record of
    another program and for inputs that do not fit.
    """
    from etscope.model.exported_graph import record_input_names
    from etscope.run.inputs import method_inputs
    from etscope.run.program import Opened

    program = files.any_program
    if program is None:
        raise MissingDataError(NO_PROGRAM, hint="give it: file MODEL.pte")
    opened = Opened(program, record=files.record, bundle=files.bundle)
    name = opened.method_name(wanted)
    method = program.method(name)
    linked = _linked(files, name)
    symbols = _symbols(files, name, linked)
    records = instructions(program, name, delegate_outputs=symbols.num_outputs).records
    if not files.forced:
        opened.check_record()
        _check(files, name, records, symbols)
    if seed is not None:
        given = None
    elif given is None:
        given = inputs_of(files, name)
        seed = 0
    names = None if files.record is None else record_input_names(files.record, name)
    return RuntimeMethod(
        program=program,
        method=method,
        records=records,
        inputs=method_inputs(program, name, given, seed=seed or 0, input_names=names),
        stops=_stops(method, records, symbols, linked),
        nodes=NodeValues(method, records, linked),
        seed=seed if given is None and method.inputs else None,
    )


def _linked(files: Files, method: str) -> LinkedGraph | None:
    has_graph = files.record is not None and method in files.record.edge_methods
    return files.edge(method) if has_graph else None


def _symbols(files: Files, method: str, linked: LinkedGraph | None) -> MethodSymbols:
    if linked is not None and linked.symbols is not None:
        return linked.symbols
    if files.record is None or method not in files.record.edge_methods:
        return MethodSymbols(method, None)
    return method_symbols(files.record, method)


def _check(
    files: Files, method: str, records: Sequence[InstructionRecord], symbols: MethodSymbols
) -> None:
    """Of a record without fingerprints its maps and graphs tell."""
    if files.record is None or files.record.fingerprints is not None:
        return
    difference = differs_from_record(Observed.foreseen(records), symbols, files.record, method)
    if difference is not None:
        raise MismatchError(
            f"this program and this ETRecord do not belong together: {difference}",
            hint="take the files of one export; verify=False (--force) goes on regardless",
        )


def _stops(
    method: Method,
    records: Sequence[InstructionRecord],
    symbols: MethodSymbols,
    linked: LinkedGraph | None,
) -> list[Stop]:
    attribution = attribution_of(symbols, records, instruction_labels(method))
    paths = {} if linked is None else linked.graph.path_of
    keys = [
        (record.kind, EventKey(record.event, record.instruction_id, 0, None, None, (), 0))
        for record in records
        if record.kind in COMPUTING
    ]
    return [stop_of(key, kind, attribution(key), linked, paths) for kind, key in keys]
