"""`etscope convert`: write the events of a run as a trace or a data file for other tools."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from etscope.cli.options.common import (
    ABOUT_RUN,
    ChosenCalls,
    GivenFiles,
    calls_options,
    placed_files,
    run_files_options,
    with_option,
)
from etscope.cli.output.tables import OutputOptions
from etscope.cli.verb import verb
from etscope.errors import UsageError

# Names of `etscope.views`, repeated because --help should not import views.
TRACES = ("perfetto", "chrome", "speedscope")
TABLES = ("csv", "tsv", "jsonl", "json", "parquet")


_DETAILS = """\
\b
.pftrace           Perfetto trace (ui.perfetto.dev)
.json              Chrome trace (with --format json: the event table)
.speedscope.json   flame graph (speedscope.app)
.parquet .csv .tsv .jsonl   the event table, one row for each event of each run

A trace has a track for each --with file that has times. For a language model, Perfetto and
Chrome traces have a first track with phases and tokens.
"""


@verb(
    {
        "File": ("--output", "--format", "--slim"),
        "Run": ("--calls", "--with"),
    },
    details=_DETAILS + ABOUT_RUN,
)
@run_files_options
@functools.partial(calls_options, statistics=False)
@with_option
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE", required=True,
              help="Write to FILE; - is standard output.")  # fmt: skip
@click.option("--format", "-f", type=click.Choice((*TRACES, *TABLES)),
              help="Output format. Default: from the suffix of FILE.")  # fmt: skip
@click.option(
    "--slim",
    is_flag=True,
    help="Write a small ETRecord: without weights, delegate data and program. It keeps graphs, "
    "source lines, modules, debug handles, maps and reference outputs, so that etscope inspect "
    "shows the same.",
)
def command(
    files: GivenFiles,
    calls: ChosenCalls,
    backend_files: tuple[str, ...],
    output: Path,
    format: str | None,
    slim: bool,
) -> None:
    """Write the events of RUN to a file for Perfetto, Chrome, speedscope, Parquet or CSV. Default:
    the last run.

    \b
    etscope convert -o trace.pftrace
    etscope convert @1 -o events.parquet
    etscope convert model.etrecord --slim -o small.etrecord
    """
    from etscope.cli.output.progress import progress
    from etscope.units import TimeScale
    from etscope.views import TABLE_VIEWS, TIMELINE_VIEWS, format_of, save_table, save_timeline

    if slim:
        _write_slim(files, output)
        return
    views = {name: TIMELINE_VIEWS[name] for name in TRACES}
    views |= {name: TABLE_VIEWS[name] for name in TABLES if name != "json"}
    chosen = format or format_of(output, views, default="jsonl")
    if backend_files and chosen not in TRACES:
        raise UsageError(
            f"--with is for traces, not for {chosen}",
            hint="etscope inspect --with FILE --format csv writes the rows of the files",
        )
    trace = calls.of(files.open())
    unit = TimeScale(files.source_unit)
    placed = placed_files(trace, backend_files, files.source_unit)
    with progress(f"writing {output}"):
        if chosen in TRACES:
            from etscope.analysis.backend_files.file_views import with_files
            from etscope.analysis.generation.traced import with_generation
            from etscope.analysis.profile.timeline import timeline

            spans = with_files(timeline(trace, unit), placed, unit)
            if chosen != "speedscope":  # it adds up all tracks
                spans = with_generation(spans, trace)
            save_timeline(spans, output, chosen)
        else:
            from etscope.analysis.profile.scale import Scale
            from etscope.analysis.profile.timeline import event_rows

            save_table(event_rows(trace, Scale(unit, unit)), output, chosen)


def _write_slim(files: GivenFiles, output: Path) -> None:
    """Write the ETRecord without the parts that attribution does not need."""
    from etscope.analysis.info.etrecord_info import slim_etrecord
    from etscope.cli.output.progress import progress
    from etscope.units import format_bytes

    given = Path(files.model)
    record = files.files.record if given.is_dir() else given
    if record is None:
        raise UsageError(f"{given} has no ETRecord", hint="name an ETRecord, or a run with one")
    if output.exists() and record.exists() and output.samefile(record):
        raise UsageError(f"input and output are the same file: {output}", hint="name another file")
    with progress(f"writing {output}"):
        result = slim_etrecord(record, output)
    click.echo(f"{record}: {format_bytes(result.before)}")
    click.echo(f"{output}: {format_bytes(result.after)}")
    table = result.table()
    if len(table):
        click.echo()
        OutputOptions(format="table").write_tables([table])
