"""Sessions on the runtime itself, which the fixture `sessions_are_closed` ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from etscope.etdb import Session
from etscope.etdb.targets.runtime import RuntimeTarget
from tests.support.artifacts import artifacts
from tests.support.etdb.runtimes import inputs_of
from tests.support.etdb.sessions import said, session

OPEN: list[Session] = []


def on_runtime(name: str, *, record: bool = True, options: str = "") -> Session:
    """A session of an artefact's program, on the runtime."""
    one = session(name) if record else Session(artifacts(name).pte, inputs=inputs_of(name))
    return begun(one, options)


def begun(one: Session, options: str = "") -> Session:
    OPEN.append(one)
    said(one, "set times off")
    assert "operator" in said(one, f"target runtime {options}")
    return one


def target_of(one: Session) -> RuntimeTarget:
    target = one.debugger.target
    assert isinstance(target, RuntimeTarget)
    return target


def of_inputs(program: Path, *inputs: np.ndarray[Any, Any]) -> Session:
    path = program.with_suffix(".npz")
    np.savez(path, *inputs)
    return begun(Session(program), f"--inputs {path}")
