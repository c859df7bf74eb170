"""Make the program of a calibration, as `etscope.analysis.calibration` describes it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir import to_edge_transform_and_lower
from torch import nn
from torch.export import Dim, ExportedProgram

from etscope.analysis.calibration import (
    ADDITIONS,
    CHAINS,
    COLUMNS,
    DELEGATES,
    GEMM,
    KERNELS,
    MOST_ROWS,
    PRODUCTS,
    ROWS,
    WIDTHS,
)
from etscope.backends.recipes import xnnpack_partitioners
from etscope.backends.registry.export_options import ExportOptions
from etscope.bridge.failures import innermost
from etscope.bridge.lowering.export import (
    Inputs,
    ModelMethods,
    ModuleMethod,
    methods_of,
)
from etscope.bridge.lowering.weight_quantization import WeightQuantization, quantized_copy
from etscope.errors import EtscopeError, ExportFailure
from etscope.formats.calibration import DTYPES, FLOAT16, INT8, INT8_INT4

_DELEGATE_CALL = "executorch_call_delegate"


def calibration_program(
    dtypes: Sequence[str] = DTYPES, widths: Sequence[int] = WIDTHS
) -> tuple[bytes, dict[str, str]]:
    """Return the calibration program (matrix products, additions and XNNPACK delegates), and for
    each dtype without products the reason in words.

    Raises `ExportFailure` if ExecuTorch cannot make it, or if XNNPACK does not take all of it.
    """
    programs: dict[str, ExportedProgram] = {}
    left_out: dict[str, str] = {}
    level = logging.root.level
    try:
        for dtype in dtypes:
            try:
                programs |= _products(dtype, widths)
            except EtscopeError as error:  # noqa: PERF203 - torchao is not installed, for one
                left_out[dtype] = error.message
        for group in CHAINS:
            programs |= _additions(group)
        partitioners = {  # none for portable kernels, delegates of one operator where these count
            name: []
            if name.startswith(KERNELS)
            else xnnpack_partitioners(per_op=name.startswith(DELEGATES))
            for name in programs
        }
        edge = to_edge_transform_and_lower(programs, partitioner=partitioners)
        for name in (one for one in programs if one.startswith(GEMM)):
            nodes = edge.exported_program(name).graph.nodes
            targets = [str(node.target) for node in nodes if node.op == "call_function"]
            others = [one for one in targets if _DELEGATE_CALL not in one and "getitem" not in one]
            if others:  # a device would measure portable kernels
                rest = ", ".join(others)[:300]
                raise ExportFailure(f"XNNPACK does not take all of {name}, but leaves {rest}")
        return bytes(edge.to_executorch().buffer), left_out
    except EtscopeError:
        raise
    except Exception as error:
        raise ExportFailure(
            f"ExecuTorch cannot make the calibration program: {innermost(error)}"
        ) from error
    finally:
        logging.root.setLevel(level)


class _Additions(nn.Module):  # type: ignore[misc]
    """A chain of additions. sums: return the sum of each row, which takes a product; XNNPACK has no
    slice of dynamic shapes."""

    def __init__(self, count: int, *, sums: bool) -> None:
        super().__init__()
        self.count = count
        self.sums = nn.Linear(COLUMNS, 1, bias=False) if sums else None

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        value, other = a + b, a * b
        for _ in range(self.count):
            value = value + other
        return value if self.sums is None else self.sums(value)


class _Products(nn.Module):  # type: ignore[misc]
    """Products with one matrix of weights; its rows have the length 1, so values do not grow."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False, dtype=dtype)
        weights = torch.randn(width, width, generator=torch.Generator().manual_seed(0))
        self.linear.weight.data = nn.functional.normalize(weights, dim=1).to(dtype)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        value = a + b
        for _ in range(PRODUCTS):
            value = self.linear(value)
        return value[:1, :1]


def _inputs(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    return torch.full((rows, 1), 0.5, dtype=dtype), torch.full((1, columns), 0.25, dtype=dtype)


def _products(dtype: str, widths: Sequence[int]) -> dict[str, ExportedProgram]:
    kind = torch.float16 if dtype == FLOAT16 else torch.float32
    methods = ModelMethods(
        {
            f"{GEMM}_{dtype}_{width}": ModuleMethod(
                _Products(width, kind), Inputs(_inputs(ROWS, width, kind))
            )
            for width in widths
        }
    )
    quantize = INT8 if dtype == INT8 else False
    options = ExportOptions(backend="xnnpack", quantize=quantize, strict=False)
    if dtype == INT8_INT4:
        methods = quantized_copy(methods, WeightQuantization(INT8_INT4, None, None))
    with torch.no_grad():
        return {name: one.program for name, one in methods_of(methods, None, options).items()}


def _additions(group: str) -> dict[str, ExportedProgram]:
    large = group == ADDITIONS
    shapes: Any = ({0: Dim("rows", min=1, max=MOST_ROWS)}, {}) if large else None
    inputs = _inputs(ROWS, COLUMNS) if large else _inputs(1, 1)
    return {
        f"{group}_{count}": torch.export.export(
            _Additions(count, sums=large), inputs, dynamic_shapes=shapes
        )
        for count in CHAINS[group]
    }
