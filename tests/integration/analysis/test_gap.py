"""The comparison along a reference: rows, coverage, and what cannot be compared."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

from etscope.analysis.metrics import METRICS
from etscope.analysis.numerics.runs import TracedMethod
from etscope.diagnosis.numeric_gap import Gap, GapRow, Reference, numeric_gap
from etscope.errors import NumericGapError, UsageError
from tests.support.numeric_runs import ATEN, EDGE, inputs_of, inspector


def reference(name: str, graph: str, method: str = "forward") -> tuple[TracedMethod, Reference]:
    traced = TracedMethod(inspector(name).trace, method)
    return traced, Reference(traced, graph, inputs_of(name, method))


def test_a_table_has_a_row_for_each_pair_and_all_metrics() -> None:
    """Gaps of right programs are measured in test_numerics.py."""
    method, found = reference("int_outputs", EDGE)
    gap = numeric_gap(method, found, list(METRICS))
    assert gap.rows and gap.coverage.pairs
    assert set(gap.rows[0].metrics) == set(METRICS)
    table = gap.table()
    assert len(table) == len(gap.rows)
    assert {"instruction", "node", "op", *METRICS, "source", "handles"} <= set(table.names)
    assert repr(gap).startswith(f"<Gap of forward to {EDGE}") and len(repr(gap)) < 300
    assert len(gap._repr_html_() or "") < 100_000


class Altered(Reference):
    """A reference with one node's value changed."""

    def __init__(self, found: Reference, node: str, change: Any) -> None:
        self.graph, self._found, self._node, self._change = found.graph, found, node, change

    def values(self, wanted: Container[str] | None = None) -> Iterator[tuple[str, Any]]:
        for name, value in self._found.values(wanted):
            yield name, self._change(value) if name == self._node else value


class Empty(Altered):
    """A reference that did not run."""

    def values(self, wanted: Container[str] | None = None) -> Iterator[tuple[str, Any]]:
        return iter(())


def worst(gap: Gap) -> GapRow:
    return max(gap.rows, key=lambda row: gap.metrics[0].badness(row.metrics["mse"]))


def test_the_wrong_operator_is_the_worst_and_nan_is_worse() -> None:
    method, found = reference("cnn_portable", EDGE)
    gap = numeric_gap(method, found, ["mse"])
    node = next(row.node for row in gap.rows[7:] if row.pair.element is None)
    worse = Altered(found, node, lambda v: v + 1)
    first = worst(numeric_gap(method, worse, ["mse"]))
    assert first.node == node
    assert first.metrics["mse"] == pytest.approx(1, rel=1e-3)
    broken = Altered(worse, "aten_addmm_default", lambda v: np.full_like(v, np.nan))
    first = worst(numeric_gap(method, broken, ["mse", "snr"]))
    assert first.node == "aten_addmm_default"
    assert np.isnan(first.metrics["mse"])  # type: ignore[arg-type]


def test_another_shape_at_run_time_is_not_compared() -> None:
    method, found = reference("dynamic_shape", EDGE)
    whole = numeric_gap(method, found)
    cut = Altered(found, "aten_relu_default", lambda v: v[:2])
    gap = numeric_gap(method, cut)
    assert len(gap.rows) == len(whole.rows) - 1
    assert gap.coverage.pairs == whole.coverage.pairs - 1
    reasons = [item.reason for item in gap.coverage.outputs]
    assert "logged as [5, 6], but [2, 6] in the reference" in reasons


def test_a_branch_that_only_the_device_took_is_not_compared() -> None:
    method, found = reference("cond", EDGE)
    whole = numeric_gap(method, found)
    other = Reference(method, EDGE, [-inputs_of("cond")[0]])
    gap = numeric_gap(method, other)
    inside = [row for row in whole.rows if "/" in row.node]
    assert inside and not any("/" in row.node for row in gap.rows)
    assert sum("another branch" in item.reason for item in gap.coverage.outputs) == len(inside)


def test_runs_are_chosen_by_number() -> None:
    method = TracedMethod(inspector("varying_inputs").trace, "forward")
    for case in range(4):
        found = Reference(method, EDGE, inputs_of("varying_inputs", case=case))
        gap = numeric_gap(method, found, ["mse"], run=case)
        assert all(row.metrics["mse"] < 1e-10 for row in gap.rows)  # type: ignore[operator]
        other = numeric_gap(method, found, ["mse"], run=(case + 1) % 4)
        assert max(row.metrics["mse"] for row in other.rows) > 1e-3  # type: ignore[type-var, operator]
        assert gap.run != other.run
    with pytest.raises(UsageError, match="ran 4 times"):
        numeric_gap(method, found, run=4)


def test_methods_with_the_same_events_are_told_apart_by_their_values() -> None:
    for name in ("forward", "extra"):
        method, found = reference("forward_and_extra", EDGE, name)
        gap = numeric_gap(method, found, ["mse"])
        assert gap.method == name
        assert all(row.metrics["mse"] < 1e-10 for row in gap.rows)  # type: ignore[operator]


def test_values_can_be_kept() -> None:
    method, found = reference("batched_linear", ATEN)
    kept: list[tuple[Any, Any, Any]] = []
    gap = numeric_gap(method, found, keep=lambda *entry: kept.append(entry))
    assert [entry[0] for entry in kept] == list(gap.rows)
    for row, expected, logged in kept:
        assert expected.shape == logged.shape == row.shape


def test_a_loop_has_a_row_for_each_pass() -> None:
    method, found = reference("while_loop", EDGE)
    gap = numeric_gap(method, found)
    (pair,) = {row.pair for row in gap.rows if row.node.endswith("sigmoid_default")}
    assert [row.loop_pass for row in gap.rows if row.pair == pair] == list(range(5))


def test_what_cannot_be_compared() -> None:
    method, found = reference("cnn_portable", EDGE)
    with pytest.raises(NumericGapError, match="debug buffer"):
        numeric_gap(TracedMethod(replace(method.trace, debug_buffer=None), "forward"), found)
    with pytest.raises(NumericGapError, match="no run of the method 'other'"):
        numeric_gap(TracedMethod(method.trace, "other"), found)
    with pytest.raises(NumericGapError, match="none of the 36 logged values"):
        numeric_gap(method, Empty(found, "", None))
