"""Sessions on artefacts, and what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from etscope.etdb import Session
from tests.support.artifacts import artifacts


def session(name: str, *, inputs: bool = True, program: bool = True) -> Session:
    """A session on all files of an artefact."""
    artifact = artifacts(name)
    parts = [artifact.etrecord, artifact.etdump, artifact.debug_buffer]
    paths = [str(path) for path in parts if path is not None]
    if program:
        paths.append(str(artifact.pte))
    given = None
    if inputs and artifact.inputs is not None:
        with np.load(artifact.inputs) as arrays:
            given = [arrays[key] for key in arrays.files if key.split("/")[1] == "0"]
    return Session(*paths, inputs=given)


def said(session: Session, *lines: str) -> str:
    """What the last line gives; all of them must do."""
    text = ""
    for line in lines:
        result = session.execute(line)
        assert result.ok, f"{line}: {result.error}"
        text = result.text
    return text


def refused(session: Session, line: str) -> str:
    """The message of a line that must fail."""
    result = session.execute(line)
    assert not result.ok, f"{line} did: {result.text}"
    assert result.error is not None
    return str(result.error)


def where(session: Session) -> str | None:
    """The node or event that the run stands at."""
    stop = session.debugger.stop
    return None if stop is None else stop.node or stop.name


def script(folder: Path, *lines: str) -> Path:
    path = folder / "script.etdb"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
