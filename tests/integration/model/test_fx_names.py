"""Names of nodes against torch.fx itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etscope.model.exported_graph import Namespace, from_target

WANTED = st.lists(
    st.one_of(
        st.sampled_from(["relu", "relu_1", "relu_01", "relu_1_1", "add", "max", "input", "torch"]),
        st.sampled_from(["inf", "_", "aten.add.Tensor", "1x", "", "a b", "_0", "__0", "x_", "é"]),
        st.from_regex(r"[a-b_]{0,3}(_[0-9]{1,2})?", fullmatch=True),
    ),
    max_size=25,
)


@given(WANTED)
def test_names_are_those_that_fx_gives(wanted: list[str]) -> None:
    fx = pytest.importorskip("torch.fx.graph")
    theirs, ours = fx._Namespace(), Namespace()
    expected = [theirs.create_name(name, None) for name in wanted]
    assert [ours.create(name) for name in wanted] == expected


def test_reserved_names_are_not_given() -> None:
    namespace = Namespace()
    namespace.reserve("x")
    assert [namespace.create("x"), namespace.create("x")] == ["x_1", "x_2"]


def test_targets_become_names_as_in_fx() -> None:
    graph = pytest.importorskip("torch.fx").Graph()
    for target in ("aten.add.Tensor", "_operator.mul", "__add__", "camelCase", "ABC", "x", "a__b"):
        assert from_target(target) == graph._target_to_str(target)
