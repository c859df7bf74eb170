"""Run models eagerly: threads by the size of the work, and unchanged state."""

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


@contextmanager
def as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Set evaluation mode for a while: dropout and batch norm then work as on a device. Afterwards
    the modes and the buffers of the model are as before."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
    except NotImplementedError:  # modules of torch.export refuse: their graphs have the mode
        for module in modes:
            module.training = False
    try:
        with state_kept(model):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def state_kept(model: torch.nn.Module) -> Iterator[None]:
    """Restore the buffers of the model afterwards."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for module, name, buffer, value in buffers:
            buffer.copy_(value)
            if name in module._buffers:
                module._buffers[name] = buffer
