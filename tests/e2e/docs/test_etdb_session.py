"""The sessions of docs/how-to/etdb.md are what etdb says: they are replayed."""

from __future__ import annotations

from pathlib import Path

from etscope.etdb import Session
from tests.support.docs.pages import ROOT
from tests.support.docs.sessions import check_sessions, laid_out, sessions_of

PAGE = ROOT / "docs/how-to/etdb.md"


def test_the_sessions_are_what_etdb_says(tmp_path: Path) -> None:
    folder = laid_out(PAGE, tmp_path)
    run = folder / "run"
    session = Session(folder / "model.etrecord", run / "run.etdp")
    session.execute(f"core {run / 'run.etdp'} {run / 'debug.bin'}")
    check_sessions(PAGE, session)
    assert "error:" not in "".join(sessions_of(PAGE))
