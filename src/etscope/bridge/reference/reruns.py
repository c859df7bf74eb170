"""Compute a wrong value again with one operator's call changed.

`record_calls` runs the graph with the device's values once more, and keeps the calls of the
operators that lead to wrong values, with their arguments. `Reruns` computes a value from these
calls, one of them changed. Only the operators after the changed one run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from etscope.bridge.reference.backends import Arithmetic
from etscope.bridge.reference.local_reference import DeviceValues, Memory
from etscope.bridge.reference.local_reference import replaced as with_device
from etscope.bridge.reference.reference import Operation, ReferenceGraph, arrays_of

# Elements that the reruns of a value read and write, at most: some seconds of work. A count, as a
# limit of time would give other answers on other machines.
_MOST_ELEMENTS = 200_000_000
_MOST_BYTES = 1 << 28  # of the arguments and results that are kept, for a model of a phone's size

Place = tuple[str, int]  # a node, and the pass of its loop


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """An operator's call in the run with the device's values. compute: computes it as the device
    does by design, instead of the operator."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    compute: Callable[..., Any] | None = None

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute the call with other arguments."""
        if self.compute is None:
            return self.target(*args, **kwargs)
        return self.compute(self.target, tuple(args), dict(kwargs), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The known names of the arguments, by position."""
        schema = getattr(self.target, "_schema", None)
        found = () if schema is None else tuple(one.name for one in schema.arguments)
        return (*found, *("" for _ in self.args[len(found) :]))

    @property
    def given(self) -> dict[str, Any]:
        """All arguments by name, those with defaults included."""
        schema = getattr(self.target, "_schema", None)
        defaults = {
            one.name: one.default_value
            for one in (() if schema is None else schema.arguments)
            if one.has_default_value()
        }
        return {**defaults, **dict(zip(self.names, self.args, strict=False)), **self.kwargs}

    def changed(self, /, **arguments: Any) -> Callable[[], Any]:
        """Return the call with other arguments, by name."""

        def call() -> Any:
            position = {name: at for at, name in enumerate(self.names[: len(self.args)])}
            args, kwargs = list(self.args), dict(self.kwargs)
            for name, value in arguments.items():
                if name in position:
                    args[position[name]] = value
                else:
                    kwargs[name] = value
            return self.run(args, kwargs)

        return call


def record_calls(
    graph: ReferenceGraph,
    inputs: Any,
    device: DeviceValues,
    wanted: Mapping[Place, Collection[str]],
    memory: Memory,
    arithmetic: Arithmetic,
) -> dict[Place, list[RecordedCall]]:
    """Run a graph with the device's values, and return for each `wanted` value the calls that lead
    to it, in order: calls of the nodes named there, in the same pass of a loop. Values with too
    large or partly unknown calls are left out.

    memory: as before the run that is repeated; it is not changed. A graph with nodes that write to
    values has no result: its values may change later.
    """
    if graph.own_memory is not None:
        return {}
    inside = {name for names in wanted.values() for name in names}
    calls: dict[Place, RecordedCall] = {}
    passes: dict[str, int] = {}
    size = 0

    def record(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal size
        design = arithmetic.by_design.get(operation.name)
        args = args if design is None else design.change(args)
        compute = None if design is None else design.compute
        name = operation.name
        made = RecordedCall(name, operation.target, args, kwargs, None, compute)
        result = made.run(args, kwargs)
        if name in inside and size < _MOST_BYTES:
            size += sum(
                one.numel() * one.element_size()
                for one in pytree.tree_leaves((args, kwargs, result))
                if isinstance(one, torch.Tensor)
            )
            place = name, passes.get(name, 0)
            calls[place] = replace(made, result=result)
        passes[name] = passes.get(name, 0) + 1
        return result

    run = graph.run(inputs, dict(memory.local), call=record)
    seen: dict[str, int] = {}
    try:
        name, value = next(run)
        while True:
            loop_pass = seen.get(name, 0)
            seen[name] = loop_pass + 1
            given = device(name, loop_pass)
            name, value = run.send(with_device(value, given, None) if given else None)
    except StopIteration:
        pass
    found = {}
    for (name, loop_pass), names in wanted.items():
        listed = [calls.get((one, loop_pass)) for one in names]
        known = [one for one in listed if one is not None]
        if known and known[-1].name == name and len(known) == len(listed):
            found[name, loop_pass] = known
    return found


class Reruns:
    """Computes a value again from recorded calls, one of them changed.

    element: index of the value in the last call's result. Work is limited: when the limit is used
    up, `value` is None.
    """

    def __init__(self, calls: Sequence[RecordedCall], element: int | None) -> None:
        self.calls, self._element = calls, element
        self._elements = _MOST_ELEMENTS
        self._sizes = [
            sum(
                one.numel()
                for one in pytree.tree_leaves((call.args, dict(call.kwargs), call.result))
                if isinstance(one, torch.Tensor)
            )
            for call in calls
        ]

    def value(self, at: int, change: Callable[[], Any]) -> Any:
        """The value in float64 with the call at a position changed; None if that fails, or gives
        other types."""
        if self._elements <= 0:
            return None
        with torch.no_grad():
            return self._value(at, change)

    def _value(self, at: int, change: Callable[[], Any]) -> Any:
        try:
            result = change()
            self._elements -= self._sizes[at]
            replaced: dict[int, Any] = {}
            if not _note(self.calls[at].result, result, replaced):
                return None
            for size, call in zip(self._sizes[at + 1 :], self.calls[at + 1 :], strict=True):
                leaves, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
                if not any(id(leaf) in replaced for leaf in leaves):
                    continue
                leaves = [replaced.get(id(leaf), leaf) for leaf in leaves]
                args, kwargs = pytree.tree_unflatten(leaves, spec)
                result = call.run(args, kwargs)
                self._elements -= size
                if not _note(call.result, result, replaced):
                    return None
        except Exception:  # an operator refuses what no export would make
            return None
        found = replaced.get(id(self.calls[-1].result))
        if found is None:
            return None  # the changed value does not lead there
        array = arrays_of(found if self._element is None else found[self._element])
        return None if array is None else np.asarray(array).astype(np.float64)


def _note(before: Any, after: Any, replaced: dict[int, Any]) -> bool:
    """Note what a result is replaced by, and each of its elements; false if the types differ."""
    if isinstance(before, torch.Tensor):
        if not isinstance(after, torch.Tensor) or after.shape != before.shape:
            return False
        replaced[id(before)] = after.to(before.dtype)
        return True
    if not isinstance(before, (tuple, list)) or not isinstance(after, (tuple, list)):
        return False
    replaced[id(before)] = after
    pairs = zip(before, after, strict=True)
    return all(_note(*pair, replaced) for pair in pairs if isinstance(pair[0], torch.Tensor))
