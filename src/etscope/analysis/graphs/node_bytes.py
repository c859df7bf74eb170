"""Bytes of a graph's nodes: of the tensors that they give."""

from __future__ import annotations

import math

from etscope.errors import UsageError
from etscope.formats.program.scalar_type import scalar_type_of
from etscope.model.graph import Node, TensorSpec


def given_bytes(node: Node) -> int | None:
    """Bytes of the tensors that the node gives; symbolic sizes count with their hints. None if it
    gives none, or a size is not known."""
    if node.kind == "output":
        return None
    sizes = [_nbytes(value.tensor) for value in node.outputs if value.tensor is not None]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _nbytes(spec: TensorSpec) -> int | None:
    sizes: list[int] = []
    for position, size in enumerate(spec.shape):
        hint = spec.hints[position] if position < len(spec.hints) else None
        known = size if isinstance(size, int) else hint
        if known is None:
            return None
        sizes.append(known)
    try:
        kind = scalar_type_of(spec.dtype)
    except UsageError:
        return None
    return kind.nbytes(math.prod(sizes))
