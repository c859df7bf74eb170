"""How values inside of delegates become the reference's, or why they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etscope.analysis.matching.delegate_values import LoggedHandles
from etscope.backends.common.logged import Codes, Form, InnerCall, InnerValue, as_half, is_half
from etscope.backends.registry.decoders import value_forms
from etscope.model.graph import Graph, Node, TensorSpec, Value

QNN, COREML = "QnnBackend", "CoreMLBackend"
BYTES = Codes(0.5, 3, 0, 255)


def node(name: str, op: str, shape: tuple[int, ...], *reads: str, **arguments: str) -> Node:
    outputs = (Value(name, TensorSpec("float32", shape)),)
    return Node(
        name, "call_function", op, op, tuple(reads), tuple(arguments.items()), outputs=outputs
    )


def graph(*nodes: Node) -> Graph:
    return Graph("g", nodes)


def value(
    name: str,
    logged: tuple[str, tuple[int, ...]],
    spec: tuple[str, tuple[int, ...]],
    codes: Codes | None = None,
) -> InnerValue:
    return InnerValue(name, *logged, name, TensorSpec(*spec), codes)


def forms(backend: str, nodes: Graph, *values: InnerValue) -> list[Form | str]:
    return list(value_forms(backend, InnerCall(nodes, list(nodes.calls), values)))


CUBE = (1, 8, 8, 8)
FLOAT = "float32"
CONV = node("conv", "aten.convolution.default", CUBE)
CUBE_OF_CONV = value("conv", (FLOAT, CUBE), (FLOAT, CUBE))


def test_a_cube_is_permuted_by_the_rule_of_qnns_pass() -> None:
    """Shapes do not tell: convolutions and what is connected with them have the channels last."""
    nodes = graph(
        CONV,
        node("relu", "aten.relu.default", CUBE, "conv"),
        node("view", "aten.view_copy.default", CUBE, "relu"),
        node("exp", "aten.exp.default", CUBE, "view"),
    )
    found = forms(QNN, nodes, *(value(n, (FLOAT, CUBE), (FLOAT, CUBE)) for n in nodes.calls))
    orders = [one.order if isinstance(one, Form) else one for one in found]
    assert orders == [(0, 3, 1, 2), (0, 3, 1, 2), None, None]
    array = np.arange(512, dtype=np.float32).reshape(CUBE)
    assert isinstance(found[0], Form)
    np.testing.assert_array_equal(found[0].of(array.transpose(0, 2, 3, 1)), array)


@pytest.mark.parametrize(("logged", "order"), [((1, 4, 4, 8), (0, 3, 1, 2)), ((1, 8, 4, 4), None)])
def test_other_values_of_the_call_decide_for_a_cube(
    logged: tuple[int, ...], order: tuple[int, ...] | None
) -> None:
    nodes = graph(CONV, node("next", "aten.convolution.default", (1, 8, 4, 4), "conv"))
    following = value("next", (FLOAT, logged), (FLOAT, (1, 8, 4, 4)))
    found = forms(QNN, nodes, CUBE_OF_CONV, following)
    assert [one.order for one in found if isinstance(one, Form)] == [order, order]


def test_values_that_contradict_each_other_leave_a_cube_out() -> None:
    shape = (1, 8, 4, 4)
    one = node("one", "aten.convolution.default", shape, "conv")
    nodes = graph(CONV, one, node("other", "aten.relu.default", shape, "one"))
    last = value("one", (FLOAT, (1, 4, 4, 8)), (FLOAT, shape))
    other = value("other", (FLOAT, shape), (FLOAT, shape))
    found = forms(QNN, nodes, CUBE_OF_CONV, last, other)
    assert isinstance(found[0], str) and "contradict" in found[0]


def test_a_reduction_without_its_dimensions_has_no_order() -> None:
    for keepdim, order in (("True", (0, 2, 1)), ("False", None)):
        mean = node("mean", "aten.mean.dim", (4, 4, 4), "conv", dim="[1]", keepdim=keepdim)
        logged = value("mean", (FLOAT, (4, 4, 4)), (FLOAT, (4, 4, 4)))
        (found,) = forms(QNN, graph(CONV, mean), logged)
        assert isinstance(found, Form) and found.order == order


def test_codes_become_numbers() -> None:
    nodes = graph(node("conv", "aten.convolution.default", (1, 2, 3, 4)))
    logged = value("conv", ("uint8", (1, 3, 4, 2)), (FLOAT, (1, 2, 3, 4)), BYTES)
    (form,) = forms(QNN, nodes, logged)
    assert isinstance(form, Form)
    codes = np.arange(24, dtype=np.uint8).reshape(1, 3, 4, 2)
    expected = (codes.astype(np.float32) - 3) * 0.5
    np.testing.assert_array_equal(form.of(codes), expected.transpose(0, 3, 1, 2))
    logged = value("conv", (FLOAT, (1, 3, 4, 2)), (FLOAT, (1, 2, 3, 4)))
    (found,) = forms("SomeBackend", nodes, logged)  # no order is guessed for others
    assert isinstance(found, str)


@pytest.mark.parametrize(
    ("logged", "expected", "codes", "reason"),
    [
        ("uint8", FLOAT, None, "cannot name"),
        ("uint8", "int64", None, "cannot name"),
        ("uint8", FLOAT, Codes(0.1, 0, 0, 65535), "cannot name"),
        ("int8", FLOAT, None, "does not have the scale"),
        ("int8", FLOAT, BYTES, "quantizes add to uint8"),
        (FLOAT, "int64", None, "but int64 in the reference"),
        ("quint4x2", FLOAT, BYTES, "but float32 in the reference"),
    ],
)
def test_types_that_qnn_does_not_tell(
    logged: str, expected: str, codes: Codes | None, reason: str
) -> None:
    nodes = graph(node("add", "aten.add.Tensor", (2, 3)))
    (found,) = forms(QNN, nodes, value("add", (logged, (2, 3)), (expected, (2, 3)), codes))
    assert isinstance(found, str) and reason in found


def test_dimensions_of_one_and_int32_of_core_ml() -> None:
    nodes = graph(node("argmax", "aten.argmax.default", (1, 8)))
    (form,) = forms(COREML, nodes, value("argmax", ("int32", (8,)), ("int64", (1, 8))))
    assert isinstance(form, Form)
    brought = form.of(np.arange(8, dtype=np.int32))
    assert (brought.shape, brought.dtype.name) == ((1, 8), "int64")


SHAPES = st.lists(st.integers(0, 5), max_size=5).map(tuple)
LOGGED = ["uint8", "int8", "uint16", "int32", "float32", "float16", "quint4x2", "bits16"]


@settings(max_examples=200, deadline=None)
@given(
    *(SHAPES, SHAPES, st.sampled_from(LOGGED)),
    st.sampled_from(["float32", "float16", "bfloat16", "int64", "bool"]),
    st.sampled_from([None, BYTES, Codes(1e-3, 0, -128, 127), Codes(1e-4, 9, 0, 65535)]),
    st.sampled_from([QNN, COREML, None]),
)
def test_any_value_has_a_form_that_fits_or_a_reason(
    logged: tuple[int, ...],
    expected: tuple[int, ...],
    dtype: str,
    wanted: str,
    codes: Codes | None,
    backend: str | None,
) -> None:
    nodes = graph(node("conv", "aten.convolution.default", expected))
    call = InnerCall(nodes, ["conv"], [value("conv", (dtype, logged), (wanted, expected), codes)])
    (found,) = value_forms(backend, call)
    if isinstance(found, Form):
        brought = found.of(np.ones(logged, dtype))
        assert brought.shape == expected and brought.dtype.name == wanted
    else:
        assert found


def test_another_shape_is_never_reshaped() -> None:
    nodes = graph(node("add", "aten.add.Tensor", (2, 3)))
    for shape in ((3, 2), (6,), (2, 4), (), (2, 3, 2)):
        for backend in (QNN, COREML, "SomeBackend"):
            (found,) = forms(backend, nodes, value("add", (FLOAT, shape), (FLOAT, (2, 3))))
            assert isinstance(found, str) and "in the reference" in found


# -- Core ML's map


@pytest.mark.parametrize(
    ("handles", "logged", "expected"),
    [
        # Each node became one operator.
        ({"a": [1], "b": [2]}, ["a", "b"], {"a": [1], "b": [2]}),
        # A node became several, of which the last is logged.
        ({"c": [1], "a": [1]}, ["a"], {"a": [1]}),
        # Two nodes became one operator, and the second another one, too.
        ({"a": [5, 6], "b": [6]}, ["a", "b"], {"a": [5], "b": [6]}),
        # Two nodes became the same two operators.
        ({"a": [5, 6], "b": [5, 6]}, ["b"], {"b": [5, 6]}),
    ],
)
def test_the_nodes_of_core_mls_operators(
    handles: dict[str, list[int]], logged: list[str], expected: dict[str, list[int]]
) -> None:
    for name in logged:
        certain, possible = LoggedHandles(handles, logged).of(name)
        assert (sorted(certain), possible) == (expected[name], [])
    # The last operator of 6 has a type that is not logged: it may be the inner part of the node.
    assert LoggedHandles({"a": [5, 6], "b": [6]}, ["a"]).of("a") == ([5], [6])


def test_float16_shows_in_the_numbers() -> None:
    random = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    assert is_half(random.astype(np.float16).astype(np.float32)) and not is_half(random)
    assert as_half(np.float32([1e5])) is None
    kept = as_half(np.float32([np.inf, np.nan, 1]))
    assert kept is not None and kept.dtype == np.float16
