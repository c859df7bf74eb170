"""Our torch-free reader of records against what ExecuTorch's own makes of the same files."""

from __future__ import annotations

import inspect
import operator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from etscope.formats.etrecord.reader import read_etrecord
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph, Node, TensorSpec
from tests.support.artifacts import artifacts

torch = pytest.importorskip("torch")
upstream = pytest.importorskip("executorch.devtools.etrecord")

import etscope.etrecord as ours  # noqa: E402
from etscope.etrecord import generate_etrecord, parse_etrecord, slim_etrecord  # noqa: E402
from tests.support.etrecord.small_models import Gate, lowered  # noqa: E402

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
    record = upstream_reads(artifacts(name).etrecord)
    programs = dict(record.graph_map or {})
    if record.exported_program is not None:
        programs["exported_program"] = record.exported_program
    edge = record.edge_dialect_program
    if not isinstance(edge, dict):
        edge = {read_etrecord(artifacts(name).etrecord).edge_methods[0]: edge}
    for method, program in edge.items():
        programs[f"edge_dialect_exported_program/{method}"] = program
    return programs


@pytest.fixture(scope="module", params=RECORDS)
def pair(request: pytest.FixtureRequest) -> list[tuple[Graph, Any]]:
    """Each graph of a record with ExecuTorch's program of it."""
    record = read_etrecord(artifacts(request.param).etrecord)
    theirs = upstream_graphs(request.param)
    assert set(record.graph_names) == set(theirs)
    return [(graph_from_record(record, name), theirs[name]) for name in record.graph_names]


def fx_nodes(module: Any) -> list[Any]:
    return [node for node in module.graph.nodes if node.target is not operator.getitem]


def test_nodes_are_the_same(pair: list[tuple[Graph, Any]]) -> None:
    for graph, program in pair:
        nodes = fx_nodes(program.graph_module)
        assert [(node.name, node.kind) for node in graph.nodes] == [(n.name, n.op) for n in nodes]
        # Elements of several outputs have the names of getitem nodes.
        outputs = [(value.name, node.name) for node in graph.nodes for value in node.outputs]
        assert {value for value, node in outputs if value != node} == {
            node.name
            for node in program.graph_module.graph.nodes
            if node.target is operator.getitem
        }
        for node, theirs in zip(graph.nodes, nodes, strict=True):
            assert sorted(set(node.inputs)) == sorted(used.name for used in theirs.all_input_nodes)
            for branch in node.subgraphs:
                module = getattr(program.graph_module, branch.name.rpartition("/")[2])
                assert [n.name for n in branch.nodes] == [n.name for n in fx_nodes(module)]


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
            chain = theirs.meta.get("from_node") or []
            assert list(map(our_link, node.origins)) == list(map(their_link, chain))


def our_link(origin: Any) -> Any:
    return (origin.name, origin.target, origin.graph_id, list(map(our_link, origin.origins)))


def their_link(source: Any) -> Any:
    return (source.name, source.target, source.graph_id, list(map(their_link, source.from_node)))


def test_tensors_and_weights_are_the_same(pair: list[tuple[Graph, Any]]) -> None:
    for graph, program in pair:
        values = {value.name: value.tensor for node in graph.nodes for value in node.outputs}
        compared = 0
        for theirs in program.graph_module.graph.nodes:
            value = theirs.meta.get("val")
            if hasattr(value, "dtype") and theirs.name in values:
                assert described(value) == spec(values[theirs.name])
                compared += 1
        assert compared >= len(graph.nodes) // 2
        signature = program.graph_signature
        assert graph.parameters == {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
            **signature.inputs_to_lifted_custom_objs,
        }


def described(tensor: Any) -> tuple[str, list[str], list[str], str]:
    shape, strides = list(map(str, tensor.shape)), list(map(str, tensor.stride()))
    return (str(tensor.dtype).removeprefix("torch."), shape, strides, str(tensor.device))


