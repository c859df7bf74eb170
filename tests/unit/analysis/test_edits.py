"""Patches keep the meaning of a line, whatever its arguments are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etscope.analysis.insights import edits
from etscope.analysis.insights.edits import in_call
from etscope.model.graph import Node

NODE = Node("n", "call_function", "aten.add.Tensor", "aten.add.Tensor")


PADDED = "torch.nn.functional.pad((a + b), (1, 1, 1, 1))"


@pytest.mark.parametrize(
    ("make", "line", "changed"),
    [
        (edits._without_alpha, "torch.add(a, b + c, alpha=-k)", "(a + (-k) * (b + c))"),
        (
            edits._softmax,
            "F.softmax(a * b, 1)",
            "torch.softmax((a * b).transpose(1, -1), -1).transpose(1, -1)",
        ),
        (
            edits._rolled,
            "torch.roll(a + b, 1, 0)",
            "torch.cat([(rolled_0 := (a + b))[-1:], rolled_0[:-1]], 0)",
        ),
        (
            edits._padded_before,
            "F.avg_pool2d(a + b, 3, 2, 1)",
            f"torch.nn.functional.avg_pool2d({PADDED}, 3, 2)",
        ),
        (edits._padded_before, "F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", None),
        (edits._padded_before, "F.avg_pool2d(x, 3, 2, 1, True)", None),
        (edits._padded_before, "F.avg_pool2d(x, 3)", None),
    ],
)
def test_a_patch_has_whole_arguments(
    make: Callable[..., str | None], line: str, changed: str | None
) -> None:
    names = ("add", "softmax", "roll", "avg_pool2d")
    expected = None if changed is None else f"y = {changed}"
    assert edits._changed(f"y = {line}", in_call(make, *names)(NODE)) == expected


def written(op: str, text: str, line: int = 1, **arguments: str) -> Node:
    trace = f'  File "/m/model.py", line {line}, in forward\n    {text}\n'
    given = tuple(arguments.items())
    return Node(f"{op}_{line}", "call_function", op, op, arguments=given, stack_trace=trace)


def new_lines(patch: str) -> list[str]:
    return [line[2:] for line in patch.splitlines() if line.startswith("+")]


ERF = "0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))"
TANH = "torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))"


@pytest.mark.parametrize(
    ("change", "line", "changed"),
    [
        (edits.gelu, f"return {ERF}", "return torch.nn.functional.gelu(x)"),
        (edits.gelu, f"y = {ERF} * 2.0", "y = torch.nn.functional.gelu(x) * 2.0"),
        (edits.gelu, f"y = f({ERF[6:]})", None),  # twice a GELU
        (edits.gelu, ERF, None),  # a line of a longer statement
        (edits.hardswish, "y = x * F.relu6(x + 3) / 6", "y = torch.nn.functional.hardswish(x)"),
        (edits.hardswish, "y = x * torch.clamp(x + 3, min=0, max=6)", None),
        (edits.hardswish, "y = x * 9 ** 9 ** 9 ** 9", None),
        (edits.hardswish, f"y = {'-' * 5000}x", None),
    ],
)
def test_a_function_is_called_where_an_expression_has_its_values(
    change: Callable[..., str], line: str, changed: str | None
) -> None:
    assert new_lines(change([written("mul", line)])) == ([changed] if changed else [])


def test_a_function_that_is_computed_on_two_lines() -> None:
    nodes = [written("tanh", f"t = {TANH}"), written("mul", "y = f(0.5 * x * (1 + t))", 2)]
    changed = 'y = f(torch.nn.functional.gelu(x, approximate="tanh"))'
    assert new_lines(edits.gelu(nodes)) == [changed]


@pytest.mark.parametrize(
    ("raised", "divided", "changed"),
    [
        (
            "e = torch.exp(x)",
            "y = e / e.sum(1, keepdim=True)",
            ["e = torch.softmax(x, 1)", "y = e"],
        ),
        (
            "e = (x - x.max(1, keepdim=True).values).exp()",
            "return torch.bmm(e / e.sum(1, keepdim=True), v)",
            ["e = torch.softmax(x, 1)", "return torch.bmm(e, v)"],
        ),
        ("e = f(torch.exp(x))", "y = e / e.sum(1, keepdim=True)", []),
        (
            "e = torch.exp(x - x.amax(0, keepdim=True))",  # of another dimension
            "y = e / e.sum(1, keepdim=True)",
            ["e = torch.softmax((x - x.amax(0, keepdim=True)), 1)", "y = e"],
        ),
        ("e = e.mul(2)", "y = e / e.sum(1, keepdim=True)", []),
        ("z = 1", "y = x.exp() / x.exp().sum(1, keepdim=True)", ["y = torch.softmax(x, 1)"]),
    ],
)
def test_a_softmax_by_hand(raised: str, divided: str, changed: list[str]) -> None:
    nodes = [written("sum", divided, 2, dim="[1]"), written("exp", raised)]
    assert new_lines(edits.softmax(nodes)) == changed


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("self.keys[:, at] = self.key(x)", ["self.keys.index_copy_(1, at, self.key(x))"]),
        ("self.keys[at] = x", ["self.keys.index_copy_(0, at, x)"]),
        ("self.keys[:, at] = self.key(", []),  # the statement goes on
    ],
)
def test_rows_are_written_by_whole_statements(line: str, new: list[str]) -> None:
    assert new_lines(edits.in_place([written("index_put", line)])) == new


def test_a_line_that_runs_with_several_shapes_has_no_patch() -> None:
    line = "y = x.sum(0)"
    nodes = [written("sum", line, dim="[0]"), written("sum", line, dim="[1]")]
    change = in_call(
        lambda node, call: f"sum_{dict(node.arguments)['dim'][1]}({call.values[0]})", "sum"
    )
    assert new_lines(edits.patch(nodes[:1], change)) == ["y = sum_0(x)"]
    assert not edits.patch(nodes, change)
    both = written("sum", "y = x.sum(0) + sizes.sum(0)", dim="[0]")  # one is of no node
    assert not edits.patch([both], change)
