"""What a tap of `etscope.intermediate_output_tap` makes of a value, in eager PyTorch and in an edge
program."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from executorch.exir.dialects._ops import ops
from torch.fx import Graph, Node

from etscope.errors import UsageError

EmitFn = Callable[[Graph, Node], Node]
EagerFn = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class StatReducer:
    """What becomes of a tapped value.

    name: what a tap is marked with until `strip_taps_`. fields: names of the elements of the
    result, which has one dimension; empty when it is the value itself. emit: puts nodes that
    compute the result of a node into an edge program, and gives the last of them. eager: the same
    in PyTorch.
    """

    name: str
    fields: tuple[str, ...]
    emit: EmitFn
    eager: EagerFn


def get_reducer(name_or_reducer: str | StatReducer) -> StatReducer:
    """The reducer of that name; a reducer is given back, and known by its name from now on.

    Raises `UsageError` for a name that nothing has, and for another reducer of a name that a
    built-in one has.
    """
    if isinstance(name_or_reducer, StatReducer):
        reducer = name_or_reducer
        if _BUILT_IN.get(reducer.name, reducer) is not reducer:
            raise UsageError(f"{reducer.name!r} is the name of a built-in reducer")
        _KNOWN[reducer.name] = reducer
        return reducer
    if name_or_reducer not in _KNOWN:
        raise UsageError(
            f"there is no reducer {name_or_reducer!r}", hint=f"there are: {', '.join(_KNOWN)}"
        )
    return _KNOWN[name_or_reducer]


# -- the value itself


def _same(_: Graph, value: Node) -> Node:
    return value


def _copy(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone()


FULL_TENSOR = StatReducer("FULL_TENSOR", (), _same, _copy)


# -- statistics

_FIELDS = (
    "min", "max", "mean", "abs_max", "abs_mean", "std", "rms", "l1_norm", "l2_norm", "nan_count",
    "inf_count", "zero_count", "p99_abs",
)  # fmt: skip


def _large_rank(numel: int) -> int:
    """p99_abs is the element of this rank among the magnitudes, the largest being of rank 1: a
    hundredth of them is at least as large."""
    return max(1, -(-numel // 100))


def _statistics(value: torch.Tensor) -> torch.Tensor:
    """The 13 statistics in float32. std is of the population, sqrt(|E[x²] - E[x]²|)."""
    x = value.detach().to(torch.float32)
    magnitudes, squares = x.abs(), x * x
    mean, mean_square = x.mean(), squares.mean()
    total_square = squares.sum()
    rank = _large_rank(x.numel())
    return torch.stack(
        [
            x.amin(),
            x.amax(),
            mean,
            magnitudes.amax(),
            magnitudes.mean(),
            (mean_square - mean * mean).abs().sqrt(),
            mean_square.sqrt(),
            magnitudes.sum(),
            total_square.sqrt(),
            x.isnan().sum(dtype=torch.float32),
            x.isinf().sum(dtype=torch.float32),
            (x == 0).sum(dtype=torch.float32),
            torch.topk(magnitudes.reshape(-1), rank).values[rank - 1],
        ]
    )


def _emit_statistics(graph: Graph, value: Node) -> Node:
    """The same with operators that have portable kernels."""
    aten = ops.edge.aten

    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        return graph.call_function(target, args, kwargs)

    def total(x: Node) -> Node:
        return call(aten.sum.dim_IntList, x, [])

    def count(mask: Node) -> Node:
        return total(call(aten._to_copy.default, mask, dtype=torch.float32))

    fake = value.meta["val"]
    rank = _large_rank(static_size(fake, value.name))
    x = value
    if fake.dtype is not torch.float32:
        x = call(aten._to_copy.default, value, dtype=torch.float32)
    magnitudes = call(aten.abs.default, x)
    squares = call(aten.mul.Tensor, x, x)
    mean, mean_square = call(aten.mean.default, x), call(aten.mean.default, squares)
    variance = call(aten.sub.Tensor, mean_square, call(aten.mul.Tensor, mean, mean))
    flat = call(aten.view_copy.default, magnitudes, [-1])
    largest = call(operator.getitem, call(aten.topk.default, flat, rank), 0)
    results = [
        call(aten.amin.default, x),
        call(aten.amax.default, x),
        mean,
        call(aten.amax.default, magnitudes),
        call(aten.mean.default, magnitudes),
        call(aten.sqrt.default, call(aten.abs.default, variance)),
        call(aten.sqrt.default, mean_square),
        total(magnitudes),
        call(aten.sqrt.default, total(squares)),
        count(call(aten.isnan.default, x)),
        count(call(aten.isinf.default, x)),
        count(call(aten.eq.Scalar, x, 0.0)),
        call(aten.select_copy.int, largest, 0, rank - 1),
    ]
    return call(aten.stack.default, results)


def static_size(value: torch.Tensor, name: str) -> int:
    """The number of elements; `UsageError` where it is not one positive number."""
    numel: Any = value.numel()
    if not isinstance(numel, int):
        raise UsageError(
            f"the statistics of {name} need a static shape, and it has {list(value.shape)}",
            hint="tap it with FULL_TENSOR",
        )
    if not numel:
        raise UsageError(f"{name} has no elements to make statistics of")
    return numel


STATS = StatReducer("STATS", _FIELDS, _emit_statistics, _statistics)

_BUILT_IN = {reducer.name: reducer for reducer in (FULL_TENSOR, STATS)}
_KNOWN = dict(_BUILT_IN)
