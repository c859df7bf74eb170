"""Artefacts' programs as targets on the runtime, and dumps of the same runs."""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.profile.trace import Trace
from etscope.capture import RunFiles
from etscope.errors import EtscopeWarning
from etscope.etdb.protocol.launch import Local
from etscope.etdb.targets.recorded import RecordedRuns
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.etdb.targets.runtime_method import prepare_method
from etscope.run import run
from tests.support.artifacts import Artifact, artifacts


def method_of(artifact: Artifact) -> str:
    """The method that the artefact's first run was of."""
    method: str = artifact.meta["runs"][0][0]
    return method


@functools.cache
def inputs_of(name: str) -> list[Any]:
    """The inputs of its first case, flat."""
    import torch

    artifact = artifacts(name)
    assert artifact.inputs_pt is not None
    case = torch.load(artifact.inputs_pt)[method_of(artifact)][0]
    return list(torch.utils._pytree.tree_leaves(case))


def files_of(name: str, *, record: bool = True) -> RunFiles:
    """Its program and, if it is wanted, its record."""
    artifact = artifacts(name)
    return RunFiles(program=artifact.pte, record=artifact.etrecord if record else None)


@contextmanager
def on_runtime(name: str, *, record: bool = True, **options: Any) -> Iterator[RuntimeTarget]:
    """A target on the artefact's program."""
    options = {"inputs": inputs_of(name), "method": method_of(artifacts(name)), **options}
    files, launcher = files_of(name, record=record), options.pop("launcher", Local())
    asked = {key: options.pop(key) for key in ("threads", "traced") if key in options}
    given = options.pop("method"), options.pop("inputs")
    prepared = prepare_method(files.capture(), files.bundle, *given, **options)
    target = RuntimeTarget(prepared, launcher, **asked)
    try:
        yield target
    finally:
        target.close()


@dataclass(frozen=True)
class Recording:
    """A dump of the run, and the files that it is explained by."""

    runs: RecordedRuns
    trace: Trace


@functools.cache
def recorded(name: str) -> Recording:
    """The same run with all values, by the runner that records."""
    artifact = artifacts(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EtscopeWarning)  # of types that a dump has in wider ones
        done = run(
            artifact.pte,
            inputs_of(name),
            method=method_of(artifact),
            etrecord=artifact.etrecord,
            debug_level="intermediate_outputs",
            iterations=1,
            warmup=0,
            separate=False,
            runner="native",
        )
    folder = Path(tempfile.mkdtemp(prefix="recorded-"))
    done.save(folder)
    files = files_of(name)
    buffer = folder / "debug.bin"
    trace = RunFiles(
        folder / "run.etdp", files.record, files.program, buffer if buffer.exists() else None
    ).open()
    return Recording(RecordedRuns(trace), trace)


def same(value: Any, recorded_value: Any) -> bool:
    """Whether values are the same numbers. A recorder widens types that a dump cannot hold."""
    if value is None or recorded_value is None:
        return value is recorded_value
    wide: npt.NDArray[Any] = np.asarray(recorded_value)
    array = np.asarray(value)
    return array.shape == wide.shape and np.array_equal(
        array.astype(wide.dtype), wide, equal_nan=wide.dtype.kind == "f"
    )
