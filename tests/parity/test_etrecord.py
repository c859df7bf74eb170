"""Our torch-free reader of records against what ExecuTorch's own makes of the same files."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import pytest

from etscope.formats.etrecord import read_etrecord
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph, Node, TensorSpec
from tests.artifacts import artifacts

pytest.importorskip("executorch")

RECORDS = [
    "cnn_portable",
    "cnn_xnnpack",
    "cnn_xnnpack_lowered",
    "cnn_xnnpack_int8",
    "transformer",
    "transformer_portable",
    "two_methods",
    "forward_and_extra",
    "cond",
    "while_loop",
    "bf16_fp16",
    "channels_last",
    "dynamic_shape",
    "bundled",
]


@cache
def upstream_graphs(name: str) -> dict[str, Any]:
    """Graph name -> ExportedProgram, as ExecuTorch reads the record."""
    from executorch.devtools.etrecord import parse_etrecord

    record = parse_etrecord(str(artifacts(name).etrecord))
    programs = dict(record.graph_map or {})
    if record.exported_program is not None:
        programs["exported_program"] = record.exported_program
    edge = record.edge_dialect_program
    if not isinstance(edge, dict):
        edge = {read_etrecord(artifacts(name).etrecord).edge_methods[0]: edge}
    for method, program in edge.items():
        programs[f"edge_dialect_exported_program/{method}"] = program
    return programs


@pytest.fixture(params=RECORDS)
def pair(request: pytest.FixtureRequest) -> list[tuple[Graph, Any]]:
    """Each graph of a record with ExecuTorch's program of it."""
    record = read_etrecord(artifacts(request.param).etrecord)
    theirs = upstream_graphs(request.param)
    assert set(record.graph_names) == set(theirs)
    return [(graph_from_record(record, name), theirs[name]) for name in record.graph_names]


def fx_nodes(module: Any) -> list[Any]:
    return [node for node in module.graph.nodes if node.target is not operator.getitem]


def test_nodes_are_the_same_in_name_kind_and_order(pair: list[tuple[Graph, Any]]) -> None:
    for graph, program in pair:
        ours = [(node.name, node.kind) for node in graph.nodes]
        assert ours == [(node.name, node.op) for node in fx_nodes(program.graph_module)]


def test_elements_of_several_outputs_have_the_names_of_getitem_nodes(
    pair: list[tuple[Graph, Any]],
) -> None:
    for graph, program in pair:
        nodes = program.graph_module.graph.nodes
        theirs = {node.name for node in nodes if node.target is operator.getitem}
        ours = {
            value.name for node in graph.nodes for value in node.outputs if value.name != node.name
        }
        assert ours == theirs


def test_nodes_use_the_same_values(pair: list[tuple[Graph, Any]]) -> None:
    for graph, program in pair:
        for node, theirs in zip(graph.nodes, fx_nodes(program.graph_module), strict=True):
            assert sorted(set(node.inputs)) == sorted(used.name for used in theirs.all_input_nodes)


def test_operators_carry_what_the_inspector_shows(pair: list[tuple[Graph, Any]]) -> None:
    for graph, program in pair:
        for node, theirs in zip(graph.nodes, fx_nodes(program.graph_module), strict=True):
            if node.kind != "call_function":
                continue
            assert node.op == theirs.target.__name__
            assert node.debug_handle == theirs.meta.get("debug_handle")
            assert node.stack_trace == theirs.meta.get("stack_trace")
            modules = {frame.key: (frame.path, frame.type) for frame in node.modules}
            assert modules == theirs.meta.get("nn_module_stack", {})


def test_origins_are_the_same(pair: list[tuple[Graph, Any]]) -> None:
    def links(source: Any) -> Any:
        return (source.name, source.target, source.graph_id, [links(s) for s in source.from_node])

    def ours(origin: Any) -> Any:
        return (origin.name, origin.target, origin.graph_id, [ours(o) for o in origin.origins])

    for graph, program in pair:
        for node, theirs in zip(graph.nodes, fx_nodes(program.graph_module), strict=True):
            if node.kind == "call_function":
                chain = theirs.meta.get("from_node") or []
                assert [ours(o) for o in node.origins] == [links(source) for source in chain]


def test_shapes_types_and_strides_are_the_same(pair: list[tuple[Graph, Any]]) -> None:
    for graph, program in pair:
        values = {value.name: value.tensor for node in graph.nodes for value in node.outputs}
        compared = 0
        for theirs in program.graph_module.graph.nodes:
            value = theirs.meta.get("val")
            if hasattr(value, "dtype") and theirs.name in values:
                assert described(value) == spec(values[theirs.name])
                compared += 1
        assert compared >= len(graph.nodes) // 2


def described(tensor: Any) -> tuple[str, list[str], list[str], str]:
    shape, strides = list(map(str, tensor.shape)), list(map(str, tensor.stride()))
    return (str(tensor.dtype).removeprefix("torch."), shape, strides, str(tensor.device))


def spec(tensor: TensorSpec | None) -> tuple[str, list[str], list[str], str]:
    assert tensor is not None
    shape, strides = list(map(str, tensor.shape)), list(map(str, tensor.strides))
    return (tensor.dtype, shape, strides, tensor.device)


def test_weights_have_the_same_names(pair: list[tuple[Graph, Any]]) -> None:
    for graph, program in pair:
        signature = program.graph_signature
        assert graph.parameters == {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
            **signature.inputs_to_lifted_custom_objs,
        }


def test_branches_are_the_same(pair: list[tuple[Graph, Any]]) -> None:
    for graph, program in pair:
        for node in graph.nodes:
            for branch in node.subgraphs:
                module = getattr(program.graph_module, branch.name.rpartition("/")[2])
                assert [n.name for n in branch.nodes] == [n.name for n in fx_nodes(module)]


def test_delegated_graphs_are_the_same() -> None:
    record = read_etrecord(artifacts("cnn_xnnpack_lowered").etrecord)
    name = record.graph_names[0]
    (call,) = (n for n in graph_from_record(record, name).nodes if n.delegate is not None)
    assert call.delegate is not None and call.delegate.graph is not None
    program = upstream_graphs("cnn_xnnpack_lowered")[name]
    lowered = getattr(program.graph_module, call.delegate.name)
    assert call.delegate.backend_id == lowered.backend_id
    assert call.delegate.processed_bytes == len(lowered.processed_bytes)
    assert call.delegate.compile_specs == {s.key: s.value for s in lowered.compile_specs}
    theirs = fx_nodes(lowered.original_module.graph_module)
    ours: tuple[Node, ...] = call.delegate.graph.nodes
    assert [(n.name, n.debug_handle) for n in ours] == [
        (n.name, n.meta.get("debug_handle")) for n in theirs
    ]
