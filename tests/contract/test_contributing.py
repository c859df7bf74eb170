"""CONTRIBUTING names files and folders: all of them exist."""

from __future__ import annotations

import re
from itertools import chain

from tests.contract.source_tree import ROOT

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
