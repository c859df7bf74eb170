"""A calibration's program with products of one dtype and size, kept beside the artefacts."""

from __future__ import annotations

import functools
import hashlib
import os
from importlib import metadata
from pathlib import Path

from tests.support.artifacts import ROOT, cache_folder

_SOURCES = [ROOT / "src" / "etscope" / layer / "calibration.py" for layer in ("analysis", "bridge")]


@functools.cache
def small_program() -> Path:
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in _SOURCES)).hexdigest()[:12]
    folder = cache_folder() / f"calibration-et{metadata.version('executorch')}-{digest}"
    path = folder / "calibration.pte"
    if not path.is_file():
        from etscope.bridge.calibration import calibration_program

        data, left_out = calibration_program(["float32"], [64])
        assert left_out == {}
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{os.getpid()}.part"  # other processes make it, too
        part.write_bytes(data)
        part.replace(path)
    return path
