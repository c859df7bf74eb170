"""The debugger on another architecture: a run there is what it is here, stop by stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etscope.etdb import Session
from etscope.run.native import native_missing
from tests.support import aarch64
from tests.support.artifacts import ArtifactUnavailable
from tests.support.etdb.sessions import said
from tests.support.etdb.sessions import session as session_of

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(native_missing() is not None, reason=str(native_missing())),
]

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # other vector instructions sum in another order


@pytest.fixture(scope="module")
def server() -> Path:
    try:
        return aarch64.script("etdb-server")
    except ArtifactUnavailable as reason:
        pytest.skip(str(reason))


def walked(session: Session) -> list[tuple[str, list[Any]]]:
    """Each stop of a run: its name, and its values."""
    found = []
    said(session, "start")
    while (stop := session.debugger.stop) is not None:
        values = session.debugger.some_target().device_values(stop.position)
        found.append((stop.name, [np.asarray(value) for value in values]))
        said(session, "step")
    return found


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack"])
def test_every_stop_has_the_values_that_it_has_here(server: Path, name: str) -> None:
    here, there = session_of(name), session_of(name)
    said(here, "target runtime")
    assert "(aarch64, " in said(there, f"target runtime --server {server}")
    expected, found = walked(here), walked(there)
    assert [stop for stop, _ in found] == [stop for stop, _ in expected]
    for (_, values), (_, same) in zip(expected, found, strict=True):
        for value, other in zip(values, same, strict=True):
            np.testing.assert_allclose(other, value, **CLOSE)


def test_it_goes_back_and_leaves_a_core(server: Path, tmp_path: Path) -> None:
    session = session_of("cnn_portable")
    said(session, f"target runtime --server {server}", "start")
    first = said(session, "print $.sum()")
    said(session, "step 4", "reverse-step 4")
    assert said(session, "print $.sum()") == first
    said(session, "step 3", f"gcore {tmp_path / 'half.etdp'}")
    core = session_of("cnn_portable")
    said(core, f"core {tmp_path / 'half.etdp'} {tmp_path / 'half.bin'}", "start")
    assert said(core, "print $.sum()") == first
    assert "after 4 operators" in said(core, "continue")
