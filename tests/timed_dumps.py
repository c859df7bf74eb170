"""ETDumps of real programs with times as a test wants them: the events are those of a real run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from etscope.formats.etdump import EventKind, read_etdump
from etscope.formats.etdump_writer import ETDumpWriter

Ticks = npt.NDArray[np.int64]


def timed_dump(
    source: Path,
    target: Path,
    *,
    runs: int = 60,
    seed: int = 0,
    sigma: float = 0.02,
    slower: Mapping[int, float] | None = None,
    first: float = 1.5,
) -> Path:
    """Write a dump of `runs` runs like the quietest run of `source`, and return its path.

    sigma: of the log-normal noise of each instruction. slower: factors on the times of
    instructions, with all that was logged inside them. first: that of the first run.
    """
    starts, ends, events = _quietest_run(source)
    instructions = np.array([event[1] if event[2] >= 0 else -1 for event in events])
    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    for (name, instruction, chain, delegate), start, end in zip(events, starts, ends, strict=True):
        place = {"chain_index": chain, "instruction_id": instruction}
        if delegate is not None:
            writer.log_profiling_delegate(delegate, int(start), int(end), **place)
        else:
            writer.log_profiling(name, int(start), int(end), **place)
    random = np.random.default_rng(seed)
    made = [
        _noisy(starts, ends, instructions, random, sigma, slower or {}, first if run == 0 else 1.0)
        for run in range(runs)
    ]
    # The block itself is a run, too: the first of all.
    writer.repeat_block(np.array([m[0] for m in made]), np.array([m[1] for m in made]))
    writer.save(target)
    return target


def _quietest_run(
    source: Path,
) -> tuple[Ticks, Ticks, list[tuple[str, int, int, int | str | None]]]:
    """That which took the least time: in each of the others the machine may have had something else
    to do in the middle of any instruction, for longer than all instructions take."""
    dump = read_etdump(source)
    timed = dump.kind == EventKind.PROFILE
    runs = [np.flatnonzero(timed & (dump.run == run)) for run in range(dump.num_runs)]
    alike = [rows for rows in runs if len(rows) == len(runs[-1])]
    rows = min(alike, key=lambda rows: dump.end[rows].max() - dump.start[rows].min())
    start, end = dump.start[rows].astype(np.int64), dump.end[rows].astype(np.int64)
    events: list[tuple[str, int, int, int | str | None]] = []
    for row in rows.tolist():
        delegate: int | str | None = None
        if dump.delegate_id_int[row] >= 0:
            delegate = int(dump.delegate_id_int[row])
        elif dump.delegate_id_str[row] >= 0:
            delegate = dump.strings[dump.delegate_id_str[row]]
        name = "" if dump.name[row] < 0 else dump.strings[dump.name[row]]
        events.append((name, int(dump.instruction_id[row]), int(dump.chain_index[row]), delegate))
    return start - start.min(), end - start.min(), events


def _noisy(
    starts: Ticks,
    ends: Ticks,
    instructions: Ticks,
    random: np.random.Generator,
    sigma: float,
    slower: Mapping[int, float],
    all_of: float,
) -> tuple[Ticks, Ticks]:
    """The run with each instruction stretched, and what follows moved by as much."""
    new_starts, new_ends = starts.copy(), ends.copy()
    later = np.zeros_like(starts)
    for instruction in np.unique(instructions[instructions >= 0]).tolist():
        mine = instructions == instruction
        begin, end = starts[mine].min(), ends[mine].max()
        factor = all_of * slower.get(instruction, 1.0) * random.lognormal(0, sigma)
        moved = later[mine]
        new_starts[mine] = begin + (factor * (starts[mine] - begin)).astype(np.int64) + moved
        new_ends[mine] = begin + (factor * (ends[mine] - begin)).astype(np.int64) + moved
        longer = int(factor * (end - begin)) - (end - begin)
        later[starts >= end] += longer
        outside = (instructions < 0) & (starts <= begin) & (ends >= end)
        new_ends[outside] += longer
    return new_starts, new_ends
