"""Which value of a program is which node's, without a run: by record, instructions and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etscope.analysis.matching.graph import LoggedSpec
from etscope.analysis.matching.matching import Matching, match
from etscope.analysis.profile.correlate import MethodSymbols
from etscope.analysis.program.program import InstructionRecord, place, unfolded
from etscope.formats.program.pte_schema import ListValue, Method, TensorValue, Value
from etscope.model.graph import Graph

COMPUTING = ("kernel", "delegate")  # the kinds of instructions that compute something


def program_matching(
    graph: Graph, symbols: MethodSymbols, method: Method, records: Sequence[InstructionRecord]
) -> Matching:
    """What `matching.match` tells of the values that a method's instructions would log. graph: of
    the record, as there. Of tensors with dynamic shapes the bounds are compared."""
    specs = {
        record.instruction_id: [
            _spec(method.values[index]) for index in one_by_one(method.values, record.outputs)
        ]
        for record in records
        if record.kind in COMPUTING
    }
    flow = with_flow(method.values, records)
    return match(graph, symbols, flow, specs, outputs=method.outputs)


def with_flow(
    values: Sequence[Value], records: Sequence[InstructionRecord]
) -> list[InstructionRecord]:
    """The records of a method with these values with their tensors one by one, and in place of
    views that no instruction made the values that they are views of: what was written last to the
    same memory."""
    written: set[int] = set()
    last: dict[object, int] = {}
    found = []
    for record in records:
        inputs = tuple(
            index if index in written else last.get(place(values[index]), index)
            for index in unfolded(values, record.inputs)
        )
        outputs = unfolded(values, record.outputs)
        written.update(outputs)
        last.update((where, i) for i in outputs if (where := place(values[i])) is not None)
        found.append(replace(record, inputs=inputs, outputs=outputs))
    return found


def one_by_one(values: Sequence[Value], indices: Sequence[int]) -> tuple[int, ...]:
    """The indices, with those of a list's tensors in the place of the list's: the order in which
    the runtime logs them."""
    found: list[int] = []
    for index in indices:
        value = values[index]
        tensors = unfolded(values, [index]) if isinstance(value, ListValue) else ()
        found.extend(tensors or (index,))
    return tuple(found)


def _spec(value: Value) -> LoggedSpec | None:
    if not isinstance(value, TensorValue):
        return None
    return LoggedSpec(value.scalar_type.torch_name, value.sizes)


__all__ = ["COMPUTING", "one_by_one", "program_matching", "with_flow"]
