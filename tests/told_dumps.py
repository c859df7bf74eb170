"""ETDumps of real programs with times that no machine has measured.

On a fast machine XNNPACK's events take 0 of the whole microseconds in which it counts, on a busy
one any event can take seconds: a test of what is done with times has them told.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from etscope.formats.etdump import EventKind, read_etdump
from etscope.formats.etdump_writer import ETDumpWriter

Ticks = npt.NDArray[np.int64]
Event = tuple[str, int, int, str | None]  # name, chain, instruction, id in the delegate


def told_dump(source: Path, target: Path, *, runs: int = 5) -> Path:
    """Write a dump of `runs` runs with the events of the last run of `source`; return its path.

    Each event takes some time: no two kernels the same, those of a delegate whole microseconds,
    and what calls them a little more than they do. The first run takes twice as long as the
    second, and each run after that 2 % more.
    """
    events = _last_run(source)
    starts, ends = _told(events)
    writer = ETDumpWriter()
    # Whole percents: what is inside of a span stays inside.
    for percent in (200, *(100 + 2 * run for run in range(runs - 1))):
        writer.create_event_block("Execute")
        times = zip(starts * percent // 100, ends * percent // 100, strict=True)
        for (name, chain, instruction, delegate), (start, end) in zip(events, times, strict=True):
            place = {"chain_index": chain, "instruction_id": instruction}
            if delegate is not None:
                writer.log_profiling_delegate(delegate, int(start), int(end), **place)
            else:
                writer.log_profiling(name, int(start), int(end), **place)
    writer.save(target)
    return target


def _last_run(source: Path) -> list[Event]:
    dump = read_etdump(source)
    rows = np.flatnonzero((dump.run == dump.num_runs - 1) & (dump.kind == EventKind.PROFILE))

    def text(string: int) -> str | None:
        return None if string < 0 else dump.strings[string]

    return [
        (
            text(dump.name[row]) or "",
            int(dump.chain_index[row]),
            int(dump.instruction_id[row]),
            text(dump.delegate_id_str[row]),
        )
        for row in rows.tolist()
    ]


def _told(events: list[Event]) -> tuple[Ticks, Ticks]:
    """Starts and ends in nanoseconds. What calls others is logged behind them."""
    starts, ends = np.zeros((2, len(events)), np.int64)
    clock = began = 0
    for at, (name, chain, _, delegate) in enumerate(events):
        if chain < 0:
            ends[at] = clock + 500
        elif name in ("OPERATOR_CALL", "DELEGATE_CALL"):
            starts[at], ends[at] = began, clock + 300
            clock = began = clock + 400
        else:
            starts[at] = clock + 100 if clock == began else clock
            took = 3000 + 10 * at if delegate is None else 1000 * (1 + at % 7)
            clock = ends[at] = starts[at] + took
    return starts, ends
