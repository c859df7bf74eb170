"""Samples by name: files, folders, and what is neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from etscope.errors import MissingDataError, MissingFileError
from etscope.search.trial import open_model, read_samples


def loaded(samples: list[object]) -> list[object]:
    found = read_samples(open_model(torch.nn.ReLU(), seed=0), samples)
    return [float(np.asarray(one[0]).ravel()[0]) for one in found]


def test_folders_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        np.savez(tmp_path / f"{number}.npz", input=np.full((1, 4), number, np.float32))
    (tmp_path / "notes.txt").write_text("no sample")
    own = (torch.full((1, 4), 7.0),)
    assert loaded([str(tmp_path), own, tmp_path / "9.npz"]) == [1, 9, 10, 7, 9]


def test_what_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="does not have tensor files"):
        loaded([tmp_path])
    with pytest.raises(MissingFileError):
        loaded([tmp_path / "nowhere.npz"])
