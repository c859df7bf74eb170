"""`etscope replay`: operators of recorded runs, cut out and run alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from etscope.analysis.profile.trace import Trace
from etscope.capture import open_capture
from etscope.errors import MissingDataError
from etscope.formats.torch_files.tensor_files import read_tensor_file
from etscope.run import Call, run
from etscope.search.replay import Replayed, replay
from tests.support.artifacts import artifacts


def trace_of(name: str, folder: Path) -> Trace:
    made = artifacts(name)
    call = Call("forward", made.inputs, iterations=3)
    with run(made.pte, call, etrecord=made.etrecord, trace=True) as done:
        done.save(folder)
    trace = open_capture(folder).trace
    assert trace is not None
    return trace


def replayed(name: str, select: str, folder: Path) -> Replayed:
    trace = trace_of(name, folder / "ran")
    return replay(trace, select, backends=("xnnpack",), threads=(1,), rounds=2, folder=folder)


def test_an_operator_runs_alone_with_its_weights_and_values(tmp_path: Path) -> None:
    found = replayed("cnn_xnnpack", "op:convolution", tmp_path)
    (cell,), (alone,) = found.found.cells, found.alone
    assert cell.result == "ok" and cell.sqnr is not None and cell.sqnr > 100
    assert alone is not None and 0 < alone <= (cell.time_ns or math.inf) * 1.5
    assert found.part.ns > 0 and 0 < found.part.share < 1
    assert all("Convolution" in kernel or "Fully" in kernel for kernel in found.part.kernels)
    piece = torch.export.load(tmp_path / "operator.pt2").module()
    files = (next(tmp_path.glob(f"{name}-0.*")) for name in ("inputs", "expected"))
    inputs, expected = ([*read_tensor_file(one).values] for one in files)
    (got,) = piece(*(torch.from_numpy(np.array(one)) for one in inputs))
    assert np.allclose(got.detach().numpy(), expected[0], atol=1e-5)
    report = (tmp_path / "report.md").read_text()
    assert "executorch 1." in report and "In the run:" in report


def test_a_quantized_operator_keeps_its_kernel(tmp_path: Path) -> None:
    found = replayed("cnn_xnnpack_int8", "op:linear or op:convolution", tmp_path)
    assert found.table().values["quantize"] == ["as in the run"]
    trace = open_capture(str(found.found.cells[0].run)).trace
    assert trace is not None
    names = {row.kernel_name for one in trace.profiles() for _, row in one.leaves}
    assert names.issuperset(found.part.kernels)


def test_what_cannot_be_replayed_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = artifacts("cnn_xnnpack")
    trace = open_capture(made.etdump, made.etrecord, made.pte).trace
    assert trace is not None
    with pytest.raises(MissingDataError, match="nothing matches 'op:none'"):
        replay(trace, "op:none")
    with pytest.raises(MissingDataError, match="no node of the graph is known"):
        replay(trace, "kind:unaccounted")
    with pytest.raises(MissingDataError, match="the inputs of the run are not known"):
        replay(trace, "op:aten.convolution*")
