"""Programs that would run code when torch rebuilds them are refused before torch sees them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from etscope.errors import FormatError
from etscope.formats.etrecord.reader import CONSTANTS, EXAMPLE_INPUTS, STATE_DICT, read_etrecord
from etscope.formats.exported_program.exported_json import MIN_PAYLOAD
from etscope.formats.torch_files.program_safety import check_program
from tests.support.artifacts import artifacts
from tests.support.etrecord_files import OLD_RELEASES, node, old_record, program, tensor, zip_bytes

CODE = "__import__('os').system('true')"
EVIL_SIZE = {"as_expr": {"expr_str": CODE, "hint": None}}
EVIL_NAME, EVIL_KEY = f"x={CODE}", f'a"+{CODE}+"'


def check(content: dict[str, Any], *siblings: bytes, strict: bool = False) -> None:
    data = memoryview(json.dumps(content).encode())
    check_program(data, [memoryview(sibling) for sibling in siblings], strict=strict)


@pytest.mark.parametrize("name", ["cnn_xnnpack_lowered", "dynamic_shape", "cond", "while_loop"])
def test_real_programs_pass(name: str) -> None:
    check_record(read_etrecord(artifacts(name).etrecord))


@pytest.mark.parametrize("release", OLD_RELEASES)
def test_programs_of_older_releases_pass(release: str) -> None:
    check_record(read_etrecord(old_record(release)), strict=True)


def check_record(record: Any, *, strict: bool = False) -> None:
    assert record.graph_names
    for name in record.graph_names:
        suffixes = (STATE_DICT, CONSTANTS, EXAMPLE_INPUTS)
        siblings = [record.sibling(name, suffix) for suffix in suffixes]
        check_program(record.program_text(name), siblings, strict=strict)


def test_the_tensors_of_a_quantized_weight_are_allowed() -> None:
    call = node("scale", "torch.ops.export.access_subclass_inner_tensor.default")
    call["inputs"] = [{"name": "attr", "arg": {"as_string": "scale"}}]
    check(program(call))
    call["target"] = "torch.ops.export.access_subclass_inner_tensor.other"
    with pytest.raises(FormatError):
        check(program(call))


def lowered(inner: dict[str, Any], **fields: Any) -> dict[str, Any]:
    call = node("call", "torch.ops.higher_order.executorch_call_delegate")
    module = {"backend_id": "B", "processed_bytes": "", "original_module": inner, **fields}
    lowered_module = {"name": "lowered_module_0", "arg": {"as_string": json.dumps(module)}}
    call["inputs"] = [lowered_module]
    return program(call)


def branch(inner: dict[str, Any]) -> dict[str, Any]:
    call = node("cond", "torch.ops.higher_order.cond")
    graph = inner["graph_module"]["graph"]
    call["inputs"] = [{"name": "", "arg": {"as_graph": {"name": "true_graph_0", "graph": graph}}}]
    return program(call)


def evil_size() -> dict[str, Any]:
    return program(node("relu"), relu=tensor(EVIL_SIZE))


def graph_of(content: dict[str, Any]) -> dict[str, Any]:
    graph: dict[str, Any] = content["graph_module"]["graph"]
    return graph


def evil_programs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Programs with code in each place where torch takes text for Python, or puts it into some."""
    yield "size", evil_size()
    yield "stride", program(node("relu"), relu={**tensor(1), "strides": [EVIL_SIZE]})
    number = {"as_expr": {"expr_str": 1, "hint": None}}
    yield "number", program(node("relu"), relu=tensor(number))
    content = program(node("relu"))
    graph_of(content)["sym_bool_values"]["b"] = EVIL_SIZE
    yield "sym value", content
    limits = {CODE: {"min_val": 1, "max_val": 2}}
    yield "range", {**program(node("relu")), "range_constraints": limits}
    for kind, given in (("as_tensor", {"name": EVIL_NAME}), ("as_sym_int", {"as_name": EVIL_NAME})):
        content = program(node("relu"))
        graph_of(content)["inputs"] = [{kind: given}]
        yield f"input {kind}", content
    yield "target", program(node("relu", f"x():\n  pass\n{CODE}\ndef f"))
    relu = node("relu")
    relu["inputs"] = [{"name": "", "arg": {"as_operator": f"torch.{CODE}"}}]
    yield "operator", program(relu)
    content = branch(program(node("relu")))
    graph_of(content)["nodes"][0]["inputs"][0]["arg"]["as_graph"]["name"] = EVIL_KEY
    yield "graph name", content
    content = lowered(program(node("relu")))
    graph_of(content)["nodes"][0]["inputs"][0]["name"] = EVIL_KEY
    yield "module name", content
    content = program(node("relu"))
    spec = {"parameter": {"arg": {"name": "p"}, "parameter_name": EVIL_KEY}}
    content["graph_module"]["signature"]["input_specs"] = [spec]
    yield "weight name", content
    children = [{"type": "builtins.tuple"}, {"context": json.dumps([f"a={CODE}"])}]
    tree = json.dumps([1, {"type": "builtins.tuple", "children_spec": children}])
    content = program(node("relu"))
    content["graph_module"]["module_call_graph"] = [{"fqn": "", "signature": {"in_spec": tree}}]
    yield "keyword", content


