"""What `docs/appendix/differences.md` says of the numeric gap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

from etscope.errors import NumericGapError
from tests.support.numeric_runs import ATEN, EDGE, inputs_of, inspector


def gap_table(name: str, graph: str, **options: Any) -> Any:
    """The MSE of each compared value."""
    opened = inspector(name, program=options.pop("program", False))
    options.setdefault("inputs", inputs_of(name, options.get("method", "forward")))
    return opened.calculate_numeric_gap("MSE", False, graph, **options)


def largest(frame: Any) -> float:
    return max(gap for cell in frame["gap"] for gap in cell)


def test_channels_last_tensors_are_read_by_their_strides() -> None:
    assert largest(gap_table("channels_last", ATEN)) < 1e-10


def test_outputs_of_a_delegate_are_paired_with_their_own_nodes() -> None:
    frame = gap_table("many_delegates", ATEN)
    assert sum(row == (5, 6, 7, 8) for row in frame["aot_debug_handle"]) == 3
    assert largest(frame) < 1e-8


def test_no_debug_buffer_is_an_error_and_not_zeros() -> None:
    opened = inspector("cnn_portable")
    object.__setattr__(opened.trace, "debug_buffer", None)
    with pytest.raises(NumericGapError, match="debug buffer"):
        opened.calculate_numeric_gap("MSE", inputs=inputs_of("cnn_portable"))


def test_nan_is_never_a_small_gap() -> None:
    frame = gap_table("nan_output", ATEN)
    gaps = {ops[0]: cell[0] for ops, cell in zip(frame["aot_ops"], frame["gap"], strict=True)}
    assert np.isnan(gaps["sqrt"]) and np.isnan(gaps["add"])
    assert gaps["relu"] == 0


def test_linear_layers_of_batches() -> None:
    frame = gap_table("batched_linear", ATEN)
    assert [ops for (ops,) in frame["aot_ops"]] == ["linear", "relu", "linear_1"]
    assert largest(frame) < 1e-10


def test_operators_with_several_outputs_have_a_row_for_each() -> None:
    frame = gap_table("int_outputs", ATEN)
    names = [ops[0] for ops in frame["aot_ops"]]
    assert names.count("topk") == 2 and names.count("split") == 2 and names.count("max_1") == 2


def test_every_instruction_of_a_decomposition_has_a_row() -> None:
    frame = gap_table("batched_linear", EDGE)
    assert list(frame["aot_debug_handle"]).count((1,)) == 2


@pytest.mark.parametrize("method", ["encode", "decode"])
def test_several_methods(method: str) -> None:
    frame = gap_table("two_methods", EDGE, method=method)
    assert len(frame) > 2 and largest(frame) < 1e-10


@pytest.mark.parametrize("case", range(4))
def test_each_run_can_be_compared(case: int) -> None:
    inputs = inputs_of("varying_inputs", case=case)
    assert largest(gap_table("varying_inputs", ATEN, run=case, inputs=inputs)) < 1e-10


def test_branches_and_loops() -> None:
    inside = [ops for ops in gap_table("cond", ATEN)["aot_ops"] if "/" in ops[0]]
    assert len(inside) == 2
    loops = gap_table("while_loop", EDGE)
    assert {len(cell) for cell in loops["gap"]} == {1, 5}
    assert largest(loops) < 1e-10


def test_what_was_not_compared_is_told() -> None:
    opened = inspector("transformer")
    coverage = opened.numeric_gap(inputs=inputs_of("transformer")).coverage
    assert len(coverage.table()) == len(coverage.outputs) + len(coverage.nodes) > 0
    assert all(reason for reason in coverage.table().values["reason"])


def test_delegates_without_a_row_of_upstream() -> None:
    """Upstream raises for these, or leaves all of the rows out."""
    assert len(gap_table("cnn_xnnpack_lowered", EDGE)) == 1
    assert len(gap_table("recurrent_xnnpack", ATEN)) == 3
    assert len(gap_table("transformer", ATEN)) == 40
