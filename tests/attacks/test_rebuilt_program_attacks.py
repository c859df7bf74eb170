"""Records whose programs run code when they are rebuilt, or when the rebuilt graph is run.

etscope refuses the record of each attack; then it is shown to work on ExecuTorch's own
deserializer: a module is imported or a file written.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import FormatError
from etscope.etrecord import parse_etrecord
from etscope.formats.torch_files.program_safety import check_program
from tests.attacks.mutated_etrecords import touch
from tests.support.etrecord_files import node, program, record_bytes, tensor

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

Program = dict[str, Any]
LEAF = {"type": None, "context": None, "children_spec": []}
EDGE_OPS = "executorch.exir.dialects.edge.ops"


@pytest.fixture
def own_operator() -> Iterator[None]:
    """An operator that writes a file, of a library that this process has loaded."""
    library = torch.library.Library("etscope_attack", "DEF")
    library.define("write(str path) -> ()")
    library.impl("write", lambda path: open(path, "w").close(), "CompositeExplicitAutograd")
    yield
    library._destroy()


def tree(kind: str, context: Any, *children: Any) -> Program:
    return {"type": kind, "context": context, "children_spec": list(children)}


def with_trees(outputs: Program, inputs: Program | None = None) -> Program:
    """A program of one input, with these trees."""
    arguments = tree("builtins.tuple", "null", LEAF)
    keywords = tree("builtins.dict", "[]")
    content = program(node("relu"), relu=tensor(2, 3))
    content["graph_module"]["module_call_graph"] = [
        {
            "fqn": "",
            "signature": {
                "inputs": [{"as_tensor": {"name": "x"}}],
                "outputs": [{"as_tensor": {"name": "relu"}}],
                "in_spec": json.dumps(
                    [1, inputs or tree("builtins.tuple", "null", arguments, keywords)]
                ),
                "out_spec": json.dumps([1, outputs]),
            },
        }
    ]
    return content


def calling(target: str, **arguments: Any) -> Program:
    """A program that calls this, with arguments by name; by position where a name is a digit."""
    call = node("call", target)
    call["inputs"] = [
        {"name": "" if name[1:].isdigit() else name, "arg": argument}
        for name, argument in arguments.items()
    ]
    call["outputs"] = []
    content = program(call, node("relu"), relu=tensor(2, 3))
    content["verifiers"] = []
    return content


# -- what runs in ExecuTorch's own deserializer, or in the graph that it gives

ENUMERATION = {"__enum__": True, "fqn": "imported_by_attack:x", "name": "y"}
FACTORY = {
    "default_factory_module": "imported_by_attack",
    "default_factory_name": "x",
    "dict_context": ["y"],
}


def an_enumeration_as_a_key(_: Path) -> Program:
    return with_trees(tree("builtins.dict", json.dumps([ENUMERATION]), LEAF))


def an_enumeration_in_what_has_no_keys(_: Path) -> Program:
    return with_trees(tree("builtins.tuple", json.dumps(ENUMERATION), LEAF))


def an_enumeration_in_the_length_of_a_queue(_: Path) -> Program:
    return with_trees(tree("collections.deque", json.dumps(ENUMERATION), LEAF))


def an_enumeration_among_the_inputs(_: Path) -> Program:
    arguments = tree("builtins.dict", json.dumps([ENUMERATION]), LEAF)
    inputs = tree("builtins.tuple", "null", arguments, tree("builtins.dict", "[]"))
    return with_trees(LEAF, inputs)


def a_hidden_enumeration(_: Path) -> Program:
    text = json.dumps([[1, {"a": ENUMERATION}]]).replace("_", "\\u005f")
    return with_trees(tree("torch.fx.immutable_collections.immutable_dict", f" {text}", LEAF))


def a_default_dictionary(_: Path) -> Program:
    return with_trees(tree("collections.defaultdict", FACTORY, LEAF))


def a_default_dictionary_in_a_delegate(_: Path) -> Program:
    inner = with_trees(tree("collections.defaultdict", FACTORY, LEAF))
    module = {
        "backend_id": "B",
        "processed_bytes": "",
        "compile_specs": [],
        "original_module": inner,
        "original_state_dict": "",
        "original_constants": "",
        "named_data_store": None,
    }
    call = node("call", "torch.ops.higher_order.executorch_call_delegate")
    call["inputs"].insert(0, {"name": "lowered_module_0", "arg": {"as_string": json.dumps(module)}})
    return program(call, call=tensor(2, 3))


def an_operator_that_writes(witness: Path) -> Program:
    return calling(
        "torch.ops.aten.from_file.default",
        filename={"as_string": str(witness)},
        shared={"as_bool": True},
        size={"as_int": 4},
    )


def an_edge_operator_that_writes(witness: Path) -> Program:
    content = an_operator_that_writes(witness)
    call = content["graph_module"]["graph"]["nodes"][0]
    call.update(target=f"{EDGE_OPS}.aten.from_file.default")
    call["outputs"] = [{"as_tensor": {"name": "call"}}]
    content["graph_module"]["graph"]["tensor_values"]["call"] = tensor(4)
    return content


def an_operator_that_is_called_by_another(witness: Path) -> Program:
    return calling(
        "torch.ops.higher_order.wrap",
        _0={"as_operator": "torch.ops.aten.from_file.default"},
        _1={"as_string": str(witness)},
        _2={"as_bool": True},
        _3={"as_int": 4},
    )


def an_operator_of_another_library(witness: Path) -> Program:
    return calling("torch.ops.etscope_attack.write.default", path={"as_string": str(witness)})


RUNS = [
    an_enumeration_as_a_key,
    an_enumeration_in_what_has_no_keys,
    an_enumeration_in_the_length_of_a_queue,
    an_enumeration_among_the_inputs,
    a_hidden_enumeration,
    a_default_dictionary,
    a_default_dictionary_in_a_delegate,
    an_operator_that_writes,
    an_edge_operator_that_writes,
    an_operator_that_is_called_by_another,
    an_operator_of_another_library,
]


@pytest.mark.usefixtures("own_operator")
@pytest.mark.parametrize("make", RUNS)
def test_executorchs_own_deserializer_would_run_it_and_etscope_refuses_it(
    make: Callable[[Path], Program], witness: Path
) -> None:
    from executorch.exir.serde.export_serialize import SerializedArtifact
    from executorch.exir.serde.serialize import deserialize

    content = make(witness)
    record = record_bytes(content)
    assert touch(record) > 0  # graphs are read without torch
    with pytest.raises(FormatError) as caught:
        _ = parse_etrecord(io.BytesIO(record)).edge_dialect_program
    assert caught.value.hint
    assert caught.value.member == "edge_dialect_exported_program/forward"
    assert not witness.exists()

    with suppress(Exception):
        artifact = SerializedArtifact(json.dumps(content).encode(), b"", b"", b"")
        deserialize(artifact).graph_module(torch.ones(2, 3))
    assert witness.exists()


# -- what torch would look up, though it stops at it today


def refusal(content: Program) -> FormatError:
    with pytest.raises(FormatError) as caught:
        check_program(memoryview(json.dumps(content).encode()), (), strict=False)
    return caught.value


OTHER_FUNCTIONS = (
    *("torch.os.system", "torch.hub.load", "torch.serialization.load", "torch.sys.modules.clear"),
    *("torch.load", "torch.ops.load_library", "torch.ops.load_library.__globals__.clear"),
    *("torch.ops.import_module.a.b", "torch.ops.aten.add.__class__"),
    *("torch.ops.aten.add.Tensor.redispatch", "torch.ops.aten.save.default"),
    *("torch.ops.aten._print.default", "torch.ops.aten.warn.default"),
    *("torch.ops._private.evil.default", "torch.ops.higher_order.print"),
    *("torch.ops.higher_order.call_torchbind", "torch.ops.higher_order.wrap.default"),
    *("torch.ops.higher_order.triton_kernel_wrapper_mutation", f"{EDGE_OPS}.aten.save.default"),
    *(f"{EDGE_OPS}.aten", f"{EDGE_OPS}x.aten.add.Tensor", f"{EDGE_OPS}.load_library.__call__.x"),
    *("_operator.methodcaller", "_operator.attrgetter", "_operator.setitem", "_operatorx.call"),
    *("math.factorial", "executorch.exir.memory.os", "builtins.eval", "eval", ""),
    *("torch.ops.aten.add.Tensor\n", "torch.ops.aten.add.Tensor;x"),
)


@pytest.mark.parametrize("target", OTHER_FUNCTIONS)
def test_other_functions_are_refused(target: str) -> None:
    given = calling("torch.ops.higher_order.cond", _0={"as_operator": target})
    for content in (calling(target), given):
        assert "operator" in str(refusal(content))


@pytest.mark.parametrize(
    "outputs",
    [
        tree("NO_SERIALIZED_TYPE_NAME_FOUND", "null"),
        tree("my.Output", json.dumps({"a": [ENUMERATION]})),
        tree("my.Output", {"a": [ENUMERATION]}),
        tree("my.Output", f"\t{json.dumps([ENUMERATION])}"),
        tree("collections.defaultdict", {**FACTORY, "default_factory_module": "os"}),
        tree("collections.defaultdict", {**FACTORY, "default_factory_module": "builtins"}),
        tree("collections.defaultdict", json.dumps(FACTORY)),
        tree("builtins.dict", '[["a"]]', LEAF),
        tree("builtins.dict", '{"a": 1}', LEAF),
        tree("builtins.tuple", "[1]", LEAF),
        tree("builtins.tuple", "not json", LEAF),
        {"type": None, "context": "null", "children_spec": []},
        {"type": None, "context": None},
        {"type": ["a"], "context": None, "children_spec": []},
        [],
        None,
    ],
    ids=range(16),
)
def test_other_containers_are_refused(outputs: Any) -> None:
    assert refusal(with_trees(outputs))


def test_other_names_of_keyword_inputs_are_refused() -> None:
    for name in ("a=1", "a,b", "a b", "a):\n  x\ndef f(", "a.b", "1", "é", [1]):
        keywords = tree("builtins.dict", json.dumps([name]), LEAF)
        inputs = tree("builtins.tuple", "null", tree("builtins.tuple", "null"), keywords)
        assert refusal(with_trees(LEAF, inputs)), name


@pytest.mark.parametrize(
    "size", ["LShift(1, 999999999999)", "floor(exp(99999999))", "2**s0", "9**9**9", "(s0+s1)**64"]
)
def test_sizes_without_end_are_refused(size: str) -> None:
    expression = {"as_expr": {"expr_str": size, "hint": {"as_int": 10**12}}}
    content = program(node("relu"), relu=tensor(expression, 3))
    assert "symbolic size" in str(refusal(content))
