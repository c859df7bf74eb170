"""Pieces of a quantized model, beside the float graph that it was made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etscope.backends.registry.export_options import ExportOptions
from etscope.bridge.lowering import subprograms
from etscope.errors import MissingDataError, UsageError
from etscope.search.bisect import bisect

X = torch.randn(1, 4, generator=torch.Generator().manual_seed(0))


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(4, 8)
        self.last = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(torch.relu(self.first(x)))
        return result


def subject(calibration: Any = ()) -> Any:
    options = ExportOptions(backend="xnnpack", quantize=True)
    return subprograms.subject_of(Small(), [(X,)], options, None, calibration)


def test_pieces_are_fed_with_and_compared_with_float_values() -> None:
    quantized, before = subject()
    found = subprograms.with_floats(quantized, before)
    model = Small()
    names = ["relu", "linear_1"]
    with torch.no_grad():
        hidden = torch.relu(model.first(X))
        expected = dict(zip(names, (hidden, model.last(hidden)), strict=True))
    exact = subprograms.capture(found.program, found.samples[0], names, found.known(0))
    own = subprograms.capture(quantized.program, quantized.samples[0], names, quantized.known(0))
    for name in names:
        torch.testing.assert_close(exact[name], expected[name])
        assert not torch.equal(own[name], expected[name])


def test_calibration_changes_the_ranges() -> None:
    one, other = subject()[0], subject([(X * 100,)])[0]
    assert subprograms.fingerprint(one) != subprograms.fingerprint(other)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="graph before quantization is missing"):
        bisect(Small(), tmp_path, inputs=[(X,)], against="float")
    with pytest.raises(UsageError, match="give quantize too"):
        bisect(Small(), tmp_path, inputs=[(X,)], calibration=[(X,)])
    with pytest.raises(UsageError, match="quantized, float"):
        bisect(Small(), tmp_path, inputs=[(X,)], against="eager")
