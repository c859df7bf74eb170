"""Tables and reports that commands write to standard output or a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from etscope.analysis.backend_files.placement import PlacedFile
    from etscope.analysis.profile.profile import MethodProfile, Row
    from etscope.analysis.profile.scale import Scale
    from etscope.analysis.profile.trace import Trace
    from etscope.analysis.work.limits import ProfileLimits
    from etscope.errors import MissingDataError
    from etscope.model.report import Report
    from etscope.model.selector import Fields
    from etscope.model.table import Table
    from etscope.units import TimeScale

__all__ = ["OutputOptions", "ViewOptions", "select_columns"]

# Returns the findings of a profile, in the form of `Finding.plain`.
Findings: TypeAlias = "Callable[[MethodProfile, Scale], tuple[dict[str, Any], ...]]"

_SCREEN_ROWS = 30  # rows of a table on a terminal: fits most screens
_FILE_ROWS = 40  # rows of a --with file in a text, without --limit
COLOR = {"auto": None, "always": True, "never": False}


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Values of `--format`, `--output` and `--color`.

    format: None: by the suffix of `output`, else a table. output: None or "-": standard output.
    """

    format: str | None = None
    output: Path | None = None
    color: str = "auto"

    @property
    def path(self) -> str:
        """The path to write to; "-" is standard output."""
        return "-" if self.output is None else str(self.output)

    @property
    def chosen_format(self) -> str:
        """The name of the format, one of `TABLE_VIEWS`."""
        from etscope.views import TABLE_VIEWS, format_of

        return self.format or format_of(self.path, TABLE_VIEWS, default="table")

    @property
    def is_text(self) -> bool:
        """True for formats for people, with several tables; False for formats for programs."""
        return self.chosen_format in ("table", "md", "html")

    @property
    def most_rows(self) -> int | None:
        """The limit without `--limit`: the rows of a screen on a terminal, else None for all."""
        is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: it is closed
        on_terminal = self.chosen_format == "table" and self.path == "-" and is_terminal
        return _SCREEN_ROWS if on_terminal else None

    def write_tables(
        self,
        tables: Sequence[Table],
        columns: Sequence[str] | None = None,
        default: Sequence[str] | None = None,
        phases: Table | None = None,
    ) -> None:
        """Write tables with the same columns: one below the other as text, joined into one for
        programs.

        columns: the columns to show. default: the columns that text shows without `columns`;
            programs get all.
        phases: a table on the phases of a language model's calls; text shows it before the others,
            JSON has it as a separate member.
        """
        from etscope.model.table import joined
        from etscope.views.tables.cells import plain_rows

        tables = select_columns(tables, columns, default if self.is_text else None)
        if not self.is_text:
            tables = [joined(tables)]
        if phases is not None and self.is_text:
            tables = [phases, *tables]
        elif phases is not None:
            keys = [column.key for column in phases.columns]
            rows = tuple(dict(zip(keys, row, strict=True)) for row in plain_rows(phases))
            tables = [replace(tables[0], phases=rows)]
        self._write(tables)

    def _write(self, tables: Sequence[Table]) -> None:
        from etscope.views import TABLE_VIEWS, write_table
        from etscope.views.output import open_output

        chosen = self.chosen_format
        with open_output(self.path, binary=TABLE_VIEWS[chosen].binary) as out:
            for position, table in enumerate(tables):
                if position:
                    out.write("\n")
                write_table(table, chosen, out, color=COLOR[self.color])

    def write_with_files(
        self, tables: Sequence[Table], placed: Sequence[PlacedFile], view: ViewOptions
    ) -> None:
        """Write tables of profiles, then tables of --with files; joined to one for programs.

        In a text, each table shows the requested columns that it has.
        """
        from etscope.analysis.backend_files.file_views import (
            file_table,
            for_readers,
            joined_tables,
        )

        if not self.is_text:
            everything = [file_table(one, view.limit) for one in placed]
            self.write_tables([joined_tables(tables, everything)], view.columns)
            return
        files = [file_table(one, view.limit or _FILE_ROWS) for one in placed]
        columns = view.columns
        if columns is not None:
            joined_tables(tables, files).select(columns)  # raises for an unknown column
        shown = _with_columns(tables, columns, view.default_columns(tables))
        for table in files:
            (named,) = _with_columns([table], columns, ())
            shown.append(for_readers(table) if named is table else named)
        self._write(shown)

    def write_reports(
        self,
        reports: Sequence[Report],
        schema: str,
        *,
        limit: int | None = None,
        text_limit: int | None = None,
    ) -> None:
        """Write reports; `schema` names the schema of the JSON document.

        limit: rows of each section to write; None: `text_limit` in a text, else all.
        """
        from etscope.model.report import limited
        from etscope.views import TABLE_VIEWS
        from etscope.views.output import open_output
        from etscope.views.tables.report import write_reports

        limit = text_limit if limit is None and self.is_text else limit
        if limit is not None:
            reports = [limited(report, limit) for report in reports]
        chosen = self.chosen_format
        with open_output(self.path, binary=TABLE_VIEWS[chosen].binary) as out:
            write_reports(reports, schema, chosen, out, color=COLOR[self.color])


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Values of `view_options`: the rows and columns of a profile to show.

    method: show only this method. source_unit: the unit of the runtime's clock.
    """

    by: str | None = None
    select: str | None = None
    columns: tuple[str, ...] | None = None
    sort: str | None = None
    limit: int | None = None
    unit: str | None = None
    work: bool = False
    peaks: str | None = None
    all_runs: bool = False
    method: str | None = None
    source_unit: str = "ns"

    @property
    def scale(self) -> Scale:
        """The scale from the runtime's clock to the times shown."""
        from etscope.analysis.profile.scale import Scale

        return Scale.of(self.source_unit, self.unit)

    def default_columns(self, tables: Sequence[Table]) -> list[str]:
        """The columns of a text without `--columns`."""
        from etscope.analysis.tables.profile_table import default_columns

        return default_columns(tables, self.by, work=self.work)

    @property
    def shows_work(self) -> bool:
        """True if a text has columns of the work, or is sorted by one."""
        from etscope.analysis.work.columns import NAMES, WORK_COLUMNS

        known = {*NAMES, *(column.title for column in WORK_COLUMNS)}
        sort = (self.sort or "").removeprefix("-")
        wanted = self.work or self.by == "bound" or sort in known or self._selected_work
        return bool(wanted) or not known.isdisjoint(self.columns or ())

    @property
    def _selected_work(self) -> frozenset[str]:
        """The columns of the work that `select` names."""
        from etscope.analysis.work.columns import NAMES

        return frozenset(NAMES) & _keys_of(self.select)

    @property
    def _needs_calibration(self) -> bool:
        """True if rows or columns need a calibration."""
        sort = (self.sort or "").removeprefix("-")
        asked = {sort, self.by, *self._selected_work}
        return not asked.isdisjoint(("peak", "bound"))

    def coverage(self, trace: Trace) -> list[Table]:
        """Return a table for each method with delegates: the share of their time with a line.

        Raises `UsageError` for options of the other tables, `MissingDataError` without delegate
        calls.
        """
        from etscope.analysis.tables.coverage import coverage_tables
        from etscope.capture.profiles import chosen_profiles
        from etscope.errors import UsageError

        given = {
            "--by": self.by,
            "--select": self.select,
            "--sort": self.sort,
            "--limit": self.limit,
            "--work": self.work or None,
            "-X peaks": self.peaks,
        }
        other = next((name for name, value in given.items() if value is not None), None)
        if other is not None:
            raise UsageError(f"{other} does not go with --coverage")
        chosen = chosen_profiles(trace, self.method)
        return coverage_tables(chosen, self.scale, has_record=trace.record is not None)

    def tables(
        self,
        trace: Trace,
        findings: Findings | None = None,
        *,
        for_programs: bool = False,
        most: int | None = None,
    ) -> list[Table]:
        """Return a table of each chosen method that ran, with all columns.

        findings: finds what matters in a profile. for_programs: with the columns of the work, also
        if nothing asks for them. most: rows of a table without `--limit`.

        Raises `MissingDataError` if no such method ran, or nothing matches `select`.
        """
        from etscope.analysis.tables.profile_table import (
            backend_columns,
            grouped_table,
            profile_table,
        )
        from etscope.analysis.work.columns import SORTED_BY
        from etscope.capture.profiles import chosen_profiles
        from etscope.errors import UsageError
        from etscope.model.table import with_same_columns

        if self.all_runs:
            trace = replace(trace, all_runs=True)
        chosen = chosen_profiles(trace, self.method)
        sort, limit = self.sort or "time", most if self.limit is None else self.limit
        if self.by is not None and sort.removeprefix("-") not in ("time", *SORTED_BY):
            raise UsageError(
                f"--sort {self.sort} does not go with --by: groups are sorted by time",
                hint="or by their work: " + ", ".join(SORTED_BY),
            )
        scale = self.scale
        if self.by is not None:  # a column of a backend may be in one method alone
            chosen = [one for one in chosen if self.by in backend_columns(one.rows)] or chosen
        known = self._limits(trace, chosen, scale.source, for_programs=for_programs)
        tables = []
        for profile, limits in zip(chosen, known, strict=True):
            options: dict[str, Any] = {"sort": sort, "limit": limit, "limits": limits}
            options["keep"] = row_filter(self.select, profile, limits)
            tables.append(
                profile_table(profile, scale, **options)
                if self.by is None
                else grouped_table(profile, scale, self.by, **options)
            )
        if self.limit is None and most is not None and max(len(p.leaves) for p in chosen) > most:
            tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, "-n 0 shows all rows."))
        tables = with_same_columns(tables)
        if findings is not None and self.by is None and self.select is None:
            tables = [
                replace(table, findings=findings(profile, scale))
                for table, profile in zip(tables, chosen, strict=True)
            ]
        matched = [table for table in tables if min(table.breaks) > 0]
        if self.select is not None and not matched:
            raise _nothing_selected(self.select, list(zip(chosen, known, strict=True)), scale)
        return matched or tables

    def _limits(
        self,
        trace: Trace,
        profiles: Sequence[MethodProfile],
        source: TimeScale,
        *,
        for_programs: bool,
    ) -> list[ProfileLimits | None]:
        """Return the work and the limits of each profile, or None if nothing asks for them.

        Raises `MissingDataError` if a text has columns of unknown work, or if a row or column needs
        a calibration that is missing.
        """
        if not self.shows_work and self.peaks is None and not for_programs:
            return [None] * len(profiles)
        from etscope.analysis.work.limits import profile_limits
        from etscope.analysis.work.roofline import choose_calibration
        from etscope.errors import MissingDataError

        calibration = choose_calibration(self.peaks, trace.saved_run)
        if calibration is None and self._needs_calibration:
            raise MissingDataError(
                "shares of the peak and limits need a calibration of the run's machine",
                hint="run etscope calibrate on that machine, or name a calibration: -X peaks=FILE",
            )
        found = [profile_limits(trace, profile, source, calibration) for profile in profiles]
        if (self.shows_work or self.peaks is not None) and not any(found):
            raise MissingDataError(
                "the FLOPs and bytes of the operators are unknown",
                hint="name the ETRecord or the program, too",
            )
        return found

    def phases(self, trace: Trace) -> Table | None:
        """Return the table of the phases of a language model's calls; None for other dumps, and
        with `select` or `columns`."""
        from etscope.analysis.generation.pace import phase_times, traced_phase_table
        from etscope.capture.profiles import chosen_profiles

        found = phase_times(chosen_profiles(trace, self.method))
        if not found or self.select is not None or self.columns is not None:
            return None
        return traced_phase_table(found, self.scale)


