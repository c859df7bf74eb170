"""Cores: the dump and the debug buffer of a run on the runtime, as files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from etscope.errors import EtscopeError, UsageError
from etscope.etdb._debugger import Debugger
from etscope.etdb.protocol.facts import Core, RunnerDied
from etscope.etdb.ui.describe import source_text

BUFFER_SUFFIX = ".bin"  # by which a debug buffer is known


def buffer_path(path: Path) -> Path:
    """Where the debug buffer of a dump is written: beside it, under a name that tells it."""
    beside = path.with_suffix(BUFFER_SUFFIX)
    return path.with_name(path.name + BUFFER_SUFFIX) if beside == path else beside


def write_core(core: Core, path: Path) -> tuple[Path, Path]:
    """Write a core's two files, each of them whole or not at all; their paths.

    Raises `UsageError` where they cannot be written, or are there already."""
    buffer = buffer_path(path)
    for one in (path, buffer):
        if one.exists() or one.is_symlink():
            raise UsageError(f"{one} is there already", hint="give another name, or remove it")
    try:
        _put(core.debug_buffer, buffer)
        try:
            _put(core.etdump, path)
        except OSError:
            buffer.unlink(missing_ok=True)
            raise
    except FileExistsError as error:
        raise UsageError(f"{path} or {buffer} is there already") from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return path, buffer


def _put(data: bytes, path: Path) -> None:
    """Put a file in its place when it is complete; what is there already stays."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written = Path(name)
        written.chmod(0o644)
        try:
            path.hardlink_to(written)  # a rename would replace a file that has come meanwhile
        except FileExistsError:
            raise
        except OSError:  # of a file system that has no links
            written.rename(path)
    finally:
        Path(name).unlink(missing_ok=True)


def after_death(debugger: Debugger, error: RunnerDied) -> RunnerDied:
    """The error of a run that killed its runner, with the core that it left in this folder."""
    target = debugger.on_runtime
    told = [error.message]
    stops = [] if target is None else target.stops
    lines = next((s.lines for s in stops if s.instruction == error.instruction), ())
    told += [f"  {source_text(line)}" for line in lines[:1]]
    try:
        core = error.core or (None if target is None else target.core())
        if core is None:
            raise UsageError("the runner is gone")
        path, buffer = write_core(core, _free(Path(f"etdb-core-{os.getpid()}.etdp")))
    except (EtscopeError, OSError) as why:
        told.append(f"  no core: {getattr(why, 'message', why)}")
        hint = "run begins anew; print and step repeat the run up to the stop before"
    else:
        told.append(f"  core: {path} and {buffer}")
        hint = f"core {path} {buffer}\n  looks into it; run begins anew"
    new = RunnerDied(
        "\n".join(told),
        reason=error.reason,
        step=error.step,
        instruction=error.instruction,
        core=error.core,
        hint=hint,
    )
    new.log = error.log
    return new


def _free(path: Path) -> Path:
    """The path, or the first numbered one that is free."""
    found, number = path, 1
    while found.exists() or buffer_path(found).exists():
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found


__all__ = ["after_death", "buffer_path", "write_core"]
