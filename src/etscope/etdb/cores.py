"""The files of a core: a dump, its debug buffer, and what ran, on which inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etscope.errors import EtscopeError, UsageError
from etscope.etdb.debugger import Debugger
from etscope.etdb.output import source_text
from etscope.etdb.protocol.messages import Core, RunnerDied
from etscope.etdb.targets.runtime import RuntimeTarget
from etscope.formats.bytes.files import atomic_write
from etscope.formats.program.pte import program_fingerprint
from etscope.formats.run_json import (
    CORE,
    encode_run_json,
    facts_path,
    inputs_sha256,
    inputs_to_save,
)
from etscope.formats.torch_files.tensor_files import suffix_for, write_tensor_file

_BUFFER_SUFFIX = ".bin"  # identifies a debug buffer


@dataclass(frozen=True, slots=True)
class CoreFiles:
    """The files of a core, by the path of its dump."""

    dump: Path

    @property
    def buffer(self) -> Path:
        """The path of the debug buffer."""
        beside = self.dump.with_suffix(_BUFFER_SUFFIX)
        same = beside == self.dump
        return self.dump.with_name(self.dump.name + _BUFFER_SUFFIX) if same else beside

    @property
    def exist(self) -> Path | None:
        """One that is there already."""
        files = (self.dump, self.buffer, facts_path(self.dump))
        return next((one for one in files if one.exists() or one.is_symlink()), None)

    def check_free(self) -> None:
        """Raise `UsageError` if one of them exists."""
        if self.exist is not None:
            raise UsageError(
                f"{self.exist} is there already", hint="give another name, or remove the file"
            )

    def write(self, debugger: Debugger, target: RuntimeTarget, core: Core) -> None:
        """Write a core of a run on the runtime, completely or not at all.

        Raises `UsageError` if the files cannot be written, or exist already."""
        self.check_free()
        calls = [*target.earlier_inputs((), None), target.inputs]
        facts = _facts(debugger, target, calls)
        with ExitStack() as files:
            named = inputs_to_save(calls)
            if named is not None:
                stem = facts_path(self.dump).with_suffix("").stem
                inputs = self.dump.with_name(f"{stem}.inputs{suffix_for(named.values())}")
                write_tensor_file(inputs, list(named.values()), list(named))
                facts["inputs"] = inputs.name
            for path, content in (
                (self.dump, core.etdump),
                (self.buffer, core.debug_buffer),
                (facts_path(self.dump), encode_run_json(facts)),
            ):
                files.enter_context(atomic_write(path)).write(content)


def _facts(
    debugger: Debugger, target: RuntimeTarget, calls: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    """The content of the run.json of a core. calls: the inputs of the runs that its state comes
    from, then its own."""
    last, files = len(calls) - 1, debugger.files
    facts: dict[str, Any] = {
        "runner": CORE,
        "debug_level": "intermediate_outputs",
        "failed": None if target.failure is None else target.failure.text,
        "calls": [
            {
                "method": target.method,
                "iterations": int(number == last),
                "warmup": int(number != last),
                "inputs_from": "given" if target.seed is None else f"seed {target.seed}",
                "inputs_sha256": inputs_sha256(inputs),
            }
            for number, inputs in enumerate(calls)
        ],
    }
    if debugger.program is not None:
        program = files.program or files.record
        facts["program"] = None if program is None else str(program.absolute())
        facts["program_sha256"] = program_fingerprint(debugger.program.source.buffer)
    if files.record is not None:
        facts["record"] = str(files.record.absolute())
        facts["record_sha256"] = program_fingerprint(files.record)
    return facts


def after_death(debugger: Debugger, error: RunnerDied) -> RunnerDied:
    """Extend the error of a run that killed its runner: write its core in the current folder."""
    target = debugger.on_runtime
    message = [error.message]
    stops = [] if target is None else target.stops
    lines = next((s.lines for s in stops if s.instruction == error.instruction), ())
    message += [f"  {source_text(line)}" for line in lines[:1]]
    try:
        if not isinstance(target, RuntimeTarget):
            raise UsageError("the runner is gone")
        core = error.core or target.core()
        first = f"etdb-core-{os.getpid()}"
        files, number = CoreFiles(Path(f"{first}.etdp")), 1
        while files.exist is not None:
            number += 1
            files = CoreFiles(Path(f"{first}-{number}.etdp"))
        files.write(debugger, target, core)
    except (EtscopeError, OSError) as why:
        message.append(f"  no core: {getattr(why, 'message', why)}")
        hint = "run begins anew; print and step repeat the run up to the stop before"
    else:
        message.append(f"  core: {files.dump} and {files.buffer}")
        hint = f"core {files.dump} {files.buffer}\n  looks into it; run begins anew"
    error.message, error.hint = "\n".join(message), hint
    return error
