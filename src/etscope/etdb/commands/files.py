"""Which files and which run are looked at."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from etscope.errors import EtscopeError, UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._debugger import Debugger
from etscope.etdb._files import Files
from etscope.etdb.commands.registry import command
from etscope.etdb.protocol.facts import Core, RunnerDied
from etscope.etdb.ui.describe import source_text
from etscope.units import format_bytes

__all__ = ["after_death", "buffer_path", "write_core"]


# Cores: the dump and the debug buffer of a run on the runtime, as files.


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


# A run on the runtime, kept as the files that `core` and the Inspector open.


@command("generate-core-file PATH", group="files", aliases=("gcore",), words=("file",))
def generate_core_file(debugger: Debugger, rest: str) -> Answer:
    """Write the run up to here as an ETDump, and the tensors of it as a debug buffer beside.

    `gcore run.etdp` writes run.etdp and run.bin, which `core run.etdp run.bin` and the Inspector
    open. The program is run again for it with what was set, unless the target is --traced; the run
    that is walked stays where it is. Files that are there already are not replaced.
    """
    target = debugger.some_target()
    if target.is_past or target.is_reference:
        target.core()  # says what it is not
    if not rest:
        raise UsageError("write it where?", hint="generate-core-file run.etdp")
    if debugger.stop is None and not debugger.ended:
        raise UsageError("the run has not been begun", hint="run, or start")
    path = Path(os.path.expanduser(rest))  # noqa: PTH111 (of nobody's home it makes no error)
    for one in (path, buffer_path(path)):
        if one.exists():
            raise UsageError(f"{one} is there already", hint="give another name, or remove it")
    core = target.core()
    dump, buffer = write_core(core, path)
    return Answer().say(
        f"ETDump: {dump} ({format_bytes(len(core.etdump))})",
        f"debug buffer: {buffer} ({format_bytes(len(core.debug_buffer))})",
        f"look into it: core {dump} {buffer}",
    )


GROUP = "files"


@command("file [FILE …]", group=GROUP, words=("file",))
def file(debugger: Debugger, rest: str) -> Answer:
    """Load an ETRecord, a .pte or a .bpte in place of the one that is loaded; or list the files.

    A dump that does not belong to the new record is refused, and all stays as it was.
    """
    if rest:
        debugger.load(debugger.files.opened(*_paths(rest)))
    return _listed(debugger.files)


@command("core [RUN.etdp [BUFFER.bin]]", group=GROUP, words=("file",))
def core(debugger: Debugger, rest: str) -> Answer:
    """Load an ETDump, and the debug buffer of its run; or list the files."""
    if rest:
        debugger.load(debugger.files.opened(*_paths(rest)))
    return _listed(debugger.files)


def _paths(rest: str) -> list[str]:
    try:
        return [os.path.expanduser(word) for word in shlex.split(rest)]  # noqa: PTH111 (no error)
    except ValueError as error:
        raise UsageError(f"cannot read {rest!r}: {error}") from error


def _listed(files: Files) -> Answer:
    if not files.paths:
        return Answer().say("no files: file MODEL.etrecord, core RUN.etdp")
    return Answer().say(*(f"{what}: {path}" for what, path in files.paths))
