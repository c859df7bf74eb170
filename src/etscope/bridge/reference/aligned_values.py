"""Map values of another run to the names of a graph: values of a later graph that was made from
it, or of the modules of the eager model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from etscope.bridge.eager import as_it_was
from etscope.bridge.reference.reference import ReferenceGraph, arrays_of, finished

# For an earlier node: its element, and the later node and element with the same value.
Places = Mapping[str, Sequence[tuple[int | None, str, int | None]]]


class AlignedValues:
    """Looks up values of the later graph. Its run advances as far as needed, and keeps each value
    until it is looked up.

    places: by the earlier graph's names. state: buffers of the later graph, by name; updated.
    """

    def __init__(
        self, graph: ReferenceGraph, inputs: Any, state: dict[str, torch.Tensor], places: Places
    ) -> None:
        self._places = places
        self._uses: dict[str, int] = {}
        for found in places.values():
            for _, path, _ in found:
                self._uses[path] = self._uses.get(path, 0) + 1
        self._copies = graph.own_memory is not None
        self._run: Generator[tuple[str, Any], Any, Any] = graph.run(inputs, state)
        self._known: dict[str, Any] = {}
        self._last: tuple[str, list[tuple[int | None, Any]]] = ("", [])

    def __call__(self, name: str, loop_pass: int) -> list[tuple[int | None, Any]]:
        """The values of a node of the earlier graph, as (element, array). Only the last node looked
        up can be looked up again."""
        if loop_pass or name not in self._places:
            return []
        if self._last[0] != name:
            self._last = (
                name,
                [
                    (element, value if inner is None else value[inner])
                    for element, path, inner in self._places[name]
                    if (value := self._take(path)) is not None
                ],
            )
        return self._last[1]

    def finish(self) -> None:
        """Finish the run, so that its state is complete."""
        finished(self._run)

    def _take(self, path: str) -> Any:
        while path not in self._known:
            try:
                name, value = next(self._run)
            except StopIteration:
                return None
            if name in self._uses:
                self._known[name] = self._kept(value)
        self._uses[path] -= 1
        return self._known[path] if self._uses[path] else self._known.pop(path)

    def _kept(self, value: Any) -> Any:
        arrays = arrays_of(value)
        if not self._copies:
            return arrays
        return pytree.tree_map_only(np.ndarray, lambda array: array.copy(order="K"), arrays)


# Receives the result of a module: its path, the number of the call, the tensors, flat.
KeepResult = Callable[[str, int, list[Any]], None]


def run_modules(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], keep: KeepResult
) -> None:
    """Run an eager model in evaluation mode, and pass each module's result to `keep`, as arrays
    that share the tensors' memory. The model itself is named "". Afterwards its buffers and its
    mode are as before.
    """
    calls: dict[str, int] = {}

    def hook(path: str) -> Callable[..., None]:
        def found(module: torch.nn.Module, given: Any, result: Any) -> None:
            call = calls[path] = calls.get(path, -1) + 1
            keep(path, call, [arrays_of(one) for one in pytree.tree_leaves(result)])

        return found

    handles = [part.register_forward_hook(hook(path)) for path, part in model.named_modules()]
    try:
        with torch.no_grad(), as_it_was(model):
            copied = pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, (args, kwargs))
            model(*copied[0], **copied[1])
    finally:
        for handle in handles:
            handle.remove()


def turned(values: Sequence[Any], factor: float) -> list[Any] | None:
    """Make other inputs from given ones: reverse the order of the numbers, and multiply floats by a
    factor. None if nothing changes, or for integers alone with a negative factor.
    """
    changed = []
    is_other = False
    for value in values:
        if not isinstance(value, torch.Tensor):
            changed.append(value)
            continue
        other = value.flatten().flip(0).reshape(value.shape)
        if value.is_floating_point():
            other = other * factor
        if factor > 0 or value.is_floating_point():
            is_other = is_other or not torch.equal(value, other)
        changed.append(other)
    return changed if is_other else None
