"""Columns of tables for the work of rows and its rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from etscope.model.table import Column, Kind
from etscope.units import listed

# Every table of a profile needs the names of these columns; few need the work itself.
if TYPE_CHECKING:
    from etscope.analysis.profile.profile import Row
    from etscope.analysis.work.limits import ProfileLimits

WORK_COLUMNS = (
    Column("flops", Kind.COUNT, title="FLOPs", priority=1),
    Column("bytes", Kind.BYTES, priority=2),
    Column("intensity", Kind.FLOAT, title="FLOP/B", priority=3),
    Column("gflops", Kind.FLOAT, title="GFLOP/s"),
    Column("gbps", Kind.FLOAT, title="GB/s", priority=1),
    Column("peak", Kind.SHARE, title="peak"),
    Column("bound", is_sentence=True),
    Column("weight_bytes", Kind.BYTES, title="weights", priority=8),
    Column("activation_bytes", Kind.BYTES, title="activations", priority=8),
    Column("state_bytes", Kind.BYTES, title="state", priority=8),
    Column("inner_bytes", Kind.BYTES, title="inside", priority=8),
    Column("memory_level", title="level", priority=8),
    Column("number_types", Kind.LIST, title="computed in", priority=8),
    Column("work_sizes", title="sizes", priority=8),
    Column("unknown_work", Kind.LIST, title="unknown work", priority=8),
)
NAMES = tuple(column.name for column in WORK_COLUMNS)
SHOWN = ("flops", "bytes", "intensity", "gflops", "gbps", "peak", "bound")
CALIBRATED = ("peak", "bound", "memory_level")  # that need a calibration
SORTED_BY = ("flops", "bytes", "intensity", "gflops", "gbps", "peak")  # columns of numbers
LARGEST = "largest"  # of `work_sizes`: no more than this

_SHOWN_OPERATORS = 6  # of unknown work in a note; the others are counted


def work_cells(limits: ProfileLimits | None, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the cells of `WORK_COLUMNS` for rows together: the work of one run (the mean of all
    runs), and the rates in the time of the rows. Unknown cells are None. So are rates that would
    mislead: those for upper bounds of sizes, and for the rest of a delegate call.
    """
    cells: dict[str, Any] = dict.fromkeys(NAMES)
    if limits is None or not rows:
        return cells
    work, found = limits.work.of(rows), limits.of(rows)
    if work is not None:
        traffic, has_bytes = work.traffic, work.known_bytes is not None
        cells |= {
            "flops": work.known_flops,
            "bytes": work.known_bytes,
            "intensity": work.intensity,
            "weight_bytes": traffic.weights if has_bytes else None,
            "activation_bytes": traffic.activations if has_bytes else None,
            "state_bytes": traffic.state if has_bytes else None,
            "inner_bytes": work.inner or None,
            "number_types": [dtype for dtype, _ in work.dtypes],
            "work_sizes": LARGEST if work.is_bound else "exact",
            "unknown_work": list(work.unknown),
        }
    if found is not None:
        flops, moved = found.flop_per_s, found.bytes_per_s
        cells["gflops"] = None if flops is None else flops / 1e9
        cells["gbps"] = None if moved is None else moved / 1e9
        cells |= {"peak": found.share, "bound": found.bound, "memory_level": found.level}
    return cells


def work_fields(limits: ProfileLimits | None, row: Row) -> dict[str, list[str]]:
    """Return the fields of a row that a `Selector` compares: its numbers, and "bound"."""
    cells = work_cells(limits, [row])
    known = {name: cells[name] for name in (*SORTED_BY, "bound")}
    return {name: [str(value)] for name, value in known.items() if value is not None}


def bound_name(limits: ProfileLimits | None, row: Row) -> str:
    """Return the group of a row by what bounds it."""
    found = None if limits is None else limits.of([row])
    return "(not known)" if found is None or found.bound is None else found.bound


def sorted_by(limits: ProfileLimits | None, name: str) -> Callable[[Sequence[Row]], float]:
    """Return the sort key for a column of `SORTED_BY`, largest first; rows with an unknown value
    come last."""

    def measure(rows: Sequence[Row]) -> float:
        value = work_cells(limits, rows)[name]
        return float("-inf") if value is None else float(value)

    return measure


def work_notes(limits: ProfileLimits | None) -> Iterator[str]:
    """Yield what a reader of the columns has to know; nothing without work."""
    if limits is None:
        return
    from etscope.analysis.work.limits import calibration_notes

    work = limits.work
    yield (
        "FLOPs: a multiply-add is two. bytes: read and written; of a delegate's call what crosses "
        "its border, with its weights; of the events inside, what each reads and writes."
    )
    total = work.total
    if total.unknown:
        yield (
            f"The work of {listed(total.unknown, _SHOWN_OPERATORS)} is not known: rows with "
            f"{work.unknown_share:.1%} of the time are without it, or with a part of it."
        )
    if total.is_bound:
        yield (
            "Some sizes of the runs are not known: the work of these rows is for the largest sizes "
            "that the program allows, without rates."
        )
    yield from calibration_notes(limits)


def work_columns(
    limits: ProfileLimits | None, groups: Sequence[Sequence[Row]]
) -> dict[Column, list[Any]]:
    """Return `WORK_COLUMNS` for groups of rows; none without work."""
    if limits is None:
        return {}
    cells = [work_cells(limits, rows) for rows in groups]
    return {column: [one[column.name] for one in cells] for column in WORK_COLUMNS}
