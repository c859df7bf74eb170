"""Nested inputs to a flat list, as `torch.export` has them in a program."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

from etscope.errors import BundleError

_SEQUENCES = (list, tuple, deque)
_MAPPINGS = (dict, OrderedDict, defaultdict)


def flat_leaves(tree: Any) -> list[Any]:
    """The values in lists, tuples, named tuples, deques and dicts, in order; anything else is a
    value itself.

    When torch is loaded it is torch that flattens, since it knows the containers that libraries
    have registered. Otherwise no such container can have been registered.
    """
    pytree = sys.modules.get("torch.utils._pytree")
    try:
        if pytree is not None:
            return list(pytree.tree_leaves(tree))
        return list(_leaves(tree))
    except RecursionError as error:
        raise BundleError("values are nested too deep, or in themselves") from error


def _leaves(tree: Any) -> Iterator[Any]:
    if type(tree) in _MAPPINGS:
        tree = list(tree.values())
    if type(tree) in _SEQUENCES or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        for item in tree:
            yield from _leaves(item)
    else:
        yield tree
