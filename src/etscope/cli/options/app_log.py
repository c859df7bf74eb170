"""Options for the log of the app that ran a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from etscope.cli.options.common import Function, TraceOptions, as_one_parameter, file_option
from etscope.errors import MissingDataError, UsageError
from etscope.units import TimeScale

if TYPE_CHECKING:
    from etscope.analysis.profile.trace import Trace
    from etscope.formats.app_report import AppReport
    from etscope.formats.generation import Generation
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

    def tables(self, trace: Trace, files: TraceOptions, unit: str | None) -> list[Table]:
        """Return the times of the app, and those that `etscope generate` took around its calls,
        beside the runtime's; [] where neither is known.

        Raises the errors of reading the log, and `MismatchError` for one of another run.
        """
        if self.keep_app_log and self.app_log is None:
            raise UsageError("--keep-app-log needs --app-log")
        saved = trace.saved_run
        generation = None if saved is None else saved.generation
        report = self._report(generation)
        if report is None and (generation is None or not generation.passes):
            return []
        from etscope.analysis.generation.reconcile import (
            reconcile_app,
            reconcile_calls,
            reconciliation_table,
        )
        from etscope.formats.run_json import keep_app_report, saved_generation
        from etscope.model.finding import Files

        clock = TimeScale(files.source_unit)
        known = saved_generation(trace.dump.path)
        calls = None if known is None else known[1]
        found = [] if calls is None else [reconcile_calls(trace, calls, clock)]
        if report is not None:
            found.append(reconcile_app(trace, report, clock, calls))
            if self.keep_app_log:
                path = keep_app_report(files.dump, report)
                click.echo(f"the app's report is kept in {path}", err=True)
        given = Files(files.dump, files.etrecord, files.program, files.debug_buffer)
        shown = TimeScale(unit or TimeScale.MS.value)
        return [reconciliation_table(one, shown, given) for one in found]

    def _report(self, generation: Generation | None) -> AppReport | None:
        """The report of `--app-log`, or else the one that was kept."""
        from etscope.formats.app_report import check_tokens, parse_app_report, read_app_report

        kept = None if generation is None or generation.app is None else generation.app
        if self.app_log is None and kept is None:
            return None
        report = parse_app_report(kept) if self.app_log is None else read_app_report(self.app_log)
        if not report.generations and not report.metrics:
            raise MissingDataError("the app's report is empty")
        if generation is not None:
            tokens = (len(generation.prompt_tokens), len(generation.generated_tokens))
            check_tokens(report, *(count or None for count in tokens))
        return report


def app_log_options(function: Function) -> Function:
    """Add `--app-log --keep-app-log`: the parameter `app_log`, an `AppLogOptions`."""
    keep = click.option(
        "--keep-app-log",
        is_flag=True,
        help="Write what --app-log tells into the run.json beside DUMP.",
    )
    return as_one_parameter(function, "app_log", AppLogOptions, (app_log_option, keep))