def _nothing_selected(
    select: str, profiles: Sequence[tuple[MethodProfile, ProfileLimits | None]], scale: Scale
) -> MissingDataError:
    """Return the error for a selector that matches no row of profiles."""
    from etscope.analysis.tables.profile_table import profile_table

    def again(keep: Callable[[Fields], bool]) -> None:
        for profile, limits in profiles:
            fields = partial(_row_fields, profile=profile, limits=limits)
            profile_table(profile, scale, keep=lambda row, of=fields: keep(of(row)))

    return nothing_selected(select, again)


def nothing_selected(
    select: str, again: Callable[[Callable[[Fields], bool]], object]
) -> MissingDataError:
    """Return the error for a selector that matches nothing. again: builds the tables once more with
    a test for rows, which collects the known names for the hint.
    """
    known: list[Fields] = []

    def collected(fields: Fields) -> bool:
        known.append(fields)
        return True

    again(collected)
    return nothing_matches(select, known)


def nothing_matches(select: str, known: Iterable[Fields]) -> MissingDataError:
    """Return the error for a selector that matches nothing of `known`."""
    from etscope.errors import MissingDataError
    from etscope.model.selector import meant

    hint = meant(select, known) or "leave out --select to see all rows"
    return MissingDataError(f"nothing matches {select!r}", hint=hint)


