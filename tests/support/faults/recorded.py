"""What is found in recorded runs of faulty models, with the records of the sound ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from etscope import Inspector
from etscope.analysis.numerics.rows import Numerics, NumericsRow
from tests.support.artifacts import artifacts


def opened(name: str, run: str = "right", *, verify: bool = False) -> Inspector:
    """A run of an artefact with the record of the right model. Nobody noted its inputs."""
    made = artifacts(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Inspector(
            made.extra(f"{run}.etdp"),
            etrecord=made.etrecord,
            debug_buffer_path=made.extra(f"{run}.bin"),
            program=made.extra(f"{run}.pte"),
            verify=verify,
        )


@cache
def found(name: str, run: str = "right") -> Numerics:
    """What the record of an artefact finds in one of its runs."""
    made = artifacts(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if made.inputs is None:  # the record has them
            return opened(name, run).diagnose_numerics()
        with np.load(made.inputs) as inputs:
            return opened(name, run).diagnose_numerics(inputs=list(inputs.values()))


def planted(name: str) -> Mapping[str, Any] | None:
    """The notes of a planted fault: its line and its module. None if it is no fault."""
    notes = artifacts(name).meta
    return None if notes["no_fault"] else notes


def is_named(row: NumericsRow | None, fault: Mapping[str, Any]) -> bool:
    """Whether a row names the fault: its line first, in a module of its block. Of a delegate, the
    line is one of the call's, which may have several blocks."""
    if row is None:
        return False
    if not row.is_delegate and not f"{row.module}.".startswith(f"{fault['module']}."):
        return False
    lines = row.lines if row.is_delegate else row.lines[:1]
    at = (fault["file"], fault["line"])
    return any((Path(line.file).name, line.line) == at for line in lines)
