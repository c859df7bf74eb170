"""Logits of a language model in PyTorch: of a record's graphs, and of an eager module."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.export import ExportedProgram

from etscope.analysis.generation.plan import GenerationResult, GenerationTask
from etscope.bridge.generation import generate
from etscope.bridge.reference.reference import run_outputs
from etscope.errors import MismatchError
from etscope.formats.program.pte import Program


def graph_result(
    task: GenerationTask, program: Program, graphs: Mapping[str, ExportedProgram]
) -> GenerationResult:
    """Do a generation with the graphs of a program's methods, in place of the program. Their state
    goes from call to call, and to the other methods that have buffers of the same names."""
    state: dict[str, torch.Tensor] = {}

    def execute(method: str, inputs: list[Any]) -> list[Any]:
        return run_outputs(graphs[method], inputs, state)

    return generate(task, program, execute, keep_outputs=True)


def module_logits(module: Any, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Return the logits of a module for ids [tokens]: float32 [tokens, vocabulary].

    The module takes tokens, int64 [1, tokens], as in transformers, or tokens and the position of
    the first, int64 [1]. It returns logits of all tokens, or an object with `logits`. A module that
    takes a position and returns only the last token's logits gets the tokens one by one.

    Raises `MismatchError` if the result is not logits of the tokens.
    """
    tokens = torch.from_numpy(ids)[None]
    positioned = _takes_position(module)

    def run(first: int, count: int) -> torch.Tensor:
        given = [tokens[:, first : first + count]]
        with torch.no_grad():
            found = module(*given, torch.tensor([first])) if positioned else module(*given)
        found = getattr(found, "logits", found)
        found = found[0] if isinstance(found, (tuple, list)) else found
        if not isinstance(found, torch.Tensor) or not found.is_floating_point() or found.dim() < 2:
            kind = type(found).__name__
            if isinstance(found, torch.Tensor):
                kind = f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}"
            raise MismatchError(
                f"the reference module returns {kind}, not logits: floats [1, tokens, vocabulary]"
            )
        return found.reshape(-1, found.shape[-1]).float()

    logits = run(0, len(ids))
    if positioned and len(logits) == 1 < len(ids):
        logits = torch.cat([run(position, 1) for position in range(len(ids))])
    if len(logits) != len(ids):
        raise MismatchError(
            f"the reference module returns logits of {len(logits)} of {len(ids)} tokens",
            hint="return the logits of every token",
        )
    rows: npt.NDArray[np.float32] = logits.numpy()
    return rows


def _takes_position(module: Any) -> bool:
    """Return whether a module needs a second argument."""
    try:
        parameters = inspect.signature(getattr(module, "forward", module)).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in kinds and one.default is one.empty]
    return len(needed) >= 2
