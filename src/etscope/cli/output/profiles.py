"""The tables that `inspect` shows of a trace, for the verbs that end with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from etscope.analysis.profile.profile import MethodProfile, Row
    from etscope.analysis.profile.trace import Trace
    from etscope.model.table import Table

GROUPINGS = ("op", "type", "module", "source", "delegate")


def profile_tables(
    trace: Trace,
    source_unit: str = "ns",
    *,
    by: str | None = None,
    select: str | None = None,
    method: str | None = None,
    sort: str | None = None,
    limit: int | None = None,
    unit: str | None = None,
) -> list[Table]:
    """The table of each method that ran, or of `method` only; see the options of `inspect`."""
    tables = [
        _table(profile, source_unit, by, select, sort, limit, unit)
        for profile in _chosen(trace.profiles(), method)
    ]
    return tables if limit == 0 else _not_empty(tables, select)


@dataclass(frozen=True, slots=True)
class EventsView:
    """What of the events is shown, by the options of a verb."""

    by: str | None
    select: str | None
    columns: tuple[str, ...] | None
    sort: str | None
    limit: int | None
    unit: str | None

    def tables(self, trace: Trace, people: bool) -> list[Table]:
        """The tables of a trace, with the columns for people or for programs."""
        from etscope.cli.output.output import select_columns

        tables = profile_tables(
            trace,
            by=self.by,
            select=self.select,
            sort=self.sort,
            limit=self.limit,
            unit=self.unit,
        )
        return select_columns(tables, self.columns, default_columns(self.by) if people else None)


def default_columns(by: str | None) -> tuple[str, ...] | None:
    """What is shown when nobody asked for columns; None for all."""
    if by is not None:
        return None
    from etscope.analysis.profile.profile_table import DEFAULT_COLUMNS

    return DEFAULT_COLUMNS


def _chosen(profiles: list[MethodProfile], method: str | None) -> list[MethodProfile]:
    from etscope.errors import MissingDataError

    chosen = [profile for profile in profiles if method in (None, profile.method)]
    if not chosen:
        known = [profile.method for profile in profiles if profile.method is not None]
        raise MissingDataError(
            f"no run of a method {method!r}" if profiles else "no run of any method in this dump",
            hint=f"methods that ran: {', '.join(known)}"
            if known
            else "which method ran is known with --etrecord or --program"
            if profiles
            else "the dump holds no Method::execute event: run a method with the tracer on",
        )
    return chosen


def _table(
    profile: MethodProfile,
    source_unit: str,
    by: str | None,
    select: str | None,
    sort: str | None,
    limit: int | None,
    unit: str | None,
) -> Table:
    from etscope.analysis.profile.profile_table import grouped_table, profile_table
    from etscope.analysis.profile.scale import Scale
    from etscope.errors import UsageError
    from etscope.units import TimeScale

    scale = Scale(TimeScale(source_unit), TimeScale(unit or _default_unit(source_unit)))
    keep = _keep(select)
    if by is None:
        return profile_table(profile, scale, sort=sort or "time", keep=keep, limit=limit)
    if sort not in (None, "time"):
        raise UsageError(f"--sort {sort} does not go with --by: groups are sorted by time")
    return grouped_table(profile, scale, by, keep=keep, limit=limit)


def _default_unit(source_unit: str) -> str:
    return "cycles" if source_unit == "cycles" else "ms"


def _keep(select: str | None) -> Callable[[Row], bool] | None:
    if select is None:
        return None
    from etscope.analysis.selector_fields import fields_of_row
    from etscope.model.selector import Selector

    selector = Selector(select)
    return lambda row: selector.matches(fields_of_row(row))


def _not_empty(tables: list[Table], select: str | None) -> list[Table]:
    """The tables in which something was selected. Nothing matched is never a result."""
    from etscope.errors import MissingDataError

    found = [table for table in tables if min(table.breaks) > 0]
    if select is not None and not found:
        raise MissingDataError(
            f"nothing matches {select!r}", hint="without --select all rows are shown"
        )
    return found or tables
