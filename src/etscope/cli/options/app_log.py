"""Options for the log of the app that ran a language model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import Function, TraceOptions, as_one_parameter, file_option
from etscope.errors import UsageError
from etscope.units import TimeScale

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace
    from etscope.model.table import Table

app_log_option = file_option(
    "--app-log",
    help="Show the times of the app that ran the model beside the runtime's: a log with its line "
    "PyTorchObserver (standard output, logcat), or the JSON of a phone benchmark. - is standard "
    "input.",
)


@dataclass(frozen=True, slots=True)
class AppLogOptions:
    """Values of `app_log_options`. app_log: None without one; "-": standard input."""

    app_log: str | None = None
    keep_app_log: bool = False

    def read_beside(self, trace: Trace) -> Trace:
        """Return the trace with the app's report: of `--app-log`, or else the one that was kept.

        Raises the errors of reading the log, and `MismatchError` for one of another run.
        """
        if self.app_log is None:
            if self.keep_app_log:
                raise UsageError("--keep-app-log needs --app-log")
            return trace
        from etscope.formats.app_report import check_tokens, read_app_report

        report = read_app_report(self.app_log)
        saved = trace.saved_run
        if saved is not None and saved.generation is not None:
            check_tokens(report, *saved.generation.token_counts)
        return replace(trace, app=report)

    def tables(self, trace: Trace, files: TraceOptions, unit: str | None) -> list[Table]:
        """Return the times of the app, and those that `etscope generate` took around its calls,
        beside the runtime's; [] where neither is known. The report is kept if that was asked for.

        Raises `MismatchError` for the app's log of another run.
        """
        from etscope.formats.run_json import keep_app_report, saved_generation

        report, noted = trace.app_report, saved_generation(trace.dump.path)
        if report is None and noted is None:
            return []
        from etscope.analysis.generation.reconcile import (
            executions,
            reconcile_app,
            reconcile_calls,
            reconciliation_table,
        )

        clock = TimeScale(files.source_unit)
        # Of a generation that was stopped, the dump may have other calls than were noted.
        calls = None if noted is None else noted[1]
        if calls is not None and len(calls) != len(executions(trace, clock).ns):
            calls = None
        found = [] if calls is None else [reconcile_calls(trace, calls, clock)]
        if report is not None:
            found.append(reconcile_app(trace, report, clock, calls))
        if report is not None and self.keep_app_log:
            path = keep_app_report(trace.dump.path or "", report)
            click.echo(f"the app's report is kept in {path}", err=True)
        shown = TimeScale(unit or TimeScale.MS.value)
        return [reconciliation_table(one, shown, files.named) for one in found]


def app_log_options(function: Function) -> Function:
    """Add `--app-log --keep-app-log`: the parameter `app_log`, an `AppLogOptions`."""
    keep = click.option(
        "--keep-app-log",
        is_flag=True,
        help="Write what --app-log tells into the run.json of RUN.",
    )
    return as_one_parameter(function, "app_log", AppLogOptions, (app_log_option, keep))
