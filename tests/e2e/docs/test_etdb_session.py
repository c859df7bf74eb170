"""The sessions of docs/etdb.md are what etdb says: they are replayed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etscope.etdb import Session
from tests.support.docs.pages import ROOT
from tests.support.docs.sessions import check_said, laid_out, replayed, sessions_of, written_anew

PAGE = ROOT / "docs/etdb.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid_out(PAGE, tmp_path_factory.mktemp("etdb"))


def test_the_sessions_are_what_etdb_says(folder: Path) -> None:
    session = Session(*(folder / name for name in ("model.etrecord", "run/run.etdp")))
    session.execute(f"core {folder / 'run/run.etdp'} {folder / 'run/debug.bin'}")
    written = sessions_of(PAGE)
    assert len(written) >= 5
    told = [replayed(session, text) for text in written]
    if os.environ.get("ETSCOPE_UPDATE_GOLDEN"):
        written_anew(PAGE, told)
        return
    for said, expected in zip(told, written, strict=True):
        check_said(said, expected)
    assert "error:" not in "".join(told)
