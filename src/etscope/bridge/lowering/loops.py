"""Loops that tracing unrolled: their steps as one function, which computes all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

_FEWEST = 4  # steps: fewer are hardly a loop
_CAT, _STACK = torch.ops.aten.cat.default, torch.ops.aten.stack.default
_PIECES = (torch.ops.aten.slice.Tensor, torch.ops.aten.select.int)


@dataclass
class Loop:
    """The steps whose results a node puts together. They may differ in the pieces that they read of
    one value, in weights and in numbers; else it raises `ValueError`.

    weights: nodes of constants. tensors: the nodes that `computed` takes the values of. leaves: of
    what differs, how it is made for all steps, and the dimension of the steps.
    """

    join: Node
    weights: Collection[Node]
    tensors: list[Node] = field(default_factory=list)
    leaves: list[tuple[Callable[[Any], Tensor], int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        steps = self.join.args[0] if self.join.target in (_CAT, _STACK) else ()
        if len(steps) < _FEWEST:
            raise ValueError
        self.step = self._alike(steps)

    def computed(self, *values: Tensor) -> Tensor:
        """The value of the join."""
        given = dict(zip(self.tensors, values, strict=True))
        at = (*self.join.args, 0)[1] % self.join.meta["val"].dim()
        loop = torch.vmap(self.step, tuple(axis for _, axis in self.leaves), at)
        found = loop(*(make(given) for make, _ in self.leaves))
        return found if self.join.target is _STACK else found.flatten(at, at + 1)

    def _alike(self, found: Sequence[Any]) -> Callable[..., Any]:
        """The function of the leaves that computes what stands at one place of each step."""
        first, are_nodes = found[0], all(isinstance(one, Node) for one in found)
        if all(_is_same(first, one) for one in found):
            shared = [first] if are_nodes else []
            return (
                self._leaf(lambda given: given[first], None, shared) if shared else lambda *_: first
            )
        if all(isinstance(one, (float, int)) for one in found):
            return self._leaf(lambda _: torch.stack([torch.full((), one) for one in found]), 0)
        if all(isinstance(one, (list, tuple)) for one in found):
            parts = [self._alike(part) for part in zip(*found, strict=True)]
            return lambda *leaves: [part(*leaves) for part in parts]
        if are_nodes and all(one in self.weights for one in found):
            return self._leaf(lambda given: torch.stack([given[one] for one in found]), 0, found)
        if not are_nodes or len({(one.target, str(one.kwargs)) for one in found}) > 1:
            raise ValueError
        if first.target in _PIECES and (pieces := self._pieces(found)) is not None:
            return pieces
        args = self._alike([one.args for one in found])
        return lambda *leaves: first.target(*args(*leaves), **first.kwargs)

    def _pieces(self, found: Sequence[Node]) -> Callable[..., Any] | None:
        """The pieces of one value, each directly behind the one before; None for others."""
        giver, axis, begin, *end = found[0].args
        width = end[0] - begin if end else 1
        for at, one in zip(range(begin, begin + width * len(found), width), found, strict=True):
            if not _is_same(one.args, (giver, axis, at, *([at + width] if end else ()))):
                return None

        def made(given: Any) -> Tensor:
            whole = given[giver].narrow(axis, begin, width * len(found))
            return whole.unflatten(axis, (-1, width)) if end else whole

        return self._leaf(made, axis % giver.meta["val"].dim(), [giver])

    def _leaf(
        self, make: Callable[[Any], Tensor], axis: int | None, read: Sequence[Node] = ()
    ) -> Callable[..., Any]:
        self.tensors += [one for one in read if one not in self.tensors]
        self.leaves.append((make, axis))
        at = len(self.leaves) - 1
        return lambda *leaves: leaves[at]


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two arguments have one value: a node, or operators of the same."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if one is other or not isinstance(one, Node) or not isinstance(other, Node):
        return bool(one == other)
    is_drawn = torch.Tag.nondeterministic_seeded in getattr(one.target, "tags", ())
    alike = (one.target, one.kwargs) == (other.target, other.kwargs) and not is_drawn
    return alike and _is_same(one.args, other.args)
