"""Bundling of anything: a bundle that reads back, or an error of etscope that says where."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
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
from etscope.errors import BundleError, EtscopeError
from etscope.formats.program.bpte import read_bundled
from etscope.formats.program.pte_schema import ScalarValue, ValueKind
from tests.attacks.mutations import cut_out, truncate
from tests.support.formats.handmade import integer, method, pte_file, tensor

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


def test_an_interruption_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        bundle_cases(PROGRAM, {"forward": [([Hostile(KeyboardInterrupt()), 3, True], None)]})


@pytest.mark.parametrize("depth", [100_000])
def test_deep_nesting(depth: int) -> None:
    tree: Any = VECTOR
    for _ in range(depth):
        tree = [tree]
    with pytest.raises(BundleError, match="nested too deep"):
        MethodTestCase(tree)


def damaged(data: bytes, seed: int) -> bytes:
    rng, changed = random.Random(seed), bytearray(data)
    mutations: Sequence[Callable[[random.Random, bytearray, Sequence[bytes]], None]] = (
        truncate,
        cut_out,
        _flip,
    )
    rng.choice(mutations)(rng, changed, [data])
    return bytes(changed)


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    for _ in range(rng.choice((1, 4, 32))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


@pytest.fixture
def seeds() -> Iterator[int]:
    return iter(range(400))


def test_damaged_programs(seeds: Iterator[int]) -> None:
    refused = 0
    for seed in seeds:
        program = damaged(PROGRAM, seed)
        try:
            data = bundle_cases(program, {"forward": [([VECTOR, 3, True], [VECTOR])]})
        except EtscopeError:
            refused += 1
            continue
        assert bytes(read_bundled(data).program_bytes) == program
    assert 0 < refused < 400


def test_damaged_bundles(seeds: Iterator[int]) -> None:
    """What was read of them is either written again as it is, or refused."""
    good = bundle_cases(PROGRAM, {"forward": [([VECTOR, 3, True], [VECTOR])]})
    written = 0
    for seed in seeds:
        try:
            found = deserialize_from_flatbuffer_to_bundled_program(damaged(good, seed))
            data = serialize_from_bundled_program_to_flatbuffer(found)
        except EtscopeError:
            continue
        assert deserialize_from_flatbuffer_to_bundled_program(data) == found
        written += 1
    assert written > 20
