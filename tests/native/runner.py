"""Compiles ``runner.cpp`` against the C++ SDK inside the executorch wheel, and drives it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.artifacts import ArtifactUnavailable, cache_folder

SOURCE = Path(__file__).with_name("runner.cpp")
DEFINES = ("C10_USING_CUSTOM_GENERATED_MACROS", "ET_EVENT_TRACER_ENABLED", "ET_USE_THREADPOOL")
# Registration happens in static initialisers, so the linker must keep libraries nobody names.
LIBRARIES = (
    "executorch",
    "executorch_etdump",
    "executorch_threadpool",
    "executorch_kernels_optimized",
    "executorch_kernels_quantized",
    "executorch_backend_xnnpack",
)
# The runtime's ScalarType codes of what the artefacts feed.
SCALAR_TYPES = {"uint8": 0, "int8": 1, "int32": 3, "int64": 4, "float32": 6, "bool": 11}


@dataclass(frozen=True, slots=True)
class NativeCall:
    """One execution: plain arrays in, and the index of the bundled test case (-1 for none)."""

    inputs: tuple[np.ndarray, ...]
    method: str = "forward"
    repeat: int = 1
    index: int = -1


def run(script: Sequence[str]) -> None:
    """Run a script (the language is described in ``runner.cpp``)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script"
        path.write_text("".join(f"{line}\n" for line in script))
        subprocess.run([runner(), path], check=True)


def run_calls(
    pte: Path, etdump: Path, *calls: NativeCall | str, settings: Sequence[str] = ()
) -> None:
    """Execute calls of one program and write its ETDump; a string is a line of the script."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [*settings, f"program {pte}"]
        for number, call in enumerate(calls):
            if isinstance(call, NativeCall):
                lines += _call_lines(call, Path(folder) / str(number))
            else:
                lines.append(call)
        run([*lines, f"etdump {etdump}"])


def _call_lines(call: NativeCall, prefix: Path) -> list[str]:
    """Write the inputs to files; the lines that feed them and execute."""
    lines = []
    for index, array in enumerate(call.inputs):
        raw = prefix.with_name(f"{prefix.name}-{index}.raw")
        raw.write_bytes(np.ascontiguousarray(array).tobytes())
        sizes = ",".join(map(str, array.shape))
        lines.append(f"input {SCALAR_TYPES[array.dtype.name]} {sizes} {raw}")
    return [*lines, f"call {call.method} {call.repeat} {call.index}"]


def runner() -> Path:
    """The compiled runner, from the cache if its source and SDK have not changed."""
    sdk = _sdk()
    compiler = shutil.which("g++")
    if compiler is None:
        raise ArtifactUnavailable("g++ is not installed")
    key = hashlib.sha256(SOURCE.read_bytes() + os.fsencode(sdk)).hexdigest()[:12]
    binary = cache_folder() / f"runner-{key}"
    with open(cache_folder() / "runner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _compile(compiler, sdk, binary)
    return binary


def _sdk() -> Path:
    """The wheel's folder, found without importing the package."""
    spec = importlib.util.find_spec("executorch")
    locations = spec.submodule_search_locations if spec else None
    if not locations:
        raise ArtifactUnavailable("executorch is not installed")
    folder = Path(next(iter(locations)))
    if not (folder / "lib" / "libexecutorch_etdump.so").exists():
        raise ArtifactUnavailable("this executorch wheel has no C++ libraries (1.5 on Linux has)")
    return folder


def _compile(compiler: str, sdk: Path, binary: Path) -> None:
    scratch = binary.with_suffix(".new")
    include = sdk / "include"
    command: list[Any] = [compiler, "-std=c++17", "-O1", *(f"-D{name}" for name in DEFINES)]
    command += ["-isystem", include]
    command += ["-isystem", include / "executorch/runtime/core/portable_type/c10"]
    command += [SOURCE, "-o", scratch, f"-L{sdk / 'lib'}", "-Wl,--no-as-needed"]
    command += [f"-l{name}" for name in LIBRARIES]
    command += ["-Wl,--as-needed", f"-Wl,-rpath,{sdk / 'lib'}"]
    try:
        subprocess.run(command, check=True)
        scratch.rename(binary)
    finally:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
