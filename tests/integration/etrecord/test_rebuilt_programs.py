"""Programs that torch.export really writes are rebuilt: whatever containers, names, sizes and
operators they have."""

from __future__ import annotations

import collections
import dataclasses
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from etscope.errors import FormatError
from etscope.etrecord import parse_etrecord
from etscope.formats.etrecord.reader import SIBLINGS, read_etrecord
from etscope.formats.torch_files.program_safety import check_program
from tests.support.artifacts import RECIPES, VARIED, artifacts
from tests.support.etrecord_files import EDGE, record_bytes

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")
pytree = torch.utils._pytree

X = torch.arange(12.0).reshape(3, 4)
# torchao's tensors in the exported graph of a model in 8da4w are not known to the check of files.
UNREAD = ("native_runs", "scale", "quantised_language_models")
RECORDED = sorted(name for name in VARIED if RECIPES[name] not in UNREAD)


@pytest.mark.parametrize("name", RECORDED)
def test_records_of_the_artefacts_are_not_refused(name: str) -> None:
    source = artifacts(name).etrecord
    assert source is not None
    record = read_etrecord(source)
    assert record.graph_names
    for graph in record.graph_names:
        siblings = [record.sibling(graph, suffix) for suffix in SIBLINGS]
        check_program(record.program_text(graph), siblings, strict=False)


def recorded(program: Any) -> bytes:
    """A record of the program."""
    from etscope.bridge.programs import serialize_program

    parts = serialize_program(program, "forward")
    siblings = (parts.state_dict, parts.constants, parts.example_inputs)
    members = {
        EDGE: parts.json,
        **{f"{EDGE}{suffix}": data for suffix, data in zip(SIBLINGS, siblings, strict=True)},
    }
    return record_bytes(**members)


def rebuilt(program: Any) -> Any:
    """The program, by way of a record's bytes."""
    return parse_etrecord(io.BytesIO(recorded(program))).edge_dialect_program


def exported(function: Callable[..., Any], *args: Any, shapes: Any = None, **kwargs: Any) -> Any:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        forward = staticmethod(function)

    return torch.export.export(Model(), args, kwargs, dynamic_shapes=shapes, strict=False)


# -- containers


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any
    nothing: Any = None


class Point(collections.namedtuple("Point", "a b")):
    __slots__ = ()


class Named:
    """Registered with a context of its own form."""

    def __init__(self, value: Any, name: str) -> None:
        self.value, self.name = value, name


@pytest.fixture
def containers() -> Iterator[None]:
    torch.export.register_dataclass(Pair, serialized_type_name="tests.Pair")
    pytree._register_namedtuple(Point, serialized_type_name="tests.Point")
    pytree.register_pytree_node(
        Named,
        lambda one: ([one.value], one.name),
        lambda values, name: Named(*values, name),
        serialized_type_name="Named",
        to_dumpable_context=lambda name: f"name={name}",
        from_dumpable_context=lambda text: text.removeprefix("name="),
        flatten_with_keys_fn=lambda one: ([(pytree.GetAttrKey("value"), one.value)], one.name),
    )
    yield
    for kind in (Pair, Point, Named):
        pytree._deregister_pytree_node(kind)


def defaults(x: Any) -> Any:
    found = collections.defaultdict(list)
    found["a"] = x + 1
    return found


def many(x: Any, target: Any, *, name: Any, expr_str: Any) -> Any:
    return {"sum": [x + target, (name, 3)], 5: None, "deeper": {"a b": expr_str * 2}}


@pytest.mark.usefixtures("containers")
@pytest.mark.parametrize(
    ("function", "kwargs"),
    [
        (lambda x: Pair(x + 1, x * 2), {}),
        (lambda x: [Pair(x, Point(x + 1, x * 2))], {}),
        (lambda x: Point(x + 1, x * 2), {}),
        (lambda x: Named(x + 1, "a [name]"), {}),
        (lambda x: collections.OrderedDict(b=x + 1, a=x * 2), {}),
        (lambda x: collections.deque([x + 1, x * 2], maxlen=7), {}),
        (defaults, {}),
        (many, {"target": X, "name": X, "expr_str": X}),
    ],
    ids=range(8),
)
def test_containers(function: Any, kwargs: dict[str, Any]) -> None:
    program = exported(function, X, **kwargs)
    found = rebuilt(program)
    assert found.call_spec.out_spec == program.call_spec.out_spec
    assert found.call_spec.in_spec == program.call_spec.in_spec
    leaves = pytree.tree_leaves(found.module()(X, **kwargs))
    wanted = pytree.tree_leaves(function(X, **kwargs))
    for one, other in zip(leaves, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_outputs_of_transformers() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")

    def function(x: Any) -> Any:
        return outputs.BaseModelOutput(last_hidden_state=x + 1, hidden_states=(x, x * 2))

    found = rebuilt(exported(function, X)).module()(X)
    assert type(found) is outputs.BaseModelOutput
    torch.testing.assert_close(found.hidden_states[1], X * 2)


def test_a_container_that_is_not_registered_is_told() -> None:
    torch.export.register_dataclass(Pair, serialized_type_name="tests.Lost")
    record = recorded(exported(lambda x: Pair(x, x), X))
    pytree._deregister_pytree_node(Pair)
    with pytest.raises(FormatError, match=r"tests\.Lost in pytree is not registered"):
        _ = parse_etrecord(io.BytesIO(record)).edge_dialect_program


# -- sizes


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.repeat(2, 1)[1:],
        lambda x: torch.cat([x, x.new_zeros(x.shape[0] * 3 + 1, 4)]),
        lambda x: x.new_zeros(x.shape[0] * x.shape[0]),
        lambda x: x.new_zeros((x.shape[0] // 2 // 2) * (x.shape[0] // 3 + 1) + 2),
        lambda x: x.new_zeros(torch.sym_max(x.shape[0], 5)),
        lambda x: x.new_zeros(x.shape[0] % 3 + 4),
        lambda x: x + (x.shape[0] * 2 - 1),
        lambda x: x.flatten(),
    ],
    ids=range(8),
)
def test_sizes_that_are_not_fixed(function: Any) -> None:
    size = torch.export.Dim("size", min=3, max=40)
    found = rebuilt(exported(function, X, shapes=({0: size},)))
    torch.testing.assert_close(found.module()(X), function(X))


# -- operators


@pytest.fixture
def own_operators() -> Iterator[None]:
    library = torch.library.Library("etscope_own", "DEF")
    library.define("twice(Tensor x, int n) -> Tensor")
    library.impl("twice", lambda x, n: x * n, "CompositeExplicitAutograd")
    library.define("named(Tensor x, str name) -> Tensor")
    library.impl("named", lambda x, name: x.clone(), "CompositeExplicitAutograd")
    yield
    library._destroy()


@pytest.mark.usefixtures("own_operators")
def test_operators_of_ones_own() -> None:
    """They are run by who registered them; with text, a file could have them do anything."""
    found = rebuilt(exported(lambda x: torch.ops.etscope_own.twice(x, 3), X))
    torch.testing.assert_close(found.module()(X), X * 3)
    program = exported(lambda x: torch.ops.etscope_own.named(x, "path"), X)
    with pytest.raises(FormatError, match=r"gets text: 'torch.ops.etscope_own.named.default'"):
        rebuilt(program)


def test_control_flow() -> None:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    found = rebuilt(exported(function, X))
    assert "cond" in found.graph_module.code
