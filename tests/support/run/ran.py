"""Runs that several tests look at, made once a process; and inputs of artefacts."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from etscope.run import Run, run
from tests.support.artifacts import Artifact, artifacts


def case(made: Artifact, key: str) -> tuple[Any, ...]:
    """The values that an artefact's .npz file has under "method/case/0" and so on."""
    return tuple(value for name, value in sorted(key_values(made, key)))


def key_values(made: Artifact, key: str) -> list[tuple[int, Any]]:
    assert made.inputs is not None
    with np.load(made.inputs) as file:
        names = [name for name in file.files if name.startswith(f"{key}/")]
        return [(int(name.rpartition("/")[2]), file[name]) for name in names]


def expected(made: Artifact, key: str) -> list[Any]:
    """The outputs that ExecuTorch's own bindings gave for the same inputs."""
    assert made.outputs is not None
    with np.load(made.outputs) as file:
        names = sorted(name for name in file.files if name.startswith(f"{key}/"))
        return [file[name] for name in names]


@functools.cache
def traced_cnn() -> Run:
    """The small CNN on portable kernels, with its record, values recorded in three executions."""
    made = artifacts("cnn_portable")
    return run(
        made.pte,
        case(made, "forward/0"),
        etrecord=made.etrecord,
        iterations=4,
        warmup=2,
        debug_level="intermediate_outputs",
        traced_iterations=3,
    )
