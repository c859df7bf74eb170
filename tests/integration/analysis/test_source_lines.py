"""Lines and modules of operators that lowering leaves without them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

import linecache  # noqa: E402
from pathlib import Path  # noqa: E402

from torch import nn  # noqa: E402

from etscope.analysis.profile.correlate import MethodSymbols, method_symbols  # noqa: E402
from etscope.analysis.profile.source_location import lines_of, module_path  # noqa: E402
from etscope.export import export  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from etscope.model.graph import SourceLine, stem  # noqa: E402


def symbols_of(model: nn.Module, folder: Path, *, backend: str = "portable") -> MethodSymbols:
    torch.manual_seed(0)
    export(model, (torch.randn(2, 8),), backend=backend).save(folder)
    return method_symbols(read_etrecord(folder / "model.etrecord"), "forward")


def text_of(line: SourceLine) -> str:
    return linecache.getline(line.file, line.line)


class Rotary(nn.Module):
    """Angles without gradients, as Hugging Face's models compute them."""

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.cat((x.abs(), x.abs()), -1)
        return angles.cos(), angles.sin()


class Rotated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rotary = Rotary()
        self.out = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = self.rotary(x)
        return self.out(cos * sin)


@pytest.mark.parametrize("backend", ["portable", "xnnpack"])
def test_operators_without_gradients_have_their_own_lines(backend: str, tmp_path: Path) -> None:
    graph = symbols_of(Rotated(), tmp_path, backend=backend).graph

    assert graph is not None
    nodes = {stem(node.op): node for node in graph.own_operators.values()}
    for op in ("cat", "abs", "cos", "sin"):
        (line,) = lines_of([nodes[op]])
        assert f".{op}(" in text_of(line)
        assert module_path(nodes[op]) == "rotary"
