"""Includes of the C++ in native/src point down: common, then runner and debuggee, then server."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.source_tree import ROOT

MAY_INCLUDE = {
    "common": {"common"},
    "runner": {"common", "runner"},
    "debuggee": {"common", "debuggee"},
    "server": {"common", "debuggee", "server"},
}


def wrong_includes(source: Path) -> list[str]:
    files = [path for path in sorted(source.rglob("*")) if path.suffix in (".h", ".cpp")]
    assert files
    found = []
    for path in files:
        allowed = MAY_INCLUDE[path.parent.name]
        found += [
            f"{path.relative_to(source)} includes {name}"
            for name in re.findall(r'^#include "(.*)"$', path.read_text(), re.MULTILINE)
            if not (source / name).is_file() or name.split("/")[0] not in allowed
        ]
    return found


def test_includes_point_down() -> None:
    assert wrong_includes(ROOT / "native" / "src") == []


def test_a_wrong_include_is_found(tmp_path: Path) -> None:
    for folder in MAY_INCLUDE:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.h").write_text("")
    (tmp_path / "common" / "b.cpp").write_text('#include "runner/a.h"\n#include "common/a.h"\n')
    assert wrong_includes(tmp_path) == ["common/b.cpp includes runner/a.h"]
