"""Match the values of a program with those of a graph without a run, by their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etscope.analysis.matching.matching import Matching, match
from etscope.analysis.matching.run import LoggedSpec
from etscope.analysis.profile.correlate import MethodSymbols
from etscope.analysis.program.program import InstructionRecord, place, unfolded
from etscope.formats.program.pte_schema import ListValue, Method, TensorValue, Value
from etscope.model.graph import Graph

COMPUTING = ("kernel", "delegate")  # the kinds of instructions that compute something


def program_matching(
    graph: Graph, symbols: MethodSymbols, method: Method, records: Sequence[InstructionRecord]
) -> Matching:
    """Match the values that a method's instructions would log with those of `graph`, by
    `matching.match`. Dynamic shapes are compared by their bounds."""
    specs: dict[int, list[LoggedSpec | None]] = {}
    for record in records:
        if record.kind in COMPUTING:
            outputs = one_by_one(method.values, record.outputs)
            specs[record.instruction_id] = [
                LoggedSpec(value.scalar_type.torch_name, value.sizes)
                if isinstance(value := method.values[index], TensorValue)
                else None
                for index in outputs
            ]
    flow = with_flow(method.values, records)
    return match(graph, symbols, flow, specs, outputs=method.outputs)


def with_flow(
    values: Sequence[Value], records: Sequence[InstructionRecord]
) -> list[InstructionRecord]:
    """Return the records with the tensors of lists one by one. A view that no instruction writes is
    replaced by the value that it is a view of: the last one written to the same memory."""
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
    """The indices with each list replaced by its tensors, as the runtime logs them."""
    found: list[int] = []
    for index in indices:
        value = values[index]
        tensors = unfolded(values, [index]) if isinstance(value, ListValue) else ()
        found.extend(tensors or (index,))
    return tuple(found)


__all__ = ["COMPUTING", "one_by_one", "program_matching", "with_flow"]
