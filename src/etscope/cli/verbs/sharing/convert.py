"""`etscope convert`: write a dump's events as a trace or a data file for other tools."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from etscope.cli.options.common import (
    ChosenCalls,
    TraceOptions,
    calls_options,
    placed_files,
    trace_options,
    with_option,
)
from etscope.errors import UsageError

# Names from the registries of `etscope.views`, repeated so that --help imports no view.
TRACES = ("perfetto", "chrome", "speedscope")
TABLES = ("csv", "tsv", "jsonl", "json", "parquet")


@click.command()
@trace_options
@functools.partial(calls_options, statistics=False)
@with_option
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE", required=True,
              help="Write to FILE; - is standard output.")  # fmt: skip
@click.option("--format", "-f", type=click.Choice((*TRACES, *TABLES)),
              help="Output format. Default: by the suffix of FILE.")  # fmt: skip
def command(
    files: TraceOptions,
    calls: ChosenCalls,
    backend_files: tuple[str, ...],
    output: Path,
    format: str | None,
) -> None:
    """Write every event of RUN to a file for other tools.

    \b
    .pftrace           Perfetto trace (ui.perfetto.dev)
    .json              Chrome trace (with --format json: the event table)
    .speedscope.json   flame graph (speedscope.app)
    .parquet .csv .tsv .jsonl   the event table, one row for each event of each run

    A trace has a track for each file of --with whose times can be drawn. Of a language model's run
    a Perfetto or Chrome trace has the phases and tokens on a track above the others.
    """
    from etscope.cli.output.progress import progress
    from etscope.units import TimeScale
    from etscope.views import TABLE_VIEWS, TIMELINE_VIEWS, format_of, save_table, save_timeline

    views = {name: TIMELINE_VIEWS[name] for name in TRACES}
    views |= {name: TABLE_VIEWS[name] for name in TABLES if name != "json"}
    chosen = format or format_of(output, views, default="jsonl")
    if backend_files and chosen not in TRACES:
        raise UsageError(
            f"--with is for traces, not for {chosen}: the table has the dump's events",
            hint="etscope inspect --with FILE --format csv|json has the rows of the files",
        )
    trace = calls.of(files.open())
    unit = TimeScale(files.source_unit)
    placed = placed_files(trace, backend_files, files.source_unit)
    with progress(f"writing {output}"):
        if chosen in TRACES:
            from etscope.analysis.delegates.imported_timeline import with_files
            from etscope.analysis.generation.spans import with_generation
            from etscope.analysis.profile.timeline import timeline

            spans = with_files(timeline(trace, unit), placed, unit)
            if chosen != "speedscope":  # which adds up what stands on all tracks
                spans = with_generation(spans, trace)
            save_timeline(spans, output, chosen)
        else:
            from etscope.analysis.profile.scale import Scale
            from etscope.analysis.profile.timeline import event_rows

            save_table(event_rows(trace, Scale(unit, unit)), output, chosen)
