"""The public surface is the list in public_names.txt; changing it is visible in a diff."""

from __future__ import annotations

import importlib
from collections import defaultdict
from pathlib import Path

import pytest

NAMES = (Path(__file__).parent / "public_names.txt").read_text().split()


def by_module() -> dict[str, list[str]]:
    """Module -> the public names that the list gives it."""
    found: dict[str, list[str]] = defaultdict(list)
    for dotted in NAMES:
        module, _, name = dotted.rpartition(".")
        found[module].append(name)
    return dict(found)


def test_the_list_is_sorted_and_has_no_doubles() -> None:
    assert sorted(set(NAMES)) == NAMES


@pytest.mark.parametrize("module", by_module())
def test_names_can_be_imported(module: str) -> None:
    loaded = importlib.import_module(module)
    missing = [name for name in by_module()[module] if not hasattr(loaded, name)]
    assert missing == []


@pytest.mark.parametrize("module", by_module())
def test_all_is_the_list(module: str) -> None:
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == by_module()[module]


def test_an_unknown_name_is_an_attribute_error() -> None:
    import etscope

    with pytest.raises(AttributeError, match="no attribute 'Inspektor'"):
        etscope.Inspektor  # noqa: B018
