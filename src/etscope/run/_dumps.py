"""What is done to a dump after its run: runs that only warmed up are taken out, the test cases that
ran are written in, and the debug buffer ends where its last tensor does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from etscope.errors import RuntimeFailure
from etscope.formats.etdump.logged_values import logged_values
from etscope.formats.etdump.reader import ETDump, read_etdump
from etscope.formats.etdump.writer import write_etdump
from etscope.run.job import Job

_EXECUTE = "Execute"  # the name of the block that the runtime opens for each execution


def finish_dump(path: Path, job: Job) -> ETDump:
    """Read the dump that a job wrote, and rewrite the file when it must say something else.

    Executions are known by their order: one run of that name each.
    """
    dump = read_etdump(path)
    executed = np.flatnonzero([dump.run_name_of(run) == _EXECUTE for run in range(dump.num_runs)])
    if len(executed) != job.executions:
        raise RuntimeFailure(
            f"the runtime wrote {len(executed)} runs for {job.executions} executions"
        )
    indices = dump.run_bundled_input_index.copy()
    kept = np.ones(dump.num_runs, bool)
    position = 0
    for call in job.calls:
        runs = executed[position : position + call.executions]
        kept[runs[: call.warmup]] = False
        indices[runs] = call.bundled_input_index
        position += call.executions
    if kept.all() and (indices == dump.run_bundled_input_index).all():
        return dump
    content = write_etdump(select_runs(replace(dump, run_bundled_input_index=indices), kept))
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)
    return read_etdump(path)


def select_runs(dump: ETDump, kept: npt.NDArray[np.bool_]) -> ETDump:
    """The dump with those runs only; `kept` is a mask over its runs."""
    events = kept[dump.run]
    columns = {name: getattr(dump, name)[events] for name in _EVENT_COLUMNS}
    counts = np.diff(dump.run_first_event)[kept]
    return replace(
        dump,
        **columns,
        run=np.repeat(np.arange(len(counts), dtype=dump.run.dtype), counts),
        run_name=dump.run_name[kept],
        run_bundled_input_index=dump.run_bundled_input_index[kept],
        run_first_event=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        run_allocators=tuple(a for a, keep in zip(dump.run_allocators, kept, strict=True) if keep),
    )


_EVENT_COLUMNS = (
    "kind",
    "name",
    "chain_index",
    "instruction_id",
    "delegate_id_int",
    "delegate_id_str",
    "start",
    "end",
    "metadata_offset",
    "metadata_length",
    "allocator_id",
    "allocation_size",
    "is_output",
    "debug_value_offset",
)


def trim_debug_buffer(path: Path, dump: ETDump) -> int:
    """Cut off what no tensor of the dump uses; the size that is left. An unused file is removed."""
    used = logged_values(dump).buffer_size
    if used == 0:
        path.unlink(missing_ok=True)
    else:
        os.truncate(path, used)
    return used
