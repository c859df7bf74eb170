"""Operators with several outputs, modules without code, elements that are set, writes that are
watched: on a model in a folder with blanks and brackets in its name."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.etdb import Session  # noqa: E402
from etscope.etdb.session import Completer  # noqa: E402
from etscope.export import export  # noqa: E402
from tests.support.etdb.runtime_sessions import OPEN, begun  # noqa: E402
from tests.support.etdb.sessions import refused, said, where  # noqa: E402
from tests.support.run.stateful import Cache  # noqa: E402

SOURCE = """
import torch
from torch import nn


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return torch.relu(self.norm(x)) * 2


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.parts = nn.ModuleList([Part(), Part()])
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        x = self.stem(x)
        for part in self.parts:
            x = part(x)
        return self.pool(x)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("outputs") / "my models (one)"
    found.mkdir()
    (found / "parts_to_debug.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(found)
        module = importlib.import_module("parts_to_debug")
        torch.manual_seed(0)
        exported = export(module.Parts().eval(), (torch.randn(1, 3, 16, 16),))
    exported.save(found, "model", bundle=False)
    return found


def on(folder: Path, kind: str = "runtime") -> Session:
    one = Session(folder / "model.etrecord", folder / "model.pte")
    OPEN.append(one)
    said(one, "set times off", f"target {kind}", "start")
    return one


def test_up_passes_modules_without_code(folder: Path) -> None:
    one = on(folder)
    said(one, "until module:parts.1 and op:relu")
    told = said(one, "bt")
    assert "module parts.1 (Part)" in told and "module parts\n" not in told
    text = said(one, "up")
    assert text.startswith("module (root) (Parts)\n#1 parts_to_debug.py:") and "x = part(x)" in text
    assert ">" in said(one, "list") and "x = part(x)" in said(one, "list")
    assert "outermost" in refused(one, "up")
    said(one, "down", "finish")
    assert where(one) == "aten_max_pool2d_with_indices_default"


@pytest.mark.parametrize("kind", ["runtime", "live"])
def test_indices_beside_values_are_not_mixed_with_them(folder: Path, kind: str) -> None:
    one = on(folder, kind)
    said(one, "until op:max_pool*")
    values, indices = one.value("$0"), one.value("$1")
    assert indices.max() > 100 > values.max()
    assert float(one.value("$.max()")) == pytest.approx(float(values.max()))
    assert float(one.value("$.mean()")) == pytest.approx(float(values.mean()), rel=1e-6)
    assert float(one.value("$all.max()")) == float(indices.max())
    assert [list(shape) for shape in one.value("$.shape")] == [[1, 8, 8, 8]] * 2
    # A group norm's mean and deviation are read by nothing.
    said(one, "start", "until op:native_group_norm")
    assert float(one.value("$.max()")) == pytest.approx(float(one.value("$0").max()))
    said(one, "break if $.max() > 100", "break if $ > 100", "watch $.abs().max() > 100")
    result = one.execute("run")
    assert "is over" in result.text and result.exit_code == 0


def test_a_condition_that_does_not_fit_everywhere_goes_on(folder: Path) -> None:
    one = on(folder)
    said(one, "break if $[0, 0].max() > 1e9")
    told = said(one, "run")
    assert "is over" in told and "of 10 operators: these are 2 outputs" in told
    said(one, "delete", "start", "until op:max_pool*")
    assert "$0[…] is the first" in refused(one, "print $[0, 0, 0, :4]")
    said(one, "break if $.nothing() > 1")
    assert ".nothing() is not known" in refused(one, "run")  # wrong everywhere: said at once


@pytest.mark.parametrize("kind", ["runtime", "live"])
def test_elements_can_be_set(folder: Path, kind: str) -> None:
    one = on(folder, kind)
    before = one.value("$")
    expected = before.copy()
    expected[0, 0, 0, 0], expected[0, 1] = 5, np.where(before[0, 1] > 0, before[0, 1], 0)
    said(one, "set $[0, 0, 0, 0] = 5", "set $[0, 1] = where($[0, 1] > 0, $[0, 1], 0)")
    np.testing.assert_array_equal(one.value("$"), expected)
    said(one, "set aten_convolution_default[..., :2] = -1")
    expected[..., :2] = -1
    np.testing.assert_array_equal(one.value("$"), expected)
    said(one, "until op:native_group_norm", "set $0[0, :4] = 3")
    assert (one.value("$0")[0, :4] == 3).all()
    said(one, "set $[0][0][1] = 4")
    assert (one.value("$0")[0, 1] == 4).all() and (one.value("$0")[0, 2] == 3).all()
    for line, told in {
        "set $[7] = 7": "not of one output",
        "set $0[0, 0, 99] = 7": "out of bounds",
        "set $0[0, 0] = 'x'": "cannot be set",
        "set $all = 7": "the outputs of the operator",
        "print where($0 > 0)": "three arguments",
    }.items():
        assert told in refused(one, line), line
    assert one.value("$0.sum((2, 3))").shape == (1, 8)


def test_a_line_in_a_folder_with_blanks_and_brackets(folder: Path) -> None:
    number = SOURCE.splitlines().index("        return torch.relu(self.norm(x)) * 2") + 1
    caller = SOURCE.splitlines().index("            x = part(x)") + 1
    one = on(folder)
    name = f"{folder.name}/parts_to_debug.py:{number}"
    for place in (f"{folder.parent}/{name}", name, f'"{name}"', f"parts_to_debug.py:{number}"):
        assert "8 places" in said(one, f"break {place}")
        said(one, f"save breakpoints {folder}/saved.etdb", "delete", f"source {folder}/saved.etdb")
        assert len(one.debugger.breakpoints) == 1
        said(one, "delete")
    assert "8 places" in said(one, f"break {folder.name}/parts_to_debug.py:{caller} if $.max() > 0")
    assert "nearest line" in refused(one, f"break {folder.name}/parts_to_debug.py:1")
    assert f">   {number}" in said(one, "list aten_relu_default")


def test_watching_a_node_stops_where_it_is_written(tmp_path: Path, folder: Path) -> None:
    one = on(folder)
    assert "is written (id:" in said(one, "watch aten_relu_default_1")
    said(one, "run")
    assert where(one) == "aten_relu_default_1"
    assert "no operator of this run writes p_stem_weight" in refused(one, "watch p_stem_weight")
    export(Cache(), (torch.randn(1, 1, 8), torch.tensor([0]))).save(tmp_path, "m", bundle=False)
    cached = begun(Session(tmp_path / "m.etrecord", tmp_path / "m.pte"))
    said(cached, "start")
    first = cached.value("b_cache")
    said(cached, "watch b_cache", "run")
    assert not np.array_equal(cached.value("b_cache"), first)
    said(cached, "reverse-step")
    np.testing.assert_array_equal(cached.value("b_cache"), first)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("break op:n", "op:native_group_norm"),
        ("break parts_to_debug.py:", "parts_to_debug.py:12"),
        ("until parts_", "parts_to_debug.py"),
        ("print $.m", "$.max("),
        ("break if $.sh", "$.shape"),
        ('print weight("st', '"stem.weight"'),
        ("info modules ", "op:"),
        ("info mo", "modules"),
    ],
)
def test_arguments_are_completed(folder: Path, line: str, expected: str) -> None:
    one = Session(folder / "model.etrecord", folder / "model.pte")
    OPEN.append(one)
    said(one, "target runtime")
    assert expected in Completer(one.debugger).complete(line)[1]


def test_commands_are_given_other_names(folder: Path) -> None:
    one = on(folder)
    said(one, "alias upto = until", "upto op:max_pool*")
    assert where(one) == "aten_max_pool2d_with_indices_default"
    assert "is a command of etdb" in refused(one, "alias print = x")
    assert said(one, "echo to here") == "to here\n"
