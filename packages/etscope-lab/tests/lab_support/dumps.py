"""Dumps of real programs for the tests of the fleet, with what `etscope run --save` writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.support.artifacts import artifacts
from tests.support.timed_dumps import timed_dump


def saved_run(folder: Path, name: str = "cnn_portable", **facts: Any) -> Path:
    """A folder with a run.etdp of a real program, its times varied by `seed`, and a run.json."""
    folder.mkdir(parents=True)
    options = {key: facts.pop(key) for key in ("seed", "runs", "slower", "first") if key in facts}
    source = artifacts(name).etdump_timing
    assert source is not None
    timed_dump(source, folder / "run.etdp", **{"runs": 4, **options})
    (folder / "run.json").write_text(json.dumps({"program": f"{name}.pte", **facts}))
    return folder / "run.etdp"


def record_of(name: str = "cnn_portable") -> Path:
    """The ETRecord of the export of that program."""
    path = artifacts(name).etrecord
    assert path is not None
    return path


def dies(*_: object) -> None:
    """End the process that runs this, as the system's killer does."""
    os._exit(9)
