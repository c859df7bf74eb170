"""Sessions of etdb that a page shows, replayed.

A page has them in `text` blocks under `<!-- session -->`, which follow one another: lines with the
prompt are done, the others are what etdb must say, word by word; the last digits of numbers with a
fraction are those of the processor. With $ETSCOPE_UPDATE_GOLDEN they are written anew.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np

from etscope.etdb import Session
from tests.support.docs.pages import blocks
from tests.support.warm import warm_python

PROMPT = "(etdb) "
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
_SESSION = re.compile(r"<!-- session -->\n```text\n(.*?)```", re.DOTALL)


def laid_out(page: Path, folder: Path) -> Path:
    """Where the page's files are, made as its `make.py` makes them."""
    for block in blocks(page):
        if block.note is not None and block.note[0] == "file":
            (folder / block.note[1]).write_text(block.code)
    subprocess.run([warm_python(), "make.py"], cwd=folder, check=True, capture_output=True)
    return folder


def sessions_of(page: Path) -> list[str]:
    """The texts of the page's sessions."""
    return _SESSION.findall(page.read_text())


def replayed(session: Session, text: str) -> str:
    """A session's text as etdb says it."""
    lines = [line for line in text.splitlines() if line.startswith(PROMPT)]
    said = (session.execute(line.removeprefix(PROMPT)).text for line in lines)
    return "".join(f"{line}\n{answer}" for line, answer in zip(lines, said, strict=True))


def check_said(told: str, written: str) -> None:
    """Fail unless etdb says what is written: PyTorch and the kernels add up in the order that suits
    a processor, so that the last digits may differ."""
    assert _lines(told) == _lines(written)
    numbers = [[float(x) for x in _NUMBER.findall(text)] for text in (told, written)]
    np.testing.assert_allclose(numbers[0], numbers[1], rtol=1e-3, atol=1e-4)


def _lines(text: str) -> list[list[str]]:
    """The words of each line, with a sign for each number; how wide numbers are is their matter."""
    plain = _NUMBER.sub("#", text).replace("[", "[ ")
    return [line.split() for line in plain.splitlines()]


def check_sessions(page: Path, session: Session) -> None:
    """Replay the page's sessions, or write them anew."""
    written = sessions_of(page)
    assert len(written) >= 5
    told = [replayed(session, text) for text in written]
    if os.environ.get("ETSCOPE_UPDATE_GOLDEN"):
        parts = iter(told)
        page.write_text(
            _SESSION.sub(lambda match: match[0].replace(match[1], next(parts)), page.read_text())
        )
        return
    for said, expected in zip(told, written, strict=True):
        check_said(said, expected)
