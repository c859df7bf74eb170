"""The sessions of docs/debugging-a-running-model.md are what etdb says of the program, here and on
another architecture."""

from __future__ import annotations

import os
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
from tests.support.docs.sessions import check_said, laid_out, replayed, sessions_of, written_anew

PAGE = ROOT / "docs/debugging-a-running-model.md"
START = "(etdb) target runtime\n"

pytestmark = pytest.mark.skipif(native_missing() is not None, reason=str(native_missing()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid_out(PAGE, tmp_path_factory.mktemp("running"))


@pytest.fixture
def session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.chdir(folder)
    return Session("model.etrecord", "device.pte")


def test_the_sessions_are_what_etdb_says(session: Session) -> None:
    written = sessions_of(PAGE)
    assert len(written) >= 5
    told = [replayed(session, text) for text in written]
    if os.environ.get("ETSCOPE_UPDATE_GOLDEN"):
        written_anew(PAGE, told)
        return
    for said, expected in zip(told, written, strict=True):
        check_said(said, expected)


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
