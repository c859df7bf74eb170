"""Programs of Vulkan and QNN, whose events are to lead to the lines of models."""

from __future__ import annotations

import logging
import warnings
from typing import Any
from unittest import mock

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.vulkan.serialization.vulkan_graph_builder import VkGraphBuilder
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from tests.support import delegate_values
from tests.support.artifact_recipes.workbench import Workbench, seeded


class Fused(nn.Module):
    """Fused activations, views in a row, a permutation of sizes that are equal, two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8 * 64, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.conv(x))
        z = torch.sigmoid(self.depth(y)) * y
        z = z.transpose(2, 3) + y
        return torch.softmax(self.head(z.flatten(1)), -1)


class Encoder(nn.Module):
    """Two layers of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Net(nn.Module):
    """Convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        z = torch.sigmoid(self.second(y))
        return self.head((z + y).flatten(1))


def vulkan_fused(bench: Workbench) -> None:
    """Calls whose nodes are all known."""
    _vulkan(bench, Fused(), torch.randn(1, 3, 8, 8, generator=seeded()))


def vulkan_encoder(bench: Workbench) -> None:
    """Calls of which some have no node."""
    _vulkan(bench, Encoder(), torch.randn(1, 6, 16, generator=seeded()))


def _vulkan(bench: Workbench, model: nn.Module, x: torch.Tensor) -> None:
    """Keep the program and the record. "truth" notes, by the delegate's number, the id of each call
    and the debug handle that its node has before Vulkan's builder overwrites it, if any."""
    truth: list[list[tuple[int, int | None]]] = []
    build, process = VkGraphBuilder.build_graph, VkGraphBuilder.process_node
    call = VkGraphBuilder.process_call_function_node
    handles: list[int | None] = []

    def build_graph(self: Any) -> Any:
        truth.append([])
        return build(self)

    def process_node(self: Any, node: Any, number: int) -> None:
        handles.append(node.meta.get("debug_handle"))
        process(self, node, number)

    def process_call(self: Any, node: Any) -> None:
        call(self, node)
        truth[-1].append((self.chain[-1].node_id, handles[-1]))

    logging.disable(logging.CRITICAL)
    with (
        mock.patch.object(VkGraphBuilder, "build_graph", build_graph),
        mock.patch.object(VkGraphBuilder, "process_node", process_node),
        mock.patch.object(VkGraphBuilder, "process_call_function_node", process_call),
    ):
        bench.save(
            to_edge_transform_and_lower(
                torch.export.export(model.eval(), (x,)),
                partitioner=[VulkanPartitioner()],
                generate_etrecord=True,
            )
        )
    bench.notes["truth"] = truth


def qnn_without_map(bench: Workbench) -> None:
    """QNN has a map only where it dumps tensors (backends/qualcomm/qnn_preprocess.py). "nodes"
    notes the nodes of its call, "line" the first line of `forward`."""
    with (
        warnings.catch_warnings(),
        mock.patch.object(delegate_values._Manager, "IsTensorDump", lambda self: False),
    ):
        warnings.simplefilter("ignore")
        lowered = delegate_values.lower_to_qnn(
            Net().eval(), (torch.randn(1, 3, 8, 8, generator=seeded()),)
        )
    bench.pte.write_bytes(lowered.program)
    lowered.record.save(str(bench.folder / "etrecord.bin"))
    (call,) = lowered.calls.values()
    nodes = call.program.graph_module.graph.nodes
    bench.notes["nodes"] = [node.name for node in nodes if node.op[:4] == "call"]
    bench.notes["line"] = Net.forward.__code__.co_firstlineno
