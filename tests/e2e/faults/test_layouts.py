"""Faults of XNNPACK's layout pass: the check, and what the runtime computes."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.planted_models import static
from etscope.analysis.faults.faults import program_faults
from etscope.analysis.matching.export import Export
from etscope.errors import RuntimeFailure
from etscope.export import export
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from etscope.run import run
from tests.support.faults.diagnosed import diagnosed
from tests.support.faults.planted_programs import Model


def _softmax(self: Model, x: Any) -> Any:
    return torch.softmax(self.conv(x), -1)


def _pooled(self: Model, x: Any) -> Any:
    y = self.conv(x)
    return y, nn.functional.avg_pool2d(self.view(y), 2)


@pytest.mark.parametrize("size", [(6, 5, 7), (6, 6, 6)])
def test_a_value_that_a_call_has_in_both_orders(size: tuple[int, ...]) -> None:
    """XNNPACK's pass transposes a dequantized value for all its users."""
    image = (torch.randn(1, *size),)
    faults = {}
    for name, view in (
        ("wrong", lambda y: y),
        ("view", lambda y: y.flatten(0, 1).unflatten(0, y.shape[:2])),
    ):
        model = Model(_pooled, conv=nn.Conv2d(6, 6, 3, padding=1)).eval()
        model.view = view
        program, inputs = static(True)(model, image)
        made = export(program, inputs, backend="xnnpack")
        made.record.save(file := BytesIO())
        both = Export(read_pte(made.program_bytes()), read_etrecord(file.getvalue()))
        faults[name] = program_faults(both)
        if name == "wrong" and size == (6, 5, 7):
            with pytest.raises(RuntimeFailure, match="the cause: The call of XnnpackBackend"):
                run(made.program_bytes(), inputs, iterations=1)
            continue
        outputs = run(made.program_bytes(), inputs, iterations=1).arrays[0]
        wanted = program.module()(*inputs)[1]
        assert torch.allclose(torch.as_tensor(outputs[1]), wanted, atol=0.1) is (name == "view")
    (fault,) = faults["wrong"]
    assert fault.kind == "mixed-layouts" and fault.explanation.sites[0].name == "avg_pool2d"
    assert not faults["view"]


def test_a_softmax_behind_a_convolution_is_of_its_channels(tmp_path: Path) -> None:
    model = Model(_softmax, conv=nn.Conv2d(6, 6, 3, padding=1))
    found = diagnosed(model, (torch.randn(1, 6, 5, 7),), tmp_path, "xnnpack")
    (fault,) = found.faults
    assert fault.kind == "mixed-layouts" and fault.explanation.sites[0].name == "softmax"
