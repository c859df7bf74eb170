"""The node that each instruction runs, against what lowering put into the delegates: at night, for
the exports; tests/unit/analysis/test_linked_graph.py has the rules, and recorded runs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from torch import nn  # noqa: E402

from etscope.analysis.matching.export import Export  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from etscope.formats.program.pte import read_pte  # noqa: E402


def encoder() -> nn.Module:
    """Three blocks of attention, each decomposed into parts with one debug handle."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


pytestmark = pytest.mark.nightly


class Causal(nn.Module):
    """Attention with a mask: the parts of one operator are in two delegates and between them."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Recurrent(nn.Module):
    """All steps of the cell have the debug handle of one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTM(8, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.cell(x)[0])


def lowered(model: nn.Module, shape: tuple[int, ...], folder: Path) -> list[set[str]]:
    """Write the program and the record; return the names of the nodes in each delegate."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model.eval(), (torch.randn(shape),))
    edge: Any = to_edge_transform_and_lower(
        exported, partitioner=[XnnpackPartitioner()], generate_etrecord=True
    )
    module = edge.exported_program().graph_module
    delegates = [
        getattr(module, node.args[0].target).original_module.graph_module.graph.nodes
        for node in module.graph.nodes
        if node.op == "call_function" and "call_delegate" in str(node.target)
    ]
    program = edge.to_executorch()
    (folder / "model.pte").write_bytes(program.buffer)
    program.get_etrecord().save(str(folder / "model.etrecord"))
    return [{node.name for node in nodes if node.op == "call_function"} for nodes in delegates]


@pytest.mark.parametrize(
    ("model", "shape", "least"),
    [(encoder, (1, 10, 32), 1.0), (Causal, (1, 6, 16), 1.0), (Recurrent, (4, 1, 8), 0.8)],
)
def test_a_delegate_has_the_nodes_that_lowering_put_into_it(
    model: Callable[[], nn.Module], shape: tuple[int, ...], least: float, tmp_path: Path
) -> None:
    """No node is put where it did not run; nearly all are found."""
    torch.manual_seed(0)
    inside = lowered(model(), shape, tmp_path)
    record = read_etrecord(tmp_path / "model.etrecord")

    found = Export(read_pte(tmp_path / "model.pte"), record).edge_nodes("forward")

    calls = [r.instruction_id for r in found.records if r.kind == "delegate"]
    assert len(calls) == len(inside) > 1
    for number, nodes in found.nodes.items():
        if number not in calls:
            assert len(nodes) == 1
            assert not any(nodes[0].name in names for names in inside)
    right = 0
    for call, names in zip(calls, inside, strict=True):
        mine = {node.name for node in found.nodes[call]}
        assert mine <= names
        right += len(mine)
    assert right >= least * sum(map(len, inside))
