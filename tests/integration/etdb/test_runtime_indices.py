"""Values of the runtime by their index in the method, and by names that several nodes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from etscope.etdb import Session
from etscope.units import count as counted
from tests.support.etdb.runtime_sessions import begun, on_runtime, target_of
from tests.support.etdb.sessions import refused, said, session


@pytest.mark.parametrize("record", [True, False])
def test_a_value_is_shown_by_its_index(record: bool) -> None:
    one = on_runtime("cnn_portable", record=record)
    (given,), inputs = target_of(one)._prepared.method.inputs, target_of(one).inputs
    there = float(said(one, "start", f"print value({given}).max()"))
    assert there == pytest.approx(float(inputs[0].max()), rel=1e-4)
    said(one, "step 3")
    assert f"value {given} is gone" in refused(one, f"print value({given})")
    (rows,) = (part["rows"] for part in one.info("tensors").data if "rows" in part)
    last = rows[-1]
    assert last["stop"] == 3 and last["index"] in target_of(one).indices_at(3)
    index = last["index"]
    numbers = said(one, f"print/f value({index})")
    assert said(one, "print/f $").startswith(numbers)
    assert said(one, f"print value({index}).max() == $.max()").strip() == "True"
    (table,) = (part["rows"] for part in one.disassemble("3").data if "rows" in part)
    assert table[0]["values"].endswith(f" → {index}")
    count = len(target_of(one)._prepared.method.values)
    assert f"numbered 0 to {count - 1}" in str(one.print(f"value({count})").error)
    assert "no value" in refused(one, "print value(-1)")
    late = target_of(one).stops[-1].instruction
    (output,) = target_of(one)._prepared.method.outputs
    assert "not been computed yet" in refused(one, f"print value({output})")
    assert f"until id:{late}" in str(one.print(f"value({output})").error)


def test_a_value_is_set_by_its_index() -> None:
    one = on_runtime("cnn_portable")
    said(one, "start", "step 3")
    (index,) = target_of(one).indices_at(3)
    assert f"value({index}) = 0" in said(one, f"set value({index}) = 0")
    assert float(said(one, "print $.abs().max()")) == 0
    weight = next(i for i in range(99) if target_of(one)._prepared.weight(i) is not None)
    assert "is a weight" in refused(one, f"set value({weight}) = 0")
    assert "no value 99999" in refused(one, "set value(99999) = 0")
    said(one, "start", "step 2")
    (index,) = target_of(one).indices_at(2)
    assert "breakpoint 1" in said(one, f"break id:9 if value({index}).size > 1", "run")


@pytest.mark.parametrize("target", ["recorded", "live"])
def test_other_targets_have_no_indices(target: str) -> None:
    one = session("cnn_portable")
    said(one, f"target {target}", "start")
    assert "only a run on the runtime" in refused(one, "print value(3)")
    assert one.execute("set value(3) = 0").error is not None
    assert "index" not in said(one, "info tensors")


def test_one_is_counted_as_one() -> None:
    found = [counted(n, "node") for n in (0, 1, 2, 1234)]
    assert found == ["0 nodes", "1 node", "2 nodes", "1,234 nodes"]
    assert "1 recorded run;" in said(session("recurrent_xnnpack"), "target recorded")


@pytest.fixture(scope="module")
def shadowing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program in whose loop a node has the name of one outside."""
    import torch
    from torch._higher_order_ops import map as map_over

    from etscope.export import export

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return map_over(lambda row: torch.tanh(row) * row, x * x)

    folder = tmp_path_factory.mktemp("shadowing")
    export(Net().eval(), (torch.arange(1.0, 7.0).reshape(3, 2),)).save(str(folder), "model")
    return folder


def test_a_name_in_a_loop_is_that_of_the_loop(shadowing: Path) -> None:
    one = begun(Session(shadowing / "model.etrecord", shadowing / "model.pte"))
    outer, inner = "aten_mul_tensor", "submodule_0/aten_mul_tensor"
    said(one, "tbreak op:tanh", "run", "until op:mul")
    stop = one.debugger.here()
    assert (stop.node, stop.path) == (outer, inner)
    assert said(one, f"print ({outer} == $).all()") == "True\n"
    assert said(one, f'print value("/{outer}").shape') == "[3, 2]\n"
    assert said(one, f"set {outer} = 7").startswith(inner)
    assert said(one, "print ($ == 7).all()") == "True\n"
    assert said(one, f'print (value("/{outer}") == 7).any()') == "False\n"
    said(one, "start")
    assert one.debugger.here().path == outer
    assert said(one, f"print {outer}.shape") == "[3, 2]\n"
