"""Bundling without torch: arrays and .pte files."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from etscope.bundled_program import bundle_cases
from etscope.bundled_program.config import MethodTestCase, MethodTestSuite, flat_leaves
from etscope.bundled_program.core import BundledProgram
from etscope.bundled_program.schema import Bool, Double, Int, ScalarType, Tensor
from etscope.bundled_program.serialize import (
    BUNDLED_PROGRAM_SCHEMA_VERSION,
    SCALAR_TYPE_SCHEMA_NAME,
    convert_from_flatbuffer,
    convert_to_flatbuffer,
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
    write_schema,
)
from etscope.errors import BundleError, FormatError, MissingFileError, UsageError
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.bpte import Case, Suite, read_bundled, write_bundled
from etscope.formats.program.pte_schema import ShapeDynamism, ValueKind
from tests.support.formats.handmade import integer, method, pte_file, tensor, tensor_list

IMAGE = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


class Pair(NamedTuple):
    first: Any
    second: Any


def scalar(kind: ValueKind, value: Any) -> pte.ScalarValue:
    return pte.ScalarValue(kind, value)


def program(
    *inputs: pte.Value, outputs: tuple[pte.Value, ...] = (), name: str = "forward"
) -> bytes:
    values = [*inputs, *outputs]
    places = range(len(values))
    return pte_file(
        method(values, name=name, inputs=places[: len(inputs)], outputs=places[len(inputs) :])
    )


@pytest.fixture
def image_pte(tmp_path: Path) -> Path:
    """Takes an image in channels-last order, gives a plain vector."""
    path = tmp_path / "image.pte"
    path.write_bytes(program(tensor(1, 2, 3, 4, dim_order=(0, 2, 3, 1)), outputs=(tensor(2),)))
    return path


def suite(*cases: MethodTestCase, name: str = "forward") -> MethodTestSuite:
    return MethodTestSuite(method_name=name, test_cases=cases)


# -- what comes out


def bundle_of(path: Path, *inputs: Any) -> BundledProgram:
    return BundledProgram(None, [suite(MethodTestCase(list(inputs)))], path)


def test_a_bundle_of_a_file(image_pte: Path, tmp_path: Path) -> None:
    expected = np.array([1, 2], np.float32)
    case = MethodTestCase(inputs=[IMAGE], expected_outputs=[expected])
    bundle = BundledProgram(None, [suite(case)], pte_file_path=image_pte)
    assert bundle.executorch_program is None
    assert bundle._pte_file_path == str(image_pte)
    data = serialize_from_bundled_program_to_flatbuffer(bundle)
    bundle.save(tmp_path / "model.bpte")
    assert (tmp_path / "model.bpte").read_bytes() == data
    file = read_bundled(data)
    assert bytes(file.program_bytes) == image_pte.read_bytes()
    (found,) = file.suite("forward").cases
    np.testing.assert_array_equal(found.inputs[0], IMAGE)
    np.testing.assert_array_equal(found.expected_outputs[0], expected)
    assert data == bundle_cases(image_pte.read_bytes(), {"forward": [([IMAGE], [expected])]})


def test_the_schema(image_pte: Path) -> None:
    bundle = bundle_of(image_pte, IMAGE)
    schema = bundle.serialize_to_schema()
    assert schema.version == BUNDLED_PROGRAM_SCHEMA_VERSION == 2
    assert schema.program == image_pte.read_bytes()
    (case,) = schema.method_test_suites[0].test_cases
    assert case.expected_outputs == []
    value = case.inputs[0].val
    assert isinstance(value, Tensor)
    assert (value.scalar_type, value.sizes) == (ScalarType.FLOAT, [1, 2, 3, 4])
    # In the layout that the program expects.
    assert value.dim_order == [0, 2, 3, 1]
    assert value.data == IMAGE.transpose(0, 2, 3, 1).tobytes()
    data = serialize_from_bundled_program_to_flatbuffer(schema)
    assert data == serialize_from_bundled_program_to_flatbuffer(bundle)
    assert deserialize_from_flatbuffer_to_bundled_program(data) == schema


def test_numbers() -> None:
    opened = program(
        integer(3), scalar(ValueKind.BOOL, True), scalar(ValueKind.DOUBLE, 2.5), tensor(2)
    )
    array = np.zeros(2, np.float32)
    data = bundle_cases(opened, {"forward": [([3, True, 2.5, array], None)]})
    case = deserialize_from_flatbuffer_to_bundled_program(data).method_test_suites[0].test_cases[0]
    assert [value.val for value in case.inputs[:3]] == [Int(3), Bool(True), Double(2.5)]
    numpy_s = [np.int64(3), np.bool_(True), np.float32(2.5), array]
    assert bundle_cases(opened, {"forward": [(numpy_s, None)]}) == data


# -- JSON


def test_json_keeps_every_number(image_pte: Path) -> None:
    numbers = (-(2**63), True, 1e-300, math.inf, math.nan)
    data = write_bundled(program(tensor(1)), [Suite("forward", (Case(numbers, ()),))])
    text = convert_from_flatbuffer(data)
    (case,) = read_bundled(convert_to_flatbuffer(text)).suite("forward").cases
    assert repr(case.inputs) == repr(numbers)
    quoted = text.replace(b"Infinity", b'"inf"').replace(b"NaN", b'"nan"')  # as flatc takes them
    assert convert_to_flatbuffer(quoted) == convert_to_flatbuffer(text)
    without_cases = BundledProgram(None, [], image_pte).to_bytes()
    assert convert_to_flatbuffer(convert_from_flatbuffer(without_cases)) == without_cases


CASE = (
    '{"version": 2, "program": [], "method_test_suites": [{"method_name": "forward", "test_cases": \
[{"expected_outputs": [], "inputs": [{"val_type": "Tensor", "val": {"scalar_type": "FLOAT", \
"sizes": [1], "dim_order": [0], "data": [0, 0, 0, 0]}}]}]}]}'
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (CASE, "{", "broken JSON"),
        (CASE, "[]", "not a valid JSON of a bundled program"),
        ('"version": 2, ', "", "'version'"),
        ('"version": 2', '"version": -1', "-1"),
        ('"Tensor"', '"String"', "unknown kind of value 'String'"),
        ('"FLOAT"', '"FLOATS"', "'FLOATS'"),
        ('"FLOAT"', "99", "99"),
        ('"program": []', '"program": 1000000000000', "not a list of numbers"),
        ('"data": [0,', '"data": [256,', "range"),
        ("[1]", "[2]", "needs 8 bytes"),
        ('"sizes": [1], "dim_order": [0]', '"sizes": [-1, -1], "dim_order": [0, 1]', r"\[-1, -1\]"),
    ],
)
def test_json_of_no_bundle(image_pte: Path, old: str, new: str, told: str) -> None:
    whole = CASE.replace("[]", str(list(image_pte.read_bytes())), 1)
    assert old in CASE
    assert convert_to_flatbuffer(whole)
    text = whole.replace(old, new) if old in whole else CASE.replace(old, new)
    with pytest.raises((FormatError, BundleError), match=told):
        convert_to_flatbuffer(text)


def test_the_schema_lists_the_types_of_elements(tmp_path: Path) -> None:
    write_schema(tmp_path, SCALAR_TYPE_SCHEMA_NAME)
    text = (tmp_path / "scalar_type.fbs").read_text()
    found = re.findall(r"^  (\w+) = (\d+),$", text, re.MULTILINE)
    assert {name: int(number) for name, number in found} == {
        # ExecuTorch writes complex numbers without an entry in its schema.
        kind.name: kind.value
        for kind in ScalarType
        if not kind.torch_name.startswith("complex")
    }
    with pytest.raises(UsageError, match="unknown schema 'program'"):
        write_schema(tmp_path, "program")


def test_suites_are_sorted_by_method(tmp_path: Path) -> None:
    path = tmp_path / "two.pte"
    path.write_bytes(pte_file(method([], name="encode"), method([], name="decode")))
    suites = [suite(name="encode"), suite(name="decode")]
    bundle = BundledProgram(None, suites, path)
    assert [one.method_name for one in bundle.method_test_suites] == ["decode", "encode"]
    assert [one.method_name for one in suites] == ["encode", "decode"]


def test_a_dynamic_tensor_may_be_smaller() -> None:
    dynamic = tensor(4, 6, dynamism=ShapeDynamism.DYNAMIC_BOUND)
    unbound = tensor(4, 6, dynamism=ShapeDynamism.DYNAMIC_UNBOUND)
    small, large = np.zeros((0, 6), np.float32), np.zeros((9, 9), np.float32)
    data = bundle_cases(program(dynamic, unbound), {"forward": [([small, large], None)]})
    assert [one.shape for one in read_bundled(data).suites[0].cases[0].inputs] == [(0, 6), (9, 9)]


def test_what_changed_since_is_checked_again(image_pte: Path, tmp_path: Path) -> None:
    bundle = bundle_of(image_pte, IMAGE)
    inputs = bundle.method_test_suites[0].test_cases[0].inputs
    inputs[0] = IMAGE[0]
    with pytest.raises(BundleError, match=r"case 0, input 0: .* where the program takes float32"):
        serialize_from_bundled_program_to_flatbuffer(bundle)
    inputs.append(1)
    with pytest.raises(BundleError, match="2 inputs, but the method has 1"):
        bundle.save(tmp_path / "model.bpte")
    assert [path.name for path in tmp_path.iterdir()] == ["image.pte"]


# -- nesting


def nested() -> Any:
    return [
        (1, {"b": 2, "a": [3.0]}),
        Pair(True, OrderedDict(z=5, y=6)),
        deque([7]),
        {},
        np.zeros(1, np.float32),
    ]


def test_nested_inputs_are_flattened_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = MethodTestCase(nested()).inputs
    assert flat[:-1] == [1, 2, 3.0, True, 5, 6, 7]
    assert isinstance(flat[-1], np.ndarray)
    (found,) = MethodTestCase(IMAGE, IMAGE).expected_outputs  # a list of one
    assert found is IMAGE
    # As torch does it.
    pytree = pytest.importorskip("torch.utils._pytree")
    with_torch = [repr(leaf) for leaf in flat_leaves(nested())]
    monkeypatch.delitem(sys.modules, "torch.utils._pytree")
    assert [repr(leaf) for leaf in flat_leaves(nested())] == with_torch
    assert with_torch == [repr(leaf) for leaf in pytree.tree_leaves(nested())]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([IMAGE, "text"], "input 1 is of type str"),
        ([None], "input 0 is of type NoneType"),
        ([{"a": [1, b"x"]}], "input 1 is of type bytes"),
        ([{1, 2}], "input 0 is of type set"),
        ([1j], "input 0 is of type complex"),
    ],
)
def test_values_of_other_types(inputs: Any, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        MethodTestCase(inputs)
    with pytest.raises(BundleError, match="expected output"):
        MethodTestCase([], inputs)


def test_values_in_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils._pytree", raising=False)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BundleError, match="nested too deep"):
        MethodTestCase(loop)


# -- what is refused

VECTOR = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("wanted", "given", "message"),
    [
        (tensor(2), VECTOR[:1], r"float32\[1\] where the program takes float32\[2\]"),
        (tensor(2), VECTOR.astype("m8[s]"), "not have a scalar type for timedelta64"),
        (tensor(2), np.str_("a"), "the text 'a' where the program takes"),
        (tensor(), np.float32(3), r"the float 3.0 where the program takes float32\[\]"),
        (
            tensor(2, 4, dynamism=ShapeDynamism.DYNAMIC_BOUND),
            np.zeros((3, 2), np.float32),
            r"float32\[3, 2\] where the program takes float32\[<=2, 4\]\n.*upper bounds",
        ),
        (integer(1), True, "the bool True where the program takes the int 1"),
        (integer(1), 1.0, "the float 1.0 where the program takes the int 1"),
        (scalar(ValueKind.BOOL, True), 1, "the int 1 where the program takes the bool True"),
        (scalar(ValueKind.NULL, None), 1, "a value of the kind Null here"),
        (scalar(ValueKind.STRING, "a"), 1, "a value of the kind String here"),
        (tensor_list(0), VECTOR, "a value of the kind TensorList here"),
    ],
)
def test_an_input_that_does_not_fit(wanted: pte.Value, given: Any, message: str) -> None:
    """What fits is decided as for `etscope run`, but for the types of numbers, which are exact."""
    opened = program(tensor(2), wanted, outputs=(tensor(2),))
    good = (([VECTOR, given], None),)
    with pytest.raises(BundleError, match=r"method 'forward', case 0, input 1: (.|\n)*" + message):
        bundle_cases(opened, {"forward": good})


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([VECTOR], "case 1: 1 expected outputs, but the method has 2"),
        ([VECTOR] * 3, "case 1: 3 expected outputs, but the method has 2"),
        ([VECTOR, VECTOR[:1]], r"case 1, expected output 1: float32\[1\] where"),
        ([VECTOR, VECTOR > 0], r"case 1, expected output 1: bool\[2\] where"),
        ([VECTOR, 1], "case 1, expected output 1: the int 1 where"),
    ],
)
def test_outputs_that_do_not_fit(outputs: list[Any], message: str) -> None:
    opened = program(outputs=(tensor(2), tensor(2)))
    good = ([], [VECTOR, VECTOR])
    with pytest.raises(BundleError, match=message):
        bundle_cases(opened, {"forward": [good, ([], outputs)]})


def test_only_tensors_can_be_expected() -> None:
    opened = program(outputs=(integer(1),))
    assert bundle_cases(opened, {"forward": [([], None)]})
    told = r"expected output 0: .* of the kind Int, but only tensor"
    with pytest.raises(BundleError, match=told):
        bundle_cases(opened, {"forward": [([], [1])]})


def test_two_suites_for_a_method(image_pte: Path) -> None:
    with pytest.raises(BundleError, match="2 test suites for method 'forward'"):
        BundledProgram(None, [suite(), suite()], image_pte)


def test_programs_and_methods_that_cannot_be(image_pte: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="for the unknown method 'encode'") as caught:
        BundledProgram(None, [suite(name="encode")], image_pte)
    assert "its methods are: forward" in str(caught.value)
    for parent in (UsageError, RuntimeError, AssertionError):  # as upstream raises it
        assert isinstance(caught.value, parent)
    with pytest.raises(RuntimeError, match="Either executorch_program or pte_file_path must be"):
        BundledProgram(None, [])
    with pytest.raises(RuntimeError, match="Only one of executorch_program or pte_file_path"):
        BundledProgram(object(), [], image_pte)
    with pytest.raises(BundleError, match="executorch_program is of type bytes"):
        BundledProgram(image_pte.read_bytes(), [])
    with pytest.raises(MissingFileError):
        BundledProgram(None, [], tmp_path / "none.pte")
    (tmp_path / "bad.pte").write_bytes(b"not a program at all")
    with pytest.raises(FormatError, match="not an ExecuTorch program"):
        BundledProgram(None, [], tmp_path / "bad.pte")
    for given in (b"bytes", None, object()):
        with pytest.raises(BundleError, match="is not a bundled program"):
            serialize_from_bundled_program_to_flatbuffer(given)  # type: ignore[arg-type]


def test_bundling_needs_no_torch(image_pte: Path) -> None:
    code = (
        "import sys, numpy as np; from etscope import BundledProgram\n"
        "from etscope.bundled_program.config import MethodTestCase, MethodTestSuite\n"
        "case = MethodTestCase([np.zeros((1, 2, 3, 4), np.float32)])\n"
        "BundledProgram(None, [MethodTestSuite('forward', [case])], sys.argv[1]).to_bytes()\n"
        "assert not {'torch', 'executorch'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(image_pte)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
