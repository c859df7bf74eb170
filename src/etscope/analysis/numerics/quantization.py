"""Errors of quantization, apart from the backend's: of the quantized reference to the float graph,
by operator, and sentences on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from etscope.analysis.metrics import Metric
from etscope.analysis.numerics.limits import difference
from etscope.analysis.numerics.values import QuantizedRange
from etscope.analysis.program.source_location import short_lines
from etscope.model.graph import SourceLine
from etscope.model.table import Column, Kind, Table
from etscope.support.shown import Shown

_NAMED = 3  # operators in a sentence
_MANY_CLIPPED = 0.01  # share of a value's numbers beyond its range, to speak of
_MOSTLY, _SHARED = 0.9, 0.1  # shares of the mean squared error


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedOperator:
    """An operator of the float graph, and its nodes in the quantized graph.

    node: the node in the quantized graph. float_node, op: the node and operator in the float graph.
    total: the error of the quantized reference's value against the float graph's value. own: the
    error of what the quantized operator computes from the float graph's values; it comes from the
    operator's weights, from inputs that it quantizes dynamically, and from rounding and saturation
    of its result. range: the range of the quantized result, with its scale and zero point; None if
    it is not fixed. low, high: the smallest and the largest number in the float graph. saturated:
    the share of those numbers beyond the range. alone: the error of the method's outputs if only
    this operator is quantized; None if that was not tried. Errors are in the metric; None where the
    value cannot be compared.
    """

    node: str
    float_node: str
    op: str
    module: str | None
    lines: tuple[SourceLine, ...]
    total: float | None = None
    own: float | None = None
    alone: float | None = None
    range: QuantizedRange | None = None
    low: float | None = None
    high: float | None = None
    saturated: float | None = None

    def __str__(self) -> str:
        places = [f"node {self.node}"]
        if self.module:
            places.append(f"module {self.module}")
        places += [str(line) for line in self.lines[:1]]
        return f"{self.op} ({', '.join(places)})"


@dataclass(frozen=True, slots=True)
class OutputErrors:
    """The errors of a method's worst output, in the metric; None if unknown.

    quantization: the quantized reference against the float graph. backend: the device against the
    quantized reference. overall: the device against the float graph. share: the part of the mean
    squared error, from 0 to 1, that quantization causes, as if the two errors were independent.
    """

    quantization: float | None = None
    backend: float | None = None
    overall: float | None = None
    share: float | None = None


def output_errors(
    metric: Metric, floats: Sequence[Any], reference: Sequence[Any], device: Sequence[Any]
) -> OutputErrors:
    """Compare flat outputs of the float graph, of the quantized reference and of the device."""
    quantization = _squares(floats, reference)
    backend = _squares(reference, device)
    whole = quantization + backend
    return OutputErrors(
        worst_error(metric, floats, reference),
        worst_error(metric, reference, device),
        worst_error(metric, floats, device),
        quantization / whole if math.isfinite(whole) and whole > 0 else None,
    )


def worst_error(metric: Metric, one: Sequence[Any], other: Sequence[Any]) -> float | None:
    """Return the worst metric of the pairs; None if none can be compared."""
    return metric.worst(difference(metric, *pair) for pair in zip(one, other, strict=False))


def _squares(one: Sequence[Any], other: Sequence[Any]) -> float:
    """The sum of squared differences, each output relative to its own mean square."""
    total = 0.0
    for expected, found in zip(one, other, strict=False):
        first, second = (np.asarray(value, np.float64) for value in (expected, found))
        if first.shape == second.shape and first.size:
            with np.errstate(invalid="ignore", over="ignore"):
                size = float(np.mean(np.square(first))) or 1.0
                total += float(np.mean(np.square(first - second))) / size
    return total


@dataclass(frozen=True)
class Quantization(Shown):
    """Errors of quantization in a run.

    outputs: errors of the method's outputs. operators: in the order of the quantized graph; empty
    where only outputs were compared. missing: what has no counterpart in the other graph, in words.
    """

    metric: Metric
    graph: str
    outputs: OutputErrors
    operators: tuple[QuantizedOperator, ...] = ()
    missing: str = ""

    @cached_property
    def costly(self) -> tuple[QuantizedOperator, ...]:
        """The operators whose quantization costs most: ordered by the error of the outputs if only
        this operator is quantized, if that is known; then by the operator's own error.
        """
        badness = self.metric.badness
        perfect = self.metric.perfect

        def cost(one: QuantizedOperator) -> tuple[bool, float]:
            error = one.own if one.alone is None else one.alone
            return one.alone is not None, -math.inf if error is None else badness(error)

        found = [one for one in self.operators if one.own is not None and one.own != perfect]
        return tuple(sorted(found, key=cost, reverse=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences: whether quantization or the backend causes the error, which operators
        add most of it, and what is missing.
        """
        return tuple(filter(None, (self._split, self._blame, self._clipped, self._missing)))

    @property
    def _split(self) -> str:
        outputs, title = self.outputs, self.metric.title
        if outputs.quantization is None:
            return ""
        if outputs.quantization == self.metric.perfect:
            return "quantization does not change the outputs"
        split = f"{title} of the outputs to the float graph: {self._value(outputs.quantization)}"
        if outputs.backend is None or outputs.overall is None:
            return f"{split} after quantization"
        split = (
            f"{title} of the outputs to the float graph: {self._value(outputs.overall)}; of "
            f"quantization {self._value(outputs.quantization)}, of the backend "
            f"{self._value(outputs.backend)}"
        )
        if outputs.backend == self.metric.perfect:
            return (
                f"{title} of the outputs against the float graph: "
                f"{self._value(outputs.overall)}, all of it due to quantization"
            )
        if outputs.share is None:
            return split
        if outputs.share >= _MOSTLY:
            return f"{split}: nearly all of the error is quantization's"
        if outputs.share <= _SHARED:
            return f"{split}: nearly all of the error is the backend's"
        return f"{split}: {outputs.share:.0%} of the squared error is quantization's"

    @property
    def _blame(self) -> str:
        worst = self.costly[:_NAMED]
        if not worst or self.outputs.quantization == self.metric.perfect:
            return ""
        alone = [one for one in worst if one.alone is not None]
        listed = "; ".join(
            f"{one}, {self._value(one.alone if alone else one.own)}" for one in alone or worst
        )
        begin = "quantizing one operator alone costs" if alone else "quantization itself costs"
        return f"{begin} most at {listed} (what to keep in float: etscope sensitivity)"

    @property
    def _clipped(self) -> str:
        found = [(one.saturated or 0.0, one) for one in self.operators]
        share, worst = max(found, key=lambda one: one[0], default=(0.0, None))
        if worst is None or share < _MANY_CLIPPED:
            return ""
        count = sum(share >= _MANY_CLIPPED for share, _ in found)
        more = f", and {count - 1} more have such numbers" if count > 1 else ""
        return (
            f"{share:.1%} of the numbers of {worst} are beyond the range that it was "
            f"calibrated for{more}: calibrate with data that has such numbers"
        )

    @property
    def _missing(self) -> str:
        return f"no counterpart in the other graph have {self.missing}" if self.missing else ""

    def _value(self, number: float | None) -> str:
        return "not known" if number is None else self.metric.text(number)

    def table(self, sort: str = "run") -> Table:
        """A row for each operator; sort: "run", order of execution, or "error", the costliest
        first."""
        rows = list(self.operators)
        if sort == "error":
            rows = [*self.costly, *(one for one in rows if one not in self.costly)]
        unit = self.metric.unit
        columns = {"total": "quantization", "own": "own", "alone": "outputs if alone"}
        return Table.of(
            {
                Column("op"): [one.op for one in rows],
                Column("node", priority=2): [one.node for one in rows],
                **{
                    Column(name, Kind.FLOAT, unit=unit, title=title): [
                        getattr(one, name) for one in rows
                    ]
                    for name, title in columns.items()
                },
                Column("saturated", Kind.SHARE): [one.saturated for one in rows],
                Column("scale", Kind.FLOAT, priority=4): [
                    None if one.range is None else one.range.scale for one in rows
                ],
                Column("zero_point", Kind.INT, priority=4): [
                    None if one.range is None else one.range.zero_point for one in rows
                ],
                Column("quantized_range", priority=4): [
                    None if one.range is None else _range_text(one.range.low, one.range.high)
                    for one in rows
                ],
                Column("float_range", priority=4): [_range_text(one.low, one.high) for one in rows],
                Column("float_node", priority=3): [one.float_node for one in rows],
                Column("module", Kind.PATH, priority=1): [one.module for one in rows],
                Column("source", Kind.PATH): [short_lines(one.lines) or None for one in rows],
                Column("sources", Kind.LIST, title="source lines", priority=8): [
                    [str(line) for line in one.lines] for one in rows
                ],
            },
            title=f"{self.metric.title} of quantization, to {self.graph}",
            notes=self.notes,
        )


def _range_text(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{low:.4g} … {high:.4g}"
