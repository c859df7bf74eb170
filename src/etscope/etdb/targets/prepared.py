"""What a run on the runtime needs to know before it begins: program, inputs, stops, nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.graph import Paths
from etscope.analysis.matching.program import COMPUTING
from etscope.analysis.profile.attribution import attribution_of
from etscope.analysis.profile.blocks import EventKey
from etscope.analysis.profile.correlate import MethodSymbols
from etscope.analysis.profile.symbols import method_symbols
from etscope.analysis.profile.trace import differs_from_record
from etscope.analysis.program.compatibility import Observed, instruction_labels
from etscope.analysis.program.program import InstructionRecord, instructions, unfolded
from etscope.errors import MismatchError, MissingDataError
from etscope.etdb._files import Files
from etscope.etdb.targets.reference import inputs_of
from etscope.etdb.targets.runtime_nodes import Nodes
from etscope.etdb.targets.stops import stop_of
from etscope.etdb.targets.target import Stop
from etscope.formats.program.pte import Program
from etscope.formats.program.pte_schema import Method, TensorValue

NO_PROGRAM = "there is no program to run"


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A method to run. inputs: flat, as it takes them; generated of `seed` if that is not None.
    stops: one for each kernel and delegate."""

    program: Program
    method: Method
    records: Sequence[InstructionRecord]
    inputs: Sequence[Any]
    stops: Sequence[Stop]
    nodes: Nodes
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


def prepared(files: Files, wanted: str | None, given: Any, seed: int | None = None) -> Prepared:
    """The method `wanted` of the program, None for its main one, and its inputs: None for those of
    the record or the bundled program, and without such generated ones. seed: generate them anyway.

    Raises `MissingDataError` without a program or method, `MismatchError` for a record of
    another program and for inputs that do not fit.
    """
    from etscope.model.input_names import record_input_names
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
    return Prepared(
        program=program,
        method=method,
        records=records,
        inputs=method_inputs(program, name, given, seed=seed or 0, input_names=names),
        stops=_stops(method, records, symbols, linked),
        nodes=Nodes(method, records, linked),
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
    paths = {} if linked is None else Paths(linked.graph).path_of
    keys = [
        (record.kind, EventKey(record.event, record.instruction_id, 0, None, None, (), 0))
        for record in records
        if record.kind in COMPUTING
    ]
    return [stop_of(key, kind, attribution(key), linked, paths) for kind, key in keys]


__all__ = ["NO_PROGRAM", "Prepared", "prepared"]
