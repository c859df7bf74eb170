"""Compiles the C++ of tests against the SDK inside the executorch wheel."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from etscope.errors import MissingDependencyError
from etscope.run.native import find_sdk
from tests.support.artifacts import ArtifactUnavailable, cache_folder

DEFINES = ("C10_USING_CUSTOM_GENERATED_MACROS", "ET_EVENT_TRACER_ENABLED", "ET_USE_THREADPOOL")
LIBRARIES = ("executorch", "executorch_etdump", "executorch_kernels_optimized")


def compiled(source: Path, *, shared: bool = False) -> Path:
    """The program, or the shared library, of one source file, from the cache if it is there."""
    try:
        sdk = find_sdk()
    except MissingDependencyError as error:
        raise ArtifactUnavailable(error.message) from error
    compiler = shutil.which("g++")
    if compiler is None:
        raise ArtifactUnavailable("g++ is not installed")
    key = hashlib.sha256(source.read_bytes() + os.fsencode(sdk)).hexdigest()[:12]
    cache_folder().mkdir(parents=True, exist_ok=True)
    binary = cache_folder() / f"compiled-{source.stem}-{key}{'.so' if shared else ''}"
    with open(cache_folder() / f"compiling-{source.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _compile(compiler, sdk, source, binary, ["-shared", "-fPIC"] if shared else [])
    return binary


def _compile(compiler: str, sdk: Path, source: Path, binary: Path, flags: list[str]) -> None:
    scratch = binary.with_suffix(".new")
    include = sdk / "include"
    command: list[Any] = [compiler, "-std=c++17", "-O1", *flags, *(f"-D{d}" for d in DEFINES)]
    command += ["-isystem", include]
    command += ["-isystem", include / "executorch/runtime/core/portable_type/c10"]
    # Registration happens in static initialisers, so the linker must keep libraries nobody names.
    command += [source, "-o", scratch, f"-L{sdk / 'lib'}", "-Wl,--no-as-needed"]
    command += [f"-l{name}" for name in LIBRARIES]
    command += ["-Wl,--as-needed", f"-Wl,-rpath,{sdk / 'lib'}"]
    try:
        subprocess.run(command, check=True)
        scratch.rename(binary)
    finally:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
