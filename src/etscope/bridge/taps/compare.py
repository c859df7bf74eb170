"""Tapped values ahead of time and at run time, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from executorch.exir import to_edge_transform_and_lower
from torch.utils import _pytree as pytree

from etscope.bridge.programs.programs import program_buffer
from etscope.bridge.taps.outputs import TapRule, TapSpec, strip_taps_, tap_intermediate_outputs_
from etscope.bridge.taps.reducers import FULL_TENSOR
from etscope.bridge.tensors import numpy_value

if TYPE_CHECKING:
    import pandas as pd


def tap_compare(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    partitioner: list[Any] | None = None,
    *,
    rules: Sequence[TapRule] | TapRule | None = None,
    error_on_empty: bool = True,
) -> tuple[pd.DataFrame, list[TapSpec]]:
    """Export a model with taps, lower it to what `partitioner` takes, run it here, and compare
    the taps with those of the exported program: see `compare_aot_runtime_dataframe`.

    rules, error_on_empty: see `tap_intermediate_outputs_`.
    """
    program = torch.export.export(model, example_inputs, strict=True)
    program, specs = tap_intermediate_outputs_(program, rules, error_on_empty=error_on_empty)
    copies = pytree.tree_map_only(torch.Tensor, torch.clone, example_inputs)
    with torch.no_grad():
        expected = pytree.tree_leaves(program.module()(*copies))
        expected = [v.clone() if isinstance(v, torch.Tensor) else v for v in expected]
    edge = to_edge_transform_and_lower(program, partitioner=partitioner or [])
    strip_taps_(edge)
    actual = _run(program_buffer(edge.to_executorch()), pytree.tree_leaves(example_inputs))
    return compare_aot_runtime_dataframe(specs, expected, actual), specs


def _run(program: bytes, inputs: Sequence[Any]) -> list[Any]:
    from executorch.runtime import Runtime, Verification

    method = (
        Runtime.get()
        .load_program(program, verification=Verification.Minimal)
        .load_method("forward")
    )
    return list(method.execute(inputs))


def compare_aot_runtime_dataframe(
    specs: Sequence[TapSpec], aot_flat: Sequence[Any], rt_flat: Sequence[Any]
) -> pd.DataFrame:
    """A row for each tap: what PyTorch computed for it (`aot_flat`, the flat outputs of the tapped
    program) beside what the runtime did (`rt_flat`).

    Columns: node_name, module_path, module_class, op_target, reducer_name, output_index; then
    "aot_<field>" and "rt_<field>" for each field of the reducer, or for whole tensors sqnr_db
    (signal is the runtime's value: 20 log10(|rt| / |rt - aot|)), aot_numel and rt_numel.
    """
    import pandas as pd

    rows = [
        _row(spec, _floats(aot_flat[spec.output_index]), _floats(rt_flat[spec.output_index]))
        for spec in specs
    ]
    frame: pd.DataFrame = pd.DataFrame(rows)
    return frame


def _row(spec: TapSpec, aot: Any, runtime: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "node_name": spec.node_name,
        "module_path": spec.module_path,
        "module_class": spec.module_class,
        "op_target": spec.op_target,
        "reducer_name": spec.reducer_name,
        "output_index": spec.output_index,
    }
    if spec.reducer_name == FULL_TENSOR.name:
        row["sqnr_db"] = _sqnr(aot, runtime)
        row["aot_numel"], row["rt_numel"] = len(aot), len(runtime)
        return row
    names = spec.fields or tuple(f"v{at}" for at in range(max(len(aot), len(runtime))))
    for at, name in enumerate(names):
        row[f"aot_{name}"] = aot[at] if at < len(aot) else float("nan")
        row[f"rt_{name}"] = runtime[at] if at < len(runtime) else float("nan")
    return row


def _sqnr(aot: Any, runtime: Any) -> float:
    """NaN where the two are not of one size: there is nothing to hold against each other."""
    if len(aot) != len(runtime) or not len(aot):
        return float("nan")
    return _decibels(np.linalg.norm(runtime), np.linalg.norm(runtime - aot))


def _decibels(signal: Any, noise: Any) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(20 * np.log10(signal / noise))


def _floats(value: Any) -> Any:
    """The numbers of an output, flat, in float64."""
    leaves = [np.asarray(numpy_value(leaf), np.float64).reshape(-1) for leaf in _leaves(value)]
    return np.concatenate(leaves) if leaves else np.empty(0)


def _leaves(value: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]
