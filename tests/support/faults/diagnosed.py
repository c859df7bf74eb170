"""Exported, run with values, and diagnosed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from etscope.export import export
from etscope.inspector import Inspector
from etscope.run import run


def diagnosed(model: nn.Module, inputs: tuple[Any, ...], folder: Path, backend: str) -> Any:
    made = export(model.eval(), inputs, backend=backend)
    program, record, *_ = made.save(folder)
    ran = run(program, inputs, etrecord=record, debug_level="intermediate_outputs", iterations=2)
    dump, *_ = ran.save(folder / "ran")
    return Inspector(str(dump), etrecord=str(record)).diagnose_numerics(inputs=inputs)
