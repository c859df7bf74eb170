"""Norms that lose digits on the runtime: wrong, with the cause and a remedy that holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.faults.diagnosed import diagnosed
from tests.support.faults.planted_programs import Model


@pytest.mark.parametrize(
    ("norm", "mean", "is_fine"),
    [
        pytest.param(nn.LayerNorm(128), 200.0, True, id="near"),
        pytest.param(nn.LayerNorm(128), 3000.0, False, id="layer"),
        pytest.param(nn.GroupNorm(4, 16, affine=False), 1000.0, False, id="group"),
    ],
)
def test_a_norm_that_loses_digits(
    tmp_path: Path, norm: nn.Module, mean: float, is_fine: bool
) -> None:
    """A norm of ExecuTorch that is a tenth off is wrong, or gives NaN, and why is named."""
    torch.manual_seed(0)
    x = torch.randn((1, 200, 128) if isinstance(norm, nn.LayerNorm) else (1, 16, 24, 24)) + mean
    found = diagnosed(norm, (x,), tmp_path, "portable")
    assert found.is_fine is is_fine, found.verdict
    what = found.what_it_is or ""
    assert ("its variance as the mean square less the squared mean" in what) is not is_fine
    if not is_fine:  # the remedy that it names
        centred = Model(lambda self, x: self.norm(x - x.mean(-1, keepdim=True)), norm=norm)
        assert diagnosed(centred, (x,), tmp_path / "centred", "portable").is_fine