EVIL = dict(evil_programs())
NOT_IN_BRANCHES = ("range", "weight name", "keyword")  # a branch is only a graph


@pytest.mark.parametrize("name", EVIL)
def test_code_in_programs_and_in_programs_within_programs(name: str) -> None:
    wraps = [lambda inner: inner, lowered, lambda inner: lowered(branch(lowered(inner)))]
    for wrap in wraps if name in NOT_IN_BRANCHES else [*wraps, branch]:
        check(wrap(program(node("relu"))))
        with pytest.raises(FormatError):
            check(wrap(EVIL[name]))


def test_an_escaped_key_is_the_same_key() -> None:
    text = json.dumps(evil_size()).replace("expr_str", "expr\\u005fstr")
    assert "expr_str" not in text
    with pytest.raises(FormatError):
        check_program(memoryview(text.encode()), [], strict=False)
    hidden = json.dumps({"original_module": evil_size()}).replace("_", "\\u005f")
    content = lowered(program(node("relu")))
    call = content["graph_module"]["graph"]["nodes"][0]
    call["inputs"][0]["arg"]["as_string"] = " \n" + hidden
    with pytest.raises(FormatError):
        check(content)


def fake_tensor_file(expression: str, padding: int = 0) -> bytes:
    """A torch.save file of a tensor without data, of a symbolic size."""
    size = {"as_expr": {"expr_str": expression, "hint": None}}
    text = (json.dumps(tensor(size)) + " " * padding).encode()
    head = b"\x80\x02cexecutorch.exir.serde.export_serialize\n_reconstruct_fake_tensor\n("
    pickle = head + b"B" + len(text).to_bytes(4, "little") + text + b"\x89tR."
    return zip_bytes({"archive/data.pkl": pickle})


def test_code_in_tensors_without_data() -> None:
    check(program(node("relu")), fake_tensor_file("s0"))
    with pytest.raises(FormatError):
        check(program(node("relu")), fake_tensor_file(CODE))


@pytest.mark.parametrize("padding", [0, MIN_PAYLOAD])
@pytest.mark.parametrize("key", ["original_state_dict", "original_constants"])
def test_code_in_weights_of_delegates(key: str, padding: int) -> None:
    def weights(expression: str) -> str:
        return base64.b64encode(fake_tensor_file(expression, padding)).decode()

    inner = program(node("relu"))
    check(lowered(inner, **{key: weights("s0")}))
    with pytest.raises(FormatError):
        check(lowered(inner, **{key: weights(CODE)}))
    with pytest.raises(FormatError):
        check(lowered(lowered(inner, **{key: weights(CODE)})))


@pytest.mark.parametrize("noise", ["!", "\n", "-", "é"])
@pytest.mark.parametrize("padding", [0, MIN_PAYLOAD])
def test_base64_with_other_characters_in_it(padding: int, noise: str) -> None:
    text = base64.b64encode(fake_tensor_file(CODE, padding)).decode()
    noisy = noise + text[:5] + noise + text[5:]
    with pytest.raises(FormatError, match="symbolic size"):
        check(lowered(program(node("relu")), original_state_dict=noisy))


def test_pickles_are_read_for_releases_that_unpickle_freely() -> None:
    pickle = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."
    file = zip_bytes({"archive/data.pkl": pickle})
    check(program(node("relu")), file)  # torch.load refuses it by itself
    with pytest.raises(FormatError, match=r"os\.system"):
        check(program(node("relu")), file, strict=True)
    large = pickle + b"\0" * MIN_PAYLOAD
    for weights in (file, pickle, large):
        fields = {"original_state_dict": base64.b64encode(weights).decode()}
        with pytest.raises(FormatError, match=r"os\.system"):
            check(lowered(program(node("relu")), **fields), strict=True)


def test_text_that_looks_like_json_is_only_text() -> None:
    call = node("relu")
    for text in ("{not json", "{}", '{"expr": 1}'):
        call["inputs"] = [{"name": "s", "arg": {"as_string": text}}]
        check(program(call))
