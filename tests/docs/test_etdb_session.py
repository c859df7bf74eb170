"""The sessions of docs/etdb.md are what etdb says: they are replayed, word by word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etscope.etdb import Session
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/etdb.md"
SESSION = re.compile(r"<!-- session -->\n```text\n(.*?)```", re.DOTALL)
PROMPT = "(etdb) "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's files are, made as it says."""
    place = tmp_path_factory.mktemp("etdb")
    for block in blocks(PAGE):
        if block.note is not None and block.note[0] == "file":
            (place / block.note[1]).write_text(block.code)
    subprocess.run([sys.executable, "make.py"], cwd=place, check=True, capture_output=True)
    return place


def replayed(folder: Path, texts: list[str]) -> Iterator[str]:
    session = Session(*(folder / name for name in ("model.etrecord", "run/run.etdp")))
    session.execute(f"core {folder / 'run/run.etdp'} {folder / 'run/debug.bin'}")
    for text in texts:
        told = ""
        for line in text.splitlines():
            if line.startswith(PROMPT):
                result = session.execute(line.removeprefix(PROMPT))
                assert result.ok, f"{line}: {result.error}"
                told += f"{line}\n{result.text}"
        yield told


def test_the_sessions_are_what_etdb_says(folder: Path) -> None:
    page = PAGE.read_text()
    written = SESSION.findall(page)
    assert len(written) >= 5
    told = list(replayed(folder, written))
    if os.environ.get("ETSCOPE_UPDATE_GOLDEN"):
        parts = iter(told)
        PAGE.write_text(SESSION.sub(lambda match: match[0].replace(match[1], next(parts)), page))
        return
    assert told == written
