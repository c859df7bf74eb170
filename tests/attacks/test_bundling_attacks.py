"""Bundling of anything: a bundle that reads back, or an error of etscope that says where."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.bundled_program import bundle_cases
from etscope.bundled_program.config import MethodTestCase
from etscope.bundled_program.serialize import (
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)
from etscope.errors import BundleError
from etscope.formats.program.bpte import read_bundled
from etscope.formats.program.pte_schema import ScalarValue, ValueKind
from tests.attacks.mutations import attack, cut_out, flip, mutated, truncate
from tests.support.formats.handmade import integer, method, pte_file, tensor
from tests.support.fuzz import fuzzed

FLAG = ScalarValue(ValueKind.BOOL, True)
PROGRAM = pte_file(method([tensor(2), integer(3), FLAG, tensor(2)], inputs=[0, 1, 2], outputs=[3]))
VECTOR = np.ones(2, np.float32)

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from([VECTOR, VECTOR.astype("U4"), np.float32(1), np.array(3), np.array([None])]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@given(anything, anything)
def test_any_values(inputs: Any, outputs: Any) -> None:
    try:
        data = bundle_cases(PROGRAM, {"forward": [(inputs, outputs)]})
    except BundleError as error:
        assert "put" in error.message  # which input or output it is
        return
    (case,) = read_bundled(data).suite("forward").cases
    assert case.inputs[1:] == (3, True)


class Hostile:
    """Seems to be a tensor, and is none."""

    dtype = "float32"
    shape = (2,)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no"), RecursionError(), MemoryError(), KeyError(1)])
def test_what_only_seems_to_be_a_tensor(error: Exception) -> None:
    with pytest.raises(BundleError, match="case 0, input 0: this tensor cannot be read"):
        bundle_cases(PROGRAM, {"forward": [([Hostile(error), 3, True], None)]})
    with pytest.raises(KeyboardInterrupt):  # an interruption is not swallowed
        bundle_cases(PROGRAM, {"forward": [([Hostile(KeyboardInterrupt()), 3, True], None)]})


def test_deep_nesting() -> None:
    tree: Any = VECTOR
    for _ in range(100_000):
        tree = [tree]
    with pytest.raises(BundleError, match="nested too deep"):
        MethodTestCase(tree)


def damaged(rng: random.Random, data: bytes) -> bytes:
    return mutated(rng, [data], (truncate, cut_out, flip))


@fuzzed(400, nightly=20_000)
def test_damaged_programs(seed: int, count: int) -> None:
    def touch(program: bytes) -> None:
        data = bundle_cases(program, {"forward": [([VECTOR, 3, True], [VECTOR])]})
        assert bytes(read_bundled(data).program_bytes) == program

    attack(seed, count, lambda rng: damaged(rng, PROGRAM), touch, share=1 / 50)


@fuzzed(400, nightly=20_000)
def test_damaged_bundles(seed: int, count: int) -> None:
    """What was read of them is either written again as it is, or refused."""
    good = bundle_cases(PROGRAM, {"forward": [([VECTOR, 3, True], [VECTOR])]})

    def touch(data: bytes) -> None:
        found = deserialize_from_flatbuffer_to_bundled_program(data)
        again = serialize_from_bundled_program_to_flatbuffer(found)
        assert deserialize_from_flatbuffer_to_bundled_program(again) == found

    attack(seed, count, lambda rng: damaged(rng, good), touch)
