"""Which files and which run are looked at."""

from __future__ import annotations

import os
import shlex

from etscope.errors import UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._debugger import Debugger
from etscope.etdb._files import Files
from etscope.etdb.commands.registry import command

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
