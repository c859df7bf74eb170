from __future__ import annotations

from dataclasses import replace

import pytest

from etscope.cli.options.evaluation import DatasetOptions

PLAIN = DatasetOptions("data", None, None, None, 0, False, (), 10, None)


@pytest.mark.parametrize(
    ("options", "top"),
    [
        (PLAIN, None),
        (replace(PLAIN, labels="labels.npy"), 5),
        (replace(PLAIN, max_flips=1.0), 5),
        (replace(PLAIN, top=2), 2),
        (replace(PLAIN, top=2, labels="labels.npy"), 2),
    ],
)
def test_classes_are_those_of_the_first_five_unless_told(
    options: DatasetOptions, top: int | None
) -> None:
    assert options.arguments()["top"] == top
