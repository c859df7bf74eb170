"""`etscope slim`: write an ETRecord without weights, small enough to keep and to send."""

from __future__ import annotations

from pathlib import Path

import click

from etscope.cli.options.common import FILE
from etscope.cli.output.tables import OutputOptions


@click.command()
@click.argument("record", metavar="IN", type=FILE)
@click.argument("output", metavar="OUT", type=click.Path(dir_okay=False, path_type=Path))
def command(record: str, output: Path) -> None:
    """Write the ETRecord IN to OUT without weights, delegates' data and the program.

    Graphs with source lines, modules and debug handles, the maps, and reference outputs stay, so
    that events are attributed as before.
    """
    from etscope.analysis.info.slim import slim_etrecord
    from etscope.cli.output.progress import progress
    from etscope.errors import UsageError
    from etscope.units import format_bytes

    source = Path(record)
    if source.exists() and output.exists() and output.samefile(source):
        raise UsageError(f"IN and OUT are the same file: {output}", hint="name another file")
    with progress(f"writing {output}"):
        result = slim_etrecord(record, output)
    click.echo(f"{record}: {format_bytes(result.before)}")
    click.echo(f"{output}: {format_bytes(result.after)}")
    table = result.table()
    if len(table):
        click.echo()
        OutputOptions(format="table").write_tables([table])
