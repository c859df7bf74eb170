"""Passes before the lowering: they keep the outputs, and find what they are for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etscope.backends.registry import export_options
from etscope.bridge.lowering.passes import EDGE_PASSES, KEEP_LINEAR, PASSES, REINPLACE, rewritten
from etscope.errors import ExportFailure, UsageError
from etscope.export import export

attend = torch.nn.functional.scaled_dot_product_attention


class Attention(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        return attend(query, key, value, mask, **self.options)


def values(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    made = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, generator=made) for shape in shapes)


def masks() -> dict[str, Any]:
    """Masks of five rows, one without any key, by name."""
    drawn = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(1)) > 0.5
    drawn[0, 0, 2] = False
    infinite = torch.zeros(5, 7).masked_fill(drawn[1, 0], -torch.inf)
    infinite[3] = -torch.inf
    least = torch.zeros(5, 7).masked_fill(drawn[1, 0], torch.finfo(torch.float32).min)
    return {"bool": drawn, "-inf": infinite, "finfo.min": least}


QKV = ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6))
CASES = [
    ("plain", {}, QKV, None),
    ("scale", {"scale": 0.3}, QKV, None),
    ("three dimensions", {}, ((4, 5, 8), (4, 7, 8), (4, 7, 6)), None),
    ("causal", {"is_causal": True}, QKV, None),
    ("grouped", {"enable_gqa": True}, (QKV[0], (2, 2, 7, 8), (2, 2, 7, 6)), None),
    *((f"mask {name}", {}, QKV, name) for name in ("bool", "-inf", "finfo.min")),
]


@pytest.mark.parametrize(
    ("options", "shapes", "mask"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_attention_keeps_its_values(options: Any, shapes: Any, mask: str | None) -> None:
    inputs = (*values(*shapes), *(() if mask is None else (masks()[mask],)))
    model = Attention(**options)
    before = torch.export.export(model, inputs, strict=True)
    after = rewritten({"forward": before}, ["fuse_sdpa"])["forward"]
    operators = [str(node.target) for node in after.graph.nodes if node.op == "call_function"]
    products = after.graph.find_nodes(op="call_function", target=torch.ops.aten.bmm.default)
    assert len(products) == 2
    assert all("return attend(" in product.meta["stack_trace"] for product in products)
    assert "aten.scaled_dot_product_attention.default" not in operators
    assert not {"aten.eq.Scalar", "aten.any.dim", "aten.where.self"} & set(operators)
    torch.testing.assert_close(after.module()(*inputs), model(*inputs))
    if options.get("is_causal"):  # its mask is in the program
        assert not [name for name in operators if "tril" in name or "ones" in name]
    # The program that was given is as it was.
    assert "scaled_dot_product_attention" in str(before.graph)


def test_attention_of_a_dynamic_length() -> None:
    length = torch.export.Dim("length", min=2, max=64)
    shapes = ({2: length}, {}, {}, {2: length})
    inputs = (*values(*QKV), masks()["bool"])
    program = torch.export.export(Attention(), inputs, dynamic_shapes=shapes)
    after = rewritten({"forward": program}, ["fuse_sdpa"])["forward"]
    longer = (*values((2, 4, 9, 8), *QKV[1:]), torch.ones(2, 1, 9, 7, dtype=torch.bool))
    torch.testing.assert_close(after.module()(*longer), Attention()(*longer))


class Positions(torch.nn.Module):
    """Adds a table that it computes each time from a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.angles = torch.nn.Parameter(torch.linspace(0, 1, 8))

    def forward(self, x: Any) -> Any:
        table = torch.zeros(4, 8)
        table.add_(self.angles)  # a change in place, of what is folded
        return x + torch.sin(table).exp()


class Prepared(torch.nn.Module):
    """Multiplies by a parameter that each call lays out anew."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0, 1, 32).view(4, 8))

    def forward(self, x: Any) -> Any:
        return x @ self.weight.t()


@pytest.mark.parametrize(
    ("model", "x", "left"),
    [
        (Positions(), torch.ones(4, 8), "add.Tensor"),
        (Prepared(), torch.ones(2, 8), "matmul.default"),
    ],
)
def test_constants_are_folded(model: Any, x: Any, left: str) -> None:
    """Of buffers, of what is changed in place, and of parameters that need gradients."""
    done = export(model, x, backend="xnnpack", passes=["fold_constants"])
    program = done.record.exported_program
    operators = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert operators == [f"aten.{left}"]
    torch.testing.assert_close(program.module()(x), model(x))


class Loop(torch.nn.Module):
    """A loop of a kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 8) for _ in range(6))
        self.convolution = torch.nn.Conv2d(24, 12, 3, groups=6)

    def forward(self, x: Any) -> Any:  # [1, 10, 24]
        match self.kind:
            case "weights":
                return torch.cat([one(x[..., 4 * i : 4 * i + 4]) for i, one in self.each], -1)
            case "numbers":
                return torch.cat([x[:, i : i + 1] * (i + 1) - 0.5 * i for i in range(10)], -2)
            case "heads":
                y = x.view(10, 6, 4).transpose(0, 1)
                return torch.stack([torch.softmax(y[i] @ y[i].T, -1) for i in range(6)], 1)
            case "groups":
                y, parts = x.view(1, 24, 5, 2).repeat(1, 1, 1, 2), self.convolution.weight
                each = (y[:, 4 * i : 4 * i + 4] for i in range(6))
                convolved = (torch.conv2d(y, parts[2 * i : 2 * i + 2]) for i, y in enumerate(each))
                return torch.cat(list(convolved), 1)
            case "state":
                states = [x[:, 0]]
                for i in range(1, 6):
                    states.append(torch.tanh(states[-1] + x[:, i]))
                return torch.stack(states, 1)
            case "gaps":
                return torch.cat([x[:, 2 * i : 2 * i + 1].exp() for i in range(5)], 1)
            case _:
                return torch.cat([x[:, : i + 1].sum(1, keepdim=True) for i in range(5)], 1)

    @property
    def each(self) -> Any:
        return enumerate(self.layers)


@pytest.mark.parametrize("kind", ["weights", "numbers", "heads", "groups"])
def test_the_steps_of_a_loop_are_computed_at_once(kind: str) -> None:
    model, x = Loop(kind).eval(), torch.randn(1, 10, 24)
    before = torch.export.export(model, (x,))
    after = rewritten({"forward": before}, ["batch_loops"])["forward"]
    assert len(after.graph.nodes) < len(before.graph.nodes)
    assert not any(str(node.target) == "aten.cat.default" for node in after.graph.nodes)
    torch.testing.assert_close(after.module()(x), model(x))


@pytest.mark.parametrize("kind", ["state", "gaps", "others"])
def test_a_loop_whose_steps_differ_stays(kind: str) -> None:
    before = torch.export.export(Loop(kind).eval(), (torch.randn(1, 10, 24),))
    with pytest.raises(ExportFailure, match="batch_loops finds nothing to change"):
        rewritten({"forward": before}, ["batch_loops"])


def test_a_pass_that_finds_nothing_says_so() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    for name in ("fuse_sdpa", "fold_constants"):
        with pytest.raises(ExportFailure, match=f"{name} finds nothing to change"):
            rewritten({"forward": program}, [name])


def test_an_unknown_pass() -> None:
    of_model = ("to_float32", "channels_last")
    assert (*of_model, *PASSES, *EDGE_PASSES, KEEP_LINEAR, REINPLACE) == export_options.PASSES
    with pytest.raises(UsageError, match="unknown pass 'fuse'"):
        export(torch.nn.ReLU(), torch.ones(2), passes=["fuse"])
