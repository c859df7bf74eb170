"""What is kept in float together, and the words that pick it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from etscope.backends.recipes import xnnpack_quantizer
from etscope.bridge.lowering.keep_float import Unit, quantizable
from etscope.model.selector import Selector
from etscope.search.sensitivity.results import GROUPINGS, groups_of, neighbours, picks


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 2, 1)
        self.pool = torch.nn.MaxPool2d(2)

    def forward(self, x: Any) -> Any:
        x = self.pool(torch.relu(self.conv(x)))
        return x + torch.relu(x + x)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x)) * 2


@pytest.fixture(scope="module")
def units() -> list[Unit]:
    module = torch.export.export(Net().eval(), (torch.randn(1, 2, 8, 8),)).module()
    return quantizable(module, xnnpack_quantizer())


@pytest.mark.parametrize("by", GROUPINGS)
def test_a_selector_picks_its_group_alone(units: list[Unit], by: str) -> None:
    groups = groups_of(units, by)
    names = [name for group in groups for name in group.units]
    assert sorted(names) == sorted(unit.names[0] for unit in units if not unit.moves)
    for group in groups:
        selector = Selector(group.selector)
        assert {unit.names[0] for unit in units if picks(selector, unit)} == set(group.units)
        assert set(group.units) <= set(group.names)
        assert group.source.startswith("test_groups.py:")


def test_the_words_are_short_where_they_can_be(units: list[Unit]) -> None:
    by_op = [group.selector for group in groups_of(units, "op")]
    assert by_op == ["op:conv2d", "op:add", "op:mul"]
    by_module = [group.selector for group in groups_of(units, "module")]
    assert by_module[0] == "module:first.conv"
    assert "module:first and op:add" in by_module
    assert "op:mul" in by_module


def test_neighbours_meet_across_what_only_moves_values(units: list[Unit]) -> None:
    """A pooling is between the convolution and the additions."""
    groups = groups_of(units, "node")
    found = {tuple(groups[index].units[0] for index in sorted(pair)) for pair in neighbours(groups)}
    assert ("conv2d", "add") in found
    assert ("conv2d", "add_1") in found
    assert ("add", "add_1") in found
    assert ("conv2d", "conv2d_1") not in found


def test_what_is_picked_is_all_there_is(units: list[Unit]) -> None:
    groups = groups_of(units, "node", "module:second")
    assert [group.units for group in groups] == [("conv2d_1",), ("add_2",), ("add_3",)]
