"""Graphs of serialized programs, in the forms that writers of all releases give them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from etscope.errors import FormatError, VersionError
from etscope.formats.etrecord.reader import read_etrecord
from etscope.model.exported_graph import (
    Origins,
    debug_handle,
    graph_from_program_json,
    graph_from_record,
    module_frames,
)
from etscope.model.graph import Graph, ModuleFrame, Node, Origin, TensorSpec, source_lines
from tests.support.artifacts import artifacts
from tests.support.etrecord_files import EDGE, OLD_RELEASES, node, old_record, program, tensor

EDGE_OPS = "executorch.exir.dialects.edge.ops."


def graph_of(*nodes: dict[str, Any], **tensors: dict[str, Any]) -> Graph:
    return graph_from_program_json(program(*nodes, **tensors), "g")


def calls(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.kind == "call_function"]


def test_a_graph_has_inputs_nodes_and_an_output() -> None:
    graph = graph_of(node("relu"), node("relu_1", inputs=("relu",)))
    assert [(n.name, n.kind) for n in graph.nodes] == [
        ("x", "placeholder"),
        ("relu", "call_function"),
        ("relu_1", "call_function"),
        ("output", "output"),
    ]
    assert (graph.name, graph.dialect) == ("g", "EDGE")
    assert (graph.inputs, graph.outputs) == (("x",), ("relu_1",))
    assert graph.by_name["relu_1"].inputs == ("relu",)
    assert graph.users["x"] == ("relu",)


@pytest.mark.parametrize(
    ("target", "op"),
    [
        (EDGE_OPS + "aten.add.Tensor", "aten.add.Tensor"),
        (EDGE_OPS + "quantized_decomposed.add.out", "quantized_decomposed.add.out"),
        ("executorch.exir.dialects.backend.ops.et_vk.x.default", "et_vk.x.default"),
        ("torch.ops.aten.conv2d.default", "conv2d.default"),
        ("torch.ops.aten.sym_size.int", "sym_size.int"),
        ("torch.ops.higher_order.cond", "cond"),
        ("_operator.mul", "mul"),
        ("torch.sym_max", "sym_max"),
        ("executorch.exir.memory.view", "view"),
        ("memory.alloc", "alloc"),
    ],
)
def test_operators_are_named_as_upstream_names_them(target: str, op: str) -> None:
    assert calls(graph_of(node("n", target)))[0].op == op


def test_elements_of_several_outputs_are_values_of_the_node() -> None:
    split = node("split", EDGE_OPS + "aten.split_copy.Tensor", outputs=("getitem", "getitem_1"))
    graph = graph_of(split, node("relu", inputs=("getitem_1",)), getitem=tensor(2, 1))
    (call, relu) = calls(graph)
    assert call.name == "aten_split_copy_tensor"  # fx chooses it, the file's name is not used
    assert [value.name for value in call.outputs] == ["getitem", "getitem_1"]
    assert call.outputs[0].tensor == TensorSpec("float32", (2, 1), (1, 1))
    assert relu.inputs == ("getitem_1",)
    assert graph.by_name["getitem_1"] is call
    assert graph.users[call.name] == ("relu",)
    unbind = node("unbind", "torch.ops.aten.unbind.int")
    unbind["outputs"] = [{"as_tensors": [{"name": "a"}, {"name": "b"}]}]
    assert [value.name for value in calls(graph_of(unbind))[0].outputs] == ["a", "b"]


def test_symbolic_sizes_have_text_and_hint_and_devices_an_index() -> None:
    described = {**tensor(1), "device": {"type": "cuda", "index": 1}}
    spec = calls(graph_of(node("relu"), relu=described))[0].outputs[0].tensor
    assert spec is not None and spec.device == "cuda:1"
    size = {"as_expr": {"expr_str": "2*s6", "hint": {"as_int": 6}}}
    unknown = {"as_expr": {"expr_str": "u0", "hint": None}}
    graph = graph_of(node("relu"), relu=tensor(size, 3, unknown, dtype=13))
    spec = calls(graph)[0].outputs[0].tensor
    assert (spec.dtype, spec.shape, spec.hints) == ("bfloat16", ("2*s6", 3, "u0"), (6, 3, None))


def test_metadata_are_read_and_the_rest_is_kept() -> None:
    origin = {
        "name": "linear",
        "target": "aten.linear.default",
        "graph_id": 7,
        "pass_name": "p",
        "action": "create+replace",
        "from_node": [{"name": "l", "target": "l", "graph_id": 6, "from_node": []}],
    }
    relu = node(
        "relu",
        stack_trace='  File "m.py", line 3, in forward\n    relu(x)\n',
        nn_module_stack="L__self__,,m.Net;L__self__a,blocks.0.a,m.Block[int, str]",
        debug_handle="17",
        from_node=json.dumps([origin]),
        torch_fn="relu_1;builtin.relu",
    )
    (call,) = calls(graph_of(relu))
    assert call.debug_handle == 17
    assert str(source_lines(call.stack_trace)[-1]) == "m.py:3"
    assert [(frame.path, frame.type) for frame in call.modules] == [
        ("", "m.Net"),
        ("blocks.0.a", "m.Block[int, str]"),
    ]
    (first,) = call.origins
    assert (first.name, first.graph_id, first.actions) == ("linear", 7, ("create", "replace"))
    assert first.origins[0].name == "l" and first.origins[0].origins == ()
    assert call.metadata == {"torch_fn": "relu_1;builtin.relu"}
    (call,) = calls(graph_of({**node("relu"), "metadata": {}}))
    assert call.debug_handle is None and call.stack_trace is None
    assert (call.modules, tuple(call.origins), call.metadata) == ((), (), {})


def test_arguments_are_text() -> None:
    x, none = {"as_tensor": {"name": "x"}}, {"as_none": []}
    arguments: dict[str, tuple[Any, str]] = {
        "as_none": ([], "None"),
        "as_tensor": ({"name": "x"}, "x"),
        "as_tensors": ([{"name": "x"}, {"name": "x"}], "[x, x]"),
        "as_optional_tensors": ([x, none], "[x, None]"),
        "as_int": (-1, "-1"),
        "as_ints": ([1, 2], "[1, 2]"),
        "as_float": (0.5, "0.5"),
        "as_floats": ([0.5], "[0.5]"),
        "as_bool": (True, "True"),
        "as_bools": ([True, False], "[True, False]"),
        "as_string": ("it's", '"it\'s"'),
        "as_strings": (["a"], "['a']"),
        "as_sym_int": ({"as_name": "x"}, "x"),
        "as_sym_ints": ([{"as_int": 2}, {"as_name": "x"}], "[2, x]"),
        "as_scalar_type": (7, "torch.float32"),
        "as_memory_format": (2, "torch.channels_last"),
        "as_layout": (7, "torch.strided"),
        "as_device": ({"type": "cpu", "index": None}, "'cpu'"),
        "as_operator": ("torch.ops.aten.add.Tensor", "torch.ops.aten.add.Tensor"),
    }
    call = node("n")
    call["inputs"] = [{"name": tag, "arg": {tag: one}} for tag, (one, _) in arguments.items()]
    (read,) = calls(graph_of(call))
    assert dict(read.arguments) == {tag: text for tag, (_, text) in arguments.items()}
    assert read.inputs == ("x",) * 6


def test_weights_have_their_qualified_names() -> None:
    content = program(node("relu"))
    kinds = {
        "p_w": {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "layer.weight"}},
        "b_r": {"buffer": {"arg": {}, "buffer_name": "layer.running", "persistent": True}},
        "c_t": {"tensor_constant": {"arg": {}, "tensor_constant_name": "lifted_0"}},
    }
    module = content["graph_module"]
    module["graph"]["inputs"] = [{"as_tensor": {"name": name}} for name in (*kinds, "x")]
    module["signature"]["input_specs"] = [*kinds.values(), {"user_input": {"arg": {}}}]
    graph = graph_from_program_json(content, "g")
    assert graph.inputs == ("p_w", "b_r", "c_t", "x")
    names = {"p_w": "layer.weight", "b_r": "layer.running", "c_t": "lifted_0"}
    assert graph.parameters == names
    module["graph"]["inputs"].append({"as_int": 3})
    module["signature"]["input_specs"].append(
        {"constant_input": {"name": "times", "value": {"as_int": 3}}}
    )
    assert graph_from_program_json(content, "g").inputs == ("p_w", "b_r", "c_t", "x", "times")


def test_branches_of_control_flow() -> None:
    branch = program(node("relu"))["graph_module"]["graph"]
    cond = node("cond", "torch.ops.higher_order.cond", inputs=())
    cond["inputs"] = [
        {"name": "", "arg": {"as_graph": {"name": name, "graph": branch}}}
        for name in ("true_graph_0", "false_graph_0")
    ]
    graph = graph_of(cond)
    (call,) = calls(graph)
    assert [branch.name for branch in call.subgraphs] == ["g/true_graph_0", "g/false_graph_0"]
    assert [n.name for n in call.subgraphs[0].nodes] == ["x", "relu", "output"]
    attributes = tuple(n.name for n in graph.nodes if n.kind == "get_attr")
    assert attributes == call.inputs == ("true_graph_0", "false_graph_0")
    assert len(list(graph.walk())) == len(graph.nodes) + 6


def delegate_call(**module: Any) -> dict[str, Any]:
    content = {
        "backend_id": "SomeBackend",
        "processed_bytes": base64.b64encode(b"blob").decode(),
        "compile_specs": [{"key": "k", "value": base64.b64encode(b"\1\2").decode()}],
        "original_module": program(node("relu", debug_handle="3")),
        "original_state_dict": "",
        "original_constants": "",
        **module,
    }
    call = node("executorch_call_delegate", "torch.ops.higher_order.executorch_call_delegate")
    lowered = {"name": "lowered_module_0", "arg": {"as_string": json.dumps(content)}}
    call["inputs"] = [lowered, *call["inputs"]]
    call["outputs"] = [{"as_tensors": [{"name": "getitem"}]}]
    return call


def test_delegate_calls_have_their_own_graph() -> None:
    graph = graph_of(delegate_call())
    (call,) = calls(graph)
    delegate = call.delegate
    assert (delegate.backend_id, delegate.name) == ("SomeBackend", "lowered_module_0")
    assert (delegate.processed_bytes, delegate.compile_specs) == (4, {"k": b"\1\2"})
    assert delegate.graph.name == "g/lowered_module_0"
    assert calls(delegate.graph)[0].debug_handle == 3
    assert call.op == call.name == "executorch_call_delegate"
    assert call.inputs == ("lowered_module_0", "x")
    assert [value.name for value in call.outputs] == ["getitem"]
    assert [n.name for n in graph.walk(into_delegates=False)] == [n.name for n in graph.nodes]


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_graphs_of_older_releases(release: str) -> None:
    record = read_etrecord(old_record(release))
    graph = graph_from_record(record, EDGE)
    assert [(n.name, n.op) for n in calls(graph)] == [
        ("aten_view_copy_default", "aten.view_copy.default"),
        ("aten_permute_copy_default", "aten.permute_copy.default"),
        ("aten_addmm_default", "aten.addmm.default"),
        ("aten_view_copy_default_1", "aten.view_copy.default"),
        ("aten_relu_default", "aten.relu.default"),
        ("aten_split_with_sizes_copy_default", "aten.split_with_sizes_copy.default"),
        ("aten_convolution_default", "aten.convolution.default"),
        ("aten_slice_copy_tensor", "aten.slice_copy.Tensor"),
        ("aten_add_tensor", "aten.add.Tensor"),
        ("aten__softmax_default", "aten._softmax.default"),
    ]
    assert set(graph.parameters.values()) == {
        "linear.weight", "linear.bias", "conv.weight", "conv.bias",
    }  # fmt: skip
    assert all(n.debug_handle for n in calls(graph))
    assert all(bool(n.origins) == (release >= "1") for n in calls(graph))
    lines = [str(line) for n in calls(graph) for line in source_lines(n.stack_trace)]
    assert sum("small_net.py:2" in line for line in lines) >= 9
    exported = graph_from_record(record, record.graph_names[0 if release >= "1" else 1])
    assert [n.name for n in calls(exported)] == [
        "linear", "relu", "split" if release >= "1" else "split_tensor", "conv1d",
        "slice_1", "add", "softmax",
    ]  # fmt: skip


def test_the_graph_of_a_record_knows_its_id() -> None:
    record = read_etrecord(artifacts("cnn_portable").etrecord)
    exported = graph_from_record(record, "exported_program")
    edge = graph_from_record(record, EDGE)
    assert exported.graph_id == record.export_graph_id != None  # noqa: E711
    names = {n.name for n in exported.nodes}
    for call in calls(edge):
        chain, ids = call.origins, []
        while chain:
            ids.append((chain[-1].name, chain[-1].graph_id))
            chain = chain[-1].origins
        assert any(name in names for name, number in ids if number == exported.graph_id)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/graph", "/signature", "/graph/nodes", "/graph/inputs", "/graph/tensor_values"),
        *("/graph/nodes/0/target", "/graph/nodes/0/outputs"),
        *("/graph/tensor_values/x/sizes", "/graph/tensor_values/x/dtype"),
    ],
)
def test_missing_parts(path: str) -> None:
    content = program(node("relu"))
    target: Any = content
    *steps, last = f"graph_module{path}".split("/")
    for step in steps:
        target = target[int(step) if isinstance(target, list) else step]
    del target[last]
    with pytest.raises(FormatError) as caught:
        graph_from_program_json(content, "the graph")
    assert caught.value.member == "the graph"


@pytest.mark.parametrize(
    "broken",
    [
        {"target": 3},
        {"inputs": {}},
        {"outputs": [{"as_tensor": {"name": ["a"]}}]},
        {"inputs": [{"name": "self", "arg": {"as_tensor": {"name": "later"}}}]},
        {"inputs": [{"name": "self", "arg": {"as_soup": 1}}]},
        *({"metadata": {"debug_handle": handle}} for handle in ("seven", 7)),
        {"metadata": {"nn_module_stack": "only one part"}},
        *({"metadata": {"stack_trace": ["a"]}}, {"metadata": {"torch_fn": 7}}),
        {**delegate_call(), "inputs": [{"name": "l", "arg": {"as_string": "{"}}]},
        *(delegate_call(original_module={}), delegate_call(backend_id=None)),
        delegate_call(compile_specs=[{"key": "k", "value": "not base64!"}]),
    ],
    ids=lambda broken: " ".join(broken)[:20],
)
def test_broken_nodes(broken: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        graph_of({**node("relu"), **broken})


def test_broken_origins_are_noticed_when_they_are_looked_at() -> None:
    for text in ("{", "[1]", '[{"name": "a"}]', "[" * 100_000):
        (call,) = calls(graph_of(node("relu", from_node=text)))
        with pytest.raises(FormatError):
            list(call.origins)


@pytest.mark.parametrize("version", [{"major": 1, "minor": 0}, {"major": 5}, 1, None])
def test_versions_that_are_read(version: Any) -> None:
    content = program(node("relu"))
    content["schema_version"] = version
    if version is None:
        del content["schema_version"]
    assert len(graph_from_program_json(content, "g").nodes) == 3
    with pytest.raises(VersionError, match="schema version 6"):
        graph_from_program_json({"schema_version": {"major": 6, "minor": 0}}, "g")


# -- module stacks, debug handles and origins as text


@pytest.mark.parametrize(
    ("stack", "frames"),
    [
        (None, ()),
        ("", ()),
        ("L__self__,,__main__.Net", (ModuleFrame("L__self__", "", "__main__.Net"),)),
        ("k,a.0,m.A;k2,b,B", (ModuleFrame("k", "a.0", "m.A"), ModuleFrame("k2", "b", "B"))),
        ("k,p,m.T[int, str]", (ModuleFrame("k", "p", "m.T[int, str]"),)),
        ("k,L['self'].x[0],m.T", (ModuleFrame("k", "L['self'].x[0]", "m.T"),)),
        ("k,a[31m,m.T", (ModuleFrame("k", "a[31m", "m.T"),)),
        ("k, p, f(a, (b, c))", (ModuleFrame("k", "p", "f(a, (b, c))"),)),
        ("k,p,t]],x", (ModuleFrame("k", "p", "t]],x"),)),
    ],
)
def test_module_stacks(stack: str | None, frames: tuple[ModuleFrame, ...]) -> None:
    assert module_frames(stack) == frames
    with pytest.raises(FormatError, match="key,path,type"):
        module_frames("key,path")


def test_debug_handles() -> None:
    for text, handle in (("17", 17), ("0", 0), ("-1", -1), ("None", None), (None, None)):
        assert debug_handle(text) == handle
    for text in ("", "1.0", "9" * 30, "1_000", "[1]"):
        with pytest.raises(FormatError):
            debug_handle(text)


def test_origins_are_parsed_once_and_compare_as_tuples() -> None:
    link = {"name": "a", "target": "t", "graph_id": 5, "pass_name": "", "action": "create"}
    origins = Origins(json.dumps([{**link, "from_node": []}]))
    expected = (Origin("a", "t", 5, "", ("create",)),)
    assert origins == expected and len(origins) == 1 and origins[-1] is origins[0]
    assert origins[0:] == expected and hash(origins) == hash(expected)
    assert repr(origins) == repr(expected)
    assert Origins("null") == ()
