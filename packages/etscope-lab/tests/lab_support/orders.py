"""Orders for the process that measures, in folders as a worker makes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etscope_lab.jobs.records import input_path
from etscope_lab.jobs.spec import set_files

HOST: dict[str, Any] = {"name": "host", "driver": "host", "options": {}, "attributes": {}}


def ordered(
    folder: Path, files: Mapping[str, Path], *, device: Mapping[str, Any] = HOST, **spec: Any
) -> Path:
    """The folder with an order of a job with these files, by their fields."""
    (folder / "files").mkdir(parents=True)
    for field, path in files.items():
        shutil.copyfile(path, folder / input_path(field, path.name))
    plain: dict[str, Any] = {"runner": "native", **spec}
    set_files(plain, {f: {"sha256": "0" * 64, "name": path.name} for f, path in files.items()})
    order = {
        "job_id": "1", "attempt": 1, "token": "t", "store": "", "device": device, "spec": plain,
    }  # fmt: skip
    (folder / "order.json").write_text(json.dumps(order))
    return folder
