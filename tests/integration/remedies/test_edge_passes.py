"""Passes of the lowering: they keep the outputs on the runtime, and change what they are for."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import to_edge
from torch import nn

from etscope.bridge.lowering.passes import EDGE_PASSES
from etscope.cli import main
from etscope.errors import ExportFailure
from etscope.export import Exported, export
from etscope.model.graph import stem
from etscope.run import Call, run


class Step(nn.Module):
    """A step between two layers, for one of these functions."""

    def __init__(self, first: Any, function: Any, last: Any) -> None:
        super().__init__()
        self.first, self.function, self.last = first, function, last

    def forward(self, x: Any) -> Any:
        return self.last(self.function(self.first(x)))


def linear(function: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    return Step(nn.Linear(16, 16), function, nn.Linear(16, 16)), (torch.randn(2, 8, 16),)


def products(x: Any) -> Any:
    """Attention by products of four dimensions, to each of which torch adds copies."""
    heads = x.view(2, 8, 2, 8).transpose(1, 2)
    found = torch.softmax(heads @ heads.transpose(2, 3), -1) @ heads
    return found.transpose(1, 2).reshape(2, 8, 16)


def there_and_back(x: Any) -> Any:
    return torch.sin(x.permute(0, 2, 1).permute(0, 2, 1))


PRODUCTS, BACK = linear(products), linear(there_and_back)


class Cache(nn.Module):
    def __init__(self, is_shaped: bool = True) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, 8, 4))
        self.is_shaped = is_shaped

    def forward(self, x: Any, position: Any) -> Any:
        if self.is_shaped:
            self.cache.index_copy_(1, position, x)
        else:
            self.cache[:, position] = x[0]
        return self.cache.sum(1)


def operators(done: Exported) -> Counter[str]:
    """The operators of a program outside of delegates, and its delegate calls."""
    names = (
        getattr(getattr(node.target, "_schema", None), "name", str(node.target))
        for node in done.program.exported_program().graph.nodes
        if node.op == "call_function"
    )
    return Counter("delegate" if "call_delegate" in name else stem(name) for name in names)


def outputs(done: Exported, folder: Path, *inputs: Any, iterations: int = 1) -> list[Any]:
    """The outputs of the first execution, or of a later one."""
    (folder / "model.pte").write_bytes(done.program.buffer)
    call = Call("forward", list(inputs), iterations=iterations, warmup=0)
    with run(folder / "model.pte", [call], trace=False, isolate=False) as ran:
        return [np.asarray(value) for value in ran.arrays[0]]


# What a pass is for is outside of delegates, or lets XNNPACK have what is between two of them.
FLIPPED = linear(lambda x: x.flip(-1))
CASES = [
    ("remove_dead_copies", PRODUCTS, "xnnpack", {"expand": 4, "delegate": 3}, {"delegate": 1}),
    ("remove_transposes", BACK, "portable", {"permute": 4}, {"permute": 2}),
    ("keep_linear", BACK, "portable", {"addmm": 2}, {"linear": 2}),
    ("cancel_qdq", FLIPPED, "int8", {"flip": 1}, {"flip": 1}),
]


@cache
def exported(made: Any, backend: str, *passes: str) -> Exported:
    options = (
        {"backend": "xnnpack", "quantize": True} if backend == "int8" else {"backend": backend}
    )
    return export(*made, passes=passes, **options)


@pytest.mark.parametrize(
    ("name", "made", "backend", "before", "after"), CASES, ids=[c[0] for c in CASES]
)
def test_outputs_stay_and_operators_change(
    name: str, made: Any, backend: str, before: Any, after: Any, tmp_path: Path
) -> None:
    _, inputs = made
    plain, changed = exported(made, backend), exported(made, backend, name)
    found, left = operators(plain), operators(changed)
    assert {op: found[op] for op in before} == before, found
    assert {op: left[op] for op in {**before, **after}} == {**dict.fromkeys(before, 0), **after}
    (wanted,), (got,) = outputs(plain, tmp_path, *inputs), outputs(changed, tmp_path, *inputs)
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    # The record knows the operators that run.
    edge = changed.record.edge_programs["forward"].graph
    names = {stem(str(node.target)) for node in edge.nodes if node.op == "call_function"}
    gone = {op for op, count in before.items() if count and not left[op]} - {"delegate"}
    assert not gone & names
    if name == "cancel_qdq":
        (moved,) = (node for node in edge.nodes if "flip" in str(node.target))
        assert moved.meta["val"].dtype == torch.int8


def test_buffers_are_written_in_place(tmp_path: Path) -> None:
    inputs = (torch.ones(1, 1, 4), torch.tensor([3]))
    done = export(Cache(), inputs, passes=["reinplace"])
    left = operators(done)
    assert (left["index_put"], left["copy"]) == (1, 0)
    assert "aten.index_put_.default" in str(done.program.exported_program().graph)
    (got,) = outputs(done, tmp_path, *inputs, iterations=3)
    np.testing.assert_array_equal(got, np.ones((1, 4)))
    with pytest.raises(ExportFailure, match="index_put_ takes one index"):
        export(Cache(is_shaped=False), inputs, passes=["reinplace"])


def test_copies_that_are_outputs_stay(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x + 1
            return x.clone(), y, y.clone().expand(2, 2).clone() * 2

    x = torch.ones(2, 2)
    found = outputs(export(Twice(), x, passes=["remove_dead_copies"]), tmp_path, x)
    for got, wanted in zip(found, Twice()(x), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_pass_that_finds_nothing_says_so() -> None:
    program = torch.export.export(nn.ReLU(), (torch.ones(2),))
    for name in ("keep_linear", "reinplace", "remove_dead_copies"):
        with pytest.raises(ExportFailure, match=f"{name} finds nothing to change"):
            export(program, passes=[name])
    edge = to_edge(program).exported_program()
    assert [rewrite(edge, []) for rewrite in EDGE_PASSES.values()] == [0] * len(EDGE_PASSES)


def test_explain_finds_nothing_left(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    """What a finding says to do is true: after the pass there is no such finding."""
    monkeypatch.chdir(tmp_path)
    both = exported(PRODUCTS, "xnnpack"), exported(PRODUCTS, "xnnpack", "remove_dead_copies")
    for name, done in zip(("before", "after"), both, strict=True):
        done.save(name, "model", bundle=False)
        inputs = list(done.example_inputs["forward"])
        with run(f"{name}/model.pte", inputs, iterations=5, isolate=False) as ran:
            ran.save(f"{name}/run")
        arguments = [f"{name}/run", "-r", f"{name}/model.etrecord", "--rule", "needless-copies"]
        assert main(["explain", *arguments, "--least", "0", "--format", "json"]) == 0
        said = capfd.readouterr().out
        assert ("Copies that change nothing" in said) == (name == "before")
