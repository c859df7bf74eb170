"""A user of QNN has a dump and a record: the events of nodes lead to their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from torch import nn  # noqa: E402

from etscope.analysis.profile.trace import Trace  # noqa: E402
from etscope.formats.etdump.reader import read_etdump  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from tests.support import delegate_values  # noqa: E402
from tests.support.delegate_dumps import dump_of, qnn  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        z = torch.sigmoid(self.second(y))
        return self.head((z + y).flatten(1))


def test_names_of_nodes_lead_to_lines_without_a_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QNN has a map only where it dumps tensors (backends/qualcomm/qnn_preprocess.py)."""
    monkeypatch.setattr(delegate_values._Manager, "IsTensorDump", lambda self: False)
    lowered = delegate_values.lower_to_qnn(Net().eval(), (torch.randn(1, 3, 8, 8),))
    lowered.save(tmp_path)
    (call,) = lowered.calls.values()
    nodes = [node.name for node in call.program.graph_module.graph.nodes if node.op[:4] == "call"]
    dump = read_etdump(dump_of(qnn([(name, 100) for name in (*nodes, "stranger")])))
    trace = Trace(dump, record=read_etrecord(str(tmp_path / "model.etrecord")))
    assert not trace.symbols("forward").delegates[0].handles
    (profile,) = trace.profiles()
    rows = {row.name: row.attribution for row in profile.rows if row.own_clock}
    line = Net.forward.__code__.co_firstlineno
    modules = {
        "aten_convolution_default": ("first", line + 1),
        "aten_convolution_default_1": ("second", line + 2),
        "aten_sigmoid_default": ("", line + 2),
        "aten_add_tensor": ("", line + 3),
        "aten_linear_default": ("head", line + 3),
    }
    for name, (module, number) in modules.items():
        found = rows[name]
        assert [node.name for node in found.nodes] == [name]
        assert (found.module, [one.line for one in found.lines]) == (module, [number])
    assert not rows["stranger"].nodes
    assert not rows["RPC (execute) time"].nodes
