"""Planted faults as somebody finds them who has the debugger, and nothing else: the record of the
right model, the program of the wrong one, and commands."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from etscope.etdb import Session
from etscope.export import export
from tests.support.faults import blocks
from tests.support.faults.planted import Case, instructions

# What rounding alone does is above 90 dB.
COMMANDS = ("set times off", "target runtime", "watch nan", "break if gap(sqnr) < 80", "run")
_STOPPED = re.compile(
    r"^\[\d+\] (?:.* · )?(?P<module>[\w.()]+)\n {4}(?P<file>\S+):(?P<line>\d+) ", re.MULTILINE
)
OVER = " is over, after "


@dataclass(frozen=True)
class Files:
    """The record and the program of a right model, and the program of the faulty one."""

    record: Path
    right: Path
    wrong: Path


def files_of(case: Case, folder: Path) -> Files | None:
    """Made in the folder. None if it is no fault: when the answer is the same; or when it leaves
    other instructions, which no record is of."""
    models, inputs = (case.model(), case.faulty()), case.inputs()
    with torch.no_grad():
        answers = [model(*inputs).numpy() for model in models]
    if np.array_equal(*answers, equal_nan=True):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right, wrong = (export(model, inputs) for model in models)
    if instructions(right) != instructions(wrong):
        return None
    right.save(folder / "right")
    wrong.save(folder / "wrong")
    return Files(
        folder / "right/model.etrecord", folder / "right/model.pte", folder / "wrong/model.pte"
    )


def told(record: Path, program: Path, commands: Sequence[str] = COMMANDS) -> str:
    """What the last of the commands says."""
    text = ""
    with closing(Session(record, program)) as session:
        for line in commands:
            result = session.execute(line)
            assert result.ok, f"{line}: {result.error}"
            text = result.text
    return text


def names(case: Case, text: str) -> bool:
    """Whether a stop that was told of is in the module and the line of the fault."""
    stopped = _STOPPED.search(text)
    return (
        stopped is not None
        and f"{stopped['module']}.".startswith(f"parts.{case.fault.block}.")
        and Path(blocks.__file__).name == Path(stopped["file"]).name
        and int(stopped["line"]) == case.line
    )
