"""Generated inputs: the same numbers for ever, and what the runtime accepts."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.errors import UsageError
from etscope.formats.program import pte_schema as pte
from etscope.formats.program.pte import Program, read_pte
from etscope.formats.program.scalar_type import ScalarType
from etscope.run.inputs import MAX_BYTES, generate_inputs
from tests.support.artifacts import artifacts
from tests.support.formats.handmade import integer, method, pte_file, tensor, tensor_list

MASK = (1 << 64) - 1
PLAIN = [
    kind
    for kind in ScalarType
    if not kind.torch_name.startswith(("q", "bits")) and kind.values_per_unit == 1
]


def program(*inputs: pte.Value) -> Program:
    return read_pte(pte_file(method(inputs, inputs=range(len(inputs)))))


def generated(*inputs: pte.Value, seed: int = 0) -> tuple[Any, ...]:
    return generate_inputs(program(*inputs), "forward", seed)


def bits(seed: int, index: int, element: int) -> int:
    """The formula once more, in Python's own numbers."""

    def mix(z: int) -> int:
        z &= MASK
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
        return z ^ (z >> 31)

    base = mix(seed + (index + 1) * 0xD1B54A32D192ED03)
    return mix(base + (element + 1) * 0x9E3779B97F4A7C15)


# -- the numbers never change


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        (ScalarType.FLOAT, [-0.7659341096878052, 0.4613816738128662, -0.6929281949996948]),
        (ScalarType.DOUBLE, [-0.7659341096878052, 0.4613816738128662, -0.6929281949996948]),
        (ScalarType.HALF, [-0.76611328125, 0.46142578125, -0.69287109375]),
        (ScalarType.BFLOAT16, [-0.765625, 0.4609375, -0.69140625]),
        (ScalarType.FLOAT8E5M2, [-0.75, 0.4375, -0.75]),
        (ScalarType.FLOAT8E4M3FN, [-0.75, 0.46875, -0.6875]),
        (ScalarType.BYTE, [29, 187, 39]),
        (ScalarType.CHAR, [29, -69, 39]),
        (ScalarType.BOOL, [False, True, False]),
        (ScalarType.LONG, [0, 1, 0]),
        (ScalarType.UINT16, [0, 1, 0]),
    ],
)
def test_the_first_numbers_of_a_type(kind: ScalarType, first: list[Any]) -> None:
    (array,) = generated(tensor(3, scalar_type=kind))
    assert array.dtype == kind.numpy_dtype
    assert array.astype(np.float64).tolist() == [float(number) for number in first]


def test_a_million_numbers_have_not_changed() -> None:
    """Several chunks, the second input, a seed."""
    _, array = generated(tensor(1), tensor(1000, 1000), seed=7)
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    assert digest == "6361ad8e5a79c10f912690318fc000bb2f508ded3de9a9aced9e3600774d705d"


@given(
    st.integers(-(2**70), 2**70),
    st.integers(0, 3),
    st.lists(st.integers(1, 5), max_size=4),
    st.sampled_from(PLAIN),
)
def test_the_formula(seed: int, index: int, sizes: list[int], kind: ScalarType) -> None:
    wanted = tensor(*sizes, scalar_type=kind)
    array = generated(*[integer(5)] * index, wanted, seed=seed)[index]
    is_complex = kind.numpy_dtype.kind == "c"
    numbers = [bits(seed, index, i) for i in range(array.size * (2 if is_complex else 1))]
    if kind.numpy_dtype.kind in "fVc":
        expected = [(number >> 40) * 2.0**-23 - 1 for number in numbers]
        exact = np.array(expected, np.float32)
        if is_complex:
            exact = exact.view(np.complex64)
        exact = exact.astype(kind.numpy_dtype)
    elif kind.itemsize == 1 and kind is not ScalarType.BOOL:
        exact = np.array([number >> 56 for number in numbers], np.uint8).view(kind.numpy_dtype)
    else:
        exact = np.array([number >> 63 for number in numbers]).astype(kind.numpy_dtype)
    assert array.shape == tuple(sizes)
    assert array.ravel().tobytes() == exact.tobytes()


# -- the form


def test_the_order_in_memory_changes_no_value() -> None:
    (plain,) = generated(tensor(2, 3, 4, 5))
    (last,) = generated(tensor(2, 3, 4, 5, dim_order=(0, 2, 3, 1)))
    assert np.array_equal(plain, last)
    assert last.transpose(0, 2, 3, 1).flags.c_contiguous
    assert not last.flags.c_contiguous


def test_sizes_that_may_vary_are_as_large_as_may_be_and_others_as_they_are() -> None:
    dynamic = tensor(8, 4, dynamism=pte.ShapeDynamism.DYNAMIC_BOUND)
    found = generated(dynamic, tensor(), tensor(0, 3))
    assert [array.shape for array in found] == [(8, 4), (), (0, 3)]


def test_what_is_no_tensor_has_the_program_s_value() -> None:
    found = generated(
        integer(7),
        pte.ScalarValue(pte.ValueKind.DOUBLE, 2.5),
        pte.ScalarValue(pte.ValueKind.BOOL, True),
        pte.ScalarValue(pte.ValueKind.NULL, None),
    )
    assert found == (7, 2.5, True, None)
    assert [type(value) for value in found] == [int, float, bool, type(None)]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (pte.ScalarValue(pte.ValueKind.STRING, "sum"), "input 0: it is a String"),
        (tensor_list(0), "input 0: it is a TensorList"),
        (tensor(4, scalar_type=ScalarType.QUINT4X2), "is packed or quantized"),
        (tensor(-1, dynamism=pte.ShapeDynamism.DYNAMIC_UNBOUND), "without a bound"),
        (tensor(2, MAX_BYTES // 8 + 1), "takes 8,589,934,600 bytes"),
        (tensor(0, 2**31 - 1, 2**31 - 1, 2**31 - 1), "bytes"),
    ],
)
def test_what_cannot_be_generated(wanted: pte.Value, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        generated(wanted)


# -- real programs


@pytest.mark.parametrize(
    "name",
    [
        *("bf16_fp16", "channels_last", "cnn_portable", "dynamic_shape", "int_outputs"),
        *("scalar_outputs", "transformer", "two_methods"),
    ],
)
def test_the_runtime_takes_them(name: str) -> None:
    pytest.importorskip("torch")
    bindings = pytest.importorskip("executorch.extension.pybindings._C")
    from etscope.bridge.tensors import torch_values

    path = artifacts(name).pte
    opened = read_pte(path)
    loaded = bindings._load_program(str(path), enable_etdump=False, debug_buffer_size=0)
    for one in opened.methods:
        inputs = generate_inputs(opened, one.name, seed=1)
        outputs = loaded.load_method(one.name)(torch_values(inputs), clone_outputs=True)
        assert len(outputs) == len(one.outputs)
