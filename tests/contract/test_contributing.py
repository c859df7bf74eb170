"""CONTRIBUTING names files, folders and layers: all of them exist."""

from __future__ import annotations

import re
from itertools import chain

from tests.contract.source_tree import ROOT
from tests.contract.test_layers import LAYERS

FOLDERS = ("src", "packages", "tests", "docs", "native/src", "web/src", ".ci", ".github")


def test_every_path_in_contributing_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(
        re.findall(r"`([\w.-]*[\w-]/[\w./-]*|[\w./-]+\.(?:py|md|toml|txt|tsx?))`", text)
    ) - {"utils.py"}  # forbidden there
    assert len(named) > 60
    files = chain(
        ROOT.glob("*"), ROOT.glob("*/*"), *((ROOT / folder).rglob("*") for folder in FOLDERS)
    )
    places = [f"/{path.relative_to(ROOT)}" for path in files]
    missing = [
        path
        for path in sorted(named)
        if not any(place.endswith("/" + path.rstrip("/")) for place in places)
    ]
    assert missing == []


def test_the_table_of_layers_is_that_of_the_test() -> None:
    rows = re.findall(r"^\| ([\d.]+) \| (.+?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    shown = {float(rank): set(re.findall(r"`(\w+)/?`", names)) for rank, names in rows}
    wanted = {
        rank: {name for name in names.split() if not name.startswith("_")}
        for rank, names in LAYERS.items()
    }
    assert shown == wanted
