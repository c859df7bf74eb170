"""Inputs in all their forms: their order, and whether they are what a method takes."""

from __future__ import annotations

import json
from collections import OrderedDict, deque, namedtuple
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from etscope.errors import MismatchError, MissingFileError, UsageError
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.scalar_type import ScalarType
from etscope.formats.torch_files.tensor_files import read_tensor_file, write_tensor_file
from etscope.run.inputs import method_inputs
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import integer, method, pte_file, tensor

DYNAMIC = pte.ShapeDynamism.DYNAMIC_BOUND
UNBOUND = pte.ShapeDynamism.DYNAMIC_UNBOUND
FLAG = pte.ScalarValue(pte.ValueKind.BOOL, True)
NOTHING = pte.ScalarValue(pte.ValueKind.NULL, None)


def number(value: float) -> pte.ScalarValue:
    return pte.ScalarValue(pte.ValueKind.DOUBLE, value)


def program(*inputs: pte.Value, tree: Any = None) -> Program:
    """A program whose method takes these; `tree` is how they nest."""
    made = read_pte(pte_file(method(inputs, inputs=range(len(inputs)))))
    text = "" if tree is None else json.dumps([1, tree])
    return replace(made, methods=(replace(made.methods[0], input_tree=text),))


def three(tree: Any = None) -> Program:
    """Takes three tensors of one form, which can be put in any order."""
    return program(*[tensor(2)] * 3, tree=tree)


def arrays(*numbers: float) -> list[np.ndarray]:
    return [np.full(2, number, np.float32) for number in numbers]


def taken(made: Program, given: Any, names: Sequence[str] | None = None) -> tuple[Any, ...]:
    return method_inputs(made, "forward", given, seed=0, input_names=names)


def order(made: Program, given: Any, names: Sequence[str] | None = None) -> list[float]:
    """The first number of each input, in the order in which the program gets them."""
    return [float(one[0]) for one in taken(made, given, names)]


def refusal(made: Program, given: Any, names: Sequence[str] | None = None) -> str:
    with pytest.raises(MismatchError) as caught:
        taken(made, given, names)
    return str(caught.value)


# -- forms


def test_nothing_is_generated_and_a_single_value_is_the_only_input() -> None:
    one, two = taken(program(tensor(2), integer(3)), None)
    assert one.shape == (2,)
    assert two == 3
    (one,) = taken(program(tensor(2)), a)
    assert one is a or one.base is a
    assert taken(program(integer(3)), 3) == (3,)
    (one,) = taken(program(tensor(scalar_type=ScalarType.DOUBLE)), np.float64(0.5))
    assert one.shape == ()
    assert taken(program(), None) == taken(program(), ()) == taken(program(), {}) == ()


Pair = namedtuple("Pair", "left right")


@dataclass
class Triple:
    first: Any
    second: Any
    third: Any
    absent: Any = None


a, b, c = arrays(1, 2, 3)


@pytest.mark.parametrize(
    "given",
    [
        (a, b, c),
        [a, b, c],
        deque([a, b, c]),
        ((a, [b]), c),
        (a, {"z": b, "y": c}),
        OrderedDict(z=a, y=b, x=c),
        {"z": a, "y": {"one": b, "other": c}},
        (Pair(a, b), c),
        Triple(a, b, c),
        ([], a, (), Triple(b, c, None)),
    ],
)
def test_containers_are_flattened_in_order(given: Any) -> None:
    assert order(three(), given) == [1, 2, 3]


def test_containers_without_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="200 levels"):
        taken(three(), endless)


def test_files(tmp_path: Path) -> None:
    for name in ("some.npz", "some.safetensors"):
        if name.endswith("safetensors"):
            pytest.importorskip("safetensors")
        write_tensor_file(tmp_path / name, [c, a, b], ["z", "x", "y"])
        assert order(three(), tmp_path / name, ("x", "y", "z")) == [1, 2, 3]
        assert order(three(), str(tmp_path / name), ("x", "y", "z")) == [1, 2, 3]
        assert order(three(), read_tensor_file(tmp_path / name), ("x", "y", "z")) == [1, 2, 3]
    np.save(tmp_path / "one.npy", a)
    assert order(program(tensor(2)), tmp_path / "one.npy") == [1]
    with pytest.raises(MissingFileError):
        taken(three(), tmp_path / "none.npz")


