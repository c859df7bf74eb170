"""Compare the scales, zero points and ranges of two quantized programs' values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from etscope.analysis.comparison.align import Status
from etscope.analysis.comparison.programs import Side
from etscope.analysis.numerics.values import QuantizedRange, quantized_range
from etscope.analysis.program.source_location import lines_of, module_path
from etscope.model.common_subsequence import matched_in_turn
from etscope.model.graph import Graph, SourceLine, stem


@dataclass(frozen=True, slots=True)
class RangeOfValue:
    """The range of a value with a fixed scale.

    node, op, module, lines: of the operator that computes the value; for an input, node is its
    name.
    """

    node: str
    op: str
    module: str | None
    lines: tuple[SourceLine, ...]
    range: QuantizedRange


class RangeChange(NamedTuple):
    """A quantized value on both sides; None on a side without quantization."""

    status: Status
    method: str
    before: RangeOfValue | None
    after: RangeOfValue | None


def quantized_ranges(graph: Graph) -> Iterator[RangeOfValue]:
    """Yield the values of an edge graph with a fixed scale, each once, in order of execution."""
    seen = set()
    for path, node in graph.own_operators.items():
        if not stem(node.op).startswith("quantize_per_") or not node.inputs:
            continue
        source = graph.by_name.get(node.inputs[0])
        found = quantized_range(graph, path)
        if source is None or found is None or found.scale is None:
            continue
        key = source.name, found.scale, found.zero_point
        if key in seen:
            continue
        seen.add(key)
        is_input = source.kind == "placeholder"
        yield RangeOfValue(
            source.name,
            "input" if is_input else stem(source.op),
            None if is_input else module_path(source),
            () if is_input else lines_of([source]),
            # The quantized number, not the integer codes of the operator.
            QuantizedRange(
                found.node,
                found.op,
                found.scale,
                found.zero_point,
                found.quant_min,
                found.quant_max,
            ),
        )


def range_changes(before: Side, after: Side) -> Iterator[RangeChange]:
    """Yield the quantized values of common methods, if both sides have records with quantized
    graphs."""
    for method in after.methods:
        if method not in before.methods:
            continue
        graphs = [side.export.edge_nodes(method).symbols.graph for side in (before, after)]
        sides = [[] if one is None else list(quantized_ranges(one)) for one in graphs]
        if all(sides):
            yield from _aligned(method, *sides)


def _aligned(
    method: str, before: Sequence[RangeOfValue], after: Sequence[RangeOfValue]
) -> Iterator[RangeChange]:
    tokens = [[(one.op, one.module, one.node) for one in side] for side in (before, after)]
    pairs = matched_in_turn(tokens[0], tokens[1], [lambda token: token, lambda token: token[:2]])
    i = j = 0
    for one, other in (*pairs, (len(before), len(after))):
        yield from (RangeChange("removed", method, value, None) for value in before[i:one])
        yield from (RangeChange("added", method, None, value) for value in after[j:other])
        i, j = one + 1, other + 1
        if one < len(before) and other < len(after):
            first, second = before[one], after[other]
            is_same = (first.range.scale, first.range.zero_point, first.range.quant_min) == (
                second.range.scale,
                second.range.zero_point,
                second.range.quant_min,
            )
            yield RangeChange("same" if is_same else "changed", method, first, second)
