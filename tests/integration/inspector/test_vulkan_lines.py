"""Vulkan's calls lead to the nodes that they were made from, on exported models."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner  # noqa: E402
from executorch.backends.vulkan.serialization.vulkan_graph_builder import (  # noqa: E402
    VkGraphBuilder,
)
from executorch.exir import to_edge_transform_and_lower  # noqa: E402
from torch import nn  # noqa: E402

from etscope.analysis.delegates.vulkan import with_vulkan_handles  # noqa: E402
from etscope.analysis.profile.correlate import MethodSymbols, method_symbols  # noqa: E402
from etscope.analysis.profile.trace import Trace  # noqa: E402
from etscope.errors import EtscopeWarning  # noqa: E402
from etscope.formats.etdump.reader import read_etdump  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from etscope.formats.program.pte import read_pte  # noqa: E402
from tests.support.delegate_dumps import dump_of, vulkan  # noqa: E402

# By the delegate's number: the id of each call, and the debug handle of its node, if it had one.
Truth = list[list[tuple[int, int | None]]]


class Net(nn.Module):
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
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Iterator[Truth]:
    """The handles that nodes have before Vulkan's builder overwrites them."""
    found: Truth = []
    build, call = VkGraphBuilder.build_graph, VkGraphBuilder.process_call_function_node
    process = VkGraphBuilder.process_node
    handles: list[int | None] = []

    def build_graph(self: Any) -> Any:
        found.append([])
        return build(self)

    def process_node(self: Any, node: Any, number: int) -> None:
        handles.append(node.meta.get("debug_handle"))
        process(self, node, number)

    def process_call(self: Any, node: Any) -> None:
        call(self, node)
        found[-1].append((self.chain[-1].node_id, handles[-1]))

    monkeypatch.setattr(VkGraphBuilder, "build_graph", build_graph)
    monkeypatch.setattr(VkGraphBuilder, "process_node", process_node)
    monkeypatch.setattr(VkGraphBuilder, "process_call_function_node", process_call)
    logging.disable(logging.CRITICAL)
    yield found
    logging.disable(logging.NOTSET)


def exported(model: nn.Module, inputs: tuple[Any, ...], folder: Path) -> tuple[Path, Path]:
    program = torch.export.export(model.eval(), inputs)
    manager = to_edge_transform_and_lower(
        program, partitioner=[VulkanPartitioner()], generate_etrecord=True
    ).to_executorch()
    (folder / "model.pte").write_bytes(manager.buffer)
    manager.get_etrecord().save(str(folder / "model.etrecord"))
    return folder / "model.pte", folder / "model.etrecord"


def symbols_of(program: Path, record: Path) -> MethodSymbols:
    symbols = method_symbols(read_etrecord(str(record)), "forward")
    return with_vulkan_handles(symbols, read_pte(str(program)))


@pytest.mark.parametrize(
    ("model", "shape", "known"), [(Net, (1, 3, 8, 8), 1.0), (Encoder, (1, 6, 16), 0.85)]
)
def test_no_call_has_a_wrong_node(
    model: type[nn.Module], shape: tuple[int, ...], known: float, truth: Truth, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    symbols = symbols_of(*exported(model(), (torch.randn(shape),), tmp_path))
    delegates = [entry for _, entry in sorted(symbols.delegates.items())]
    assert len(delegates) == len(truth)
    right = total = 0
    for entry, calls in zip(delegates, truth, strict=True):
        for number, handle in calls:
            given = entry.handles.get(str(number))
            if handle is not None:  # a node that Vulkan's passes made has none
                total += 1
                right += given is not None
                assert given is None or handle in given, number
    assert right >= known * total > 0


def test_events_have_the_lines_of_their_nodes(tmp_path: Path) -> None:
    program, record = exported(Net(), (torch.randn(1, 3, 8, 8),), tmp_path)
    symbols = symbols_of(program, record)
    ids = sorted(map(int, symbols.delegates[0].handles))
    dump = dump_of(vulkan([(f"op_{number}", "kernel", number, 100) for number in (*ids, 999)]))
    opened = read_etrecord(str(record))
    trace = Trace(read_etdump(dump), record=opened, program=read_pte(str(program)))
    (profile,) = trace.profiles()
    rows = {row.name: row.attribution for row in profile.rows if row.own_clock}
    for position, number in enumerate(ids):
        found = rows[f"op_{number} (kernel) #{position}"]
        assert found.nodes and found.lines, number
        assert found.debug_handles == symbols.delegates[0].handles[str(number)]
    unknown = rows[f"op_999 (kernel) #{len(ids)}"]
    assert not unknown.nodes, "an id that no call has"


def test_without_the_program_no_node_is_guessed(tmp_path: Path) -> None:
    _, record = exported(Net(), (torch.randn(1, 3, 8, 8),), tmp_path)
    opened = read_etrecord(str(record))
    told = opened.delegate_map
    assert told is not None and told["forward"][0].identifiers, "what the exporter wrote"
    assert not method_symbols(opened, "forward").delegates[0].handles


def test_data_that_is_broken_is_told(tmp_path: Path) -> None:
    program, record = exported(Net(), (torch.randn(1, 3, 8, 8),), tmp_path)
    data = bytearray(program.read_bytes())
    at = data.index(b"VH00")
    data[at : at + 4] = b"VH99"
    program.write_bytes(bytes(data))
    with pytest.warns(EtscopeWarning, match="what Vulkan runs for instruction 0 cannot be read"):
        symbols = symbols_of(program, record)
    assert not symbols.delegates[0].handles
