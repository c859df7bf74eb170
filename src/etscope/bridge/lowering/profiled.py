"""Stages of an export: what torch and ExecuTorch call while a program is made, timed one by one.

Passes are objects that `PassBase` or `ExportedProgramPassBase` calls, or functions that a manager
of passes wraps; so these are listened to, whichever manager runs them (the edge dialect's,
XNNPACK's, a quantizer's).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import torch
from executorch.exir import EdgeProgramManager, pass_manager
from executorch.exir.backend import backend_api
from executorch.exir.backend.backend_details import BackendDetails
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.pass_base import ExportedProgramPassBase
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.program import _program
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra import pass_manager as torch_passes
from torch.fx.passes.infra.pass_base import PassBase

from etscope.bridge.reference.reference import plain_tensors
from etscope.support.stages import Sizes, Stages, opened

Named = Callable[..., str]  # from the arguments of a call


def _class_name(one: Any, *_: Any) -> str:
    return type(one).__name__


def _partition(one: Any, *_: Any) -> str:
    return f"partition by {type(one).__name__}"


def _delegates(backend: str, *_: Any) -> str:
    return f"delegate calls to {backend}"


# What is a stage: the owner, its attribute, and the name of the stage.
_STAGES: tuple[tuple[Any, str, str | Named], ...] = (
    (torch.export, "export", "torch.export"),
    (ExportedProgram, "run_decompositions", "run_decompositions"),
    (_program, "_generate_edge_program", "edge dialect"),
    (EdgeProgramManager, "transform", "transform"),
    (EdgeProgramManager, "to_backend", "to_backend"),
    (Partitioner, "__call__", _partition),
    (backend_api, "lower_all_submodules_to_backend", _delegates),
    (EdgeProgramManager, "to_executorch", "to_executorch"),
    (MemoryPlanningPass, "run", _class_name),
    (MemoryPlanningPass, "run_multimethod", "memory of several methods"),
    (_program, "emit_program", "emit_program"),
    (_program, "serialize_for_executorch", "serialize_for_executorch"),
    (ExportedProgramPassBase, "__call__", _class_name),
)
_WRAPPERS = (pass_manager, torch_passes)  # modules with `pass_result_wrapper`


@contextmanager
def profiling() -> Iterator[Stages]:
    """Time the stages of the exports inside, with their peak memory."""
    stages = Stages("export")
    with ExitStack() as patches:
        passes = [(one, "__call__", _class_name) for one in _passes(PassBase)]
        for owner, attribute, name in (*_STAGES, *passes):
            timed = _timed(stages, name, getattr(owner, attribute), is_leaf=name is _class_name)
            patches.enter_context(mock.patch.object(owner, attribute, timed))
        preprocess = _preprocess(stages, patches, backend_api.lower_all_submodules_to_backend)
        patches.enter_context(
            mock.patch.object(backend_api, "lower_all_submodules_to_backend", preprocess)
        )
        for module in _WRAPPERS:
            wrapper = _function_passes(stages, module.pass_result_wrapper)
            patches.enter_context(mock.patch.object(module, "pass_result_wrapper", wrapper))
        patches.enter_context(opened(stages))
        yield stages


def _passes(base: type[Any]) -> Iterator[type[Any]]:
    """Yield the classes of passes that define `__call__`."""
    if "__call__" in vars(base):
        yield base
    below: list[type[Any]] = type.__subclasses__(base)
    for one in below:
        yield from _passes(one)


def _timed(
    stages: Stages, name: str | Named, function: Callable[..., Any], *, is_leaf: bool = False
) -> Callable[..., Any]:
    @wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        def sizes(result: Any) -> Sizes:
            # A pass of XNNPACK takes a graph, and changes the weights of its own program.
            given = [value for one in (result, *args) for value in _programs(one)]
            weights = (found for one in given if (found := _weights(one)) is not None)
            return _nodes(given[0]) if given else None, next(weights, None)

        label = name if isinstance(name, str) else name(*args)
        return stages.run(label, lambda: function(*args, **kwargs), sizes, is_leaf=is_leaf)

    return timed


def _function_passes(stages: Stages, wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Return `pass_result_wrapper` for passes that are functions; passes that are objects are timed
    when they are called."""

    def wrapped(function: Any) -> Any:
        if inspect.isfunction(function) and not hasattr(function, "__wrapped__"):
            function = _timed(stages, function.__name__, function, is_leaf=True)
        return wrapper(function)

    return wrapped


def _preprocess(
    stages: Stages, patches: ExitStack, lower: Callable[..., Any]
) -> Callable[..., Any]:
    """Time each call of a backend's `preprocess`; its class is known when it lowers something."""
    seen: dict[str, int] = {}

    def number(backend: str) -> Named:
        def named(*_: Any) -> str:
            seen[backend] = seen.get(backend, -1) + 1
            return f"{backend}.preprocess {seen[backend]}"

        return named

    def lowering(backend: str, *args: Any) -> Any:
        for one in BackendDetails.__subclasses__():
            if one.__name__ == backend and backend not in seen:
                timed = _timed(stages, number(backend), one.preprocess)
                patches.enter_context(mock.patch.object(one, "preprocess", staticmethod(timed)))
                seen[backend] = -1
        return lower(backend, *args)

    return lowering


Programs = list[ExportedProgram] | list[GraphModule]  # of each method


def _programs(value: Any) -> Iterator[Programs]:
    """Yield the programs that an argument or a result of a stage is or has."""
    if isinstance(value, EdgeProgramManager):
        value = {name: value.exported_program(name) for name in value.methods}
    if isinstance(value, dict):  # a check for Mapping takes longer than some passes
        values = list(value.values())
        if values and all(isinstance(one, ExportedProgram) for one in values):
            yield values
        return
    if not isinstance(value, (ExportedProgram, GraphModule)):
        program = getattr(value, "exported_program", None)
        value = program or getattr(value, "graph_module", None)
    if isinstance(value, (ExportedProgram, GraphModule)):
        yield [value]


def _nodes(programs: Programs) -> int:
    """Count the nodes of programs, also in branches and loops."""
    whole = [one if isinstance(one, GraphModule) else one.graph_module for one in programs]
    modules = (module for one in whole for module in one.modules())
    return sum(len(one.graph.nodes) for one in modules if isinstance(one, GraphModule))


def _weights(programs: Programs) -> int | None:
    """Count the bytes of weights and constants; None for a graph if its program has them."""
    found: dict[int, torch.Tensor] = {}
    for program in programs:
        if isinstance(program, ExportedProgram):
            held = [*program.state_dict.values(), *program.constants.values()]
        else:
            held = [*program.parameters(), *program.buffers()]
        if not held and isinstance(program, GraphModule):
            return None
        tensors = (one for one in held if isinstance(one, torch.Tensor))
        found |= {id(part): part for one in tensors for part in plain_tensors(one)}
    return sum(int(one.nbytes) for one in found.values())
