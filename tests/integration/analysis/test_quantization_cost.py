"""What quantization costs: the float graph of a record beside the quantized reference."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from etscope import Inspector  # noqa: E402
from etscope.analysis.comparison.program_report import program_diff_report  # noqa: E402
from etscope.analysis.comparison.programs import Side, diff_programs  # noqa: E402
from etscope.analysis.matching.graph_alignment import align_graphs  # noqa: E402
from etscope.analysis.metrics import METRICS, find_metric, measure  # noqa: E402
from etscope.analysis.numerics.quantization import Quantization, output_errors  # noqa: E402
from etscope.analysis.numerics.rows import Numerics  # noqa: E402
from etscope.etrecord import parse_etrecord  # noqa: E402
from etscope.evaluation import evaluate  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from etscope.formats.program.pte import read_pte  # noqa: E402
from etscope.model.exported_graph import graph_from_record  # noqa: E402
from etscope.model.graph import Graph, Node  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.evaluation.quantized_models import Network, eight_bit  # noqa: E402

PICTURE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))  # the picture


def sqnr(expected: Any, found: Any) -> float:
    error = measure(METRICS["sqnr"], np.asarray(expected), np.asarray(found))
    assert error is not None
    return error


def file(name: str) -> Path:
    """A file of `artifact_recipes/quantization_cost.py`."""
    return artifacts("quantization_cost").extra(name)


def record_of(name: str) -> Any:
    return parse_etrecord(file(f"{name}.etrecord"))


def diagnosed(name: str, record: Any = None) -> Numerics:
    return Inspector(
        file(f"{name}.etdp"),
        etrecord=record or file(f"{name}.etrecord"),
        debug_buffer_path=file(f"{name}.bin"),
    ).diagnose_numerics()


def graphs_of(name: str) -> tuple[Graph, Graph, Graph]:
    """The float, the edge and the quantized graph of a record."""
    record = read_etrecord(file(f"{name}.etrecord"))
    names = ("float/forward", "edge_dialect_exported_program/forward", "exported_program")
    floats, edge, exported = (graph_from_record(record, name) for name in names)
    return floats, edge, exported


def changed(floats: Graph, nodes: Iterable[Node]) -> Graph:
    """The graph of other nodes, which say nothing of their origins."""
    rootless = (replace(node, origins=()) for node in nodes)
    return replace(floats, nodes=tuple(rootless), graph_id=1)


def cost(found: Numerics) -> Quantization:
    assert found.quantization is not None
    return found.quantization


@pytest.fixture(scope="module")
def of_picture() -> Numerics:
    return diagnosed("picture")


@pytest.fixture(scope="module")
def of_network() -> Numerics:
    return diagnosed("network")


def test_the_outputs_are_split_into_quantization_and_backend(of_picture: Numerics) -> None:
    outputs, record = cost(of_picture).outputs, record_of("picture")
    with torch.no_grad():
        expected = record.graph_map["float/forward"].module()(PICTURE)
        quantized = record.exported_program.module()(PICTURE)
    assert outputs.quantization == pytest.approx(sqnr(expected, quantized), rel=1e-4)
    assert outputs.backend is not None
    assert outputs.backend > outputs.quantization
    assert outputs.share == pytest.approx(1, abs=0.01)
    assert any("quantization" in note and "float graph" in note for note in of_picture.notes)


def test_the_share_is_of_errors_relative_to_the_size_of_the_expected_output() -> None:
    floats, quantized, device = [np.array([4.0, 0.0])], [np.array([2.0, 0.0])], [np.array([2.0, 1])]
    found = output_errors(find_metric("mse"), floats, quantized, device)
    # 2 of 8, and 0.5 of 2: the second is relative to the quantized output.
    assert (found.quantization, found.backend, found.overall) == (2.0, 0.5, 2.5)
    assert found.share == pytest.approx(0.5)


def test_the_layer_of_a_huge_range_costs_most(of_picture: Numerics) -> None:
    worst = cost(of_picture).costly[0]
    assert (worst.module, worst.op) == ("expand", "conv2d")
    assert any("module expand" in note for note in of_picture.notes)
    assert of_picture.is_fine
    # A folded batch norm is part of its convolution.
    stem = next(one for one in cost(of_picture).operators if one.module == "stem.0")
    assert (stem.float_node, stem.op) == ("batch_norm", "convolution")
    assert stem.total is not None and stem.total > 30


def test_the_own_error_is_of_the_layer_on_float_inputs(of_network: Numerics) -> None:
    model, x = Network(), torch.arange(6)[None]
    values: dict[str, Any] = {}
    model.head.register_forward_hook(lambda _, given, out: values.update(given=given[0], out=out))
    with torch.no_grad():
        model(x)
        alone = eight_bit(Network()).head(values["given"])
    head = next(one for one in cost(of_network).operators if one.module == "head")
    assert head.own == pytest.approx(sqnr(values["out"], alone), abs=0.1)


def test_alone_is_the_error_of_a_model_with_one_quantized_layer(of_network: Numerics) -> None:
    model, x = Network(), torch.arange(6)[None]
    tried = [one for one in cost(of_network).operators if one.alone is not None]
    assert {one.module for one in tried} == {"up", "down", "head"}
    for one in tried:
        mixed = eight_bit(copy.deepcopy(model), only=one.module)
        with torch.no_grad():
            assert one.alone == pytest.approx(sqnr(model(x), mixed(x)), abs=0.2)


def test_float_operators_cost_nothing(of_network: Numerics) -> None:
    found = {one.op: one for one in cost(of_network).operators}
    assert found["embedding"].own == found["gelu"].own == float("inf")
    assert found["embedding"].total == float("inf")
    inherited = found["gelu"].total  # from the layer before
    assert inherited is not None and inherited < 60


def test_rows_have_the_error_of_quantization(of_network: Numerics) -> None:
    (call,) = (row for row in of_network.rows if row.is_delegate)
    operators = {one.node: one for one in cost(of_network).operators}
    assert call.quantization == operators[call.pair.node].total
    table = of_network.table()
    titles = {column.name: column.title for column in table.columns}
    assert titles["total"] == "backend"
    assert "quantization" in titles


@pytest.mark.parametrize("made", ["picture", "network"])
def test_nodes_are_found_without_what_they_say_of_their_origins(made: str) -> None:
    floats, edge, exported = graphs_of(made)
    found = align_graphs(floats, edge, exported)
    assert len({value.path for value in found.of.values()} & set(floats.own_operators)) >= 5
    assert (found.added, found.missing) == ((), {})
    aligned = align_graphs(changed(floats, floats.nodes), edge, exported)
    first, second = (
        {one.path: other.path for one, other in pairs.of.items()} for pairs in (found, aligned)
    )
    assert first == second


def test_what_has_no_counterpart_is_named() -> None:
    floats, edge, exported = graphs_of("picture")
    nodes = (
        replace(node, op="aten.median.default") if node.name == "mean" else node
        for node in floats.nodes
    )
    found = align_graphs(changed(floats, nodes), edge, exported)
    one, two = "1 node of the quantized graph (aten_mean_dim)", "1 node of the float graph (mean)"
    assert found.unpaired("float", "quantized") == f"{one} and {two}"


def test_without_a_float_graph_nothing_is_said_of_quantization() -> None:
    record = record_of("picture")
    record.graph_map = {}
    found = diagnosed("picture", record)
    assert found.quantization is None
    assert "quantization" not in {column.name for column in found.table().columns}


def test_a_dataset_has_the_accuracy_of_all_sides() -> None:
    x = torch.randn(12, 1, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    record = record_of("picture")
    before, quantized = record.graph_map["float/forward"].module(), record.exported_program.module()
    with torch.no_grad():
        exact, rounded = ([module(one) for one in x] for module in (before, quantized))
    labels, classes = ([int(one.argmax()) for one in side] for side in (exact, rounded))
    right = sum(one == other for one, other in zip(labels, classes, strict=True))
    assert right < len(labels)
    found = evaluate(record, x.numpy(), labels=labels)
    task = found.task
    assert task is not None
    assert task.float_accuracy == 1.0
    assert task.reference_accuracy == right / len(labels)
    assert task.quantization_flips == len(labels) - right == len(task.float_flips)
    for sample, one, other in zip(found.samples, exact, rounded, strict=True):
        assert sample.side is not None
        assert sample.side.quantization == pytest.approx(sqnr(one, other), rel=1e-4)
        assert sample.side.backend == sample.output
    notes = "\n".join(found.notes)
    accuracy = f"in float 100.00 % (top-5 100.00 %), quantized {100 * right / 12:.2f} %"
    assert f"accuracy {accuracy}" in notes
    assert "of the squared error is quantization's" in notes
    assert {column.name for column in found.operators_table().columns} >= {"quantization_worst"}
    assert set(found.flips_table().values["sample"]) >= {flip.sample for flip in task.float_flips}


def test_numbers_beyond_the_calibrated_range_are_counted(of_picture: Numerics) -> None:
    assert not any("beyond the range" in note for note in of_picture.notes)
    found = diagnosed("narrow")
    given = next(one for one in cost(found).operators if one.float_node == "x")
    assert given.range is not None and given.range.scale is not None
    least, most = float(PICTURE.min()), float(PICTURE.max())
    assert given.range.scale == pytest.approx((most - least) * 0.3 / 255, rel=0.02)
    low, high, half = given.range.low, given.range.high, given.range.scale / 2
    beyond = ((low - half > PICTURE) | (high + half < PICTURE)).double().mean()
    assert given.saturated == pytest.approx(float(beyond))
    assert given.saturated > 0.2
    assert (given.low, given.high) == (pytest.approx(least), pytest.approx(most))
    assert any("beyond the range that it was calibrated for" in note for note in found.notes)


def test_the_ranges_of_two_exports_are_compared() -> None:
    sides = [
        Side(name, read_pte(file(f"{name}.pte")), read_etrecord(file(f"{name}.etrecord")))
        for name in ("picture", "narrow")
    ]
    report = program_diff_report(diff_programs(*sides))
    table = next(one.table for one in report.sections if one.name == "quantization")
    rows = [dict(zip(table.names, row, strict=True)) for row in table.rows()]
    by_place = {row["module"] or row["op"]: row for row in rows}
    assert by_place["input"]["ratio"] == pytest.approx(0.3, rel=0.02)
    assert by_place["expand"]["scale_after"] < by_place["expand"]["scale_before"]
    assert by_place["expand"]["high_after"] < by_place["expand"]["high_before"]
    assert set(table.values["status"]) == {"changed"}
