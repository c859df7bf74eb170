from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from etscope.cli.options.evaluation import DatasetOptions, dataset_options


def options_of(*arguments: str) -> DatasetOptions:
    found: list[Any] = []

    @click.command()
    @dataset_options
    def command(dataset_options: DatasetOptions) -> None:
        found.append(dataset_options)

    CliRunner().invoke(command, ["--dataset", "data", *arguments], catch_exceptions=False)
    (one,) = found
    assert isinstance(one, DatasetOptions)
    return one


@pytest.mark.parametrize(
    ("arguments", "top"),
    [
        ((), None),
        (("--max-flips", "1"), 5),
        (("--top", "2"), 2),
        (("--top", "2", "--max-flips", "1"), 2),
    ],
)
def test_flips_are_of_the_first_five_classes_unless_told(
    arguments: tuple[str, ...], top: int | None
) -> None:
    assert options_of(*arguments).of_run.top == top