def row_filter(
    select: str | None,
    profile: MethodProfile | None = None,
    limits: ProfileLimits | None = None,
) -> Callable[[Row], bool] | None:
    """Return a function that tests whether a selector selects a profile's row; None without a
    selector.

    profile, limits: the rows' profile and limits, needed if the selector compares their numbers.
    Raises `UsageError` for a selector with numbers if they are missing.
    """
    if select is None:
        return None
    from etscope.model.selector import NUMBERS, Selector

    selector = Selector(select)
    compared = selector.keys.intersection((*NUMBERS, "bound"))
    if profile is None:
        check_numbers(select)
    if not compared or profile is None:
        from etscope.analysis.selector_fields import fields_of_row

        return lambda row: selector.matches(fields_of_row(row))
    return lambda row: selector.matches(_row_fields(row, profile, limits))


def check_numbers(select: str | None, known: Collection[str] = ()) -> None:
    """Raise `UsageError` for a selector with numbers or limits that the command does not have.
    known: numbers that it has."""
    from etscope.errors import UsageError
    from etscope.model.selector import NUMBERS

    unknown = _keys_of(select).intersection((*NUMBERS, "bound")).difference(known)
    if unknown:
        here = f"it can select by {', '.join(known)}; " if known else ""
        raise UsageError(
            f"this command cannot select by {' and '.join(sorted(unknown))}",
            hint=f"{here}etscope inspect can select by all numbers",
        )