def test_a_file_of_torch_keeps_its_nesting(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    one, two, three_ = (torch.from_numpy(array) for array in (a, b, c))
    made = three(call([leaf(), dictionary({"u": leaf(), "v": leaf()})]))
    torch.save((one, {"v": three_, "u": two}), tmp_path / "nested.pt")
    assert order(made, tmp_path / "nested.pt") == [1, 2, 3]
    torch.save({"z": three_, "x": one, "y": two}, tmp_path / "named.pt")
    assert order(three(), tmp_path / "named.pt", ("x", "y", "z")) == [1, 2, 3]


# -- the order of names


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("arr_10", "arr_9", "arr_0"), [3, 2, 1]),
        (("input.2", "input.0", "input.1"), [2, 3, 1]),
        (("2", "10", "1"), [3, 1, 2]),
        (("mask_2", "tokens_0", "position_1"), [2, 3, 1]),
        (("c3", "b1", "a2"), [2, 3, 1]),
        (("c30", "b10", "a20"), [1, 2, 3]),  # neither one stem nor counting: as they stand
        (("c", "b", "a"), [1, 2, 3]),
        (("x2", "x1", "y"), [1, 2, 3]),
        (("x1", "x01", "x2"), [1, 2, 3]),
    ],
)
def test_names_give_an_order(names: tuple[str, ...], expected: list[float], tmp_path: Path) -> None:
    given = dict(zip(names, (a, b, c), strict=True))
    assert order(three(), given) == expected
    write_tensor_file(tmp_path / "named.npz", [a, b, c], names)
    assert order(three(), tmp_path / "named.npz") == expected


def test_names_of_the_record_come_first() -> None:
    assert order(three(), {2: a, 0: b, 1: c}) == [2, 3, 1]
    given = {"x1": a, "x0": b, "x2": c}
    assert order(three(), given) == [2, 1, 3]
    assert order(three(), given, ("x1", "x0", "x2")) == [1, 2, 3]
    assert order(three(), given, ("other", "names", "here")) == [2, 1, 3]
    assert order(three(), {"y": a, "x": b, "z": c}, ("x", "y")) == [1, 2, 3]  # of others


def test_a_name_that_is_not_there() -> None:
    text = refusal(three(), {"x": a, "y": b, "zz": c}, ("x", "y", "z"))
    assert "the program has no input 'zz'; a value for 'z' is missing" in text
    assert "inputs are: x, y, z" in text


def test_safetensors_alone_have_no_order(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    write_tensor_file(tmp_path / "some.safetensors", [c, a, b], ["z", "x", "y"])
    with pytest.raises(UsageError, match="the order of the inputs"):
        taken(three(), tmp_path / "some.safetensors")
    write_tensor_file(tmp_path / "numbered.safetensors", [c, a, b], ["i.2", "i.0", "i.1"])
    assert order(three(), tmp_path / "numbered.safetensors") == [1, 2, 3]
    write_tensor_file(tmp_path / "one.safetensors", [b], ["any"])
    assert order(program(tensor(2)), tmp_path / "one.safetensors") == [2]


# -- how the program nests


def leaf() -> dict[str, Any]:
    return {"type": None, "context": None, "children_spec": []}


def dictionary(children: dict[str, Any]) -> dict[str, Any]:
    keys = json.dumps(list(children))
    return {"type": "builtins.dict", "context": keys, "children_spec": list(children.values())}


def call(positional: list[Any], keyword: dict[str, Any] | None = None) -> dict[str, Any]:
    together = {"type": "builtins.tuple", "context": "null"}
    return {
        **together,
        "children_spec": [{**together, "children_spec": positional}, dictionary(keyword or {})],
    }


def test_a_dict_takes_the_order_of_the_export() -> None:
    made = three(call([leaf(), dictionary({"v": leaf(), "u": leaf()})]))
    assert order(made, (a, {"u": b, "v": c})) == [1, 3, 2]
    text = refusal(made, (a, {"u": b, "w": c}))
    assert "a dict with the keys 'u', 'w' where the program was exported with 'v', 'u'" in text


def test_keyword_arguments_by_name() -> None:
    made = three(call([], {"z": leaf(), "y": dictionary({"q": leaf(), "p": leaf()})}))
    assert order(made, {"y": {"p": a, "q": b}, "z": c}) == [3, 2, 1]
    made = three(call([leaf()], {"z": leaf(), "y": leaf()}))
    assert order(made, (a, b, c)) == [1, 2, 3]
    made = three(call([dictionary({"z": leaf(), "y": leaf(), "x": leaf()})]))  # the one argument
    assert order(made, {"x": a, "y": b, "z": c}) == [3, 2, 1]
    assert order(made, ({"x": a, "y": b, "z": c},)) == [3, 2, 1]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([1, {"type": "t", "context": "", "children_spec": [{}, {}]}]),
        *("", "x", "[1]", "[1, {}]", '[1, {"type": 3}]', "null", "[" * 100_000, '[1, "a"]'),
    ],
)
def test_a_tree_that_cannot_be_read_is_not_used(text: str) -> None:
    made = three()
    made = replace(made, methods=(replace(made.methods[0], input_tree=text),))
    assert order(made, {"z": a, "y": b, "x": c}) == [1, 2, 3]


