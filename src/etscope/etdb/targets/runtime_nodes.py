"""Which value of the program is which node's, without a run: by record, instructions and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from etscope.analysis.graphs.linked_graph import LinkedGraph
from etscope.analysis.matching.matching import Matching, Pair
from etscope.analysis.matching.program import one_by_one, with_flow
from etscope.analysis.program.program import InstructionRecord, unfolded
from etscope.errors import MissingDataError
from etscope.etdb._files import NO_RECORD, NO_RECORD_HINT
from etscope.formats.program.pte_schema import Method, TensorValue


class Nodes:
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


__all__ = ["Nodes"]
