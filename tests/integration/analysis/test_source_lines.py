"""Lines and modules of operators that lowering leaves without them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

import linecache  # noqa: E402
from collections import Counter  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from torch import nn  # noqa: E402

from etscope.analysis.profile.scale import Scale  # noqa: E402
from etscope.analysis.profile.trace import Trace  # noqa: E402
from etscope.analysis.program.correlate import MethodSymbols, method_symbols  # noqa: E402
from etscope.analysis.program.source_location import (  # noqa: E402
    common_module,
    lines_of,
    module_path,
)
from etscope.analysis.tables.profile_table import grouped_table, profile_table  # noqa: E402
from etscope.etdb import Session  # noqa: E402
from etscope.export import export  # noqa: E402
from etscope.formats.etdump.reader import read_etdump  # noqa: E402
from etscope.formats.etrecord.reader import read_etrecord  # noqa: E402
from etscope.formats.program.pte import read_pte  # noqa: E402
from etscope.model.graph import SourceLine, source_lines, stem  # noqa: E402
from etscope.run import run  # noqa: E402
from etscope.units import TimeScale  # noqa: E402
from tests.support.artifact_recipes import llama  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402


def symbols_of(model: nn.Module, folder: Path, *, backend: str = "portable") -> MethodSymbols:
    torch.manual_seed(0)
    export(model, (torch.randn(2, 8),), backend=backend).save(folder)
    return method_symbols(read_etrecord(folder / "model.etrecord"), "forward")


NIGHTLY = pytest.mark.nightly
FILES = ("model.etrecord", "ran/run.etdp", "model.pte")


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


@pytest.mark.parametrize("backend", ["xnnpack", pytest.param("portable", marks=NIGHTLY)])
def test_operators_without_gradients_have_their_own_lines(backend: str, tmp_path: Path) -> None:
    graph = symbols_of(Rotated(), tmp_path, backend=backend).graph

    assert graph is not None
    nodes = {stem(node.op): node for node in graph.own_operators.values()}
    for op in ("cat", "abs", "cos", "sin"):
        (line,) = lines_of([nodes[op]])
        assert f".{op}(" in text_of(line)
        assert module_path(nodes[op]) == "rotary"


class Stateful(nn.Module):
    """A view that becomes an instruction, as its size is dynamic, and a write-back."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("state", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).view(-1, 4)
        self.state.add_(x.sum(0))
        return y.softmax(-1)


@pytest.mark.parametrize("backend", ["portable", pytest.param("xnnpack", marks=NIGHTLY)])
def test_a_view_and_a_write_back_are_shown_where_their_value_was_computed(
    backend: str, tmp_path: Path
) -> None:
    inputs = torch.randn(3, 8)
    rows = torch.export.Dim("rows", min=2, max=16)
    exported = export(
        Stateful(), (inputs,), backend=backend, dynamic_shapes={"x": {0: rows}}, strict=True
    )
    exported.save(tmp_path)
    record, dump, program = (tmp_path / name for name in FILES)
    run(program, (inputs,)).save(dump.parent)
    (profile,) = Trace(
        read_etdump(dump), record=read_etrecord(record), program=read_pte(program)
    ).profiles()

    added = {stem(row.name): row.attribution for row in profile.rows if row.kind == "kernel"}
    (line,) = added["copy"].lines
    assert "self.state.add_" in text_of(line)
    assert common_module(added["copy"].located) == ""
    if backend == "portable":
        (line,) = added["et_view"].lines
        assert "self.linear(x).view" in text_of(line)
        assert common_module(added["et_view"].located) == "linear"
    for found in added.values():  # the operators are not those of others
        assert bool(found.nodes) == (not found.inherited)
        assert bool(found.debug_handles) == (not found.inherited)
    with Session(record, dump, program) as session:
        stops = session.debugger.some_target().stops
    added_stops = [stop for stop in stops if stop.op in ("copy", "et_view")]
    assert added_stops
    for stop in added_stops:  # the debugger shows them there, too
        assert stop.lines == added[stop.op].lines
        assert not stop.nodes


@pytest.mark.parametrize("quantized", [False, pytest.param(True, marks=NIGHTLY)])
def test_the_lines_of_torch_are_nobody_s(tmp_path: Path, quantized: bool) -> None:
    """A model of torch's modules alone; one whose weights torchao has quantized."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    if quantized:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        quantize_(model, Int8WeightOnlyConfig())
    graph = symbols_of(model, tmp_path).graph
    assert graph is not None
    nodes = tuple(graph.own_operators.values())
    assert {module_path(node) for node in nodes} == {"0", "1", "2"}
    assert lines_of(nodes) == ()


def test_the_line_of_mine_that_calls_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of transformers, and a module around it."""
    made = artifacts("llama_xnnpack")
    trace = Trace(read_etdump(made.etdump), record=read_etrecord(made.etrecord))
    (profile,) = trace.profiles()
    scale = Scale(TimeScale.NS, TimeScale.MS)

    def cells(name: str) -> list[Any]:
        """Those of the instructions, in run order."""
        table = profile_table(profile, scale, sort="run")
        rows = zip(table.values["instruction"], table.values[name], strict=True)
        return [value for number, value in rows if number is not None]

    def files(name: str) -> Counter[str]:
        return Counter(source.partition(":")[0] for source in cells(name))

    assert len(cells("source")) >= 100
    assert None not in cells("module")
    assert files("source")["modeling_llama.py"] > 50

    graph = trace.symbols("forward").graph
    assert graph is not None
    frames = {line.file for node in graph.nodes for line in source_lines(node.stack_trace)}
    (mine,) = (file for file in frames if file.endswith("/artifact_recipes/llama.py"))
    monkeypatch.setenv("ETSCOPE_MINE", mine)

    lines = Path(llama.__file__).read_text().splitlines()
    (call,) = (n for n, text in enumerate(lines, 1) if "self.llama(input_ids=tokens)" in text)
    assert files("source") == {"llama.py": len(cells("source"))}
    beside = cells("sources")[cells("event").index("mean.out")]
    assert beside[0] == f"{mine}:{call}"
    assert Path(beside[1]).name.startswith("modeling_llama.py:") and len(beside) == 2
    assert grouped_table(profile, scale, "source").values["source"][0] == f"{mine}:{call}"


def test_operators_that_torch_itself_calls_are_told() -> None:
    """A torch.nn.Sequential alone has no line of its user."""
    made = export(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (torch.ones(2, 8),))
    alone = run(made.program, etrecord=made.record, iterations=2, isolate=False)
    cnn = artifacts("cnn_portable")  # with some that it calls
    called = Trace(read_etdump(cnn.etdump_timing), record=read_etrecord(cnn.etrecord))
    for trace, are_told in ((alone.trace, True), (called, False)):
        notes = profile_table(trace.profiles()[0], Scale(TimeScale.NS, TimeScale.MS)).notes
        assert any("torch itself calls them" in note for note in notes) is are_told