@pytest.mark.parametrize("keys", ['["y", "y", "x"]', '["y"]', '[["y"], {}, 3]', "3", "x", ""])
def test_keys_that_cannot_be(keys: str) -> None:
    nested = {"type": "builtins.dict", "context": keys, "children_spec": [leaf(), leaf()]}
    assert order(three(call([leaf(), nested])), (a, {"y": b, "x": c})) == [1, 2, 3]


# -- torch


def test_tensors_of_torch_are_not_copied() -> None:
    torch = pytest.importorskip("torch")
    given = torch.rand(2, requires_grad=True)
    (array,) = taken(program(tensor(2)), given)
    assert array.__array_interface__["data"][0] == given.data_ptr()


@pytest.mark.parametrize(
    "kind", [kind for kind in ScalarType if not kind.torch_name.startswith(("q", "bits"))]
)
def test_all_types_of_torch(kind: ScalarType) -> None:
    torch = pytest.importorskip("torch")
    given = torch.tensor([[1, 0, 1], [0, 0, 1]]).to(getattr(torch, kind.torch_name)).t()
    (array,) = taken(program(tensor(3, 2, scalar_type=kind)), given)
    assert array.dtype == kind.numpy_dtype
    assert array.flags.c_contiguous
    assert array.astype(int).tolist() == [[1, 0], [0, 0], [1, 1]]


def test_classes_that_torch_knows() -> None:
    torch = pytest.importorskip("torch")

    class Held:
        def __init__(self, *values: Any) -> None:
            self.values = values

    torch.utils._pytree.register_pytree_node(
        Held, lambda held: (list(held.values), None), lambda values, _: Held(*values)
    )
    assert order(three(), (a, Held(b, c))) == [1, 2, 3]


def test_tensors_without_plain_values() -> None:
    torch = pytest.importorskip("torch")
    for given in (torch.ones(2).to_sparse(), torch.ones(2, device="meta")):
        with pytest.raises(UsageError, match="input 0: a tensor that is sparse"):
            taken(program(tensor(2)), given)


# -- what fits


def test_other_orders_in_memory_and_of_bytes() -> None:
    image = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    made = program(tensor(1, 2, 3, 4, dim_order=(0, 2, 3, 1)))
    for given in (image, image.copy(order="F"), image.astype(">f4"), image[:, :, ::1, ::-1]):
        (array,) = taken(made, given)
        assert np.array_equal(array, given)
        assert array.dtype.isnative
        assert array.transpose(0, 2, 3, 1).flags.c_contiguous


def test_sizes_within_their_bounds() -> None:
    bounded, unbound = tensor(8, 4, dynamism=DYNAMIC), tensor(1, dynamism=UNBOUND)
    shapes = [(1, 4), (8, 4), (5, 4), (0, 4), (8, 1)]
    for wanted, shape in (*((bounded, shape) for shape in shapes), (unbound, (100,))):
        (array,) = taken(program(wanted), np.zeros(shape, np.float32))
        assert array.shape == shape


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        (integer(3), 3),
        (integer(3), np.int64(3)),
        (integer(3), np.array(3, np.uint8)),
        (FLAG, True),
        (FLAG, np.True_),
        (number(2.5), 2.5),
        (number(2.5), 2.50001),
        (number(2.0), 2),
        (number(2.0), np.float32(2)),
        (NOTHING, None),
    ],
)
def test_numbers_that_the_runtime_takes(wanted: pte.ScalarValue, given: Any) -> None:
    (found,) = taken(program(wanted), (given,))
    assert type(found) is type(wanted.value)
    assert found is None or found == pytest.approx(wanted.value, rel=1e-4)