def spec(tensor: TensorSpec | None) -> tuple[str, list[str], list[str], str]:
    assert tensor is not None
    shape, strides = list(map(str, tensor.shape)), list(map(str, tensor.strides))
    return (tensor.dtype, shape, strides, tensor.device)


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
    nodes: tuple[Node, ...] = call.delegate.graph.nodes
    assert [(n.name, n.debug_handle) for n in nodes] == [
        (n.name, n.meta.get("debug_handle")) for n in theirs
    ]


# -- what we write, ExecuTorch reads


def upstream_reads(path: Path) -> Any:
    return upstream.parse_etrecord(str(path))


def test_upstream_reads_our_records(tmp_path: Path) -> None:
    net = lowered("encode", "forward")
    path = tmp_path / "ours.etrecord"
    extra = {"aten": net.exported["forward"]}
    generate_etrecord(path, net.edge, net.bundled(), net.exported, extra)
    theirs, mine = upstream_reads(path), parse_etrecord(path)
    assert list(theirs.graph_map) == ["aten/forward"] == list(mine.graph_map or {})
    assert set(theirs.edge_dialect_program) == {"encode", "forward"}
    assert theirs.export_graph_id == mine.export_graph_id
    for field in ("_debug_handle_map", "_delegate_map", "_instruction_id_to_num_outs_map"):
        assert getattr(theirs, field) == getattr(mine, field)
    (outputs,) = theirs._reference_outputs["forward"][0]
    assert torch.equal(outputs, net.model(*net.inputs))
    assert torch.equal(theirs.exported_program.module()(*net.inputs), outputs)
    assert torch.equal(theirs._representative_inputs[0], mine._representative_inputs[0])


def test_upstream_reads_a_record_of_one_method_of_another_name(tmp_path: Path) -> None:
    net = lowered("encode")
    generate_etrecord(tmp_path / "ours", net.edge, net.program, net.exported)
    theirs = upstream_reads(tmp_path / "ours")
    names = [node.name for node in net.edge.exported_program("encode").graph.nodes]
    assert [node.name for node in theirs.edge_dialect_program.graph.nodes] == names
    assert list(theirs._debug_handle_map) == ["encode"]


def test_upstream_reads_branches_with_constants(tmp_path: Path) -> None:
    net = lowered(model=Gate)
    generate_etrecord(tmp_path / "ours", net.edge, net.program)
    edge = upstream_reads(tmp_path / "ours").edge_dialect_program.module()
    for inputs in (torch.ones(2, 4), -torch.ones(2, 4)):
        torch.testing.assert_close(edge(inputs), net.model(inputs))


@pytest.mark.parametrize("name", ["cnn_xnnpack", "cnn_xnnpack_lowered", "two_methods"])
def test_upstream_reads_slim_and_copied_records(name: str, tmp_path: Path) -> None:
    path = artifacts(name).etrecord
    assert path is not None
    slim_etrecord(path, tmp_path / "slim")
    parse_etrecord(path).save(tmp_path / "copy")

    def nodes(record: Any) -> list[str]:
        edge = record.edge_dialect_program
        programs = edge.values() if isinstance(edge, dict) else [edge]
        return sorted(node.name for program in programs for node in program.graph.nodes)

    expected = nodes(upstream_reads(path))
    for file in ("slim", "copy"):
        assert nodes(upstream_reads(tmp_path / file)) == expected


def test_signatures_take_all_that_upstreams_take() -> None:
    names = ("ETRecord", "generate_etrecord", "parse_etrecord")
    pairs = [(getattr(ours, name), getattr(upstream, name)) for name in names]
    pairs += [
        (getattr(ours.ETRecord, method), getattr(upstream.ETRecord, method))
        for method in dir(upstream.ETRecord)
        if not method.startswith("_")
    ]
    for mine, theirs in pairs:
        wanted = list(inspect.signature(theirs).parameters)
        assert list(inspect.signature(mine).parameters)[: len(wanted)] == wanted
