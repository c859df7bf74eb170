"""Threads of PyTorch, by the size of what is computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from etscope.model.graph import Graph

_SMALL = 1 << 23  # elements of all weights and values


@contextmanager
def threads_for(graph: Graph) -> Iterator[None]:
    """Compute a small graph with one thread: sharing its work out takes longer than the work, and
    threads that wait for more of it keep the cores from others."""
    before = torch.get_num_threads()
    sizes = (
        math.prod(size for size in value.tensor.shape if isinstance(size, int))
        for node in graph.nodes
        for value in node.outputs
        if value.tensor is not None
    )
    if before == 1 or sum(sizes) >= _SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