def _row_fields(row: Row, profile: MethodProfile, limits: ProfileLimits | None) -> Fields:
    """Return the fields of a row, with its time and work."""
    from etscope.analysis.selector_fields import fields_of_row
    from etscope.analysis.work.columns import work_fields

    total = float(profile.total.mean())
    share = [str(float(row.ticks.mean()) / total)] if total and not row.own_clock else []
    return {**fields_of_row(row), **work_fields(limits, row), "share": share}


def _keys_of(select: str | None) -> frozenset[str]:
    """Return the keys and numbers of a selector."""
    from etscope.model.selector import Selector

    return frozenset() if select is None else Selector(select).keys


def _with_columns(
    tables: Sequence[Table], columns: Sequence[str] | None, default: Sequence[str]
) -> list[Table]:
    """Return the tables with the `columns` that they have; without any, with `default`; if that is
    empty, with all columns."""
    known = {name for table in tables for c in table.columns for name in (c.name, c.title)}
    wanted = [name for name in columns or () if name in known]
    return select_columns(tables, wanted or None, default or None)


def select_columns(
    tables: Sequence[Table], columns: Sequence[str] | None, default: Sequence[str] | None
) -> list[Table]:
    """Return the tables with `columns`, or else with `default` (None: all)."""
    shown = columns or default
    chosen = [table if shown is None else table.select(shown) for table in tables]
    if columns is None:
        return chosen
    # A narrow terminal drops columns of low priority, but not requested ones.
    return [
        replace(table, columns=tuple(replace(column, priority=0) for column in table.columns))
        for table in chosen
    ]
