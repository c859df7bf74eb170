"""A run on the runtime, kept as the files that `core` and the Inspector open."""

from __future__ import annotations

import os
from pathlib import Path

from etscope.errors import UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._cores import buffer_path, write_core
from etscope.etdb._debugger import Debugger
from etscope.etdb.commands.registry import command
from etscope.units import format_bytes


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
