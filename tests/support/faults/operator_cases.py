"""Operators on the runtime beside PyTorch, with arguments and numbers at the edges.

Which operators does a backend compute by another definition? Cases of one kind of input share a
program with one output each, so a night tries some thousand. `differences` names the operators that
differ; the table of `etscope.analysis.faults.operators` must have them, and no others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch import nn
from torch.export import export
from torch.nn import functional
from torch.utils import _pytree as pytree

from etscope.analysis.matching.export import Export
from tests.support.faults.upstream_exports import upstream_export

Case = Callable[..., Any]

NAN, INF = float("nan"), float("inf")
FINITE = torch.tensor([[-3.5, -2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 3.5, 1e-30, 88.0]])
EDGES = torch.tensor([[NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-40, 2.5, -2.5]])
WHOLE = torch.arange(-6, 6).reshape(1, 12)
IMAGE = torch.linspace(-2, 3, 3 * 13 * 11).reshape(1, 3, 13, 11).sin()

UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf",
    "exp", "expm1", "floor", "isinf", "isnan", "log", "log10", "log1p", "log2", "neg",
    "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc", "logical_not", "square",
)  # fmt: skip
ACTIVATIONS = (
    "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu6",
    "selu", "silu", "softplus",
)  # fmt: skip


def _of(function: Callable[..., Any], **arguments: Any) -> Case:
    return lambda x: function(x, **arguments)


def _with(function: Callable[..., Any], other: Any) -> Case:
    return lambda x: function(x, other)


def numbers(x: torch.Tensor) -> dict[str, Case]:
    """Cases of one value."""
    found: dict[str, Case] = {name: getattr(torch, name) for name in UNARY}
    found |= {name: getattr(functional, name) for name in ACTIVATIONS}
    for other in (2.0, -3.0, 0.5):
        for name in ("remainder", "fmod", "pow", "maximum", "minimum", "atan2"):
            value: Any = (
                other if name in ("remainder", "fmod", "pow") else torch.full_like(x, other)
            )
            found[f"{name} {other}"] = _with(getattr(torch, name), value)
        for mode in (None, "floor", "trunc"):
            found[f"div {mode} {other}"] = _of(torch.div, other=other, rounding_mode=mode)
        found[f"add {other}"] = lambda x, a=other: torch.add(x, x, alpha=a)
        found[f"sub {other}"] = lambda x, a=other: torch.sub(x, x * x, alpha=a)
    found |= {f"gelu {kind}": _of(functional.gelu, approximate=kind) for kind in ("none", "tanh")}
    found |= {f"elu {a}": _of(functional.elu, alpha=a) for a in (0.5, 2.0)}
    found |= {f"leaky {a}": _of(functional.leaky_relu, negative_slope=a) for a in (-0.2, 0.0)}
    found["clamp crossed"] = _of(torch.clamp, min=0.5, max=-0.5)
    found["softplus threshold"] = _of(functional.softplus, beta=2, threshold=1)
    found["hardtanh"] = _of(functional.hardtanh, min_val=-0.3, max_val=0.2)
    for keep, dim in itertools.product((True, False), (0, -1)):
        for name in ("sum", "mean", "amax", "amin", "prod", "any", "argmax", "cumsum"):
            arguments = {"dim": dim} | ({} if name == "cumsum" else {"keepdim": keep})
            found[f"{name} {dim} {keep}"] = _of(getattr(torch, name), **arguments)
        found[f"softmax {dim}"] = _of(torch.softmax, dim=dim)
        found[f"log_softmax {dim}"] = _of(torch.log_softmax, dim=dim)
        found[f"var {dim} {keep}"] = _of(torch.var, dim=dim, correction=0, keepdim=keep)
    return found


def whole(x: torch.Tensor) -> dict[str, Case]:
    """Cases of whole numbers."""
    found: dict[str, Case] = {name: getattr(torch, name) for name in ("abs", "neg", "sign")}
    for other in (3, -3):
        found[f"remainder {other}"] = _of(torch.remainder, other=other)
        found[f"remainder tensor {other}"] = _of(torch.remainder, other=torch.full_like(x, other))
        found[f"fmod {other}"] = _of(torch.fmod, other=other)
        found[f"floor_divide {other}"] = _of(torch.floor_divide, other=other)
        found[f"mul {other}"] = _of(torch.mul, other=other)
        for mode in ("floor", "trunc"):
            found[f"div {mode} {other}"] = _of(torch.div, other=other, rounding_mode=mode)
    found |= {f"{name}": _of(getattr(torch, name), dim=-1) for name in ("sum", "amax", "cumsum")}
    return found


def images(x: torch.Tensor) -> dict[str, Case]:
    """Cases of an image."""
    found: dict[str, Case] = {}
    for factor, corners in itertools.product((0.5, 1.3, 1.7, 2, 3), (True, False)):
        found[f"bilinear {factor} {corners}"] = _of(
            functional.interpolate, scale_factor=factor, mode="bilinear", align_corners=corners
        )
    for factor in (0.5, 1.7, 2):
        found[f"nearest {factor}"] = _of(functional.interpolate, scale_factor=factor)
    found["bilinear size"] = _of(functional.interpolate, size=(20, 30), mode="bilinear")
    found["bilinear recomputed"] = _of(
        functional.interpolate, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True
    )
    for ceil, pad, count in itertools.product((True, False), (0, 1), (True, False)):
        found[f"avg {ceil} {pad} {count}"] = _of(
            functional.avg_pool2d, kernel_size=3, stride=2, padding=pad, ceil_mode=ceil,
            count_include_pad=count,
        )  # fmt: skip
    for ceil, pad, dilation in itertools.product((True, False), (0, 1), (1, 2)):
        found[f"max {ceil} {pad} {dilation}"] = _of(
            functional.max_pool2d, kernel_size=3, stride=2, padding=pad, dilation=dilation,
            ceil_mode=ceil,
        )  # fmt: skip
    for mode in ("constant", "reflect", "replicate", "circular"):
        found[f"pad {mode}"] = _of(functional.pad, pad=(1, 2, 2, 1), mode=mode)
    found["adaptive"] = _of(functional.adaptive_avg_pool2d, output_size=(5, 4))
    found["group_norm"] = _of(functional.group_norm, num_groups=3, eps=0.1)
    found["layer_norm"] = _of(functional.layer_norm, normalized_shape=(11,), eps=0.1)
    found["normalize"] = _of(functional.normalize, dim=1)
    found["flip"] = _of(torch.flip, dims=(-1,))
    found["roll"] = _of(torch.roll, shifts=3, dims=-1)
    return found


KINDS: Mapping[str, tuple[torch.Tensor, Callable[[torch.Tensor], dict[str, Case]]]] = {
    "finite": (FINITE, numbers),
    "edges": (EDGES, numbers),
    "half": (FINITE.half(), numbers),
    "int32": (WHOLE.int(), whole),
    "int64": (WHOLE, whole),
    "image": (IMAGE, images),
}
# Parts of the largest number of a result by which kernels may differ: some roundings.
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 4e-6, torch.float64: 4e-15}


class Cases(nn.Module):
    """A model with one output for each case."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        return tuple(pytree.tree_leaves([case(*inputs) for case in self.cases]))


