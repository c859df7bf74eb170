"""The sessions of docs/how-to/etdb-runtime.md are what etdb says of the program, here and on
another architecture."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etscope.etdb import Session
from etscope.run.native import native_missing
from tests.support import aarch64
from tests.support.artifacts import ArtifactUnavailable
from tests.support.docs.pages import ROOT
from tests.support.docs.sessions import check_said, check_sessions, laid_out, replayed, sessions_of

PAGE = ROOT / "docs/how-to/etdb-runtime.md"
START = "(etdb) target runtime\n"

pytestmark = pytest.mark.skipif(native_missing() is not None, reason=str(native_missing()))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.chdir(laid_out(PAGE, tmp_path))
    return Session("model.etrecord", "device.pte")


def test_the_sessions_are_what_etdb_says(session: Session) -> None:
    check_sessions(PAGE, session)


@pytest.mark.nightly
def test_they_are_the_same_on_another_architecture(session: Session) -> None:
    """Through `target remote`, of a server that has been copied to a device."""
    try:
        command = aarch64.command("etdb-server")
    except ArtifactUnavailable as reason:
        pytest.skip(str(reason))
    with listening([*command, "--listen", "127.0.0.1:0"]) as address:
        for text in sessions_of(PAGE):
            before, begun, after = text.partition(START)
            if begun:  # elsewhere: this line and its answer
                check_said(replayed(session, before), before)
                answer = session.execute(f"target remote {address}")
                assert answer.ok, answer.error
                assert "aarch64" in session.execute("info target").text
                after = after[after.index("(etdb) ") :]
            else:
                after = text
            check_said(replayed(session, after), after)


@contextmanager
def listening(command: list[str]) -> Iterator[str]:
    """The address of a server that ends with the block."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]
    finally:
        server.terminate()
        server.wait(60)
