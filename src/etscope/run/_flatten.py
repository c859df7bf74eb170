"""Nested inputs as a flat list, in the order in which torch's pytree would list them.

A program tells how its inputs nest (`Method.input_tree`, torch's pytree text). By it, a dict's
values are taken in the order of the keys at export, whatever the order they are given in now.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etscope.errors import EtscopeError, MismatchError, UsageError, reading

_DICTS = ("builtins.dict", "collections.OrderedDict")
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Tree:
    """How values nest. `keys` are those of a dict; a leaf, and anything that is not known, has no
    children."""

    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] | None = None

    @property
    def by_key(self) -> dict[Any, Tree]:
        return dict(zip(self.keys or (), self.children, strict=True))


_UNKNOWN = Tree()


@dataclass(frozen=True, slots=True)
class Signature:
    """How the positional and the keyword arguments of a method nest."""

    positional: tuple[Tree, ...] = ()
    keyword: Tree = _UNKNOWN

    def keyword_tree(self, given: Mapping[Any, Any]) -> Tree | None:
        """The tree whose keys are those of `given`: of all the arguments if all are keyword
        arguments, or of the one argument that is a dict; None if neither fits."""
        if not self.positional:
            candidate = self.keyword
        elif len(self.positional) == 1 and not self.keyword.children:
            candidate = self.positional[0]
        else:
            return None
        return candidate if candidate.keys and set(candidate.keys) == set(given) else None

    @property
    def trees(self) -> tuple[Tree, ...]:
        """Of all arguments, in the order of the flat inputs."""
        return self.positional + self.keyword.children


def signature_of(input_tree: str) -> Signature:
    """What `Method.input_tree` says. The runtime does without it, and so do we: what cannot be
    read is as if it were not there."""
    try:
        with reading("input tree"):
            _, root = json.loads(input_tree)
            positional, keyword = _tree(root).children
            return Signature(positional.children, keyword)
    except EtscopeError:
        return Signature()


def _tree(node: Mapping[str, Any]) -> Tree:
    children = tuple(_tree(child) for child in node["children_spec"])
    if node["type"] not in _DICTS:
        return Tree(children)
    keys = tuple(json.loads(node["context"]))
    return Tree(children, keys) if len(set(keys)) == len(keys) == len(children) else _UNKNOWN


def flatten(values: Sequence[Any], trees: Sequence[Tree]) -> list[Any]:
    """The leaves of `values`, each nested as the tree of its place; trees of another number are
    of something else, and not used.

    Raises `MismatchError` for a dict with other keys than at export, `UsageError` for containers
    that nest without end.
    """
    leaves: list[Any] = []
    for value, tree in _pairs(values, trees):
        _collect(value, tree, leaves, 0)
    return leaves


def _pairs(values: Sequence[Any], trees: Sequence[Tree]) -> list[tuple[Any, Tree]]:
    fitting = trees if len(trees) == len(values) else [_UNKNOWN] * len(values)
    return list(zip(values, fitting, strict=True))


def _collect(value: Any, tree: Tree, leaves: list[Any], depth: int) -> None:
    children = _children(value, tree)
    if children is None:
        leaves.append(value)
        return
    if depth == _MAX_DEPTH:
        raise UsageError(f"the inputs nest more than {_MAX_DEPTH} levels deep")
    for child, below in children:
        _collect(child, below, leaves, depth + 1)


def _children(value: Any, tree: Tree) -> list[tuple[Any, Tree]] | None:
    """What a container holds, None for a leaf."""
    if isinstance(value, Mapping):
        return _children_of_mapping(value, tree)
    if isinstance(value, (list, tuple, deque)):
        return _pairs(list(value), tree.children)
    if (known := _known_to_torch(value)) is not None:
        return _pairs(known, tree.children)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # torch.export leaves out what is None
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return _pairs([field for field in fields if field is not None], tree.children)
    return None


def _children_of_mapping(value: Mapping[Any, Any], tree: Tree) -> list[tuple[Any, Tree]]:
    if tree.keys is None:
        return _pairs(list(value.values()), tree.children)
    if set(tree.keys) != set(value):
        raise MismatchError(
            f"a dict with the keys {_shown(value)} where the program was exported with "
            f"{_shown(tree.keys)}"
        )
    return [(value[key], below) for key, below in tree.by_key.items()]


def _shown(keys: Any) -> str:
    return ", ".join(map(repr, keys)) or "none"


def _known_to_torch(value: Any) -> list[Any] | None:
    """The leaves of an object of a class that was registered with torch's pytree."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    leaves = torch.utils._pytree.tree_leaves(value)
    return None if len(leaves) == 1 and leaves[0] is value else list(leaves)
