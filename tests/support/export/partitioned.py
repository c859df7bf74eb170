"""Models that backends take only in part, lowered by ExecuTorch's own functions, with an oracle:
the delegate calls as ExecuTorch's lowered graph has them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.delegate import executorch_call_delegate
from torch import nn

import etscope
from etscope.export import keeping_partition

PARTITIONERS = {"vulkan": VulkanPartitioner, "xnnpack": XnnpackPartitioner}


class TextBlock(nn.Module):
    """Operators that XNNPACK does not know (embedding, layer norm, cumsum, topk), one of the wrong
    type (an integer sum), one that it refuses (an inner unsqueeze), and a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.norm = nn.LayerNorm(16)
        self.linear = nn.Linear(16, 16)
        self.conv = nn.Conv2d(1, 4, 3, padding="same")
        self.up = nn.ConvTranspose2d(4, 4, 3, dilation=2)

    def forward(self, ids: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.norm(self.embedding(ids))
        y = torch.relu(self.linear(x)) + torch.cumsum(x, 1)
        z = self.up(self.conv(y.unsqueeze(1)))
        z = torch.cond(z.sum() > 0, lambda a: torch.sigmoid(a) * a, lambda a: a - a.abs(), (z,))
        return z, ids + offset, torch.topk(z.flatten(1), 3)[0]


class Memory(nn.Module):
    """A buffer that each call changes, in the middle of operators that both backends take."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.copy_(self.seen * 0.5 + self.linear(x))
        return torch.cumsum(torch.relu(self.seen), 1) + 1.0


class Int8(nn.Module):
    """For int8: between the convolutions is an operator that computes in float."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.flip(self.second(torch.cumsum(torch.relu(self.first(x)), 2)), [1])


def text_block() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return TextBlock().eval(), (torch.randint(0, 50, (2, 8)), torch.tensor(3))


def memory() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return Memory().eval(), (torch.randn(4, 8),)


@dataclass(frozen=True)
class Lowered:
    """A record and its program as files, what was kept, and the oracle's calls by method. plain:
    the record as ExecuTorch wrote it, without what was kept."""

    record: Path
    plain: Path
    program: Path
    kept: Any
    calls: Mapping[str, list[OracleCall]]


def lowered(
    folder: Path,
    methods: Mapping[str, tuple[nn.Module, tuple[Any, ...]]],
    backends: Sequence[Any],
    *,
    passes: Sequence[Any] | None = None,
) -> Lowered:
    """Lower methods to backends, in order: names of `PARTITIONERS`, or partitioners."""
    with torch.no_grad():
        programs = {
            name: torch.export.export(model, inputs) for name, (model, inputs) in methods.items()
        }
    with keeping_partition() as kept:
        edge = to_edge_transform_and_lower(
            programs,
            partitioner=[PARTITIONERS[one]() if isinstance(one, str) else one for one in backends],
            transform_passes=passes,
            generate_etrecord=True,
        )
    calls = {name: list(delegate_calls(edge.exported_program(name))) for name in edge.methods}
    program = edge.to_executorch()
    record, plain, pte = (
        folder / name for name in ("model.etrecord", "plain.etrecord", "model.pte")
    )
    program.get_etrecord().save(str(plain))
    pte.write_bytes(program.buffer)
    opened = etscope.parse_etrecord(str(plain))
    opened.partition = kept.of(edge.methods)
    opened.save(str(record))
    return Lowered(record, plain, pte, kept, calls)


@dataclass(frozen=True)
class OracleCall:
    """A delegate call of ExecuTorch's lowered graph: its operators' names, and the bytes of its
    arguments without constants, and of its results that are read."""

    backend: str
    nodes: frozenset[str]
    bytes_in: int
    bytes_out: int


def delegate_calls(program: Any) -> Iterator[OracleCall]:
    """Yield the calls outside of branches."""
    module, signature = program.graph_module, program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    constants = {
        *signature.inputs_to_parameters,
        *signature.inputs_to_lifted_tensor_constants,
        *(name for name, one in signature.inputs_to_buffers.items() if one not in changed),
    }
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target is not executorch_call_delegate:
            continue
        held = getattr(module, node.args[0].target)
        inside = held.original_module.graph.nodes
        given = [one for one in dict.fromkeys(node.args[1:]) if one.name not in constants]
        yield OracleCall(
            held.backend_id,
            frozenset(
                one.name
                for one in inside
                if one.op == "call_function" and one.target is not operator.getitem
            ),
            sum(_bytes(one.meta["val"]) for one in given),
            sum(_bytes(user.meta["val"]) for user in node.users),
        )


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