# -- what does not fit


@pytest.mark.parametrize(
    ("wanted", "given", "words"),
    [
        (
            tensor(1, 3),
            np.zeros((1, 3)),
            "input 0: float64[1, 3] where the program takes float32[1, 3]\n"
            '  hint: array.astype("float32") converts it',
        ),
        (tensor(2, scalar_type=ScalarType.BFLOAT16), a, "array.astype(ml_dtypes.bfloat16)"),
        (tensor(2), a.astype(ml_dtypes.float8_e5m2), "float8_e5m2[2] where the program takes"),
        (tensor(2), np.array(["a", "b"]), "str32[2] where the program takes float32[2]"),
        (tensor(2), np.zeros(2, np.complex64), "complex64[2] where"),
        (tensor(2), np.zeros(3, np.float32), "float32[3] where the program takes float32[2]"),
        (tensor(2), np.zeros((1, 2), np.float32), "float32[1, 2] where the program takes"),
        (
            tensor(8, 4, dynamism=DYNAMIC),
            np.zeros((9, 4), np.float32),
            "float32[9, 4] where the program takes float32[<=8, 4]",
        ),
        (tensor(8, dynamism=DYNAMIC), np.zeros((8, 1), np.float32), "where the program takes"),
        (tensor(8, dynamism=UNBOUND), np.zeros((8, 1), np.float32), "where the program takes"),
        (tensor(), 3.0, "the float 3.0 where the program takes float32[]"),
        (tensor(2), None, "None where the program takes float32[2]"),
        (tensor(2), "ab", "the text 'ab' where the program takes float32[2]"),
        (integer(3), 4, "the int 4 where the program takes the int 3"),
        (integer(3), 3.0, "the float 3.0 where"),
        (integer(1), True, "the bool True where the program takes the int 1"),
        (integer(3), np.zeros(2, np.int64), "int64[2] where the program takes the int 3"),
        (FLAG, 1, "the int 1 where the program takes the bool True"),
        (FLAG, False, "the bool False where"),
        (number(2.5), 2.6, "the float 2.6 where the program takes the float 2.5"),
        (number(1.0), True, "the bool True where"),
        (NOTHING, 3, "the int 3 where the program takes None"),
        (NOTHING, "sum", "the text 'sum' where the program takes None"),
        (pte.ListValue(pte.ValueKind.INT_LIST, ()), 3, "takes a IntList"),
    ],
)
def test_what_does_not_fit(wanted: pte.Value, given: Any, words: str) -> None:
    assert words in refusal(program(wanted), (given,))


def test_all_that_does_not_fit_is_told_with_names() -> None:
    text = refusal(program(tensor(2), integer(3), tensor(1)), (a, 4, a), ("x", "n", "y"))
    assert "fit the method 'forward':\n  input 1 (n): the int 4 where" in text
    assert "\n  input 2 (y): float32[2] where the program takes float32[1]\n" in text
    assert "input 0" not in text


def test_the_number_of_inputs() -> None:
    text = refusal(program(tensor(2), integer(3)), (a,))
    assert "1 input (float32[2]) where the program takes 2 inputs (float32[2], the int 3)" in text
    text = refusal(program(tensor(2)), [1.0, 2.0])
    assert "2 inputs (the float 1.0, the float 2.0) where the program takes 1 input" in text
    assert "give a numpy array for a tensor" in text
    assert "0 inputs where" in refusal(program(tensor(2)), ())
    pte_path = artifacts("cnn_portable").pte
    assert f"etscope info {pte_path}" in refusal(read_pte(pte_path), ())


def test_many_problems_are_told_briefly() -> None:
    text = refusal(program(*[tensor(1)] * 500), [a] * 500)
    assert "input 19: " in text
    assert "input 20: " not in text
    assert "and 480 more" in text
    assert len(refusal(program(*[tensor(1)] * 500), [a] * 499)) < 1500


@pytest.mark.parametrize("given", [object(), (object(),), b"bytes", {"x": {1, 2}}])
def test_what_is_no_input(given: Any) -> None:
    with pytest.raises(UsageError, match="is neither a tensor nor a number"):
        taken(program(tensor(2)), given)
