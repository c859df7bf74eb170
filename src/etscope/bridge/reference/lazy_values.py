"""Values of a second run of a graph that are computed when they are asked for.

The second run computes in another way from the same values. Its nodes are noted while the first one
goes on. Where a value of the first run is replaced by a recorded one, the second run goes on from
that, too, so that one value takes the few nodes since the last recorded ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from etscope.bridge.reference.reference import Operation, arrays_of
from etscope.bridge.reference.ties import Local

# Computes a node in the second run, by what it was in the first.
WideCall = Callable[[Operation, tuple[Any, ...], dict[str, Any], Local], Any]

_KEPT_BYTES = 64 << 20  # of values that another one may be computed from


@dataclass(frozen=True, slots=True, eq=False)
class _Noted:
    """A node that was computed in the first run. arguments, keywords: with an `_Element` in place
    of each tensor that another noted node made. number: in order of execution. local: what the
    second run needs of the node."""

    number: int
    operation: Operation
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    local: Local


@dataclass(frozen=True, slots=True, eq=False)
class _Element:
    """A tensor that a node made. index: among its results; None for the only one."""

    node: _Noted
    index: int | None


class LazyValues:
    """The values of a graph's second run; its nodes do not write to values.

    call: computes a node in the second run. `note` each node of the first; a tensor from elsewhere
    is read unchanged.
    """

    def __init__(self, call: WideCall) -> None:
        self._call = call
        self._made_by = WeakTensorKeyDictionary()
        self._count = 0
        self._kept: OrderedDict[_Noted, Any] = OrderedDict()
        self._bytes = 0

    def note(
        self,
        operation: Operation,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        value: Any,
        local: Local,
    ) -> None:
        """Note a node, its arguments and its value in the first run."""
        self._count += 1
        node = _Noted(self._count, operation, self._linked(args), self._linked(kwargs), local)
        results = list(enumerate(value)) if isinstance(value, (tuple, list)) else [(None, value)]
        given = {id(tensor) for tensor in _tensors((args, kwargs))}
        for index, result in results:
            if isinstance(result, torch.Tensor) and id(result) not in given:
                self._made_by[result] = _Element(node, index)

    def arrays_of(self, value: Any) -> Any:
        """Compute what the second run has for a value of the first, as arrays."""
        linked = self._linked(value)
        with torch.inference_mode():
            values = self._computed([one.node for one in _elements(linked)])
            found = _mapped(linked, _Element, lambda one: _picked(values[one.node], one.index))
            return arrays_of(found)

    def _linked(self, arguments: Any) -> Any:
        return _mapped(arguments, torch.Tensor, lambda one: self._made_by.get(one, one))

    def _computed(self, wanted: list[_Noted]) -> dict[_Noted, Any]:
        """The values of nodes, each dropped after its last use."""
        needed: dict[_Noted, int] = dict.fromkeys(wanted, 1)  # by how many
        waiting = list(needed)
        while waiting:
            node = waiting.pop()
            if node in self._kept:
                continue
            for one in _elements((node.arguments, node.keywords)):
                if one.node not in needed:
                    needed[one.node] = 0
                    waiting.append(one.node)
                needed[one.node] += 1
        values = {node: self._kept[node] for node in needed if node in self._kept}
        for node in sorted(needed, key=lambda one: one.number):
            if node in values:
                continue
            args, kwargs = _mapped(
                (node.arguments, node.keywords),
                _Element,
                lambda one: _picked(values[one.node], one.index),
            )
            values[node] = self._call(node.operation, args, kwargs, node.local)
            del args, kwargs
            for one in _elements((node.arguments, node.keywords)):
                needed[one.node] -= 1
                if not needed[one.node]:
                    self._keep(one.node, values.pop(one.node))
        for node in wanted:
            self._keep(node, values[node])
        return values

    def _keep(self, node: _Noted, value: Any) -> None:
        """Keep a value for others that are computed from it, in place of the oldest."""
        if node in self._kept:
            return
        self._kept[node] = value
        self._bytes += _bytes(value)
        while self._bytes > _KEPT_BYTES:
            self._bytes -= _bytes(self._kept.popitem(last=False)[1])


def _picked(value: Any, index: int | None) -> Any:
    return value if index is None else value[index]


def _bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return _leaves(value, torch.Tensor)


def _elements(value: Any) -> Iterator[_Element]:
    return _leaves(value, _Element)


def _leaves(value: Any, kind: type) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _leaves(one, kind)
    elif isinstance(value, Mapping):
        yield from _leaves(list(value.values()), kind)


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The value with each `kind` in it changed, through tuples, lists and dicts."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (tuple, list)):
        changed = [_mapped(one, kind, change) for one in value]
        return changed if isinstance(value, list) else tuple(changed)
    if isinstance(value, dict):
        return {key: _mapped(one, kind, change) for key, one in value.items()}
    return value
