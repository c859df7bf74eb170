"""ETDumps of real programs with times as a test wants them: the events are those of a real run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from etscope.formats.etdump.reader import ETDump, EventKind, read_etdump
from etscope.formats.etdump.writer import ETDumpWriter

Ticks = npt.NDArray[np.int64]
Event = tuple[str, int, int, int | str | None]  # name, instruction, chain, id in the delegate


def timed_dump(
    source: Path,
    target: Path,
    *,
    runs: int = 60,
    seed: int = 0,
    sigma: float = 0.02,
    slower: Mapping[int, float] | None = None,
    first: float = 1.5,
    disturbed: Mapping[int, float] | None = None,
) -> Path:
    """Write a dump of `runs` runs like the quietest run of `source`, and return its path.

    sigma: of the log-normal noise of each instruction. slower: factors on the times of
    instructions, with all that was logged inside them. first: that of the first run; disturbed:
    those of others, by number.
    """
    starts, ends, events = _quietest_run(source)
    instructions = np.array([event[1] if event[2] >= 0 else -1 for event in events])
    writer = ETDumpWriter()
    _log(writer, events, starts, ends)
    random = np.random.default_rng(seed)
    factors = {**(disturbed or {}), 0: first}
    made = [
        _noisy(starts, ends, instructions, random, sigma, slower or {}, factors.get(run, 1.0))
        for run in range(runs)
    ]
    # The block itself is a run, too: the first of all.
    writer.repeat_block(np.array([m[0] for m in made]), np.array([m[1] for m in made]))
    writer.save(target)
    return target


def generated_dump(
    source: Path,
    target: Path,
    tokens: Sequence[int],
    *,
    growing: Mapping[int, float] | None = None,
    disturbed: Mapping[int, float] | None = None,
    seed: int = 0,
    sigma: float = 0.02,
) -> Path:
    """Write a dump of calls of so many tokens each, like the quietest run of `source`, which has
    one token; return its path.

    A call of several tokens takes longer by 6 % for each of them, in every instruction. growing:
    instructions that take so many ns longer for each token that came before the call's. disturbed:
    factors on the times of calls, by number. sigma: of the noise of each instruction; one call in
    50 is interrupted in one of them, for a millisecond.
    """
    starts, ends, events = _quietest_run(source)
    starts, ends = starts * 10, ends * 10  # the clock of a slow device: enough to divide
    instructions = np.array([event[1] if event[2] >= 0 else -1 for event in events])
    length = {n: _span(starts, ends, instructions == n) for n in set(instructions.tolist()) - {-1}}
    random = np.random.default_rng(seed)
    writer = ETDumpWriter()
    position = 0
    for number, count in enumerate(tokens):
        factor = (disturbed or {}).get(number, 1.0) * (1 + 0.06 * (count - 1))
        slower = {n: 1 + slope * position / length[n] for n, slope in (growing or {}).items()}
        if random.random() < 0.02:
            n = int(random.choice(list(length)))
            slower[n] = slower.get(n, 1.0) + 1e6 / length[n]
        times = starts, ends, instructions
        _log(writer, events, *_noisy(*times, random, sigma, slower, factor))
        position += count
    writer.save(target)
    return target


def _span(starts: Ticks, ends: Ticks, mine: npt.NDArray[np.bool_]) -> int:
    return max(int(ends[mine].max() - starts[mine].min()), 1)


def told_dump(source: Path, target: Path, *, runs: int = 5) -> Path:
    """Write a dump of `runs` runs with the events of the last run of `source` and times that no
    machine has measured; return its path.

    On a fast machine XNNPACK's events take 0 of the whole microseconds in which it counts, on a
    busy one any event can take seconds: a test of what is done with times has them told. Each event
    takes some time: no two kernels the same, those of a delegate whole microseconds, and what calls
    them a little more than they do. The first run takes twice as long as the second, and each run
    after that 2 % more.
    """
    dump = read_etdump(source)
    events = _events(dump, _rows_of_runs(dump)[-1])
    starts, ends = _told(events)
    writer = ETDumpWriter()
    # Whole percents: what is inside of a span stays inside.
    for percent in (200, *(100 + 2 * run for run in range(runs - 1))):
        _log(writer, events, starts * percent // 100, ends * percent // 100)
    writer.save(target)
    return target


def _quietest_run(source: Path) -> tuple[Ticks, Ticks, list[Event]]:
    """That which took the least time: in each of the others the machine may have had something else
    to do in the middle of any instruction, for longer than all instructions take."""
    dump = read_etdump(source)
    runs = _rows_of_runs(dump)
    alike = [rows for rows in runs if len(rows) == len(runs[-1])]
    rows = min(alike, key=lambda rows: dump.end[rows].max() - dump.start[rows].min())
    start, end = dump.start[rows].astype(np.int64), dump.end[rows].astype(np.int64)
    return start - start.min(), end - start.min(), _events(dump, rows)


def _rows_of_runs(dump: ETDump) -> list[npt.NDArray[np.intp]]:
    """The rows of each run's profile events."""
    timed = dump.kind == EventKind.PROFILE
    return [np.flatnonzero(timed & (dump.run == run)) for run in range(dump.num_runs)]


def _events(dump: ETDump, rows: npt.NDArray[np.intp]) -> list[Event]:
    events: list[Event] = []
    for row in rows.tolist():
        delegate: int | str | None = None
        if dump.delegate_id_int[row] >= 0:
            delegate = int(dump.delegate_id_int[row])
        elif dump.delegate_id_str[row] >= 0:
            delegate = dump.strings[dump.delegate_id_str[row]]
        name = "" if dump.name[row] < 0 else dump.strings[dump.name[row]]
        events.append((name, int(dump.instruction_id[row]), int(dump.chain_index[row]), delegate))
    return events


def _log(writer: ETDumpWriter, events: list[Event], starts: Ticks, ends: Ticks) -> None:
    """Write a run in a block of its own."""
    writer.create_event_block("Execute")
    for (name, instruction, chain, delegate), start, end in zip(events, starts, ends, strict=True):
        place = {"chain_index": chain, "instruction_id": instruction}
        if delegate is not None:
            writer.log_profiling_delegate(delegate, int(start), int(end), **place)
        else:
            writer.log_profiling(name, int(start), int(end), **place)


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


def _told(events: list[Event]) -> tuple[Ticks, Ticks]:
    """Starts and ends in nanoseconds. What calls others is logged behind them."""
    starts, ends = np.zeros((2, len(events)), np.int64)
    clock = began = 0
    for at, (name, _, chain, delegate) in enumerate(events):
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
