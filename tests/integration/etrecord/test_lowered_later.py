"""Records of programs that are lowered after they were added."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
exir = pytest.importorskip("executorch.exir")

from etscope.bridge.lowering.export import recording  # noqa: E402
from etscope.etrecord import ETRecord  # noqa: E402


class Shifted(torch.nn.Module):
    """Has a buffer outside of the state dict, and a tensor that is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.shift = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale + self.shift


def test_the_exported_program_keeps_what_a_delegate_takes() -> None:
    """`to_backend` takes constants out of a table that the exported program has too."""
    vulkan = pytest.importorskip("executorch.backends.vulkan.partitioner.vulkan_partitioner")
    model, given = Shifted().eval(), torch.ones(1, 4)
    exported = torch.export.export(model, (given,))
    with recording(ETRecord):
        edge = exir.to_edge(exported, generate_etrecord=True)
        edge = edge.to_backend(vulkan.VulkanPartitioner())
    assert not edge.exported_program().constants
    record = edge.to_executorch().get_etrecord()
    assert torch.allclose(record.exported_program.module()(given), model(given))
