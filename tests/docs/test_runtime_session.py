"""The sessions of docs/debugging-a-running-model.md are what etdb says of the program, here word by
word, and on another architecture but for the last digits."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from etscope.etdb import Session
from etscope.run._native_build import native_missing
from tests import aarch64
from tests.artifacts import ArtifactUnavailable
from tests.docs.pages import ROOT
from tests.docs.sessions import laid_out, replayed, sessions_of, written_anew

PAGE = ROOT / "docs/debugging-a-running-model.md"
START = "(etdb) target runtime\n"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")

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
    assert told == written


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
                _same(before, replayed(session, before))
                answer = session.execute(f"target remote {address}")
                assert answer.ok, answer.error
                assert "aarch64" in session.execute("info target").text
                after = after[after.index("(etdb) ") :]
            else:
                after = text
            _same(after, replayed(session, after))


def _same(written: str, told: str) -> None:
    """Numbers with a fraction may differ in their last digits."""
    assert _words(told) == _words(written)
    numbers = [[float(x) for x in NUMBER.findall(text)] for text in (told, written)]
    np.testing.assert_allclose(numbers[0], numbers[1], rtol=1e-3, atol=1e-4)


def _words(text: str) -> list[str]:
    return NUMBER.sub("#", text).split()


@contextmanager
def listening(command: list[str]) -> Iterator[str]:
    """The address of a server that ends with the block."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]
    finally:
        server.terminate()
        server.wait(10)
