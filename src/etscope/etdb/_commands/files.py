"""Which files and which run are looked at."""

from __future__ import annotations

import os
import shlex
from typing import Any

from etscope.errors import UsageError
from etscope.etdb._answer import Answer
from etscope.etdb._debugger import Debugger
from etscope.etdb._files import Files
from etscope.etdb._live import LiveTarget
from etscope.etdb._registry import command

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


@command("target live [INPUTS]|recorded", group="files", words=("live", "recorded"))
def target(debugger: Debugger, rest: str) -> Answer:
    """Choose what is walked: the reference in PyTorch (live), or the dump (recorded).

    A live run takes the record's inputs, or those of INPUTS (.npz, .npy, .safetensors, .pt). It
    stops anywhere, `set` exchanges a value, and what follows is computed from it.
    """
    word, _, path = rest.partition(" ")
    if not word:
        one = debugger.target
        return Answer().say("no target" if one is None else f"{one.kind}, {one.method or 'method'}")
    if word == "recorded":
        recorded = debugger.recorded_runs()
        debugger.begin(recorded)
        return Answer().say(f"{len(recorded.runs):,} recorded runs; run or start begins")
    if word != "live":
        raise UsageError(f"there is no target {word!r}", hint="targets are: live, recorded")
    inputs = _inputs(debugger, path.strip()) if path.strip() else None
    live: LiveTarget = debugger.go_live(inputs)
    return Answer().say(
        f"the reference of {live.method} in PyTorch, {len(live.stops):,} operators; "
        "run or start begins"
    )


def _inputs(debugger: Debugger, path: str) -> list[Any]:
    from etscope.formats.tensor_files import read_tensor_file

    return list(read_tensor_file(path).values)


def _paths(rest: str) -> list[str]:
    try:
        return [os.path.expanduser(word) for word in shlex.split(rest)]  # noqa: PTH111 (no error)
    except ValueError as error:
        raise UsageError(f"cannot read {rest!r}: {error}") from error


def _listed(files: Files) -> Answer:
    if not files.paths:
        return Answer().say("no files: file MODEL.etrecord, core RUN.etdp")
    return Answer().say(*(f"{what}: {path}" for what, path in files.paths))
