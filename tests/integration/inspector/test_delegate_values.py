"""Values that QNN and Core ML log inside of their calls, compared with the reference."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("executorch.exir")

import torch

from etscope import Inspector
from etscope.analysis.matching.delegate_values import codes_of_graph
from etscope.analysis.numerics.rows import WRONG, Numerics
from etscope.analysis.program.correlate import method_symbols
from etscope.formats.etrecord.reader import read_etrecord
from tests.support.artifacts import FAMILIES, artifacts

OWN_VALUES = [
    name
    for name, module in FAMILIES.items()
    if module == "delegate_values" and "vulkan" not in name and "kept" not in name
]
CONVOLUTIONS, QUANTIZED = "values_convolutions_qnn", "values_convolutions_qnn_8"


def opened(name: str, run: str, record: str = "model") -> Inspector:
    made = artifacts(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Inspector(
            made.extra(f"{run}.etdp"),
            etrecord=made.extra(f"{record}.etrecord"),
            debug_buffer_path=made.extra(f"{run}.bin"),
        )


@cache
def diagnosed(name: str, run: str, record: str = "model") -> Numerics:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return opened(name, run, record).diagnose_numerics()


def inner(found: Numerics) -> list[str]:
    """The nodes whose values were logged inside of calls."""
    return [row.pair.node for row in found.rows if row.pair.delegate_id is not None]


def lost(found: Numerics) -> dict[str, str]:
    """The reasons of values that were not compared, by their identifiers."""
    return {row.op: row.reason for row in found.coverage.outputs}


def faults(name: str) -> dict[str, str]:
    """The node of each run with a fault."""
    found: dict[str, str] = artifacts(name).meta["faults"]
    return found


@pytest.mark.parametrize("name", OWN_VALUES)
def test_sound_values_are_fine(name: str) -> None:
    found, border = diagnosed(name, "sound"), diagnosed(name, "border")
    assert len(inner(found)) >= 6
    assert [row.pair.node for row in found.wrong] == []
    assert all(row.total is not None and row.total > 20 for row in found.rows)
    assert border.rows and not border.wrong


@pytest.mark.parametrize("name", OWN_VALUES)
def test_a_fault_inside_is_named_at_its_node(name: str) -> None:
    assert len(faults(name)) >= 3
    for run, node in faults(name).items():
        assert {row.pair.node for row in diagnosed(name, run).wrong} == {node}, run


@pytest.mark.parametrize("name", ["values_attention_qnn_16", "values_attention_coreml"])
def test_a_transposed_weight_is_told(name: str) -> None:
    found = diagnosed(name, "transposed")
    assert {row.pair.node for row in found.wrong} == {"aten_linear_default_1"}
    assert found.first is not None and found.first.module in ("q", "k", "v")
    assert "transposed" in found.what_it_is


@pytest.mark.parametrize("name", [CONVOLUTIONS, "values_attention_coreml"])
def test_a_fault_is_named_at_the_border_without_inner_values(name: str) -> None:
    (row,) = diagnosed(name, "border-fault").rows
    assert row.verdict == WRONG and row.is_delegate
    assert artifacts(name).meta["border"] in row.nodes and len(row.lines) > 1


@pytest.mark.parametrize("name", ["values_vulkan", "values_vulkan_halves"])
def test_vulkans_calls_are_compared_at_their_border(name: str) -> None:
    found = diagnosed(name, "sound")
    assert [row.verdict for row in found.rows if row.is_delegate] == ["fine", "fine"]
    ((run, node),) = faults(name).items()
    found = diagnosed(name, run)
    assert found.first is not None and found.first.is_delegate
    assert node in found.first.nodes


def test_several_calls_with_a_kernel_between_them() -> None:
    found = diagnosed("values_kept_qnn_8", "sound")
    assert {row.pair.instruction for row in found.rows} == {0, 1, 2}
    assert len(inner(found)) >= 7 and not found.wrong
    ((run, node),) = faults("values_kept_qnn_8").items()
    assert {row.pair.node for row in diagnosed("values_kept_qnn_8", run).wrong} == {node}


def test_the_graph_after_qnns_passes_is_the_reference() -> None:
    """Its passes number debug handles anew: those of the edge program are other nodes."""
    found = diagnosed(QUANTIZED, "sound")
    assert found.reference == "edge_after_transform/forward"
    named = {row.event: row.pair.node for row in found.rows if row.pair.delegate_id is not None}
    assert named and set(named) <= set(artifacts(QUANTIZED).meta["map"])
    assert all(name == f"{node}@0" for name, node in named.items())


def test_the_gap_is_that_of_upstreams_comparator() -> None:
    gaps = opened(QUANTIZED, "sound").calculate_numeric_gap(
        "MSE", reference_graph="edge_after_transform", disable_debug_handle_valdiation=True
    )
    by_name = {row.runtime_ops[0]: row for _, row in gaps.iterrows() if len(row.runtime_ops) == 1}
    seen = 0
    with np.load(artifacts(QUANTIZED).extra("upstream.npz")) as values:
        for node, value in values.items():
            row: Any = by_name.get(f"{node}@0")
            if row is None:
                continue
            expected, mine = row.aot_intermediate_output, row.runtime_intermediate_output
            torch.testing.assert_close(mine, torch.from_numpy(value))
            assert row.aot_ops == [node]
            gap = float((expected - value).square().mean())
            assert row.gap[0] == pytest.approx(gap, rel=1e-4)
            seen += 1
    assert seen >= 7


# -- what cannot be brought to the reference


@pytest.mark.parametrize("name", [CONVOLUTIONS, "values_convolutions_coreml"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("renamed", "the delegate's map lacks it"),
        ("of_another_type", "logged as uint8"),
        ("cut", "in the reference"),
    ],
)
def test_what_does_not_fit_is_left_out_with_a_reason(name: str, change: str, reason: str) -> None:
    found = diagnosed(name, change)
    assert inner(found) == [] and not found.wrong
    assert len(found.rows) == 1  # the call's output
    told = lost(found)
    assert len(told) == len(artifacts(name).meta["logged"])
    assert sum(reason in one for one in told.values()) >= 7


def test_the_map_of_another_program_is_no_wrong_number() -> None:
    reasons = lost(diagnosed(CONVOLUTIONS, "sound", "strange"))
    assert any("no node of the reference has its debug handles" in one for one in reasons.values())


def test_codes_without_a_scale_are_not_compared() -> None:
    """A record that lost the graph from before the passes does not say the scales."""
    record = read_etrecord(artifacts(QUANTIZED).extra("model.etrecord"))
    symbols = method_symbols(record, "forward")
    assert symbols.graph is not None and symbols.before_passes is not None
    assert len(codes_of_graph(symbols.graph, symbols.before_passes).values) >= 8
    alone = codes_of_graph(symbols.graph, None).values
    assert not any("convolution" in value.path for value in alone)
