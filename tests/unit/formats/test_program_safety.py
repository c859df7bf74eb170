"""Programs that would run code when torch rebuilds them are refused before torch sees them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from etscope.errors import FormatError
from etscope.formats.etrecord.reader import CONSTANTS, EXAMPLE_INPUTS, STATE_DICT, read_etrecord
from etscope.formats.exported_program.exported_json import MIN_PAYLOAD
from etscope.formats.exported_program.safety import check_program
from tests.support.artifacts import artifacts
from tests.support.etrecord_files import OLD_RELEASES, node, old_record, program, tensor, zip_bytes

CODE = "__import__('os').system('true')"
EVIL_SIZE = {"as_expr": {"expr_str": CODE, "hint": None}}


def check(content: dict[str, Any], *siblings: bytes, strict: bool = False) -> None:
    data = memoryview(json.dumps(content).encode())
    check_program(data, [memoryview(sibling) for sibling in siblings], strict=strict)


@pytest.mark.parametrize(
    "name", ["cnn_xnnpack_lowered", "dynamic_shape", "cond", "while_loop", "transformer"]
)
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


def evil_stride() -> dict[str, Any]:
    return program(node("relu"), relu={**tensor(1), "strides": [EVIL_SIZE]})


def evil_sym_value() -> dict[str, Any]:
    content = program(node("relu"))
    content["graph_module"]["graph"]["sym_bool_values"]["b"] = EVIL_SIZE
    return content


def evil_range() -> dict[str, Any]:
    return {**program(node("relu")), "range_constraints": {CODE: {"min_val": 1, "max_val": 2}}}


def evil_number() -> dict[str, Any]:
    return program(node("relu"), relu=tensor({"as_expr": {"expr_str": 1, "hint": None}}))


def evil_input() -> dict[str, Any]:
    content = program(node("relu"))
    content["graph_module"]["graph"]["inputs"] = [{"as_tensor": {"name": f"x={CODE}"}}]
    return content


def evil_sym_input() -> dict[str, Any]:
    content = program(node("relu"))
    content["graph_module"]["graph"]["inputs"] = [{"as_sym_int": {"as_name": f"x={CODE}"}}]
    return content


def evil_target() -> dict[str, Any]:
    return program(node("relu", f"x():\n  pass\n{CODE}\ndef f"))


def evil_operator() -> dict[str, Any]:
    relu = node("relu")
    relu["inputs"] = [{"name": "", "arg": {"as_operator": f"torch.{CODE}"}}]
    return program(relu)


def evil_graph_name() -> dict[str, Any]:
    content = branch(program(node("relu")))
    call = content["graph_module"]["graph"]["nodes"][0]
    call["inputs"][0]["arg"]["as_graph"]["name"] = f'a"+{CODE}+"'
    return content


def evil_module_name() -> dict[str, Any]:
    content = lowered(program(node("relu")))
    content["graph_module"]["graph"]["nodes"][0]["inputs"][0]["name"] = f'a"+{CODE}+"'
    return content


def evil_weight_name() -> dict[str, Any]:
    content = program(node("relu"))
    spec = {"parameter": {"arg": {"name": "p"}, "parameter_name": f'a"+{CODE}+"'}}
    content["graph_module"]["signature"]["input_specs"] = [spec]
    return content


def evil_keyword() -> dict[str, Any]:
    children = [{"type": "builtins.tuple"}, {"context": json.dumps([f"a={CODE}"])}]
    spec = json.dumps([1, {"type": "builtins.tuple", "children_spec": children}])
    content = program(node("relu"))
    content["graph_module"]["module_call_graph"] = [{"fqn": "", "signature": {"in_spec": spec}}]
    return content


EVIL = [
    evil_size, evil_stride, evil_sym_value, evil_range, evil_number, evil_input, evil_sym_input,
    evil_target, evil_operator, evil_graph_name, evil_module_name, evil_weight_name, evil_keyword,
]  # fmt: skip


@pytest.mark.parametrize("make", EVIL)
def test_code_in_a_program(make: Callable[[], dict[str, Any]]) -> None:
    with pytest.raises(FormatError):
        check(make())


def deeper(inner: dict[str, Any]) -> dict[str, Any]:
    return lowered(branch(lowered(inner)))


NOT_IN_BRANCHES = (evil_range, evil_weight_name, evil_keyword)  # a branch is only a graph


@pytest.mark.parametrize(
    ("make", "wrap"),
    [(make, wrap) for make in EVIL for wrap in (lowered, deeper)]
    + [(make, branch) for make in EVIL if make not in NOT_IN_BRANCHES],
)
def test_code_in_programs_within_programs(
    make: Callable[[], dict[str, Any]], wrap: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    check(wrap(program(node("relu"))))
    with pytest.raises(FormatError):
        check(wrap(make()))


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
    description = json.dumps(tensor(size)) + " " * padding
    text = description.encode()
    pickle = (
        b"\x80\x02cexecutorch.exir.serde.export_serialize\n_reconstruct_fake_tensor\n("
        + b"B"
        + len(text).to_bytes(4, "little")
        + text
        + b"\x89tR."
    )
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
