"""Say what the faults of wrong values are: look for explanations, and put them into the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from etscope.analysis.numerics.explanations import (
    Candidate,
    Explanation,
    Residual,
    Suspect,
    best_explanation,
)
from etscope.analysis.numerics.rows import WRONG, NumericsRow
from etscope.analysis.numerics.value_patterns import non_finite, single_element, value_patterns
from etscope.analysis.program.source_location import lines_of
from etscope.model.graph import VIEWS, Graph, stem

MOST_EXPLAINED = 4  # wrong rows, the first
_MOST_ELEMENTS = 1 << 22  # of a value: 32 MB in float64 for each candidate
_MOST_CAUSES = 3  # of NaN and infinities; a longer list does not identify the cause
_PROBE = 16  # elements that rule most other values out

Values = Callable[[str, int], Collection[tuple[int | None, Any]]]
# Yields the candidates of recomputation for a row with its residual.
Recomputing = Callable[[NumericsRow, Residual], Iterable[Candidate]]


@dataclass(slots=True)
class Suspects:
    """Keeps copies of the values of the first wrong rows."""

    kept: dict[tuple[Any, int], Suspect] = field(default_factory=dict)

    def takes(self, row: NumericsRow) -> bool:
        """Return True for a wrong row whose values should be kept: one of the first
        `MOST_EXPLAINED`, and not too large."""
        size = math.prod(row.shape)
        is_wrong = row.verdict == WRONG and row.local is not None
        return is_wrong and len(self.kept) < MOST_EXPLAINED and 0 < size <= _MOST_ELEMENTS

    def take(self, row: NumericsRow, suspect: Suspect) -> None:
        """Keep copies of the values that a row was judged with."""
        value, local = np.array(suspect.value), np.array(suspect.local)
        wide = None if suspect.wide is None else np.array(suspect.wide)
        if value.dtype.kind in "biuf" and value.shape == local.shape:
            copied = replace(suspect, value=value, local=local, wide=wide)
            self.kept[row.pair, row.loop_pass] = copied


@dataclass(frozen=True, slots=True)
class Others:
    """The device's other values, from this run and the run before: a wrong value may be a copy of
    one of them.

    nodes: the nodes with values, in order.
    """

    nodes: Sequence[str]
    now: Values
    before: Values | None = None

    def candidates(self, row: NumericsRow, residual: Residual) -> Iterator[Candidate]:
        """Yield the values of earlier nodes, and of the run before, that the row's value may be a
        copy of.
        """
        found = residual.found.reshape(-1)
        if self.before is not None:
            for element, value in self.before(row.pair.node, row.loop_pass):
                if element == row.pair.element and np.shape(value) == residual.found.shape:
                    text = "the value of the run before"
                    yield Candidate("stale", text, np.asarray(value).astype(np.float64))
        for node in self.nodes:
            if node == row.pair.node:
                return
            for _, value in self.now(node, row.loop_pass):
                array = np.asarray(value)
                if array.size != found.size or array.dtype != residual.dtype:
                    continue
                flat = array.reshape(-1)
                same = np.array_equal(flat[:_PROBE].astype(np.float64), found[:_PROBE])
                if same and (flat != flat[0]).any():  # many values may be zero or true everywhere
                    yield Candidate(
                        "stale",
                        f"the value of {node}, which was computed before",
                        flat.astype(np.float64).reshape(residual.found.shape),
                        0,
                        len(self.nodes),
                        {"value_of": node},
                    )


def with_explanations(
    rows: Sequence[NumericsRow],
    suspects: Suspects,
    graph: Graph,
    others: Others,
    prepare: Callable[[Sequence[NumericsRow]], Recomputing],
) -> list[NumericsRow]:
    """Add explanations to the rows with kept values. prepare: called with these rows."""
    wrong = [row for row in rows if (row.pair, row.loop_pass) in suspects.kept]
    if not wrong:
        return list(rows)
    recomputing = prepare(wrong)
    found: dict[int, Explanation] = {}
    for row in wrong:
        residual = Residual(suspects.kept[row.pair, row.loop_pass])
        explanation = _explanation(row, residual, others, recomputing)
        if explanation is not None:
            found[id(row)] = _placed(explanation, row, graph)
    return [replace(row, explanation=found[id(row)]) if id(row) in found else row for row in rows]


def _explanation(
    row: NumericsRow, residual: Residual, others: Others, recomputing: Recomputing
) -> Explanation | None:
    computed = recomputing(row, residual)
    candidate = non_finite(residual)
    if candidate is not None:
        if not residual.leaves_rounding(candidate.value):  # finite numbers are wrong, too
            same = [one for one in computed if residual.has_same_non_finite(one.value)]
            return best_explanation(residual, same)
        found = Explanation(candidate.kind, candidate.text, candidate.parameters, 1.0)
        named = [
            Explanation(one.kind, one.text, one.parameters, 1.0, one.node)
            for one in computed
            if one.free == 0
            and residual.has_same_non_finite(one.value)
            and residual.leaves_rounding(one.value)
        ]
        return replace(found, alternatives=tuple(named)) if len(named) < _MOST_CAUSES else found
    return single_element(residual) or best_explanation(
        residual, chain(value_patterns(residual), others.candidates(row, residual), computed)
    )


def _placed(explanation: Explanation, row: NumericsRow, graph: Graph) -> Explanation:
    """The explanation with the operator that it is about, where the value is one of several."""
    computing = [node for node in row.nodes if stem(graph.calls[node].op) not in VIEWS]
    alternatives = tuple(_placed(one, row, graph) for one in explanation.alternatives)
    if explanation.node is None or len(computing) < 2:
        return replace(explanation, alternatives=alternatives)
    node = graph.calls[explanation.node]
    lines = lines_of([node])
    where = f"node {explanation.node}" + (f", {lines[0]}" if lines else "")
    text = f"{explanation.text} in {stem(node.op)} ({where})"
    return replace(explanation, text=text, alternatives=alternatives)
