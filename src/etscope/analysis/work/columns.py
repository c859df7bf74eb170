"""Columns of tables that tell the work of rows, and the rates at which it was done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from etscope.analysis.profile.profile import Row
from etscope.analysis.profile.scale import Scale
from etscope.analysis.work.operation import Work
from etscope.analysis.work.profile_work import ProfileWork
from etscope.model.table import Column, Kind
from etscope.units import TimeScale

WORK_COLUMNS = (
    Column("flops", Kind.COUNT, title="FLOPs", priority=1),
    Column("bytes", Kind.BYTES, priority=2),
    Column("intensity", Kind.FLOAT, title="FLOP/B", priority=3),
    Column("gflops", Kind.FLOAT, title="GFLOP/s"),
    Column("gbps", Kind.FLOAT, title="GB/s"),
    Column("weight_bytes", Kind.BYTES, title="weights", priority=8),
    Column("activation_bytes", Kind.BYTES, title="activations", priority=8),
    Column("state_bytes", Kind.BYTES, title="state", priority=8),
    Column("inner_bytes", Kind.BYTES, title="inside", priority=8),
    Column("work_sizes", title="sizes", priority=8),
    Column("unknown_work", Kind.LIST, title="unknown work", priority=8),
)
NAMES = tuple(column.name for column in WORK_COLUMNS)
SHOWN = ("flops", "bytes", "intensity", "gflops", "gbps")
SORTED_BY = ("flops", "bytes", "intensity", "gflops", "gbps")  # columns of numbers
LARGEST = "largest"  # of `work_sizes`: no more than this

_SHOWN_OPERATORS = 6


def work_cells(work: ProfileWork | None, rows: Sequence[Row], scale: Scale) -> dict[str, Any]:
    """Return the cells of `WORK_COLUMNS` for rows together: the work of one run, the mean of all
    runs, and the rates in the time of the rows. None where nothing is known; rates of the largest
    sizes, and of what the events of a call leave, would say nothing."""
    found = None if work is None else work.of(rows)
    cells: dict[str, Any] = dict.fromkeys(NAMES)
    if work is None or found is None:
        return cells
    cells.update(plain_cells(found))
    is_rest = all(row.kind == "unaccounted" for row in rows)
    if is_rest or scale.source is TimeScale.CYCLES or found.is_bound:
        return cells
    if any(row.own_clock for row in rows):
        return cells
    ns = float(Scale(scale.source, TimeScale.NS)(work.ticks_of(rows)))
    if ns > 0:
        cells["gflops"] = None if found.known_flops is None else found.known_flops / ns
        cells["gbps"] = None if found.known_bytes is None else found.known_bytes / ns
    return cells


def plain_cells(work: Work) -> dict[str, Any]:
    """Return the cells that need no time."""
    traffic = work.traffic
    has_bytes = work.known_bytes is not None
    return {
        "flops": work.known_flops,
        "bytes": work.known_bytes,
        "intensity": work.intensity,
        "weight_bytes": traffic.weights if has_bytes else None,
        "activation_bytes": traffic.activations if has_bytes else None,
        "state_bytes": traffic.state if has_bytes else None,
        "inner_bytes": work.inner or None,
        "work_sizes": LARGEST if work.is_bound else "exact",
        "unknown_work": list(work.unknown),
    }


def sorted_by(
    work: ProfileWork | None, scale: Scale, name: str
) -> Callable[[Sequence[Row]], float]:
    """Return what rows are sorted by, largest first, for a column of `SORTED_BY`; rows of which it
    is not known come last."""

    def measure(rows: Sequence[Row]) -> float:
        value = work_cells(work, rows, scale)[name]
        return float("-inf") if value is None else float(value)

    return measure


def work_notes(work: ProfileWork | None) -> Iterator[str]:
    """Yield what a reader of the columns has to know; nothing without work."""
    if work is None:
        return
    yield (
        "FLOPs: a multiply-add is two. bytes: read and written; of a delegate's call what crosses "
        "its border, with its weights; of the events inside, what each reads and writes."
    )
    total = work.total
    if total.unknown:
        listed = ", ".join(total.unknown[:_SHOWN_OPERATORS])
        more = len(total.unknown) - _SHOWN_OPERATORS
        listed += f" and {more:,} more" if more > 0 else ""
        yield (
            f"The work of {listed} is not known: rows with {work.unknown_share:.1%} of the time "
            "are without it, or with a part of it."
        )
    if total.is_bound:
        yield (
            "Some sizes of the runs are not known: the work of these rows is that of the largest "
            "that the program allows, and has no rates."
        )


def work_columns(
    work: ProfileWork | None, groups: Sequence[Sequence[Row]], scale: Scale
) -> dict[Column, list[Any]]:
    """Return `WORK_COLUMNS` for groups of rows; none without work."""
    if work is None:
        return {}
    cells = [work_cells(work, rows, scale) for rows in groups]
    return {column: [one[column.name] for one in cells] for column in WORK_COLUMNS}