def tried(
    inputs: tuple[torch.Tensor, ...],
    cases: Mapping[str, Case],
    *,
    xnnpack: bool,
    roundings: float = 1,
    ran: Callable[[list[str]], Any] = list,
) -> Iterator[tuple[str, Export, bool]]:
    """Run each case. Yields its name, the export of its own program, and whether the runtime's
    results differ: of cases that differ, and of those that share no program with others. A case
    that cannot be exported or run is left out. ran: called with the names of cases that ran.
    roundings: times `TOLERANCE` that may differ."""
    for names, (data, made) in _exportable(inputs, list(cases), cases, xnnpack=xnnpack):
        program = _load_for_executorch_from_buffer(data)  # does not own its bytes
        try:
            given = iter(program.forward(inputs))
        except RuntimeError:
            if len(names) > 1:
                for name in names:
                    one = {name: cases[name]}
                    yield from tried(inputs, one, xnnpack=xnnpack, roundings=roundings, ran=ran)
            continue
        ran(names)
        for name in names:
            wanted = pytree.tree_leaves(cases[name](*inputs))
            is_other = sum(differs(want, next(given), roundings) for want in wanted) > 0
            if len(names) == 1:
                yield name, made, is_other
            elif is_other:
                yield name, _lowered(Cases([cases[name]]), inputs, xnnpack=xnnpack)[1], True


def _exportable(
    inputs: tuple[torch.Tensor, ...],
    names: list[str],
    cases: Mapping[str, Case],
    *,
    xnnpack: bool,
) -> Iterator[tuple[list[str], tuple[bytes, Export]]]:
    """Yield the names in groups that can be exported, with their program and export; halves are
    tried where a group cannot."""
    try:
        made = _lowered(Cases([cases[name] for name in names]), inputs, xnnpack=xnnpack)
    except Exception:
        if len(names) > 1:
            middle = len(names) // 2
            for half in (names[:middle], names[middle:]):
                yield from _exportable(inputs, half, cases, xnnpack=xnnpack)
        return
    yield names, made


def _lowered(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], *, xnnpack: bool
) -> tuple[bytes, Export]:
    return upstream_export(export(model.eval(), inputs), xnnpack=xnnpack)


def differs(want: torch.Tensor, got: torch.Tensor, roundings: float = 1) -> bool:
    """Return True if a result is another than PyTorch's by more than rounding."""
    if want.shape != got.shape:
        return True
    one, other = want.double(), got.double()
    finite = one[one.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    limit = roundings * TOLERANCE.get(want.dtype, 0.0) * max(scale, 1e-30)
    same = (one == other) | (one.isnan() & other.isnan()) | ((one - other).abs() <= limit)
    return not bool(same.all())
